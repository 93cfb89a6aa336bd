"""`trainer memory-lab`: what would the prompts of stored episodes be under another memory?"""

from pathlib import Path
from typing import Annotated

import typer

from longhaul_core.errors import ConfigError
from longhaul_trainer.cli.arguments import Overrides, RunInStore, Store
from longhaul_trainer.cli.runs import DEFAULT_STORE
from longhaul_trainer.config.episodes import MemoryConfig
from longhaul_trainer.config.load import load_default_config

_ANY_LENGTH = ("rollout.max_prompt_tokens=1000000", "optimizer.micro_batch_tokens=2000000")
"""A memory is read as that of the default run, and is composed within the limits of another."""


def memory_lab(  # noqa: PLR0913  options of a command
    run: RunInStore,
    overrides: Overrides = None,
    *,
    memory: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KIND[:SIZE][,KEY=VALUE…]|FILE",
            help="Beside the run's own: as memory.kind, memory.size and further keys of it have "
            "it, or a TOML file with a [memory]; may be repeated.",
        ),
    ] = None,
    last: Annotated[
        int,
        typer.Option(
            min=1, help="So many of the newest episodes that ended; of each --training-step."
        ),
    ] = 32,
    training_step: Annotated[
        list[int] | None,
        typer.Option(min=0, help="Only episodes that it played; may be repeated."),
    ] = None,
    episode: Annotated[
        list[str] | None,
        typer.Option(metavar="ID", help="This episode, in place of the newest; may be repeated."),
    ] = None,
    description: Annotated[
        str | None,
        typer.Option(
            "--config",
            metavar="FILE",
            help="The run that composes the prompts.",
            show_default="the run itself",
        ),
    ] = None,
    store: Store = None,
) -> None:
    """Compose the prompts of stored episodes anew under several memories, and compare them.

    No environment is played, no model is asked, and nothing is written. Under the run's own memory
    the prompts must be those that are stored.
    """
    from longhaul_trainer.cli.memory_table import Chosen, compare_in_store

    compare_in_store(
        store or DEFAULT_STORE,
        run,
        memories=[described_memory(words) for words in memory or []],
        chosen=Chosen(
            last=last, training_steps=tuple(training_step or ()), episodes=tuple(episode or ())
        ),
        description=description,
        overrides=overrides or [],
    )


def described_memory(words: str) -> MemoryConfig:
    """A memory as `--memory` names it.

    Args:
        words: `KIND`, `KIND:SIZE`, either with `,KEY=VALUE` for further settings, or the path of a
            TOML file that ends with `.toml`.

    Raises:
        ConfigError: It is none, with its key, its value and the limit.
    """
    if words.endswith(".toml"):
        return load_default_config(_ANY_LENGTH, layers=[Path(words)]).memory
    named, *others = words.split(",")
    kind, _, size = named.rpartition(":")
    if not size.isdecimal():
        kind, size = named, ""
    settings = [f"kind={kind}", *([f"size={size}"] if size else []), *others]
    try:
        memory = [f"memory.{each}" for each in settings]
        return load_default_config([*_ANY_LENGTH, *memory]).memory
    except ConfigError as error:
        raise ConfigError(f"--memory {words!r}: {error}") from error
