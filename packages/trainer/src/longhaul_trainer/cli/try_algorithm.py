"""`trainer try-algorithm`: what would an estimator of one's own have given stored groups?"""

from typing import Annotated

import typer

from longhaul_trainer.cli.arguments import Store
from longhaul_trainer.cli.play import options_of
from longhaul_trainer.cli.runs import DEFAULT_STORE


def try_algorithm(
    name: Annotated[
        str, typer.Argument(metavar="MODULE:NAME", help="The function, as in algorithm.name.")
    ],
    *,
    run: Annotated[str, typer.Option(help="Whose groups: an id, the beginning of one, or `last`.")],
    store: Store = None,
    groups: Annotated[int, typer.Option(min=1, help="So many of the newest groups.")] = 32,
    option: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="Of algorithm.options; may be repeated."),
    ] = None,
) -> None:
    """Compute an estimator's credit of stored groups, beside that of the built-in ones.

    Nothing is trained or written. The other settings of [algorithm] are the run's.
    """
    from longhaul_trainer.cli.stored_trial import try_in_store

    try_in_store(
        store or DEFAULT_STORE, run, name=name, num_groups=groups, options=options_of(option or [])
    )
