"""Indexes for deleting tasks, and for finding the groups that a resume takes back."""

from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Without, each deleted task reads all groups and panels, and a resume all groups of its run.

    Groups of validation and greedy ones are never decided on: the phase tells them from those
    that wait.
    """
    for table in ("groups", "panel_tasks"):
        op.create_index(op.f(f"ix_{table}_task_hash"), table, ["task_hash"], unique=False)
    op.drop_index(op.f("ix_groups_run_id_resolved_training_step"), "groups")
    op.create_index(
        op.f("ix_groups_run_id_resolved_training_step_phase_attempt"),
        "groups",
        ["run_id", "resolved_training_step", "phase", "attempt"],
        unique=False,
    )
