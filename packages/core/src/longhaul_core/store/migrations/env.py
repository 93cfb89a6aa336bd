"""Alembic runs this file for every command: it connects the migrations to our transaction."""

from typing import cast

from alembic import context
from sqlalchemy import Connection, text

from longhaul_core.store.models import Base
from longhaul_core.store.session import VERSION_TABLE
from longhaul_core.store.views import Dialect, view_definitions

connection: Connection = context.config.attributes["connection"]
views = view_definitions(cast("Dialect", connection.dialect.name))

context.configure(connection=connection, target_metadata=Base.metadata, version_table=VERSION_TABLE)
with context.begin_transaction():
    for name in reversed(views):
        connection.execute(text(f"DROP VIEW IF EXISTS {name}"))
    context.run_migrations()
    for name, definition in views.items():
        connection.exec_driver_sql(f"CREATE VIEW {name} AS {definition}")
