"""The entropy of the learner's distribution that each token of a reply is of."""

import sqlalchemy as sa
from alembic import op

revision = "3"
down_revision = "2"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column; what is there was trained without keeping it, and has none."""
    op.add_column("call_tokens", sa.Column("policy_entropies", sa.LargeBinary(), nullable=True))
