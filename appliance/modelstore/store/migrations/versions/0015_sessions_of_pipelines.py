"""Sessions name an application or a pipeline."""

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"


def upgrade() -> None:
    op.add_column("session", sa.Column("pipeline_id", sa.String(), nullable=False, server_default=""))
