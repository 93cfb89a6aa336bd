"""Makes the tables, the text index and the views of a new store.

What the models and `view_definitions` say is all there is: a store of another schema is refused, as
no release has written one. The first release's schema is the first that needs migrations.
"""

from typing import cast

from sqlalchemy import Connection, text

from longhaul_core.store.models import SCHEMA_VERSION, Base
from longhaul_core.store.views import Dialect, view_definitions

__all__ = ["VERSION_TABLE", "create_schema"]

VERSION_TABLE = "longhaul_schema"
"""Holds one row: the schema version. Its name marks a database as a store of ours."""

# The text index holds words that `search_terms` has cut, and no text of its own: its rows are the
# steps, by observations.id. SQLite's FTS5 and PostgreSQL's tsvector are reached by the same name.
_TEXT_INDEX = {
    "sqlite": (
        "CREATE VIRTUAL TABLE step_search USING fts5(run, observation, reply, prompt, "
        "content = '', tokenize = 'unicode61 remove_diacritics 0')",
    ),
    "postgresql": (
        "CREATE TABLE step_search (id bigint PRIMARY KEY REFERENCES observations (id) "
        "ON DELETE CASCADE, document tsvector NOT NULL)",
        "CREATE INDEX ix_step_search_document ON step_search USING gin (document)",
    ),
}


def create_schema(connection: Connection) -> None:
    """Make an empty store, inside the connection's open transaction."""
    dialect = cast("Dialect", connection.dialect.name)
    Base.metadata.create_all(connection)
    views = (f"CREATE VIEW {name} AS {body}" for name, body in view_definitions(dialect).items())
    for statement in (
        *_TEXT_INDEX[dialect],
        *views,
        f"CREATE TABLE {VERSION_TABLE} (version_num VARCHAR(32) NOT NULL PRIMARY KEY)",
    ):
        connection.exec_driver_sql(statement)
    inserted = text(f"INSERT INTO {VERSION_TABLE} VALUES (:version)")
    connection.execute(inserted, {"version": SCHEMA_VERSION})
