"""What our own files say of an episode where a format leaves room for it, to and from JSON."""

from typing import Any

from pydantic import FiniteFloat, NonNegativeInt

from longhaul_core.exchange.chat import Lenient, strays
from longhaul_core.exchange.episodes import ImportedEpisode
from longhaul_core.exchange.reading import Place
from longhaul_core.exchange.stored import StoredEpisode
from longhaul_core.store.queries import CallDetail, StepDetail
from longhaul_core.store.records import Phase
from longhaul_core.types import Continuation, FinishReason, Split, Step, StopReason

__all__ = ["CallFacts", "EpisodeFacts"]

_OF_THE_LINES = {"episode_id", "episode_return"}
"""Facts of an episode that its lines and their steps give."""
_OF_STEP = {"step_index", "observation", "action", "action_valid"}
"""Facts of a call that are its step's."""


class EpisodeFacts(Lenient):
    """Of an episode; what is None, nobody says."""

    episode_id: str | None = None
    """Tells the lines of one episode."""
    environment: str | None = None
    task_id: str | None = None
    group: str | None = None
    goal: str = ""
    task_data: str = ""
    split: Split = Split.TRAIN
    phase: Phase = "train"
    training_step: NonNegativeInt = 0
    success: bool | None = None
    stop_reason: StopReason | None = None
    episode_return: FiniteFloat | None = None
    final_observation: str = ""
    horizon: NonNegativeInt | None = None
    seed: NonNegativeInt = 0
    started_at: FiniteFloat = 0.0
    duration_seconds: FiniteFloat = 0.0
    branched_from: str | None = None
    branched_at_step: NonNegativeInt | None = None
    branched_action: str | None = None

    @classmethod
    def of(cls, episode: StoredEpisode) -> dict[str, Any]:
        """Those of a stored episode, as JSON."""
        detail, summary = episode.detail, episode.detail.summary
        given = {
            "group": f"{summary.attempt}/{summary.group_index}",
            "final_observation": detail.final_observation or "",
        }
        return {
            name: given[name]
            if name in given
            else getattr(summary if hasattr(summary, name) else detail, name)
            for name in EpisodeFacts.model_fields
        }

    def imported(
        self, place: Place, *, steps: tuple[Step, ...], task_id: str, left_out: frozenset[str]
    ) -> ImportedEpisode:
        """The episode.

        Args:
            place: Of its first line.
            steps: With their rewards.
            task_id: Where these facts name none.
            left_out: Other fields that were not read.
        """
        facts: dict[str, Any] = {
            name: getattr(self, name)
            for name in EpisodeFacts.model_fields
            if name not in _OF_THE_LINES
        }
        facts["task_id"] = self.task_id or task_id
        unread = frozenset(strays(self, prefix="metadata."))
        return ImportedEpisode(place=place, steps=steps, left_out=left_out | unread, **facts)


class CallFacts(Lenient):
    """Of a call and the step that it belongs to."""

    step_index: NonNegativeInt | None = None
    observation: str | None = None
    action: str | None = None
    action_valid: bool = True
    reward: FiniteFloat | None = None
    purpose: str = "act"
    agent: str = ""
    model: str = ""
    finish_reason: FinishReason = FinishReason.STOP
    conversation: NonNegativeInt = 0
    continuation: Continuation | None = None
    policy_version: NonNegativeInt | None = None
    reply_prefix: str = ""
    """What the prompt's tokens already held of the reply; no part of the reply."""

    @classmethod
    def of(
        cls, step: StepDetail, call: CallDetail, *, reward: float, prefix: str = ""
    ) -> dict[str, Any]:
        """Those of a stored call, as JSON.

        Args:
            step: That the call belongs to.
            call: The call.
            reward: What was paid for it.
            prefix: See `reply_prefix`.
        """
        given = {"reward": reward, "reply_prefix": prefix}
        return {
            name: given[name]
            if name in given
            else getattr(step if name in _OF_STEP else call, name)
            for name in CallFacts.model_fields
            if name != "reply_prefix" or prefix
        }
