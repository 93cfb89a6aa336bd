"""A memory by its name in a configuration."""

from collections.abc import Callable, Mapping
from typing import cast

from longhaul_core.components import build_component
from longhaul_core.memory.base import Memory
from longhaul_core.memory.full import FullHistory
from longhaul_core.memory.key_events import KeyEventsMemory
from longhaul_core.memory.none import NoMemory
from longhaul_core.memory.recall import RecallMemory
from longhaul_core.memory.summary import SummaryMemory
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
    "summary": SummaryMemory,
    "key_events": KeyEventsMemory,
    "recall": RecallMemory,
}
"""The memories that ship with the framework; each is made of `size=` and `template=`, and of the
settings that are for it alone."""


def build_memory(
    kind: str,
    *,
    template: PromptTemplate,
    size: int = 0,
    summarize_every: int = 4,
    max_summary_tokens: int | None = None,
    train_summaries: bool = False,
    max_earlier: int = 4,
) -> Memory:
    """A fresh memory for one episode.

    Args:
        kind: One of `MEMORIES`, or `package.module:name` of a class or function of one's own.
        template: How prompts are laid out.
        size: Last exchanges that are shown as they were, at least 1; not read by `none` and `full`.
            A memory of one's own gets it too.
        summarize_every: Exchanges that a summary memory takes into its summary at a time, at
            least 1; not read by the others, nor are the next two.
        max_summary_tokens: Longest summary; None stands for the agent's longest reply.
        train_summaries: Whether the tokens of summaries are in the loss.
        max_earlier: Exchanges before the last ones that `key_events` and `recall` show, at least 1.

    Raises:
        ConfigError: If the kind is not known, a number is out of range, or a memory of one's own
            cannot be imported or made, or lacks what `Memory` has.
    """
    arguments: dict[str, object] = {"size": size, "template": template}
    if kind == "summary":
        arguments |= {
            "every": summarize_every,
            "max_summary_tokens": max_summary_tokens,
            "trained": train_summaries,
        }
    if kind in ("key_events", "recall"):
        arguments["max_earlier"] = max_earlier
    made = build_component(
        kind,
        MEMORIES,
        setting="memory.kind",
        needs=("write", "compose", "num_remembered"),
        arguments=arguments,
    )
    return cast("Memory", made)
