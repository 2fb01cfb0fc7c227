"""Store which keys may look at the frames of a tenant on the live wall; none by default."""

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"


def upgrade() -> None:
    with op.batch_alter_table("tenant") as table:
        table.add_column(sa.Column("wall", sa.String(), nullable=False, server_default="nobody"))
