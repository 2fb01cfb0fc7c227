"""A variant may be cut into parts, for kinds of processors that do not run all of it."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    with op.batch_alter_table("variant") as table:
        table.add_column(sa.Column("cut", sa.JSON(), nullable=True))
