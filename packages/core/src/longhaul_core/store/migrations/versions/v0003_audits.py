"""Audits of runs, and what they found."""

import sqlalchemy as sa
from alembic import op

DOUBLE: sa.types.TypeEngine[float] = sa.Double()

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create `audits` and `audit_findings`."""
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
        "audit_findings",
        sa.Column("run_id", sa.String(length=128), nullable=False),
        sa.Column("audited_at", DOUBLE, nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("rule", sa.String(length=64), nullable=False),
        sa.Column("training_step", sa.Integer(), nullable=False),
        sa.Column("episode_id", sa.String(length=255), nullable=True),
        sa.Column("step_index", sa.Integer(), nullable=True),
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
