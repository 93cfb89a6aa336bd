"""What the loss function read of each step, and a view that shows it beside what was meant."""

import sqlalchemy as sa
from alembic import op

DOUBLE: sa.types.TypeEngine[float] = sa.Double()

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create `loss_inputs`; steps trained before have no rows in it."""
    op.create_table(
        "loss_inputs",
        sa.Column("episode_id", sa.String(length=255), nullable=False),
        sa.Column("step_index", sa.Integer(), nullable=False),
        sa.Column("optimizer_step_index", sa.Integer(), nullable=False),
        sa.Column("rank", sa.Integer(), nullable=False),
        sa.Column("micro_batch", sa.Integer(), nullable=False),
        sa.Column("row_index", sa.Integer(), nullable=False),
        sa.Column("num_tokens", sa.Integer(), nullable=False),
        sa.Column("advantage_low", DOUBLE, nullable=True),
        sa.Column("advantage_high", DOUBLE, nullable=True),
        sa.Column("weight_low", DOUBLE, nullable=True),
        sa.Column("weight_high", DOUBLE, nullable=True),
        sa.Column("old_logprob_sum", DOUBLE, nullable=False),
        sa.ForeignKeyConstraint(
            ["episode_id"],
            ["episodes.id"],
            name=op.f("fk_loss_inputs_episode_id_episodes"),
            ondelete="cascade",
        ),
        sa.PrimaryKeyConstraint(
            "episode_id",
            "step_index",
            "optimizer_step_index",
            "rank",
            "micro_batch",
            "row_index",
            name=op.f("pk_loss_inputs"),
        ),
        sqlite_with_rowid=False,
    )
