"""The first shape of the store."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
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
        sa.Column("created_at", sa.Text(), nullable=False),
        sa.Column("expires_at", sa.Text(), nullable=True),
        sa.Column("label", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(
            ["tenant"], ["tenant.name"], name=op.f("fk_access_key_tenant_tenant"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_access_key")),
        sa.UniqueConstraint("sha256", name=op.f("uq_access_key_sha256")),
    )
    with op.batch_alter_table("access_key") as batch_op:
        batch_op.create_index(batch_op.f("ix_access_key_tenant"), ["tenant"], unique=False)

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
    with op.batch_alter_table("job") as batch_op:
        batch_op.create_index(batch_op.f("ix_job_model_id"), ["model_id"], unique=False)
        batch_op.create_index(batch_op.f("ix_job_state"), ["state"], unique=False)
        batch_op.create_index(batch_op.f("ix_job_tenant"), ["tenant"], unique=False)

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
    with op.batch_alter_table("upload") as batch_op:
        batch_op.create_index(batch_op.f("ix_upload_tenant"), ["tenant"], unique=False)

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
        sa.ForeignKeyConstraint(["model_id"], ["model.id"], name=op.f("fk_application_model_id_model")),
        sa.ForeignKeyConstraint(
            ["tenant"], ["tenant.name"], name=op.f("fk_application_tenant_tenant"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_application")),
        sa.UniqueConstraint("tenant", "name", name=op.f("uq_application_tenant")),
    )
    with op.batch_alter_table("application") as batch_op:
        batch_op.create_index(batch_op.f("ix_application_model_id"), ["model_id"], unique=False)

    op.create_table(
        "asset",
        sa.Column("model_id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("content_sha256", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(["content_sha256"], ["blob.sha256"], name=op.f("fk_asset_content_sha256_blob")),
        sa.ForeignKeyConstraint(["model_id"], ["model.id"], name=op.f("fk_asset_model_id_model"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("model_id", "name", name=op.f("pk_asset")),
    )
    with op.batch_alter_table("asset") as batch_op:
        batch_op.create_index(batch_op.f("ix_asset_content_sha256"), ["content_sha256"], unique=False)

    op.create_table(
        "variant",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("model_id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("ordinal", sa.Integer(), nullable=False),
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
        sa.Column("reason", sa.String(), nullable=False),
        sa.Column("batch_max", sa.Integer(), nullable=False),
        sa.Column("axes", sa.JSON(), nullable=True),
        sa.ForeignKeyConstraint(["content_sha256"], ["blob.sha256"], name=op.f("fk_variant_content_sha256_blob")),
        sa.ForeignKeyConstraint(["model_id"], ["model.id"], name=op.f("fk_variant_model_id_model"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_variant")),
        sa.UniqueConstraint("model_id", "name", name=op.f("uq_variant_model_id")),
    )
    with op.batch_alter_table("variant") as batch_op:
        batch_op.create_index(batch_op.f("ix_variant_content_sha256"), ["content_sha256"], unique=False)
