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
        return {
            "episode_id": summary.episode_id,
            "environment": summary.environment,
            "task_id": summary.task_id,
            "group": f"{summary.attempt}/{summary.group_index}",
            "goal": summary.goal,
            "task_data": detail.task_data,
            "split": summary.split,
            "phase": summary.phase,
            "training_step": summary.training_step,
            "success": summary.success,
            "stop_reason": summary.stop_reason,
            "episode_return": summary.episode_return,
            "final_observation": detail.final_observation or "",
            "horizon": summary.horizon,
            "seed": detail.seed,
            "started_at": summary.started_at,
            "duration_seconds": summary.duration_seconds,
            "branched_from": summary.branched_from,
            "branched_at_step": summary.branched_at_step,
            "branched_action": summary.branched_action,
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
        unread = frozenset(strays(self, prefix="metadata."))
        return ImportedEpisode(
            place=place,
            steps=steps,
            task_id=self.task_id or task_id,
            environment=self.environment,
            group=self.group,
            goal=self.goal,
            task_data=self.task_data,
            split=self.split,
            phase=self.phase,
            training_step=self.training_step,
            success=self.success,
            stop_reason=self.stop_reason,
            final_observation=self.final_observation,
            horizon=self.horizon,
            seed=self.seed,
            started_at=self.started_at,
            duration_seconds=self.duration_seconds,
            branched_from=self.branched_from,
            branched_at_step=self.branched_at_step,
            branched_action=self.branched_action,
            left_out=left_out | unread,
        )


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
        facts = {
            "step_index": step.step_index,
            "observation": step.observation,
            "action": step.action,
            "action_valid": step.action_valid,
            "reward": reward,
            "purpose": call.purpose,
            "agent": call.agent,
            "model": call.model,
            "finish_reason": call.finish_reason,
            "conversation": call.conversation,
            "continuation": call.continuation,
            "policy_version": call.policy_version,
        }
        return facts | {"reply_prefix": prefix} if prefix else facts
