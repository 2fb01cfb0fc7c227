"""Decisions and the applications that they concerned."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
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
    with op.batch_alter_table("decision_application") as batch_op:
        batch_op.create_index(batch_op.f("ix_decision_application_application"), ["application"], unique=False)
        batch_op.create_index(batch_op.f("ix_decision_application_tenant"), ["tenant"], unique=False)
