"""Receivers of notifications."""

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0020"


def upgrade() -> None:
    op.create_table(
        "receiver",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("tenant", sa.String(), nullable=True),
        sa.Column("receiver", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(
            ["tenant"], ["tenant.name"], name=op.f("fk_receiver_tenant_tenant"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_receiver")),
    )
    with op.batch_alter_table("receiver") as table:
        table.create_index(op.f("ix_receiver_tenant"), ["tenant"], unique=False)
