"""Arguments that several commands share, so that they mean and read the same everywhere."""

import errno
import os
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.console import Console
from rich.text import Text

DEFAULT_RUN = "default"
"""Stands for the run that the package carries, where a file is required."""

Overrides = Annotated[
    list[str] | None,
    typer.Argument(metavar="[KEY=VALUE]...", help="Settings that win over the file's."),
]
RunFile = Annotated[
    str,
    typer.Argument(
        metavar="FILE",
        help="TOML file of the run, @ and the name of a packaged one (@smoke), or `default`.",
    ),
]
Further = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[FILE]... [KEY=VALUE]...", help="Files over the first, and settings over all."
    ),
]
RunReference = Annotated[
    str,
    typer.Argument(metavar="RUN", help="A run's id, the beginning of one, its folder, or `last`."),
]
RunInStore = Annotated[
    str, typer.Argument(metavar="RUN", help="A run's id, the beginning of one, or `last`.")
]
RunsDirectory = Annotated[
    Path, typer.Option("--runs-directory", help="Folder that holds the runs' folders.")
]
Store = Annotated[
    str | None,
    typer.Option(
        "--store",
        envvar="LONGHAUL_STORE",
        help="SQLite file or PostgreSQL URL.",
        show_default="longhaul.db",
    ),
]
EnvironmentId = Annotated[str, typer.Argument(metavar="ID", help="An environment's id.")]
EnvironmentOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--option", metavar="KEY=VALUE", help="An option of the environment; may be repeated."
    ),
]
ImportModules = Annotated[
    list[str] | None,
    typer.Option(
        "--import-module", help="A module that registers the id with Gymnasium; may be repeated."
    ),
]
Checkpoint = Annotated[
    str | None,
    typer.Option(
        "--checkpoint",
        metavar="RUN|FOLDER",
        help="The weights of a run, or those of a model's Hugging Face folder or built-in name, on "
        "the engine of a run.",
    ),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do it, instead of saying what would go.")]
SkipDoctor = Annotated[
    bool,
    typer.Option("--skip-doctor", help="Start although the machine looks too small."),
]


class _Console(Console):
    """Prints for as long as somebody reads; without a pipe or terminal its program goes on."""

    def print(self, *objects: Any, soft_wrap: bool | None = None, **options: Any) -> None:  # noqa: ANN401  # as rich has them
        """Leave lines of text whole, so that a path or a command can be copied out of them."""
        if soft_wrap is None:
            soft_wrap = all(isinstance(each, str | Text) for each in objects)
        super().print(*objects, soft_wrap=soft_wrap, **options)

    def _check_buffer(self) -> None:
        try:
            super()._check_buffer()
        except OSError as error:
            if error.errno != errno.EIO:  # of a terminal that is gone
                raise
            self.on_broken_pipe()

    def on_broken_pipe(self) -> None:
        self.quiet = True
        nobody = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nobody, self.file.fileno())  # Python flushes it once more when it ends
        os.close(nobody)


@cache
def console_of(stream: Literal["stdout", "stderr"]) -> Console:
    """The console of a standard stream; results go to `stdout`, everything else to `stderr`."""
    return _Console(stderr=stream == "stderr", highlight=False)
