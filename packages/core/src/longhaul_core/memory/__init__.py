"""Memories: what of an episode's past the policy is shown again."""

from longhaul_core.memory.base import Memory, MemoryContext, RecallingMemory
from longhaul_core.memory.build import MEMORIES, build_memory
from longhaul_core.memory.full import FullHistory
from longhaul_core.memory.key_events import KeyEventsMemory
from longhaul_core.memory.none import NoMemory
from longhaul_core.memory.recall import RecallMemory
from longhaul_core.memory.summary import SummaryMemory
from longhaul_core.memory.template import (
    DEFAULT_TEMPLATE,
    InstructionPlace,
    PromptTemplate,
    build_template,
    environment_template,
)
from longhaul_core.memory.window import WindowMemory

__all__ = [
    "DEFAULT_TEMPLATE",
    "MEMORIES",
    "FullHistory",
    "InstructionPlace",
    "KeyEventsMemory",
    "Memory",
    "MemoryContext",
    "NoMemory",
    "PromptTemplate",
    "RecallMemory",
    "RecallingMemory",
    "SummaryMemory",
    "WindowMemory",
    "build_memory",
    "build_template",
    "environment_template",
]
