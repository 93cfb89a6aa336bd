"""`trainer import` and `trainer export`: rollouts of other programs in, and ours out."""

from pathlib import Path
from typing import Annotated

import typer

from longhaul_trainer.cli.arguments import RunInStore, Store

DEFAULT_STORE = "longhaul.db"

FormatOption = Annotated[
    str,
    typer.Option(
        "--format",
        metavar="NAME",
        help="conversations, atif, verl, verl_agent, agentgym, agentgym_eval or agent_lightning.",
    ),
]


def import_(
    path: Annotated[Path, typer.Argument(help="A file, or a folder: all .json and .jsonl in it.")],
    *,
    format: FormatOption,
    store: Store = None,
    name: Annotated[
        str | None, typer.Option(help="Of the new run.", show_default="the file's")
    ] = None,
    environment: Annotated[
        str | None,
        typer.Option(
            help="Of episodes whose file names none.", show_default="imported/ and the format"
        ),
    ] = None,
    success_at: Annotated[
        float,
        typer.Option(help="Least return that counts as solved where the file does not say."),
    ] = 1.0,
    tokenizer: Annotated[
        Path | None,
        typer.Option(help="The model's folder, for triplets that have tokens and no text."),
    ] = None,
) -> None:
    """Read rollouts of another program into a store, as a run that can be replayed."""
    from longhaul_trainer.cli.stored_exchange import Source, import_rollouts

    source = Source(
        path=path,
        format=format,
        name=name,
        environment=environment,
        success_at=success_at,
        tokenizer=tokenizer,
    )
    import_rollouts(store or DEFAULT_STORE, source)


def export(
    reference: RunInStore,
    *,
    format: FormatOption,
    store: Store = None,
    where: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE",
            help="Only such episodes, e.g. success=true, phase=train, min_return=0.5; repeatable.",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="The file to write, or `-`.", show_default="standard output"
        ),
    ] = None,
) -> None:
    """Write a run's episodes in another program's format, e.g. for imitation (SFT)."""
    from longhaul_trainer.cli.stored_exchange import export_run

    export_run(store or DEFAULT_STORE, reference, format=format, where=where or [], output=output)
