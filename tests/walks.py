"""Groups of episodes that walk through named states, for tests of what compares them."""

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from longhaul_core.advantages.estimators import ESTIMATORS, EstimatorSettings, Group
from longhaul_core.advantages.gae_credit import GaeLevel
from longhaul_core.store import EpisodeCredit, EpisodeRecord, RunStarted
from longhaul_core.store.records import Phase
from longhaul_core.types import Call, Observation, StopReason, Task
from store_samples import make_credit, make_record, make_task, make_trajectory, run_started

PENALTY = 0.1
"""Of an invalid action."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Walk:
    """One episode: the states its steps were taken in, what it did there, and what it was paid."""

    states: str
    """A letter for each step."""
    actions: str
    """A letter for each step; `?` is invalid."""
    final: str = ""
    """Where it ended; empty where it succeeded."""
    reward: float = 0.0
    """Of the last step; the others are paid nothing."""
    values: Sequence[Sequence[float]] = ()
    """A critic's, before each token of each step's action; empty without a critic."""
    final_value: float | None = None
    """The critic's of where it ended; None where it succeeded, and without a critic."""

    @property
    def rewards(self) -> list[float]:
        """As paid."""
        return [0.0] * (len(self.states) - 1) + [self.reward]

    @property
    def shaped(self) -> list[float]:
        """Less penalties."""
        pairs = zip(self.rewards, self.actions, strict=True)
        return [reward - PENALTY * (action == "?") for reward, action in pairs]


def settings(**values: object) -> EstimatorSettings:
    """Of a run."""
    return EstimatorSettings.model_validate({"discount": 0.5, "pass_k": 2, **values})


def started(chosen: EstimatorSettings, run_id: str = "run") -> RunStarted:
    """A run under these settings."""
    algorithm = chosen.model_dump(mode="json") | {
        "reward_shaping": None,
        "reward_kl_coefficient": 0.0,
        "invalid_action_penalty": PENALTY,
        "overlong_penalty": 0.0,
        "overlong_start_tokens": None,
        "overlong_end_tokens": None,
        "overlong_unit": "step",
    }
    return replace(run_started(run_id), config_json=json.dumps({"algorithm": algorithm}))


def records(
    walks: Sequence[Walk],
    *,
    run_id: str = "run",
    phase: Phase = "train",
    training_step: int = 1,
    group_index: int = 0,
    task: Task | None = None,
) -> list[EpisodeRecord]:
    """The group as the writer takes it. Step t of an episode has t + 2 action tokens."""
    found: list[EpisodeRecord] = []
    for sample_index, walk in enumerate(walks):
        made = make_trajectory(
            task=task or make_task(group_index),
            sample_index=sample_index,
            rewards=tuple(walk.rewards),
            success=not walk.final,
            stop_reason=StopReason.HORIZON_REACHED if walk.final else StopReason.TASK_SOLVED,
        )
        steps = tuple(
            replace(
                step,
                observation=_seen(state),
                action=action,
                action_valid=action != "?",
                calls=tuple(_with_tokens(call, step.index + 2) for call in step.calls),
            )
            for step, state, action in zip(made.steps, walk.states, walk.actions, strict=True)
        )
        outcome = replace(made, steps=steps, final_observation=_seen(walk.final or "goal"))
        found.append(
            make_record(
                outcome,
                run_id=run_id,
                phase=phase,
                training_step=training_step,
                group_index=group_index,
                group_size=len(walks),
            )
        )
    return found


def credited(
    groups: Sequence[Sequence[Walk]],
    stored: Sequence[Sequence[EpisodeRecord]],
    chosen: EstimatorSettings,
    *,
    greedy: Sequence[Walk] = (),
) -> list[EpisodeCredit]:
    """Credit of all groups of a training step, by the estimator that trained them."""
    estimated = ESTIMATORS[chosen.name].compute(
        [
            Group(
                name=str(place),
                step_rewards=[np.array(walk.shaped) for walk in walks],
                anchor_states=[list(walk.states) for walk in walks],
                final_states=[walk.final or None for walk in walks],
                num_action_tokens=[[t + 2 for t in range(len(w.states))] for w in walks],
                greedy_rewards=np.array(greedy[place].shaped) if greedy else None,
                token_values=[[np.array(of_step) for of_step in w.values] for w in walks],
                final_values=[walk.final_value for walk in walks],
            )
            for place, walks in enumerate(groups)
        ],
        chosen,
    )
    return [
        _with_values(
            replace(
                make_credit(record, episode_advantage=credit.episode_advantage),
                shaped_rewards=tuple(walk.shaped),
                step_advantages=credit.step_advantages,
                returns_to_go=credit.returns_to_go,
                advantages=credit.advantages,
            ),
            walk,
            level=chosen.gae_level,
        )
        for walks, of_group, credits in zip(groups, stored, estimated, strict=True)
        for walk, record, credit in zip(walks, of_group, credits, strict=True)
    ]


def _with_values(credit: EpisodeCredit, walk: Walk, *, level: GaeLevel) -> EpisodeCredit:
    """As a run with a critic records it: values of tokens where tokens have advantages."""
    if not walk.values:
        return credit
    calls = credit.calls
    if level == "token":
        calls = tuple(
            replace(call, token_values=tuple(walk.values[call.step_index])) for call in calls
        )
    values = tuple(of_step[0] for of_step in walk.values)
    return replace(credit, values=values, final_value=walk.final_value, calls=calls)


def with_critic(walks: Sequence[Walk], random_seed: int) -> list[Walk]:
    """The walks with values that vary, in eighths: the store keeps those of tokens exactly."""
    draw = random.Random(random_seed)
    return [
        replace(
            walk,
            values=[
                [draw.randint(-8, 8) / 8 for _ in range(step + 2)]
                for step in range(len(walk.states))
            ],
            final_value=draw.randint(-8, 8) / 8 if walk.final else None,
        )
        for walk in walks
    ]


def drawn(random_seed: int, *, size: int = 6, longest: int = 7) -> list[Walk]:
    """A group that varies: some succeed, some do not, and they meet."""
    draw = random.Random(random_seed)
    walks: list[Walk] = []
    for place in range(size):
        length = draw.randint(1, longest)
        solved = place == 0 or (place > 1 and draw.random() < 0.5)
        walks.append(
            Walk(
                states="a" + "".join(draw.choice("abcdef") for _ in range(length - 1)),
                actions="".join(draw.choice("nsew?") for _ in range(length)),
                final="" if solved else draw.choice("abcdef"),
                reward=draw.choice((0.5, 1.0)) if solved else 0.0,
            )
        )
    return walks


def _seen(state: str) -> Observation:
    return Observation(text=f"You are in {state}.", anchor_state=state)


def _with_tokens(call: Call, number: int) -> Call:
    assert call.sampled is not None
    sampled = replace(
        call.sampled,
        action_tokens=tuple(range(number)),
        behavior_logprobs=(-0.5,) * number,
    )
    return replace(call, sampled=sampled)
