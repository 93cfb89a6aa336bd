"""The anchor state that an episode ended in, which other episodes of its group may go on from."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add it to `episodes`; both columns are null in episodes that were played before."""
    op.add_column("episodes", sa.Column("final_anchor_state", sa.Text(), nullable=True))
    op.add_column("episodes", sa.Column("final_anchor_hash", sa.String(32), nullable=True))
