"""Which variant answers a request that names none is the application's to prefer."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    with op.batch_alter_table("application") as table:
        table.add_column(sa.Column("prefer", sa.String(), nullable=False, server_default="balanced"))
