"""The first shape of the store."""

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "blob",
        sa.Column("sha256", sa.String(), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("modified_ns", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("sha256", name=op.f("pk_blob")),
    )
    op.create_table(
        "decision",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("at", sa.Text(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("application", sa.String(), nullable=True),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_decision")),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "resident",
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("build_id", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("position", name=op.f("pk_resident")),
    )
    op.create_table(
        "tenant",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("quota", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_tenant")),
    )
    op.create_table(
        "access_key",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("tenant", sa.String(), nullable=False),
        sa.Column("role", sa.String(), nullable=False),
        sa.Column("sha256", sa.LargeBinary(), nullable=False),
        sa.Column("applications", sa.JSON(), nullable=False),
        sa.Column("pipelines", sa.JSON(), server_default="[]", nullable=False),
        sa.Column("created_at", sa.Text(), nullable=False),
        sa.Column("expires_at", sa.Text(), nullable=True),
        sa.Column("label", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(
            ["tenant"], ["tenant.name"], name=op.f("fk_access_key_tenant_tenant"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_access_key")),
        sa.UniqueConstraint("sha256", name=op.f("uq_access_key_sha256")),
    )
    with op.batch_alter_table("access_key", schema=None) as table:
        table.create_index(table.f("ix_access_key_tenant"), ["tenant"], unique=False)

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
        sa.Column("change", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("actor", sa.JSON(), nullable=True),
        sa.Column("address", sa.String(), nullable=False),
        sa.Column("outcome", sa.String(), nullable=False),
        sa.Column("times", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["owner"], ["tenant.name"], name=op.f("fk_audit_owner_tenant"), ondelete="SET NULL"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_audit")),
        sqlite_autoincrement=True,
    )
    with op.batch_alter_table("audit", schema=None) as table:
        table.create_index(table.f("ix_audit_owner"), ["owner"], unique=False)
        table.create_index(table.f("ix_audit_part"), ["part"], unique=False)

    op.create_table(
        "decision_application",
        sa.Column("decision_id", sa.Integer(), nullable=False),
        sa.Column("application", sa.String(), nullable=False),
        sa.Column("tenant", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(
            ["decision_id"],
            ["decision.id"],
            name=op.f("fk_decision_application_decision_id_decision"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["tenant"], ["tenant.name"], name=op.f("fk_decision_application_tenant_tenant"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("decision_id", "application", name=op.f("pk_decision_application")),
    )
    with op.batch_alter_table("decision_application", schema=None) as table:
        table.create_index(table.f("ix_decision_application_application"), ["application"], unique=False)
        table.create_index(table.f("ix_decision_application_tenant"), ["tenant"], unique=False)

    op.create_table(
        "job",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("tenant", sa.String(), nullable=False),
        sa.Column("model_id", sa.String(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("stage", sa.String(), nullable=False),
        sa.Column("percent", sa.Float(), nullable=False),
        sa.Column("message", sa.String(), nullable=False),
        sa.Column("error", sa.String(), nullable=False),
        sa.Column("request", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.Text(), nullable=False),
        sa.Column("updated_at", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["tenant"], ["tenant.name"], name=op.f("fk_job_tenant_tenant"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_job")),
    )
    with op.batch_alter_table("job", schema=None) as table:
        table.create_index(table.f("ix_job_model_id"), ["model_id"], unique=False)
        table.create_index(table.f("ix_job_state"), ["state"], unique=False)
        table.create_index(table.f("ix_job_tenant"), ["tenant"], unique=False)

    op.create_table(
        "model",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("tenant", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("task", sa.JSON(), nullable=False),
        sa.Column("shared", sa.Boolean(), nullable=False),
        sa.Column("created_at", sa.Text(), nullable=False),
        sa.Column("deleted_at", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(["tenant"], ["tenant.name"], name=op.f("fk_model_tenant_tenant")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_model")),
        sa.UniqueConstraint("tenant", "name", name=op.f("uq_model_tenant")),
    )
    op.create_table(
        "pipeline",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("tenant", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("latency_slo_ms", sa.Float(), nullable=False),
        sa.Column("stages", sa.JSON(), nullable=False),
        sa.Column("cost_by", sa.String(), nullable=False),
        sa.Column("weight", sa.Float(), nullable=False),
        sa.ForeignKeyConstraint(
            ["tenant"], ["tenant.name"], name=op.f("fk_pipeline_tenant_tenant"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_pipeline")),
        sa.UniqueConstraint("tenant", "name", name=op.f("uq_pipeline_tenant")),
    )
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
    with op.batch_alter_table("seen_runs", schema=None) as table:
        table.create_index(table.f("ix_seen_runs_content_sha256"), ["content_sha256"], unique=False)
        table.create_index(table.f("ix_seen_runs_tenant"), ["tenant"], unique=False)

    op.create_table(
        "session",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("tenant", sa.String(), nullable=False),
        sa.Column("application_id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("fps", sa.Float(), nullable=False),
        sa.Column("latency", sa.JSON(), nullable=True),
        sa.Column("accuracy", sa.JSON(), nullable=True),
        sa.Column("key_id", sa.String(), nullable=False),
        sa.Column("began_at", sa.Text(), nullable=False),
        sa.Column("weight", sa.Float(), nullable=False),
        sa.Column("wait", sa.Boolean(), nullable=False),
        sa.Column("is_paused", sa.Boolean(), nullable=False),
        sa.Column("pipeline_id", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(["tenant"], ["tenant.name"], name=op.f("fk_session_tenant_tenant"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_session")),
    )
    with op.batch_alter_table("session", schema=None) as table:
        table.create_index(table.f("ix_session_tenant"), ["tenant"], unique=False)

    op.create_table(
        "upload",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("tenant", sa.String(), nullable=False),
        sa.Column("length", sa.Integer(), nullable=True),
        sa.Column("sha256", sa.String(), nullable=True),
        sa.Column("file_name", sa.String(), nullable=False),
        sa.Column("created_at", sa.Text(), nullable=False),
        sa.Column("updated_at", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["tenant"], ["tenant.name"], name=op.f("fk_upload_tenant_tenant"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_upload")),
    )
    with op.batch_alter_table("upload", schema=None) as table:
        table.create_index(table.f("ix_upload_tenant"), ["tenant"], unique=False)

    op.create_table(
        "variant_number",
        sa.Column("model_id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("tenant", sa.String(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(
            ["tenant"], ["tenant.name"], name=op.f("fk_variant_number_tenant_tenant"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("model_id", "name", name=op.f("pk_variant_number")),
    )
    with op.batch_alter_table("variant_number", schema=None) as table:
        table.create_index(table.f("ix_variant_number_tenant"), ["tenant"], unique=False)

    op.create_table(
        "application",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("tenant", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("model_id", sa.String(), nullable=False),
        sa.Column("latency_slo_ms", sa.Float(), nullable=True),
        sa.Column("accuracy_min", sa.Float(), nullable=False),
        sa.Column("weight", sa.Float(), nullable=False),
        sa.Column("shared", sa.Boolean(), nullable=False),
        sa.Column("late", sa.String(), nullable=False),
        sa.Column("prefer", sa.String(), nullable=False),
        sa.Column("unverified", sa.String(), nullable=False),
        sa.Column("verify", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(["model_id"], ["model.id"], name=op.f("fk_application_model_id_model")),
        sa.ForeignKeyConstraint(
            ["tenant"], ["tenant.name"], name=op.f("fk_application_tenant_tenant"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_application")),
        sa.UniqueConstraint("tenant", "name", name=op.f("uq_application_tenant")),
    )
    with op.batch_alter_table("application", schema=None) as table:
        table.create_index(table.f("ix_application_model_id"), ["model_id"], unique=False)

    op.create_table(
        "asset",
        sa.Column("model_id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("content_sha256", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(["content_sha256"], ["blob.sha256"], name=op.f("fk_asset_content_sha256_blob")),
        sa.ForeignKeyConstraint(["model_id"], ["model.id"], name=op.f("fk_asset_model_id_model"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("model_id", "name", name=op.f("pk_asset")),
    )
    with op.batch_alter_table("asset", schema=None) as table:
        table.create_index(table.f("ix_asset_content_sha256"), ["content_sha256"], unique=False)

    op.create_table(
        "key_use",
        sa.Column("key_id", sa.String(), nullable=False),
        sa.Column("used_at", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["key_id"], ["access_key.id"], name=op.f("fk_key_use_key_id_access_key"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("key_id", name=op.f("pk_key_use")),
    )
    op.create_table(
        "pipeline_use",
        sa.Column("pipeline_id", sa.String(), nullable=False),
        sa.Column("application_id", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(
            ["pipeline_id"], ["pipeline.id"], name=op.f("fk_pipeline_use_pipeline_id_pipeline"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("pipeline_id", "application_id", name=op.f("pk_pipeline_use")),
    )
    with op.batch_alter_table("pipeline_use", schema=None) as table:
        table.create_index(table.f("ix_pipeline_use_application_id"), ["application_id"], unique=False)

    op.create_table(
        "variant",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("model_id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("precision", sa.String(), nullable=False),
        sa.Column("content_sha256", sa.String(), nullable=True),
        sa.Column("size_bytes", sa.Integer(), nullable=False),
        sa.Column("inputs", sa.JSON(), nullable=False),
        sa.Column("outputs", sa.JSON(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("height", sa.Integer(), nullable=True),
        sa.Column("width", sa.Integer(), nullable=True),
        sa.Column("accuracy", sa.JSON(), nullable=True),
        sa.Column("profile", sa.JSON(), nullable=True),
        sa.Column("other_profiles", sa.JSON(), server_default="[]", nullable=False),
        sa.Column("reason", sa.String(), nullable=False),
        sa.Column("batch_max", sa.Integer(), nullable=False),
        sa.Column("shape_max", sa.JSON(), nullable=True),
        sa.Column("cut", sa.JSON(), nullable=True),
        sa.Column("padding", sa.JSON(), nullable=True),
        sa.Column("axes", sa.JSON(), nullable=True),
        sa.ForeignKeyConstraint(["content_sha256"], ["blob.sha256"], name=op.f("fk_variant_content_sha256_blob")),
        sa.ForeignKeyConstraint(["model_id"], ["model.id"], name=op.f("fk_variant_model_id_model"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_variant")),
        sa.UniqueConstraint("model_id", "name", name=op.f("uq_variant_model_id")),
    )
    with op.batch_alter_table("variant", schema=None) as table:
        table.create_index(table.f("ix_variant_content_sha256"), ["content_sha256"], unique=False)
