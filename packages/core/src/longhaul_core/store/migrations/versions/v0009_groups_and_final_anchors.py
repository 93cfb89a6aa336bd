"""An index for the episodes of a group, and the anchor state that an episode ended in.

Other episodes of the group may go on from that state. Views are made anew with every migration.
"""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Without the index, each group of a page reads all episodes of its training step.

    The index on run, phase and training step stays: nothing else finds the episodes of a training
    step whichever attempt played them. Both columns are null in episodes that were played before.
    """
    op.create_index(
        op.f("ix_episodes_run_id_attempt_phase_training_step_group_index"),
        "episodes",
        ["run_id", "attempt", "phase", "training_step", "group_index"],
        unique=False,
    )
    op.add_column("episodes", sa.Column("final_anchor_state", sa.Text(), nullable=True))
    op.add_column("episodes", sa.Column("final_anchor_hash", sa.String(32), nullable=True))
