"""Lists by key, changes of a run in the order of their commits, a text index of every script."""

import sqlalchemy as sa
from alembic import op

DOUBLE: sa.types.TypeEngine[float] = sa.Double()

revision = "2"
down_revision = "1"
branch_labels = None
depends_on = None

# The text index holds words that `search_terms` has cut, and no text of its own: its rows are the
# steps, by observations.id. `maintenance.index_text` fills it anew.
_SEARCH_SQLITE = (
    "DROP TABLE step_search",
    """
    CREATE VIRTUAL TABLE step_search USING fts5(
        run, observation, reply, prompt, content = '', tokenize = 'unicode61 remove_diacritics 0'
    )
    """,
)
_SEARCH_POSTGRESQL = ("DELETE FROM step_search",)

_POLICY_VERSIONS = """
UPDATE episodes SET
    oldest_policy_version = (SELECT min(c.policy_version) FROM calls c
                             WHERE c.episode_id = episodes.id),
    newest_policy_version = (SELECT max(c.policy_version) FROM calls c
                             WHERE c.episode_id = episodes.id)
"""
_ADVANTAGES = """
UPDATE groups SET max_abs_advantage = (
    SELECT max(abs(s.advantage)) FROM episodes e JOIN steps s ON s.episode_id = e.id
    WHERE e.run_id = groups.run_id AND e.attempt = groups.attempt AND e.phase = groups.phase
        AND e.training_step = groups.training_step AND e.group_index = groups.group_index
)
"""


def upgrade() -> None:
    """Add columns, fill them from what is there, and index them."""
    op.create_table(
        "commits",
        sa.Column("run_id", sa.String(length=128), nullable=False),
        sa.Column("last_commit", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["run_id"], ["runs.id"], name=op.f("fk_commits_run_id_runs"), ondelete="cascade"
        ),
        sa.PrimaryKeyConstraint("run_id", name=op.f("pk_commits")),
    )
    op.create_table(
        "changes",
        sa.Column("run_id", sa.String(length=128), nullable=False),
        sa.Column("commit_number", sa.BigInteger(), nullable=False),
        sa.Column("place", sa.Integer(), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("training_step", sa.Integer(), nullable=True),
        sa.Column("episode_id", sa.String(length=255), nullable=True),
        sa.ForeignKeyConstraint(
            ["run_id"], ["runs.id"], name=op.f("fk_changes_run_id_runs"), ondelete="cascade"
        ),
        sa.PrimaryKeyConstraint("run_id", "commit_number", "place", name=op.f("pk_changes")),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "search_progress",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("indexed_up_to", sa.BigInteger(), nullable=False),
        sa.Column("indexed_at", DOUBLE, nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_search_progress")),
    )
    for name in ("oldest_policy_version", "newest_policy_version"):
        op.add_column("episodes", sa.Column(name, sa.Integer(), nullable=True))
    op.add_column("groups", sa.Column("max_abs_advantage", DOUBLE, nullable=True))
    op.execute(_POLICY_VERSIONS)
    op.execute(_ADVANTAGES)
    op.create_index(
        "ix_groups_newest_first",
        "groups",
        ["run_id", "rolled_back", "training_step", "phase", "group_index", "attempt"],
    )
    op.create_index(
        "ix_episodes_newest_first",
        "episodes",
        [
            "run_id",
            "rolled_back",
            "training_step",
            "phase",
            "group_index",
            "sample_index",
            "id",
            "task_hash",
            "failed",
            "success",
            "trained",
            "stop_reason",
            "episode_return",
            "num_steps",
            "num_prompt_tokens",
            "num_action_tokens",
            "num_invalid_actions",
            "oldest_policy_version",
            "newest_policy_version",
            "started_at",
            "duration_seconds",
        ],
    )
    sqlite = op.get_bind().dialect.name == "sqlite"
    for statement in _SEARCH_SQLITE if sqlite else _SEARCH_POSTGRESQL:
        op.execute(statement)
