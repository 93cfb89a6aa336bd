"""The first schema."""

import sqlalchemy as sa
from alembic import op

DOUBLE: sa.types.TypeEngine[float] = sa.Double()

revision = "1"
down_revision = None
branch_labels = None
depends_on = None

# The text index. SQLite's FTS5 and PostgreSQL's tsvector are reached by the same name; both
# point at observations.id and are filled by `maintenance.index_text` from the view `step_texts`.
_SEARCH_SQLITE = """
CREATE VIRTUAL TABLE step_search USING fts5(
    observation, replies, content = 'step_texts', content_rowid = 'id',
    tokenize = 'unicode61 remove_diacritics 2'
)
"""
_SEARCH_POSTGRESQL = (
    """
    CREATE TABLE step_search (
        id bigint PRIMARY KEY REFERENCES observations (id) ON DELETE CASCADE,
        document tsvector NOT NULL
    )
    """,
    "CREATE INDEX ix_step_search_document ON step_search USING gin (document)",
)


def upgrade() -> None:
    """Create every table."""
    op.create_table(
        "media",
        sa.Column("content_hash", sa.String(length=64), nullable=False),
        sa.Column("media_type", sa.String(length=16), nullable=False),
        sa.Column("num_bytes", sa.Integer(), nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("content_hash", name=op.f("pk_media")),
    )
    op.create_table(
        "tool_lists",
        sa.Column("content_hash", sa.String(length=32), nullable=False),
        sa.Column("tools_json", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("content_hash", name=op.f("pk_tool_lists")),
    )
    op.create_table(
        "runs",
        sa.Column("id", sa.String(length=128), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("num_training_steps", sa.Integer(), nullable=True),
        sa.Column("started_at", DOUBLE, nullable=False),
        sa.Column("ended_at", DOUBLE, nullable=True),
        sa.Column("heartbeat_at", DOUBLE, nullable=False),
        sa.Column("host", sa.Text(), nullable=True),
        sa.Column("pid", sa.Integer(), nullable=True),
        sa.Column("cancel_requested_at", DOUBLE, nullable=True),
        sa.Column("config_json", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_runs")),
    )
    op.create_table(
        "tasks",
        sa.Column("hash", sa.String(length=32), nullable=False),
        sa.Column("environment", sa.Text(), nullable=False),
        sa.Column("version", sa.Text(), nullable=False),
        sa.Column("data_hash", sa.Text(), nullable=False),
        sa.Column("task_id", sa.Text(), nullable=False),
        sa.Column("seed", sa.BigInteger(), nullable=False),
        sa.Column("split", sa.String(length=16), nullable=False),
        sa.Column("goal", sa.Text(), nullable=False),
        sa.Column("data", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("hash", name=op.f("pk_tasks")),
    )
    op.create_index(
        op.f("ix_tasks_environment_task_id"), "tasks", ["environment", "task_id"], unique=False
    )
    op.create_table(
        "attempts",
        sa.Column("run_id", sa.String(length=128), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("resumes_after_training_step", sa.Integer(), nullable=True),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("started_at", DOUBLE, nullable=False),
        sa.Column("ended_at", DOUBLE, nullable=True),
        sa.Column("host", sa.Text(), nullable=True),
        sa.Column("pid", sa.Integer(), nullable=True),
        sa.Column("provenance_json", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["run_id"], ["runs.id"], name=op.f("fk_attempts_run_id_runs"), ondelete="cascade"
        ),
        sa.PrimaryKeyConstraint("run_id", "attempt", name=op.f("pk_attempts")),
    )
    op.create_table(
        "audits",
        sa.Column("run_id", sa.String(length=128), nullable=False),
        sa.Column("audited_at", DOUBLE, nullable=False),
        sa.Column("first_training_step", sa.Integer(), nullable=True),
        sa.Column("last_training_step", sa.Integer(), nullable=True),
        sa.Column("num_training_steps", sa.Integer(), nullable=False),
        sa.Column("num_steps", sa.Integer(), nullable=False),
        sa.Column("num_findings", sa.Integer(), nullable=False),
        sa.Column("rules_json", sa.Text(), nullable=False),
        sa.Column("not_checked_json", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["run_id"], ["runs.id"], name=op.f("fk_audits_run_id_runs"), ondelete="cascade"
        ),
        sa.PrimaryKeyConstraint("run_id", "audited_at", name=op.f("pk_audits")),
    )
    op.create_table(
        "leases",
        sa.Column("run_id", sa.String(length=128), nullable=False),
        sa.Column("lease_id", sa.String(length=64), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("episode_id", sa.String(length=255), nullable=False),
        sa.Column("task_id", sa.Text(), nullable=False),
        sa.Column("runner", sa.Text(), nullable=False),
        sa.Column("leased_at", DOUBLE, nullable=False),
        sa.Column("heard_at", DOUBLE, nullable=False),
        sa.Column("ended_at", DOUBLE, nullable=True),
        sa.Column("outcome", sa.String(length=16), nullable=True),
        sa.ForeignKeyConstraint(
            ["run_id"], ["runs.id"], name=op.f("fk_leases_run_id_runs"), ondelete="cascade"
        ),
        sa.PrimaryKeyConstraint("run_id", "lease_id", name=op.f("pk_leases")),
    )
    op.create_index(op.f("ix_leases_episode_id"), "leases", ["episode_id"], unique=False)
    op.create_table(
        "episodes",
        sa.Column("id", sa.String(length=255), nullable=False),
        sa.Column("run_id", sa.String(length=128), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("phase", sa.String(length=16), nullable=False),
        sa.Column("training_step", sa.Integer(), nullable=False),
        sa.Column("group_index", sa.Integer(), nullable=False),
        sa.Column("sample_index", sa.Integer(), nullable=False),
        sa.Column("retry", sa.Integer(), nullable=False),
        sa.Column("task_hash", sa.String(length=32), nullable=False),
        sa.Column("rolled_back", sa.Boolean(), nullable=False),
        sa.Column("failed", sa.Boolean(), nullable=False),
        sa.Column("success", sa.Boolean(), nullable=True),
        sa.Column("stop_reason", sa.String(length=32), nullable=True),
        sa.Column("terminated", sa.Boolean(), nullable=True),
        sa.Column("truncated", sa.Boolean(), nullable=True),
        sa.Column("episode_return", DOUBLE, nullable=True),
        sa.Column("num_steps", sa.Integer(), nullable=False),
        sa.Column("horizon", sa.Integer(), nullable=False),
        sa.Column("num_calls", sa.Integer(), nullable=False),
        sa.Column("num_prompt_tokens", sa.Integer(), nullable=False),
        sa.Column("num_action_tokens", sa.Integer(), nullable=False),
        sa.Column("num_invalid_actions", sa.Integer(), nullable=False),
        sa.Column("seed", sa.BigInteger(), nullable=False),
        sa.Column("started_at", DOUBLE, nullable=False),
        sa.Column("duration_seconds", DOUBLE, nullable=False),
        sa.Column("trained", sa.Boolean(), nullable=False),
        sa.Column("trained_training_step", sa.Integer(), nullable=True),
        sa.Column("episode_advantage", DOUBLE, nullable=True),
        sa.Column("optimizer_step_index", sa.Integer(), nullable=True),
        sa.Column("final_observation", sa.Text(), nullable=True),
        sa.Column("final_picture_hashes_json", sa.Text(), nullable=True),
        sa.Column("final_anchor_state", sa.Text(), nullable=True),
        sa.Column("final_anchor_hash", sa.String(length=32), nullable=True),
        sa.Column("final_value", DOUBLE, nullable=True),
        sa.Column("retention", sa.String(length=16), nullable=True),
        sa.ForeignKeyConstraint(
            ["run_id"], ["runs.id"], name=op.f("fk_episodes_run_id_runs"), ondelete="cascade"
        ),
        sa.ForeignKeyConstraint(
            ["task_hash"], ["tasks.hash"], name=op.f("fk_episodes_task_hash_tasks")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_episodes")),
    )
    op.create_index(
        op.f("ix_episodes_run_id_attempt_phase_training_step_group_index"),
        "episodes",
        ["run_id", "attempt", "phase", "training_step", "group_index"],
        unique=False,
    )
    op.create_index(
        op.f("ix_episodes_run_id_phase_training_step"),
        "episodes",
        ["run_id", "phase", "training_step"],
        unique=False,
    )
    op.create_index(op.f("ix_episodes_task_hash"), "episodes", ["task_hash"], unique=False)
    op.create_table(
        "evaluations",
        sa.Column("run_id", sa.String(length=128), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("training_step", sa.Integer(), nullable=False),
        sa.Column("panel", sa.Text(), nullable=False),
        sa.Column("split", sa.String(length=16), nullable=False),
        sa.Column("num_episodes", sa.Integer(), nullable=False),
        sa.Column("mean_return", DOUBLE, nullable=False),
        sa.Column("success_rate", DOUBLE, nullable=False),
        sa.Column("rolled_back", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(
            ["run_id"], ["runs.id"], name=op.f("fk_evaluations_run_id_runs"), ondelete="cascade"
        ),
        sa.PrimaryKeyConstraint(
            "run_id", "attempt", "training_step", "panel", "split", name=op.f("pk_evaluations")
        ),
    )
    op.create_table(
        "groups",
        sa.Column("run_id", sa.String(length=128), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("phase", sa.String(length=16), nullable=False),
        sa.Column("training_step", sa.Integer(), nullable=False),
        sa.Column("group_index", sa.Integer(), nullable=False),
        sa.Column("task_hash", sa.String(length=32), nullable=False),
        sa.Column("group_size", sa.Integer(), nullable=True),
        sa.Column("resolved_training_step", sa.Integer(), nullable=True),
        sa.Column("update_index", sa.Integer(), nullable=True),
        sa.Column("discard_reason", sa.String(length=32), nullable=True),
        sa.Column("rolled_back", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(
            ["run_id"], ["runs.id"], name=op.f("fk_groups_run_id_runs"), ondelete="cascade"
        ),
        sa.ForeignKeyConstraint(
            ["task_hash"], ["tasks.hash"], name=op.f("fk_groups_task_hash_tasks")
        ),
        sa.PrimaryKeyConstraint(
            "run_id", "attempt", "phase", "training_step", "group_index", name=op.f("pk_groups")
        ),
    )
    op.create_index(
        op.f("ix_groups_run_id_resolved_training_step_phase_attempt"),
        "groups",
        ["run_id", "resolved_training_step", "phase", "attempt"],
        unique=False,
    )
    op.create_index(op.f("ix_groups_task_hash"), "groups", ["task_hash"], unique=False)
    op.create_table(
        "metrics",
        sa.Column("run_id", sa.String(length=128), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("training_step", sa.Integer(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("value", DOUBLE, nullable=True),
        sa.Column("rolled_back", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(
            ["run_id"], ["runs.id"], name=op.f("fk_metrics_run_id_runs"), ondelete="cascade"
        ),
        sa.PrimaryKeyConstraint(
            "run_id", "attempt", "training_step", "name", name=op.f("pk_metrics")
        ),
        sqlite_with_rowid=False,
    )
    op.create_index(
        op.f("ix_metrics_run_id_name_training_step"),
        "metrics",
        ["run_id", "name", "training_step"],
        unique=False,
    )
    op.create_table(
        "panel_tasks",
        sa.Column("content_hash", sa.String(length=32), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("task_hash", sa.String(length=32), nullable=False),
        sa.ForeignKeyConstraint(
            ["task_hash"], ["tasks.hash"], name=op.f("fk_panel_tasks_task_hash_tasks")
        ),
        sa.PrimaryKeyConstraint("content_hash", "position", name=op.f("pk_panel_tasks")),
    )
    op.create_index(op.f("ix_panel_tasks_task_hash"), "panel_tasks", ["task_hash"], unique=False)
    op.create_table(
        "panels",
        sa.Column("run_id", sa.String(length=128), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("split", sa.String(length=16), nullable=False),
        sa.Column("content_hash", sa.String(length=32), nullable=False),
        sa.Column("num_tasks", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(
            ["run_id"], ["runs.id"], name=op.f("fk_panels_run_id_runs"), ondelete="cascade"
        ),
        sa.PrimaryKeyConstraint("run_id", "name", "split", name=op.f("pk_panels")),
    )
    op.create_table(
        "policy_versions",
        sa.Column("run_id", sa.String(length=128), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("training_step", sa.Integer(), nullable=False),
        sa.Column("created_at", DOUBLE, nullable=False),
        sa.Column("rolled_back", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(
            ["run_id"], ["runs.id"], name=op.f("fk_policy_versions_run_id_runs"), ondelete="cascade"
        ),
        sa.PrimaryKeyConstraint("run_id", "attempt", "version", name=op.f("pk_policy_versions")),
    )
    op.create_table(
        "token_pieces",
        sa.Column("run_id", sa.String(length=128), nullable=False),
        sa.Column("token_id", sa.Integer(), nullable=False),
        sa.Column("piece", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(
            ["run_id"], ["runs.id"], name=op.f("fk_token_pieces_run_id_runs"), ondelete="cascade"
        ),
        sa.PrimaryKeyConstraint("run_id", "token_id", name=op.f("pk_token_pieces")),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "audit_findings",
        sa.Column("run_id", sa.String(length=128), nullable=False),
        sa.Column("audited_at", DOUBLE, nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("rule", sa.String(length=64), nullable=False),
        sa.Column("training_step", sa.Integer(), nullable=False),
        sa.Column("episode_id", sa.String(length=255), nullable=True),
        sa.Column("step_index", sa.Integer(), nullable=True),
        sa.Column("call_index", sa.Integer(), nullable=True),
        sa.Column("found", sa.Text(), nullable=False),
        sa.Column("expected", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["run_id", "audited_at"],
            ["audits.run_id", "audits.audited_at"],
            name=op.f("fk_audit_findings_run_id_audits"),
            ondelete="cascade",
        ),
        sa.PrimaryKeyConstraint("run_id", "audited_at", "number", name=op.f("pk_audit_findings")),
    )
    op.create_table(
        "call_tokens",
        sa.Column("episode_id", sa.String(length=255), nullable=False),
        sa.Column("step_index", sa.Integer(), nullable=False),
        sa.Column("call_index", sa.Integer(), nullable=False),
        sa.Column("tokens", sa.LargeBinary(), nullable=False),
        sa.Column("behavior_logprobs", sa.LargeBinary(), nullable=False),
        sa.Column("policy_logprobs", sa.LargeBinary(), nullable=True),
        sa.Column("token_values", sa.LargeBinary(), nullable=True),
        sa.Column("token_advantages", sa.LargeBinary(), nullable=True),
        sa.ForeignKeyConstraint(
            ["episode_id"],
            ["episodes.id"],
            name=op.f("fk_call_tokens_episode_id_episodes"),
            ondelete="cascade",
        ),
        sa.PrimaryKeyConstraint(
            "episode_id", "step_index", "call_index", name=op.f("pk_call_tokens")
        ),
    )
    op.create_table(
        "calls",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("episode_id", sa.String(length=255), nullable=False),
        sa.Column("step_index", sa.Integer(), nullable=False),
        sa.Column("call_index", sa.Integer(), nullable=False),
        sa.Column("purpose", sa.Text(), nullable=False),
        sa.Column("agent", sa.Text(), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("messages_json", sa.Text(), nullable=True),
        sa.Column("reply", sa.Text(), nullable=True),
        sa.Column("tool_calls_json", sa.Text(), nullable=True),
        sa.Column("tools_number", sa.Integer(), nullable=True),
        sa.Column("conversation", sa.Integer(), nullable=False),
        sa.Column("continuation", sa.String(length=16), nullable=True),
        sa.Column("sampling_json", sa.Text(), nullable=True),
        sa.Column("cost_usd", DOUBLE, nullable=True),
        sa.Column("finish_reason", sa.String(length=16), nullable=False),
        sa.Column("policy_version", sa.Integer(), nullable=True),
        sa.Column("dropped_exchanges", sa.Integer(), nullable=False),
        sa.Column("queue_seconds", DOUBLE, nullable=False),
        sa.Column("generate_seconds", DOUBLE, nullable=False),
        sa.Column("num_cached_tokens", sa.Integer(), nullable=True),
        sa.Column("num_prompt_tokens", sa.Integer(), nullable=True),
        sa.Column("num_action_tokens", sa.Integer(), nullable=True),
        sa.Column("num_shared_prompt_tokens", sa.Integer(), nullable=True),
        sa.Column("trained", sa.Boolean(), nullable=False),
        sa.Column("credit_share", DOUBLE, nullable=False),
        sa.Column("advantage", DOUBLE, nullable=True),
        sa.Column("loss_weight", DOUBLE, nullable=True),
        sa.Column("split_reason", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(
            ["episode_id"],
            ["episodes.id"],
            name=op.f("fk_calls_episode_id_episodes"),
            ondelete="cascade",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_calls")),
        sa.UniqueConstraint(
            "episode_id",
            "step_index",
            "call_index",
            name=op.f("uq_calls_episode_id_step_index_call_index"),
        ),
    )
    op.create_table(
        "critic_loss_inputs",
        sa.Column("episode_id", sa.String(length=255), nullable=False),
        sa.Column("step_index", sa.Integer(), nullable=False),
        sa.Column("call_index", sa.Integer(), nullable=False),
        sa.Column("training_step", sa.Integer(), nullable=False),
        sa.Column("optimizer_step_index", sa.Integer(), nullable=False),
        sa.Column("rank", sa.Integer(), nullable=False),
        sa.Column("micro_batch", sa.Integer(), nullable=False),
        sa.Column("row_index", sa.Integer(), nullable=False),
        sa.Column("num_tokens", sa.Integer(), nullable=False),
        sa.Column("weight_low", DOUBLE, nullable=True),
        sa.Column("weight_high", DOUBLE, nullable=True),
        sa.Column("first_token", sa.Integer(), nullable=True),
        sa.Column("target_low", DOUBLE, nullable=True),
        sa.Column("target_high", DOUBLE, nullable=True),
        sa.ForeignKeyConstraint(
            ["episode_id"],
            ["episodes.id"],
            name=op.f("fk_critic_loss_inputs_episode_id_episodes"),
            ondelete="cascade",
        ),
        sa.PrimaryKeyConstraint(
            "episode_id",
            "step_index",
            "call_index",
            "training_step",
            "optimizer_step_index",
            "rank",
            "micro_batch",
            "row_index",
            name=op.f("pk_critic_loss_inputs"),
        ),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "episode_media",
        sa.Column("episode_id", sa.String(length=255), nullable=False),
        sa.Column("content_hash", sa.String(length=64), nullable=False),
        sa.ForeignKeyConstraint(
            ["content_hash"],
            ["media.content_hash"],
            name=op.f("fk_episode_media_content_hash_media"),
        ),
        sa.ForeignKeyConstraint(
            ["episode_id"],
            ["episodes.id"],
            name=op.f("fk_episode_media_episode_id_episodes"),
            ondelete="cascade",
        ),
        sa.PrimaryKeyConstraint("episode_id", "content_hash", name=op.f("pk_episode_media")),
        sqlite_with_rowid=False,
    )
    op.create_index(
        op.f("ix_episode_media_content_hash"), "episode_media", ["content_hash"], unique=False
    )
    op.create_table(
        "episode_tools",
        sa.Column("episode_id", sa.String(length=255), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("content_hash", sa.String(length=32), nullable=False),
        sa.ForeignKeyConstraint(
            ["content_hash"],
            ["tool_lists.content_hash"],
            name=op.f("fk_episode_tools_content_hash_tool_lists"),
        ),
        sa.ForeignKeyConstraint(
            ["episode_id"],
            ["episodes.id"],
            name=op.f("fk_episode_tools_episode_id_episodes"),
            ondelete="cascade",
        ),
        sa.PrimaryKeyConstraint("episode_id", "number", name=op.f("pk_episode_tools")),
        sqlite_with_rowid=False,
    )
    op.create_index(
        op.f("ix_episode_tools_content_hash"), "episode_tools", ["content_hash"], unique=False
    )
    op.create_table(
        "failures",
        sa.Column("episode_id", sa.String(length=255), nullable=False),
        sa.Column("cause", sa.String(length=32), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["episode_id"],
            ["episodes.id"],
            name=op.f("fk_failures_episode_id_episodes"),
            ondelete="cascade",
        ),
        sa.PrimaryKeyConstraint("episode_id", name=op.f("pk_failures")),
    )
    op.create_table(
        "labels",
        sa.Column("episode_id", sa.String(length=255), nullable=False),
        sa.Column("step_index", sa.Integer(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("author", sa.Text(), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.Column("created_at", DOUBLE, nullable=False),
        sa.ForeignKeyConstraint(
            ["episode_id"],
            ["episodes.id"],
            name=op.f("fk_labels_episode_id_episodes"),
            ondelete="cascade",
        ),
        sa.PrimaryKeyConstraint(
            "episode_id", "step_index", "name", "author", name=op.f("pk_labels")
        ),
    )
    op.create_table(
        "loss_inputs",
        sa.Column("episode_id", sa.String(length=255), nullable=False),
        sa.Column("step_index", sa.Integer(), nullable=False),
        sa.Column("call_index", sa.Integer(), nullable=False),
        sa.Column("training_step", sa.Integer(), nullable=False),
        sa.Column("optimizer_step_index", sa.Integer(), nullable=False),
        sa.Column("rank", sa.Integer(), nullable=False),
        sa.Column("micro_batch", sa.Integer(), nullable=False),
        sa.Column("row_index", sa.Integer(), nullable=False),
        sa.Column("num_tokens", sa.Integer(), nullable=False),
        sa.Column("weight_low", DOUBLE, nullable=True),
        sa.Column("weight_high", DOUBLE, nullable=True),
        sa.Column("advantage_low", DOUBLE, nullable=True),
        sa.Column("advantage_high", DOUBLE, nullable=True),
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
            "call_index",
            "training_step",
            "optimizer_step_index",
            "rank",
            "micro_batch",
            "row_index",
            name=op.f("pk_loss_inputs"),
        ),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "messages",
        sa.Column("episode_id", sa.String(length=255), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("role", sa.String(length=16), nullable=False),
        sa.Column("own_lines", sa.Text(), nullable=False),
        sa.Column("pieces_json", sa.Text(), nullable=True),
        sa.Column("above", sa.Text(), nullable=True),
        sa.Column("source", sa.BigInteger(), nullable=True),
        sa.Column("below", sa.Text(), nullable=True),
        sa.Column("parts_json", sa.Text(), nullable=True),
        sa.Column("tool_calls_json", sa.Text(), nullable=True),
        sa.Column("tool_calls_source", sa.BigInteger(), nullable=True),
        sa.Column("tool_call_id", sa.Text(), nullable=True),
        sa.Column("reasoning", sa.Text(), nullable=True),
        sa.Column("reasoning_source", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(
            ["episode_id"],
            ["episodes.id"],
            name=op.f("fk_messages_episode_id_episodes"),
            ondelete="cascade",
        ),
        sa.PrimaryKeyConstraint("episode_id", "number", name=op.f("pk_messages")),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "observations",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("episode_id", sa.String(length=255), nullable=False),
        sa.Column("step_index", sa.Integer(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("picture_hashes_json", sa.Text(), nullable=True),
        sa.Column("anchor_state", sa.Text(), nullable=True),
        sa.Column("admissible_actions_json", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(
            ["episode_id"],
            ["episodes.id"],
            name=op.f("fk_observations_episode_id_episodes"),
            ondelete="cascade",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_observations")),
        sa.UniqueConstraint(
            "episode_id", "step_index", name=op.f("uq_observations_episode_id_step_index")
        ),
    )
    op.create_table(
        "steps",
        sa.Column("episode_id", sa.String(length=255), nullable=False),
        sa.Column("step_index", sa.Integer(), nullable=False),
        sa.Column("action", sa.Text(), nullable=False),
        sa.Column("action_valid", sa.Boolean(), nullable=False),
        sa.Column("reward", DOUBLE, nullable=False),
        sa.Column("shaped_reward", DOUBLE, nullable=True),
        sa.Column("value", DOUBLE, nullable=True),
        sa.Column("value_target", DOUBLE, nullable=True),
        sa.Column("return_to_go", DOUBLE, nullable=True),
        sa.Column("episode_advantage", DOUBLE, nullable=True),
        sa.Column("step_advantage", DOUBLE, nullable=True),
        sa.Column("advantage", DOUBLE, nullable=True),
        sa.Column("loss_weight", DOUBLE, nullable=True),
        sa.Column("trained", sa.Boolean(), nullable=False),
        sa.Column("anchor_hash", sa.String(length=32), nullable=False),
        sa.Column("act_call_index", sa.Integer(), nullable=True),
        sa.Column("environment_seconds", DOUBLE, nullable=False),
        sa.ForeignKeyConstraint(
            ["episode_id"],
            ["episodes.id"],
            name=op.f("fk_steps_episode_id_episodes"),
            ondelete="cascade",
        ),
        sa.PrimaryKeyConstraint("episode_id", "step_index", name=op.f("pk_steps")),
        sqlite_with_rowid=False,
    )
    if op.get_bind().dialect.name == "sqlite":
        op.execute(_SEARCH_SQLITE)
    else:
        for statement in _SEARCH_POSTGRESQL:
            op.execute(statement)
