"""What a critic said, what it should have said, and what its loss read."""

import sqlalchemy as sa
from alembic import op

DOUBLE: sa.types.TypeEngine[float] = sa.Double()

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns, null in what is there, and `critic_loss_inputs`."""
    op.add_column("episodes", sa.Column("final_value", DOUBLE, nullable=True))
    op.add_column("steps", sa.Column("value_target", DOUBLE, nullable=True))
    for name in ("token_values", "token_advantages"):
        op.add_column("step_contents", sa.Column(name, sa.LargeBinary(), nullable=True))
    op.create_table(
        "critic_loss_inputs",
        sa.Column("episode_id", sa.String(length=255), nullable=False),
        sa.Column("step_index", sa.Integer(), nullable=False),
        sa.Column("training_step", sa.Integer(), nullable=False),
        sa.Column("optimizer_step_index", sa.Integer(), nullable=False),
        sa.Column("rank", sa.Integer(), nullable=False),
        sa.Column("micro_batch", sa.Integer(), nullable=False),
        sa.Column("row_index", sa.Integer(), nullable=False),
        sa.Column("num_tokens", sa.Integer(), nullable=False),
        sa.Column("first_token", sa.Integer(), nullable=True),
        sa.Column("target_low", DOUBLE, nullable=True),
        sa.Column("target_high", DOUBLE, nullable=True),
        sa.Column("weight_low", DOUBLE, nullable=True),
        sa.Column("weight_high", DOUBLE, nullable=True),
        sa.ForeignKeyConstraint(
            ["episode_id"],
            ["episodes.id"],
            name=op.f("fk_critic_loss_inputs_episode_id_episodes"),
            ondelete="cascade",
        ),
        sa.PrimaryKeyConstraint(
            "episode_id",
            "step_index",
            "training_step",
            "optimizer_step_index",
            "rank",
            "micro_batch",
            "row_index",
            name=op.f("pk_critic_loss_inputs"),
        ),
        sqlite_with_rowid=False,
    )
