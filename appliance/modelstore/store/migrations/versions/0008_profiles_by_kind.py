"""A variant is measured on each kind of processor that the box has."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    with op.batch_alter_table("variant") as table:
        table.add_column(sa.Column("other_profiles", sa.JSON(), nullable=False, server_default="[]"))
