"""An index for the episodes of a group; the view of steps reads their text only where asked to."""

from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Without, each group of a page reads all episodes of its training step.

    The index on run, phase and training step stays: nothing else finds the episodes of a training
    step whichever attempt played them. Views are made anew with every migration.
    """
    op.create_index(
        op.f("ix_episodes_run_id_attempt_phase_training_step_group_index"),
        "episodes",
        ["run_id", "attempt", "phase", "training_step", "group_index"],
        unique=False,
    )
