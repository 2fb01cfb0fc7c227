"""The state of a variant that the box does not choose is called excluded."""

from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    op.execute("UPDATE variant SET state = 'excluded' WHERE state = 'shelved'")
