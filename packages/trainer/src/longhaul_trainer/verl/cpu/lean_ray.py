"""A Ray of one small machine, without the processes and imports that a run has no use for.

`include_dashboard=False` starts the dashboard's server all the same, and the autoscaler's monitor
watches for nodes to add, which a machine of its own has none of. Every worker begins as a program
that imports Ray (two seconds of a processor) only to start another interpreter.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from ray._private import ray_constants
from ray._private.node import Node

BEGIN_WORKER = Path(__file__).with_name("begin_worker.py")


@contextmanager
def lean_ray() -> Generator[None]:
    """Start Ray in the block."""

    def not_started(node: Any, **options: Any) -> None:  # noqa: ANN401  Ray's own
        """Start nothing."""

    with (
        patch.object(Node, "start_monitor", not_started),
        patch.object(Node, "start_api_server", not_started),
        # Ray joins it to its own folder, so an absolute path is taken as it is.
        patch.object(ray_constants, "SETUP_WORKER_FILENAME", str(BEGIN_WORKER)),
    ):
        yield
