"""What the formats read of a stored episode."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Self, cast

from longhaul_core.exchange.chat import ReadMedia
from longhaul_core.store.queries import CallDetail, EpisodeDetail, StepDetail

__all__ = ["ReplyPrefixes", "StoredEpisode"]


@dataclass(frozen=True, slots=True)
class ReplyPrefixes:
    """What a run's renderer wrote of replies beforehand, by environment.

    It stands in the prompt's tokens, behind the messages, and in no reply: a reader that put the
    messages and the reply together would have another text than the model was given.
    """

    by_environment: Mapping[str, str]
    of_others: str = ""

    @classmethod
    def of_run(cls, config_json: str) -> Self:
        """Those of a run's stored configuration; none where it does not speak of prompts."""
        config = json.loads(config_json)
        entries = _objects(config, "environments")
        return cls(
            {str(entry.get("id")): _prefix(entry) for entry in entries}, of_others=_prefix(config)
        )

    def of_call(self, call: CallDetail, *, environment: str) -> str:
        """What the model's reply began with before it wrote any; mostly empty.

        The rule of the episode loop (`EpisodeSession`): for the call that chooses the action, and
        only where an engine of ours was asked. Programs send their own prompts.
        """
        if call.purpose != "act" or call.continuation is not None or call.num_prompt_tokens is None:
            return ""
        return self.by_environment.get(environment, self.of_others)


def _objects(config: object, key: str) -> list[dict[str, Any]]:
    found = cast("dict[str, Any]", config).get(key) if isinstance(config, dict) else None
    entries = cast("list[object]", found) if isinstance(found, list) else []
    return [cast("dict[str, Any]", entry) for entry in entries if isinstance(entry, dict)]


def _prefix(config: object) -> str:
    prompt = cast("dict[str, Any]", config).get("prompt") if isinstance(config, dict) else None
    prefix = cast("dict[str, Any]", prompt).get("reply_prefix") if isinstance(prompt, dict) else ""
    return prefix if isinstance(prefix, str) else ""


@dataclass(frozen=True, slots=True)
class StoredEpisode:
    """An episode to write to a file."""

    detail: EpisodeDetail
    prefixes: ReplyPrefixes
    media: ReadMedia

    @property
    def episode_return(self) -> float:
        """Undiscounted sum of rewards, of an episode that ended."""
        found = self.detail.summary.episode_return
        assert found is not None
        return found

    def prefix(self, call: CallDetail) -> str:
        """See `ReplyPrefixes`."""
        return self.prefixes.of_call(call, environment=self.detail.summary.environment)

    def model_calls(self) -> Iterator[tuple[StepDetail, CallDetail]]:
        """Calls that the policy answered, or that chose an action: no judge's."""
        for step in self.detail.steps:
            for call in step.calls:
                if call.model == "" or call.purpose == "act":
                    yield step, call

    def paid_calls(self) -> list[tuple[StepDetail, CallDetail, float]]:
        """`model_calls`, each with what was paid for it: together the return.

        A step's reward goes to its last call. One without a call of the model's goes to the call
        before it, or to the first.
        """
        calls = list(self.model_calls())
        last = {step.step_index: place for place, (step, _) in enumerate(calls)}
        paid = [0.0] * len(calls)
        place = 0
        for step in self.detail.steps:
            place = last.get(step.step_index, place)
            if calls:
                paid[place] += step.reward
        return [(step, call, reward) for (step, call), reward in zip(calls, paid, strict=True)]
