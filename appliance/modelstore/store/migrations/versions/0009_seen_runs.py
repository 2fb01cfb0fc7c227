"""What runs were seen to take is kept."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    op.create_table(
        "seen_runs",
        sa.Column("build_id", sa.String(), nullable=False),
        sa.Column("shape", sa.String(), nullable=False),
        sa.Column("content_sha256", sa.String(), nullable=False),
        sa.Column("tenant", sa.String(), nullable=True),
        sa.Column("fingerprint", sa.String(), nullable=False),
        sa.Column("latencies", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(
            ["content_sha256"], ["blob.sha256"], name=op.f("fk_seen_runs_content_sha256_blob"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["tenant"], ["tenant.name"], name=op.f("fk_seen_runs_tenant_tenant"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("build_id", "shape", name=op.f("pk_seen_runs")),
    )
    with op.batch_alter_table("seen_runs") as table:
        table.create_index(table.f("ix_seen_runs_content_sha256"), ["content_sha256"], unique=False)
        table.create_index(table.f("ix_seen_runs_tenant"), ["tenant"], unique=False)
