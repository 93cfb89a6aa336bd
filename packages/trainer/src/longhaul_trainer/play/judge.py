"""A judge by prompt: a hosted model says how much each action of a stored episode changed.

One request an episode. The judge reads what was seen and done and how the episode ended, as nobody
who played it could.
"""

import asyncio
import json
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import Any, cast

from sqlalchemy import Engine
from sqlalchemy.orm import Session

from longhaul_core.actions import split_thinking
from longhaul_core.store import labelling, queries
from longhaul_core.store.records import Label
from longhaul_core.types import Message, Trajectory
from longhaul_trainer.gateway.exchange import ApiError, ChatRequest
from longhaul_trainer.gateway.hosted import Endpoint, HostedModel
from longhaul_trainer.play.truth.selection import MeasuredStep

__all__ = ["Judging", "Verdict", "ask_judge", "judge_messages", "scores_in"]

REQUEST = (
    "You judge the actions of an agent in an episode that is over. For each step that you are "
    "asked about, say how much its action changed what could be expected of the episode, against "
    "what the agent would do on average in the same situation: a number from -1 (it ruined the "
    "episode) to 1 (it decided it for good), and 0 where it made no difference. Answer with one "
    "JSON object that has a number for each of these steps and nothing else, such as "
    '{"0": 0.1, "3": -0.8}.'
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What the judge answered of one episode."""

    episode_id: str
    scores: Mapping[int, float]
    """By step, each in [-1, 1]; steps that it left out are not there."""
    cost_usd: float | None
    failure: str | None
    """Why there was no answer."""


async def ask_judge(
    endpoint: Endpoint,
    episodes: Mapping[str, tuple[Trajectory, Sequence[int]]],
    *,
    heard: Callable[[Verdict], None],
) -> None:
    """Ask about steps of episodes, as many requests at once as the endpoint may have.

    Args:
        endpoint: The judge.
        episodes: By id, with the steps that are asked about.
        heard: Gets each verdict when it comes; what it raises ends the call.
    """
    model = HostedModel(endpoint)

    async def ask(episode_id: str, episode: Trajectory, steps: Sequence[int]) -> None:
        request = ChatRequest(model=endpoint.model, messages=judge_messages(episode, steps))
        try:
            answer = await model.answer(request, on_delta=None)
        except ApiError as error:
            heard(Verdict(episode_id=episode_id, scores={}, cost_usd=None, failure=error.message))
            return
        scores = scores_in(answer.reply.choices[0].text, steps)
        heard(Verdict(episode_id=episode_id, scores=scores, cost_usd=answer.cost_usd, failure=None))

    try:
        await asyncio.gather(
            *(ask(episode_id, *of_episode) for episode_id, of_episode in episodes.items())
        )
    finally:
        await model.close()


def judge_messages(episode: Trajectory, steps: Sequence[int]) -> tuple[Message, ...]:
    """The request: every step of the episode as text, how it ended, and which steps are asked.

    Pictures are left out, and so is what the agent wrote beside its actions.
    """
    lines = [
        line
        for step in episode.steps
        for line in (f"Step {step.index}", step.observation.text, f"> {step.action}")
    ]
    ended = "with success" if episode.success else "without success"
    lines.append(f"The episode ended {ended}, with a return of {episode.episode_return:g}.")
    lines.append(f"Steps to judge: {', '.join(map(str, steps))}")
    return (
        Message(role="system", content=REQUEST),
        Message(role="user", content="\n".join(lines)),
    )


def scores_in(reply: str, steps: Sequence[int]) -> dict[int, float]:
    """The scores of a reply's first JSON object, of the steps that were asked about.

    What is no number in [-1, 1] is left out.
    """
    _, answer = split_thinking(reply)
    decoder = json.JSONDecoder()
    place = answer.find("{")
    while place >= 0:
        try:
            found = cast("dict[str, Any]", decoder.raw_decode(answer, place)[0])
        except (ValueError, RecursionError):
            place = answer.find("{", place + 1)
            continue
        scores = {step: found.get(str(step)) for step in steps}
        return {
            step: float(score)
            for step, score in scores.items()
            if isinstance(score, int | float)
            and not isinstance(score, bool)
            and isfinite(score)
            and abs(score) <= 1.0
        }
    return {}


@dataclass(kw_only=True)
class Judging:
    """Steps that a judge is asked about, and its numbers as labels of them."""

    engine: Engine
    """Of a store that may be written."""
    endpoint: Endpoint
    """The judge, by whose model's name the labels are."""
    label: str
    """Name of the labels."""
    steps: Sequence[MeasuredStep]
    num_known: int = 0
    """Steps that had a number before."""
    num_asked: int = 0
    num_scored: int = 0
    costs: list[float] = field(default_factory=list[float])
    """Of each answer, in US dollars, where prices are known."""
    failures: Counter[str] = field(default_factory=Counter[str])
    """Why requests had no answer."""

    def missing(self) -> dict[str, tuple[Trajectory, Sequence[int]]]:
        """The episodes with steps that have no number yet, and these steps."""
        episode_ids = list(dict.fromkeys(step.episode_id for step in self.steps))
        with Session(self.engine) as session:
            labels = queries.labels_of(session, episode_ids=episode_ids)
        known = {
            (episode_id, one.step_index)
            for episode_id, of_episode in labels.items()
            for one in of_episode
            if (one.name, one.author) == (self.label, self.endpoint.model)
        }
        places: defaultdict[str, list[int]] = defaultdict(list)
        for step in self.steps:
            if (step.episode_id, step.step_index) not in known:
                places[step.episode_id].append(step.step_index)
        recorded = {step.episode_id: step.choice.recorded for step in self.steps}
        self.num_asked = sum(map(len, places.values()))
        self.num_known = len(self.steps) - self.num_asked
        return {episode_id: (recorded[episode_id], of) for episode_id, of in places.items()}

    def heard(self, verdict: Verdict) -> None:
        """Keep a verdict.

        Raises:
            StoreError: The store refused.
        """
        for step_index, score in verdict.scores.items():
            label = Label(
                episode_id=verdict.episode_id,
                step_index=step_index,
                name=self.label,
                value=f"{score:g}",
                author=self.endpoint.model,
                created_at=time.time(),
            )
            labelling.put_label(self.engine, label)
        self.num_scored += len(verdict.scores)
        if verdict.cost_usd is not None:
            self.costs.append(verdict.cost_usd)
        if verdict.failure is not None:
            self.failures[verdict.failure] += 1
