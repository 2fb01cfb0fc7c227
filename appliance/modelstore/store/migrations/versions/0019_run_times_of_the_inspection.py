"""Store the run time at inspection, by which a variant serves promises until it is measured."""

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"


def upgrade() -> None:
    with op.batch_alter_table("variant") as table:
        table.add_column(sa.Column("inspected_ms", sa.Float(), nullable=True))
