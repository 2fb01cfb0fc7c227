"""What becomes of an application's requests at their deadline is the application's to say."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    with op.batch_alter_table("application") as table:
        table.add_column(sa.Column("late", sa.String(), nullable=False, server_default="drop"))
