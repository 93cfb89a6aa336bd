"""What credit was given for at each step, beside what the environment paid."""

import sqlalchemy as sa
from alembic import op

DOUBLE: sa.types.TypeEngine[float] = sa.Double()

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add `steps.shaped_reward`; it is null in steps that were trained before."""
    op.add_column("steps", sa.Column("shaped_reward", DOUBLE, nullable=True))
