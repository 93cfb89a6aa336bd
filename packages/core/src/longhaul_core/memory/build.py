"""A memory by its name in a configuration."""

from collections.abc import Callable, Mapping
from typing import cast

from longhaul_core.components import build_component
from longhaul_core.memory.base import Memory
from longhaul_core.memory.full import FullHistory
from longhaul_core.memory.none import NoMemory
from longhaul_core.memory.template import PromptTemplate
from longhaul_core.memory.window import WindowMemory

__all__ = ["MEMORIES", "build_memory"]


def _none(*, size: int, template: PromptTemplate) -> Memory:
    return NoMemory(template=template)


def _full(*, size: int, template: PromptTemplate) -> Memory:
    return FullHistory(template=template)


MEMORIES: Mapping[str, Callable[..., Memory]] = {
    "none": _none,
    "window": WindowMemory,
    "full": _full,
}
"""The memories that ship with the framework; each is made of `size=` and `template=`."""


def build_memory(kind: str, *, size: int = 0, template: PromptTemplate) -> Memory:
    """A fresh memory for one episode.

    Args:
        kind: One of `MEMORIES`, or `package.module:name` of a class or function of one's own.
        size: Exchanges that a window keeps, at least 1; a memory of one's own gets it too.
        template: How prompts are laid out.

    Raises:
        ConfigError: If the kind is not known, the size is out of range, or a memory of one's own
            cannot be imported or made, or lacks what `Memory` has.
    """
    made = build_component(
        kind,
        MEMORIES,
        setting="memory.kind",
        needs=("write", "compose", "num_remembered"),
        arguments={"size": size, "template": template},
    )
    return cast("Memory", made)
