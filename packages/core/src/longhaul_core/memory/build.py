"""A memory by its name in a configuration."""

from enum import StrEnum

from longhaul_core.errors import ConfigError
from longhaul_core.memory.base import Memory
from longhaul_core.memory.full import FullHistory
from longhaul_core.memory.none import NoMemory
from longhaul_core.memory.summary import SummaryMemory
from longhaul_core.memory.template import PromptTemplate
from longhaul_core.memory.window import WindowMemory

__all__ = ["MemoryKind", "build_memory"]


class MemoryKind(StrEnum):
    """The memories that ship with the framework."""

    NONE = "none"
    WINDOW = "window"
    FULL = "full"
    SUMMARY = "summary"


def build_memory(
    kind: str,
    *,
    template: PromptTemplate,
    size: int = 0,
    summarize_every: int = 0,
    max_summary_tokens: int | None = None,
    train_summaries: bool = False,
) -> Memory:
    """A fresh memory for one episode.

    Args:
        kind: A `MemoryKind`, or its text.
        template: How prompts are laid out.
        size: Exchanges that a window, or a summary's prompt, shows as they were, at least 1; not
            read by the others.
        summarize_every: Exchanges that a summary memory takes into its summary at a time, at
            least 1; not read by the others, nor are the next two.
        max_summary_tokens: Longest summary; None stands for the agent's longest reply.
        train_summaries: Whether the tokens of summaries are in the loss.

    Raises:
        ConfigError: If the kind is not known or a number is out of range.
    """
    match kind:
        case MemoryKind.NONE:
            return NoMemory(template=template)
        case MemoryKind.WINDOW:
            return WindowMemory(size=size, template=template)
        case MemoryKind.FULL:
            return FullHistory(template=template)
        case MemoryKind.SUMMARY:
            return SummaryMemory(
                size=size,
                every=summarize_every,
                template=template,
                max_summary_tokens=max_summary_tokens,
                trained=train_summaries,
            )
        case _:
            known = ", ".join(kind.value for kind in MemoryKind)
            raise ConfigError(f"memory kind must be one of {known}, got {kind!r}")
