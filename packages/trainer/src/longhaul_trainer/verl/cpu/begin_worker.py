"""Begins a worker of Ray's: sets its variables and becomes its interpreter, without importing Ray.

Ray runs this file in the place of its `setup_worker.py`, which imports Ray for the same. A worker
that asks for more than plain variables and an interpreter is left to Ray's own.
"""

import json
import os
import shlex
import sys
from collections.abc import Sequence
from typing import NoReturn

CONTEXT = "--serialized-runtime-env-context="
PYTHON = "--language=PYTHON"


def main(arguments: Sequence[str]) -> NoReturn:
    """Become the worker.

    Args:
        arguments: As Ray's own takes them: the worker's file and arguments, its language, and its
            runtime environment.
    """
    (text,) = [one.removeprefix(CONTEXT) for one in arguments if one.startswith(CONTEXT)] or ["{}"]
    context = json.loads(text)
    variables = context.pop("env_vars", {})
    given = context.pop("py_executable", sys.executable)
    # Ray fills in its own as a bare path, spaces and all; any other is words of a shell.
    interpreter = [given] if given == sys.executable else shlex.split(given)
    if PYTHON not in arguments or any(context.values()) or "$" in "".join(variables.values()):
        worker = next(one for one in arguments if one.endswith(".py"))
        setup = os.path.join(os.path.dirname(worker), "setup_worker.py")
        os.execv(sys.executable, [sys.executable, setup, *arguments])
    os.environ.update(variables)
    rest = [one for one in arguments if one != PYTHON and not one.startswith(CONTEXT)]
    os.execvp(interpreter[0], [*interpreter, *rest])


if __name__ == "__main__":
    main(sys.argv[1:])
