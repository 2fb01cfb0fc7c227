"""Who changed what, and when keys were used last."""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"


def upgrade() -> None:
    op.create_table(
        "audit",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("at", sa.Text(), nullable=False),
        sa.Column("tenant", sa.String(), nullable=False),
        sa.Column("owner", sa.String(), nullable=True),
        sa.Column("part", sa.String(), nullable=False),
        sa.Column("action", sa.String(), nullable=False),
        sa.Column("method", sa.String(), nullable=False),
        sa.Column("path", sa.String(), nullable=False),
        sa.Column("subject", sa.String(), nullable=False),
        sa.Column("change", sa.JSON(), nullable=True),
        sa.Column("actor", sa.JSON(), nullable=True),
        sa.Column("address", sa.String(), nullable=False),
        sa.Column("outcome", sa.String(), nullable=False),
        sa.Column("times", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["owner"], ["tenant.name"], name="fk_audit_owner_tenant", ondelete="SET NULL"),
        sa.PrimaryKeyConstraint("id", name="pk_audit"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_audit_owner", "audit", ["owner"])
    op.create_index("ix_audit_part", "audit", ["part"])
    op.create_table(
        "key_use",
        sa.Column("key_id", sa.String(), nullable=False),
        sa.Column("used_at", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["key_id"], ["access_key.id"], name="fk_key_use_key_id_access_key", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("key_id", name="pk_key_use"),
    )
