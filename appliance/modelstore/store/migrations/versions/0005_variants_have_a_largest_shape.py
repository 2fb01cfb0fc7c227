"""The largest shape of each input that requests to a variant may have; unknown until it is measured again."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    op.add_column("variant", sa.Column("shape_max", sa.JSON(), nullable=True))
