"""Tasks: in what order they are trained on, and which are held out."""

from longhaul_core.tasks.difficulty import DifficultyState, DifficultyStream
from longhaul_core.tasks.mixed import MixedState, MixedStream
from longhaul_core.tasks.panel import Panel, refuse_shared_content, task_content
from longhaul_core.tasks.shuffled import ShuffledState, ShuffledStream
from longhaul_core.tasks.stream import TaskStream

__all__ = [
    "DifficultyState",
    "DifficultyStream",
    "MixedState",
    "MixedStream",
    "Panel",
    "ShuffledState",
    "ShuffledStream",
    "TaskStream",
    "refuse_shared_content",
    "task_content",
]
