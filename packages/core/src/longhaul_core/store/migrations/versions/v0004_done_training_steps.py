"""A training step that has only begun is not counted as done in the view `run_summary`."""

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Change no table: views are made anew with every migration."""
