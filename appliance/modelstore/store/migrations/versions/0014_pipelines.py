"""Pipelines, the applications that they ask, and keys that name them."""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"


def upgrade() -> None:
    op.create_table(
        "pipeline",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("tenant", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("latency_slo_ms", sa.Float(), nullable=False),
        sa.Column("stages", sa.JSON(), nullable=False),
        sa.Column("cost_by", sa.String(), nullable=False),
        sa.Column("weight", sa.Float(), nullable=False),
        sa.ForeignKeyConstraint(["tenant"], ["tenant.name"], name="fk_pipeline_tenant_tenant", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name="pk_pipeline"),
        sa.UniqueConstraint("tenant", "name", name="uq_pipeline_tenant"),
    )
    op.create_table(
        "pipeline_use",
        sa.Column("pipeline_id", sa.String(), nullable=False),
        sa.Column("application_id", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(
            ["pipeline_id"], ["pipeline.id"], name="fk_pipeline_use_pipeline_id_pipeline", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("pipeline_id", "application_id", name="pk_pipeline_use"),
    )
    op.create_index("ix_pipeline_use_application_id", "pipeline_use", ["application_id"])
    op.add_column("access_key", sa.Column("pipelines", sa.JSON(), nullable=False, server_default="[]"))
