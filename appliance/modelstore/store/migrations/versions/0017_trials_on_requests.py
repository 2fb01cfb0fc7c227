"""Whether unverified variants are tried on an application's requests is the application's to say; by default they are."""

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"


def upgrade() -> None:
    with op.batch_alter_table("application") as table:
        table.add_column(sa.Column("verify", sa.String(), nullable=False, server_default="on"))
