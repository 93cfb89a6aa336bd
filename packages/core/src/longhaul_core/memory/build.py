"""A memory by its name in a configuration."""

from enum import StrEnum

from longhaul_core.errors import ConfigError
from longhaul_core.memory.base import Memory
from longhaul_core.memory.full import FullHistory
from longhaul_core.memory.none import NoMemory
from longhaul_core.memory.template import PromptTemplate
from longhaul_core.memory.window import WindowMemory

__all__ = ["MemoryKind", "build_memory"]


class MemoryKind(StrEnum):
    """The memories that ship with the framework."""

    NONE = "none"
    WINDOW = "window"
    FULL = "full"


def build_memory(kind: str, *, size: int = 0, template: PromptTemplate) -> Memory:
    """A fresh memory for one episode.

    Args:
        kind: A `MemoryKind`, or its text.
        size: Exchanges that a window keeps, at least 1; not read by the others.
        template: How prompts are laid out.

    Raises:
        ConfigError: If the kind is not known or the size is out of range.
    """
    match kind:
        case MemoryKind.NONE:
            return NoMemory(template=template)
        case MemoryKind.WINDOW:
            return WindowMemory(size=size, template=template)
        case MemoryKind.FULL:
            return FullHistory(template=template)
        case _:
            known = ", ".join(kind.value for kind in MemoryKind)
            raise ConfigError(f"memory kind must be one of {known}, got {kind!r}")
