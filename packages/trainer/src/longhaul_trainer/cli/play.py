"""`trainer play`: a person plays an environment in the terminal."""

import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from longhaul_core.discovery import installed_environments
from longhaul_core.errors import ConfigError
from longhaul_core.types import Split, Task
from longhaul_trainer.cli.arguments import (
    EnvironmentId,
    EnvironmentOptions,
    ImportModules,
    console_of,
)
from longhaul_trainer.cli.exit_codes import ExitCode


def play(
    environment: EnvironmentId,
    *,
    split: Annotated[Split, typer.Option(help="Which list the task is of.")] = Split.TEST,
    task: Annotated[
        str | None, typer.Option(help="Id of the task.", show_default="the first of the list")
    ] = None,
    option: EnvironmentOptions = None,
    import_module: ImportModules = None,
    picture: Annotated[
        Path | None, typer.Option(help="PNG file that always shows the present state.")
    ] = None,
) -> None:
    """Play an environment: type an action or its number, `?` for advice, Ctrl-D to leave."""
    from longhaul_core.gym import GymEnvironmentSpec
    from longhaul_envs.players import opened
    from longhaul_envs.sources import environment_source
    from longhaul_trainer.cli.game import Game

    spec = GymEnvironmentSpec(
        environment_id=environment,
        options=options_of(option or []),
        import_modules=("longhaul_envs.registry", *(import_module or [])),
    )
    if environment not in installed_environments() and not import_module:
        raise ConfigError(
            f"no environment {environment!r} is installed; there are "
            f"{', '.join(installed_environments())}. One of your own needs --import-module"
        )
    source = environment_source(spec)
    chosen = chosen_task(source.tasks(split), task, split=split)
    console = console_of("stdout")
    description = source.describe()
    console.print(Text(f"{environment} task {chosen.task_id} ({split.value})", style="bold"))
    if description.prompt is not None:
        console.print(Text(description.prompt.system, style="dim"))
    with opened(spec) as player:
        game = Game(player, chosen, console=console, picture=picture)
        try:
            game.run()
        except EOFError:
            console.print()
        except KeyboardInterrupt:
            console.print(f"\ncancelled after {game.score()}")
            raise typer.Exit(ExitCode.CANCELLED) from None
        console.print(game.score())


def options_of(given: Sequence[str]) -> dict[str, object]:
    """Options written as `KEY=VALUE`, values in TOML's words or as they stand.

    Raises:
        ConfigError: If one has no `=`.
    """
    options: dict[str, object] = {}
    for one in given:
        key, equals, text = one.partition("=")
        if not equals or not key.strip():
            raise ConfigError(f"{one!r} is no option; write --option key=value")
        try:
            options[key.strip()] = tomllib.loads(f"value = {text}")["value"]
        except tomllib.TOMLDecodeError:
            options[key.strip()] = text
    return options


def chosen_task(tasks: Sequence[Task], task_id: str | None, *, split: Split) -> Task:
    """The task of this id, or the first.

    Raises:
        ConfigError: If the split has no such task; the message names some that it has.
    """
    if task_id is None:
        return tasks[0]
    for task in tasks:
        if task.task_id == task_id:
            return task
    some = ", ".join(task.task_id for task in tasks[:5])
    raise ConfigError(
        f"split {split.value!r} has no task {task_id!r}; it has {len(tasks)}, such as {some}"
    )
