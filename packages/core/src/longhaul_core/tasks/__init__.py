"""Tasks: where they come from, in what order they are trained on, which are held out."""

from longhaul_core.tasks.panel import Panel, refuse_shared_content, task_content
from longhaul_core.tasks.source import TaskSource
from longhaul_core.tasks.stream import StreamState, TaskStream

__all__ = [
    "Panel",
    "StreamState",
    "TaskSource",
    "TaskStream",
    "refuse_shared_content",
    "task_content",
]
