"""Whether variants that only noise was tried on may be chosen is the application's to say; by default they are not."""

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"


def upgrade() -> None:
    with op.batch_alter_table("application") as table:
        table.add_column(sa.Column("unverified", sa.String(), nullable=False, server_default="never"))
