"""Which variant computes what the tenant uploaded is stored: it was the one called fp32, also of an FP16 network."""

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"


def upgrade() -> None:
    with op.batch_alter_table("variant") as table:
        table.add_column(sa.Column("is_original", sa.Boolean(), nullable=False, server_default=sa.false()))
    op.execute("UPDATE variant SET is_original = 1 WHERE name = 'fp32' AND precision = 'fp32'")
