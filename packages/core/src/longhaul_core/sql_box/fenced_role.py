"""The role of PostgreSQL that people's SQL runs as: it may read a store, and nothing else.

Neither READ ONLY nor SET ROLE is a fence there: a statement can leave both. Rights are one. Some
functions that any role may call by default raise limits, wait, take locks or end sessions; they
are revoked from PUBLIC in this database, and roles that exist now keep them by name.
"""

import secrets
from dataclasses import dataclass

from sqlalchemy import Connection, Engine, text
from sqlalchemy.engine import URL

from longhaul_core.errors import ConfigError, StoreError
from longhaul_core.sql_box.limits import HARMFUL_FUNCTIONS
from longhaul_core.sql_box.relations import relation_names
from longhaul_core.store.addresses import describe_store
from longhaul_core.store.session import write_transaction

__all__ = ["FencedRole", "make_fenced_role"]

CONNECTIONS = 8
SETTINGS = {
    "temp_file_limit": "512MB",
    "work_mem": "32MB",
    "max_parallel_workers_per_gather": "0",
    "statement_timeout": "60s",
    "idle_in_transaction_session_timeout": "60s",
    "lock_timeout": "2s",
    "client_connection_check_interval": "1s",
    "default_transaction_read_only": "on",
}
_NAME_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyz0123456789_")
_LONGEST_NAME = 63


@dataclass(frozen=True, slots=True, kw_only=True)
class FencedRole:
    """What was made."""

    url: URL
    """The store's address for the box; it holds the password, which is nowhere else."""
    relations: tuple[str, ...]
    """What it may read."""


def make_fenced_role(engine: Engine, *, role: str = "longhaul_sql") -> FencedRole:
    """Make the role, or give one of that name a new password and the rights on today's tables.

    In one transaction. To be done again when a new version of Longhaul has changed the store's
    tables, since a view that is made anew has no rights of others.

    Args:
        engine: On a store in PostgreSQL, as a superuser.
        role: Its name, of lower-case letters, digits and `_`.

    Raises:
        ConfigError: The store is no PostgreSQL database, the name is none, the user of the
            engine's address is not superuser, or the role has more rights than are given here.
        StoreError: The database refused; nothing was changed.
    """
    if engine.dialect.name != "postgresql":
        raise ConfigError(
            f"{describe_store(engine.url)} is a SQLite file: it needs no role, since the box opens "
            "it for reading only"
        )
    if (
        not role
        or len(role) > _LONGEST_NAME
        or not set(role) <= _NAME_CHARACTERS
        or role[0].isdigit()
    ):
        raise ConfigError(
            f"a role's name has 1 to {_LONGEST_NAME} lower-case letters, digits and `_`, "
            f"got {role!r}"
        )
    password = secrets.token_urlsafe(24)
    with write_transaction(engine) as connection:
        _require_superuser(connection, role)
        others = _other_roles(connection, role)
        known = connection.scalar(text("SELECT 1 FROM pg_roles WHERE rolname = :r"), {"r": role})
        _do(
            connection,
            f"{'ALTER' if known else 'CREATE'} ROLE {role} LOGIN PASSWORD '{password}' "
            "NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION NOBYPASSRLS NOINHERIT "
            f"CONNECTION LIMIT {CONNECTIONS}",
        )
        for name, value in SETTINGS.items():
            _do(connection, f"ALTER ROLE {role} SET {name} = '{value}'")
        _take_from_everybody(connection, others)
        for function in _harmful_functions(connection):
            _do(connection, f"REVOKE EXECUTE ON ROUTINE {function} FROM PUBLIC, {role}")
            if others:
                _do(connection, f"GRANT EXECUTE ON ROUTINE {function} TO {', '.join(others)}")
        relations = _relations(connection)
        _do(connection, f"GRANT USAGE ON SCHEMA public TO {role}")
        _do(connection, f"REVOKE ALL ON ALL TABLES IN SCHEMA public FROM {role}")
        _do(connection, f"GRANT SELECT ON {', '.join(relations)} TO {role}")
    return FencedRole(
        url=engine.url.set(username=role, password=password), relations=tuple(relations)
    )


def _require_superuser(connection: Connection, role: str) -> None:
    user, is_superuser = connection.execute(
        text("SELECT current_user, rolsuper FROM pg_roles WHERE rolname = current_user")
    ).one()
    if not is_superuser:
        raise ConfigError(
            f"only a superuser can take functions from everybody, and {user!r} is none: run this "
            "once with the address of one"
        )
    if user == role:
        raise ConfigError(f"{role!r} is the superuser that this runs as: name another role")
    if connection.scalar(
        text("SELECT relname FROM pg_class WHERE pg_get_userbyid(relowner) = :r LIMIT 1"),
        {"r": role},
    ):
        raise ConfigError(f"the role {role!r} owns tables in this database: name another one")


def _other_roles(connection: Connection, role: str) -> list[str]:
    """Quoted names of roles that must keep what is taken from everybody."""
    return [
        str(name)
        for (name,) in connection.execute(
            text(
                "SELECT quote_ident(rolname) FROM pg_roles WHERE rolname <> :r AND NOT rolsuper "
                r"AND rolname NOT LIKE 'pg\_%' AND rolname NOT LIKE 'longhaul\_sql%' ORDER BY 1"
            ),
            {"r": role},
        )
    ]


def _take_from_everybody(connection: Connection, others: list[str]) -> None:
    database = connection.scalar(text("SELECT quote_ident(current_database())"))
    _do(connection, f"REVOKE TEMPORARY ON DATABASE {database} FROM PUBLIC")
    _do(connection, "REVOKE CREATE ON SCHEMA public FROM PUBLIC")
    if others:
        _do(connection, f"GRANT TEMPORARY ON DATABASE {database} TO {', '.join(others)}")


def _harmful_functions(connection: Connection) -> list[str]:
    return [
        str(name)
        for (name,) in connection.execute(
            text(
                "SELECT p.oid::regprocedure FROM pg_proc p JOIN pg_namespace n "
                "ON n.oid = p.pronamespace WHERE p.proname ~ :names "
                "OR (p.prosecdef AND n.nspname <> 'pg_catalog') ORDER BY 1"
            ),
            {"names": HARMFUL_FUNCTIONS},
        )
    ]


def _relations(connection: Connection) -> list[str]:
    """Those of the store that are there."""
    there = {
        str(name)
        for (name,) in connection.execute(
            text(
                "SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace "
                "AND relkind IN ('r', 'p', 'v')"
            )
        )
    }
    found = sorted(relation_names("postgresql") & there)
    if not found:
        raise StoreError("the database holds no store yet: start a run, or name another one")
    return found


def _do(connection: Connection, statement: str) -> None:
    connection.exec_driver_sql(statement.replace("%", "%%"))
