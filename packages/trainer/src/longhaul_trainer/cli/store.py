"""`trainer store`: what a store needs to be read by others."""

from typing import Annotated

import typer

from longhaul_trainer.cli.arguments import Store, console_of
from longhaul_trainer.cli.exit_codes import EXIT_CODE_HELP

store_app = typer.Typer(epilog=EXIT_CODE_HELP, no_args_is_help=True, help="Look after a store.")


@store_app.callback()
def store_commands() -> None:
    """Look after a store."""


@store_app.command("fence-role", epilog=EXIT_CODE_HELP)
def fence_role(
    *,
    store: Store = None,
    role: Annotated[str, typer.Option(help="The role's name.")] = "longhaul_sql",
) -> None:
    """Make the PostgreSQL role that typed SQL runs as; prints its address, with its password.

    Run it as a superuser, and again after an upgrade of Longhaul. It takes functions that do harm
    (pg_sleep, set_config, advisory locks, …) from PUBLIC in this database; other roles keep them.
    """
    from longhaul_core.sql_box.fenced_role import make_fenced_role
    from longhaul_core.store import open_store

    engine = open_store(store or "longhaul.db", create=False)
    try:
        made = make_fenced_role(engine, role=role)
    finally:
        engine.dispose()
    address = made.url.set(drivername="postgresql").render_as_string(hide_password=False)
    console_of("stdout").print(address, markup=False)
    console_of("stderr").print(
        f"{role} may read {len(made.relations)} tables and views, and nothing else. Keep its "
        "address: the password is not shown again. Give it to `trainer query --store`, to the API "
        "and the viewer by LONGHAUL_SQL_STORE.",
    )
