"""Memories: what of an episode's past the policy is shown again."""

from longhaul_core.memory.base import Memory
from longhaul_core.memory.build import MemoryKind, build_memory
from longhaul_core.memory.full import FullHistory
from longhaul_core.memory.none import NoMemory
from longhaul_core.memory.template import PastView, PromptTemplate
from longhaul_core.memory.window import WindowMemory

__all__ = [
    "FullHistory",
    "Memory",
    "MemoryKind",
    "NoMemory",
    "PastView",
    "PromptTemplate",
    "WindowMemory",
    "build_memory",
]
