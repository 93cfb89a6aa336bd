"""The training step that an episode was trained in, beside the one that played it."""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Until now they were one: what was trained was trained in the step that played it."""
    op.add_column("groups", sa.Column("resolved_training_step", sa.Integer(), nullable=True))
    op.add_column("groups", sa.Column("update_index", sa.Integer(), nullable=True))
    op.add_column("groups", sa.Column("discard_reason", sa.String(length=32), nullable=True))
    # A group that was left out of an update was in the same batch as those that were not.
    op.execute("""
        UPDATE groups SET resolved_training_step = training_step, update_index = group_index
        WHERE phase = 'train' AND EXISTS (
            SELECT 1 FROM episodes e
            WHERE e.run_id = groups.run_id AND e.attempt = groups.attempt AND e.phase = 'train'
                AND e.training_step = groups.training_step AND e.episode_advantage IS NOT NULL
        )
    """)
    op.create_index(
        op.f("ix_groups_run_id_resolved_training_step"),
        "groups",
        ["run_id", "resolved_training_step"],
        unique=False,
    )
    op.add_column("episodes", sa.Column("trained_training_step", sa.Integer(), nullable=True))
    op.execute("UPDATE episodes SET trained_training_step = training_step WHERE trained")
    op.add_column("loss_inputs", sa.Column("training_step", sa.Integer(), nullable=True))
    op.execute("""
        UPDATE loss_inputs SET training_step =
            (SELECT e.training_step FROM episodes e WHERE e.id = loss_inputs.episode_id)
    """)
    key = [
        "episode_id",
        "step_index",
        "training_step",
        "optimizer_step_index",
        "rank",
        "micro_batch",
        "row_index",
    ]
    # SQLite's integrity check (3.40) reads a table without row ids as if its key came first.
    order: dict[str, Any] = {}
    if op.get_bind().dialect.name == "sqlite":
        numbers = "num_tokens advantage_low advantage_high weight_low weight_high old_logprob_sum"
        order = {"recreate": "always", "partial_reordering": [(*key, *numbers.split())]}
    with op.batch_alter_table(
        "loss_inputs", table_kwargs={"sqlite_with_rowid": False}, **order
    ) as loss_inputs:
        loss_inputs.alter_column("training_step", existing_type=sa.Integer(), nullable=False)
        loss_inputs.drop_constraint(op.f("pk_loss_inputs"), type_="primary")
        loss_inputs.create_primary_key(op.f("pk_loss_inputs"), key)
