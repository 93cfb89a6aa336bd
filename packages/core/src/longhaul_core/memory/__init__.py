"""Memories: what of an episode's past the policy is shown again."""

from longhaul_core.memory.base import Complete, Memory, MemoryContext
from longhaul_core.memory.build import MemoryKind, build_memory
from longhaul_core.memory.full import FullHistory
from longhaul_core.memory.none import NoMemory
from longhaul_core.memory.summary import SummaryMemory
from longhaul_core.memory.template import PromptTemplate
from longhaul_core.memory.window import WindowMemory

__all__ = [
    "Complete",
    "FullHistory",
    "Memory",
    "MemoryContext",
    "MemoryKind",
    "NoMemory",
    "PromptTemplate",
    "SummaryMemory",
    "WindowMemory",
    "build_memory",
]
