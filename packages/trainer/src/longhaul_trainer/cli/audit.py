"""`trainer audit`: was what a run trained what it was meant to train?"""

from typing import Annotated

import typer

from longhaul_trainer.cli.arguments import RunInStore, Store
from longhaul_trainer.cli.runs import DEFAULT_STORE


def audit(
    reference: RunInStore,
    *,
    store: Store = None,
    training_step: Annotated[
        list[int] | None,
        typer.Option(min=1, help="Only this training step; may be given several times."),
    ] = None,
) -> None:
    """Recompute from the store alone whether what was trained is what was meant.

    Exits with 1 if it is not.
    """
    from longhaul_trainer.cli.stored_audit import audit_in_store

    audit_in_store(store or DEFAULT_STORE, reference, training_steps=training_step)
