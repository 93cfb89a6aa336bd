"""The program `trainer`, for a person who types: in this process."""

import io
import sys
from contextlib import redirect_stderr, redirect_stdout

import pytest

from longhaul_trainer.cli.arguments import console_of
from longhaul_trainer.cli.main import main


def trainer(*arguments: str, typed: str = "") -> tuple[object, str, str]:
    """Exit code, output and messages of `trainer ARGUMENTS` for a person who types `typed`."""
    stdout, stderr, code = io.StringIO(), io.StringIO(), None
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", "200")
        patch.setattr(sys, "argv", ["trainer", *arguments])
        patch.setattr(sys, "stdin", io.StringIO(typed))
        console_of.cache_clear()
        with redirect_stdout(stdout), redirect_stderr(stderr):
            try:
                main()
            except SystemExit as end:
                code = end.code
    console_of.cache_clear()
    return code or 0, stdout.getvalue(), stderr.getvalue()
