"""How the program ends: exit codes, and the one place where an error becomes a message.

An error of ours is shown without its traceback, which goes to the log of the run where
there is one. Any other exception is a defect of the program and keeps its traceback.
"""

from enum import IntEnum

from rich.console import Console
from rich.rule import Rule
from rich.text import Text

from longhaul_core.errors import (
    ConfigError,
    FormatError,
    LonghaulError,
    MachineError,
    QueryError,
    StoreError,
)


class ExitCode(IntEnum):
    """What a script that calls `trainer` may rely on."""

    DONE = 0
    RUN_FAILED = 1
    FINDINGS = 1
    """An audit found something that is not as it was meant."""
    BAD_CONFIG = 2
    """The description of the run, the command line, or a file to import is wrong."""
    MACHINE = 3
    """The machine cannot carry the run, or another process has it."""
    STORE = 4
    """The trajectory store refused."""
    UNPLAYED = 5
    """An evaluation ended whose panel was not played whole: its score is of the rest."""
    CANCELLED = 130
    """By Ctrl-C, SIGTERM, SIGHUP or `trainer runs cancel`; a training can be resumed."""


EXIT_CODE_HELP = (
    "Exit codes: 0 done, 1 the run failed or its audit found something, 2 bad configuration or "
    "usage, 3 the machine cannot carry the run, 4 the store refused, 5 a panel was not played "
    "whole, 130 cancelled."
)

CODE_OF_ERROR: tuple[tuple[type[LonghaulError], ExitCode, str], ...] = (
    (ConfigError, ExitCode.BAD_CONFIG, "configuration"),
    (QueryError, ExitCode.BAD_CONFIG, "query"),
    (FormatError, ExitCode.BAD_CONFIG, "file"),
    (MachineError, ExitCode.MACHINE, "machine"),
    (StoreError, ExitCode.STORE, "store"),
    (LonghaulError, ExitCode.RUN_FAILED, "the run failed"),
)
"""The first class that fits decides."""


def show_error(error: LonghaulError, console: Console) -> ExitCode:
    """Print an error for a person, and name the code to exit with.

    Its lines are left whole, so that a path can be copied and found by a program.

    Args:
        error: Its notes, such as the path of a log, are shown below its message.
        console: Of standard error.
    """
    code, title = next(
        (code, title) for kind, code, title in CODE_OF_ERROR if isinstance(error, kind)
    )
    lines = [str(error), *getattr(error, "__notes__", [])]
    console.print(Rule(title, align="left", style="red"))
    console.print(Text("\n".join(lines), style="red"), soft_wrap=True)
    return code
