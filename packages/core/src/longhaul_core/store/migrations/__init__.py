"""Schema changes of the store, run by the program itself when it opens an older store.

There is no `alembic.ini`: everything Alembic needs is set here. A new migration is a
file in `versions/`, written by hand, numbered on, and frozen once released; with it goes
a database file of the schema before it in `tests/golden/`.
"""

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import Connection

__all__ = ["known_versions", "upgrade"]


def upgrade(connection: Connection) -> None:
    """Bring the schema to the newest version, inside the connection's open transaction."""
    config = _config()
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


def known_versions() -> list[str]:
    """Every schema version that this program can upgrade from, newest first."""
    return [script.revision for script in ScriptDirectory.from_config(_config()).walk_revisions()]


def _config() -> Config:
    config = Config()
    # '%' begins a placeholder in Alembic's options, and a folder's name may hold one.
    config.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    return config
