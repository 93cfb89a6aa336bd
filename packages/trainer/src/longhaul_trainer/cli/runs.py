"""`trainer runs`: what is in a store, and what people do to it: cancel, delete, archive, index."""

from pathlib import Path
from typing import Annotated, Literal, cast

import typer

from longhaul_core.errors import ConfigError
from longhaul_trainer.cli.arguments import RunInStore, Store, Yes
from longhaul_trainer.cli.exit_codes import EXIT_CODE_HELP

DEFAULT_STORE = "longhaul.db"

runs_app = typer.Typer(epilog=EXIT_CODE_HELP, no_args_is_help=False)

WithFolder = Annotated[
    bool, typer.Option("--with-folder", help="Delete checkpoints, weights and logs too.")
]


@runs_app.callback(invoke_without_command=True, epilog=EXIT_CODE_HELP)
def runs(
    context: typer.Context,
    *,
    store: Store = None,
    status: Annotated[
        Literal["running", "finished", "failed", "cancelled"] | None,
        typer.Option(help="Only such runs."),
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="At most so many, newest first.")] = 20,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
) -> None:
    """List the runs of a store, or say what to do with them."""
    context.obj = store  # `trainer runs --store X cancel RUN` means that store, too
    if context.invoked_subcommand is None:
        from longhaul_trainer.cli.stored_runs import show_runs

        show_runs(store or DEFAULT_STORE, status=status, limit=limit, as_json=as_json)


@runs_app.command(epilog=EXIT_CODE_HELP)
def cancel(context: typer.Context, reference: RunInStore, *, store: Store = None) -> None:
    """Stop a running run within seconds. `trainer resume` goes on from its last checkpoint."""
    from longhaul_trainer.cli.stored_runs import ask_to_stop

    ask_to_stop(chosen(context, store), reference)


@runs_app.command(epilog=EXIT_CODE_HELP)
def prune(  # noqa: PLR0913 - each is an option that people type
    context: typer.Context,
    *,
    store: Store = None,
    older_than: Annotated[
        str | None, typer.Option(metavar="AGE", help="Ended longer ago: 30m, 12h, 7d or 4w.")
    ] = None,
    keep_best: Annotated[
        int | None,
        typer.Option(min=0, help="Keep so many, those with the highest return in an evaluation."),
    ] = None,
    name: Annotated[str | None, typer.Option(help="Only runs of this name.")] = None,
    tokens_only: Annotated[
        bool, typer.Option("--tokens-only", help="Drop tokens and logprobs; keep all else.")
    ] = False,
    with_folder: WithFolder = False,
    yes: Yes = False,
) -> None:
    """Delete the runs that a rule lets go; all conditions must hold. Shows them without --yes."""
    if older_than is None and keep_best is None:
        raise ConfigError("say which runs may go: --older-than AGE, --keep-best N, or both")
    from longhaul_trainer.cli.stored_runs import PruneRule, age_seconds, remove_by_rule

    seconds = None if older_than is None else age_seconds(older_than)
    rule = PruneRule(older_than_seconds=seconds, keep_best=keep_best, name=name)
    remove_by_rule(
        chosen(context, store), rule, tokens_only=tokens_only, with_folder=with_folder, yes=yes
    )


@runs_app.command(epilog=EXIT_CODE_HELP)
def delete(
    context: typer.Context,
    reference: RunInStore,
    *,
    store: Store = None,
    with_folder: WithFolder = False,
    yes: Yes = False,
) -> None:
    """Delete one run that is not running. Shows it without --yes."""
    from longhaul_trainer.cli.stored_runs import remove_one

    remove_one(chosen(context, store), reference, with_folder=with_folder, yes=yes)


@runs_app.command(epilog=EXIT_CODE_HELP)
def archive(
    context: typer.Context,
    reference: RunInStore,
    file: Annotated[Path, typer.Argument(help="A file that is not there yet.")],
    *,
    store: Store = None,
) -> None:
    """Copy one run into a file, which is a store of its own. Runs may go on meanwhile."""
    from longhaul_trainer.cli.stored_runs import archive_one

    archive_one(chosen(context, store), reference, file)


@runs_app.command(epilog=EXIT_CODE_HELP)
def restore(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(help="What `archive` or `backup` wrote.", exists=True)],
    reference: Annotated[str, typer.Argument(metavar="RUN", help="Which of its runs.")] = "last",
    *,
    store: Store = None,
) -> None:
    """Copy one run from a file into the store."""
    from longhaul_trainer.cli.stored_runs import restore_one

    restore_one(chosen(context, store), reference, file)


@runs_app.command(epilog=EXIT_CODE_HELP)
def verify(
    file: Annotated[Path, typer.Argument(help="What `archive` or `backup` wrote.", exists=True)],
) -> None:
    """Say whether each run of a file is what was written there."""
    from longhaul_trainer.cli.stored_runs import verify_file

    verify_file(file)


@runs_app.command(epilog=EXIT_CODE_HELP)
def backup(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(help="A file that is not there yet.")],
    *,
    store: Store = None,
) -> None:
    """Copy a whole SQLite store into a file. Runs may go on meanwhile."""
    from longhaul_trainer.cli.stored_runs import back_up_store

    back_up_store(chosen(context, store), file)


@runs_app.command(epilog=EXIT_CODE_HELP)
def sizes(context: typer.Context, *, store: Store = None) -> None:
    """Show what each run takes of the store, about."""
    from longhaul_trainer.cli.stored_runs import show_sizes

    show_sizes(chosen(context, store))


@runs_app.command(epilog=EXIT_CODE_HELP)
def index(context: typer.Context, *, store: Store = None) -> None:
    """Make the text that was written since the last time findable. Runs may go on meanwhile."""
    from longhaul_trainer.cli.stored_runs import index_store

    index_store(chosen(context, store))


def chosen(context: typer.Context, store: str | None) -> str:
    """The store that was named after the command, or before it, or the default one."""
    return store or cast("str | None", context.obj) or DEFAULT_STORE
