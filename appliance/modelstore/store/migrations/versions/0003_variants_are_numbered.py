"""Variants have a number from 1 that is kept for their name."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
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
    with op.batch_alter_table("variant_number") as batch_op:
        batch_op.create_index(batch_op.f("ix_variant_number_tenant"), ["tenant"], unique=False)
    op.execute("ALTER TABLE variant RENAME COLUMN ordinal TO number")  # it counted from 0, in the order of making
    op.execute("UPDATE variant SET number = number + 1")
    op.execute(
        "INSERT INTO variant_number (model_id, name, tenant, number)"
        " SELECT variant.model_id, variant.name, model.tenant, variant.number"
        " FROM variant JOIN model ON model.id = variant.model_id"
    )
