"""How inputs of a variant may be made larger is kept."""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    with op.batch_alter_table("variant") as table:
        table.add_column(sa.Column("padding", sa.JSON(), nullable=True))
