"""A Ray of one small machine, without the processes and imports that a run has no use for.

`include_dashboard=False` starts the dashboard's server and its agent all the same, and the
autoscaler's monitor watches for nodes to add, which a machine of its own has none of. Every worker
begins as a program that imports Ray (two seconds of a processor) only to start another interpreter.
"""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ray._private import ray_constants, services
from ray._private.node import Node

BEGIN_WORKER = Path(__file__).with_name("begin_worker.py")
NO_AGENT = Path(__file__).with_name("no_agent.py")


@contextmanager
def lean_ray() -> Generator[None]:
    """Start Ray in the block."""
    own: Any = services
    command_of = own._build_python_executable_command_memory_profileable

    def started_as(component: str, *given: Any, **options: Any) -> list[str]:  # noqa: ANN401
        if component == ray_constants.PROCESS_TYPE_DASHBOARD_AGENT:
            return [sys.executable, "-IS", str(NO_AGENT)]
        return command_of(component, *given, **options)

    def not_started(node: Any, **options: Any) -> None:  # noqa: ANN401  Ray's own
        """Start nothing."""

    changed: list[tuple[Any, str, object]] = [
        (Node, "start_monitor", not_started),
        (Node, "start_api_server", not_started),
        (own, command_of.__name__, started_as),
        # Ray joins it to its own folder, so an absolute path is taken as it is.
        (ray_constants, "SETUP_WORKER_FILENAME", str(BEGIN_WORKER)),
    ]
    of_ray = [getattr(owner, name) for owner, name, _ in changed]
    for owner, name, new in changed:
        setattr(owner, name, new)
    try:
        yield
    finally:
        for (owner, name, _), old in zip(changed, of_ray, strict=True):
            setattr(owner, name, old)
