"""Weights that answer: what a gateway by hand, or a branch, needs of the run that serves them."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from longhaul_core.rollout import Responder
from longhaul_core.store.records import EpisodeRecord

__all__ = ["ServedModel"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedModel:
    """The model of a run whose engine has started."""

    responder: Responder
    """Draws replies as in validation, where a request does not say."""
    responder_after: Callable[[str], Responder]
    """The same, of prompts that end with the beginning of a reply."""
    run_id: str
    store: Callable[[EpisodeRecord], Awaitable[None]]
    """Returns when the store has an episode, and the text of its tokens."""
    say: Callable[[str], None]
    """Prints a line in the terminal."""
