"""Tests of a critic with a program: its calls through the gateway, its rows, and its advantages."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from longhaul_core.audit.formulas import value_weights_of
from longhaul_core.rollout import EpisodeLimits
from longhaul_core.types import Trajectory
from longhaul_trainer.config import AlgorithmConfig, RunConfig
from longhaul_trainer.training.credit import CriticValues, TrainedEpisode
from longhaul_trainer.training.merging import beside_rows, cut_into_rows, metadata_of
from longhaul_trainer.training.step_metadata import GroupName, RowKey
from longhaul_trainer.training.training_step import TrainingStep
from trainer.play.programs.test_player import played

PROGRAM = Path(__file__).parents[3] / "training" / "valued_program.py"
FINAL = 0.7
DISCOUNT, LAMBDA = 0.9, 0.8


@pytest.fixture(scope="module")
def trajectory() -> Trajectory:
    """A judge, a worker, a planner of two replies, and the worker again; then the horizon."""
    command = {"kind": "command", "command": [sys.executable, str(PROGRAM)]}
    outcome = played(
        RunConfig.model_validate(
            {
                "num_training_steps": 1,
                "tasks_per_training_step": 1,
                "model": {"path": "/models/my-model"},
                "agent": command,
            }
        ),
        data=json.dumps({"place": "an island", "turns": 9}),
        limits=EpisodeLimits(horizon=4, max_prompt_tokens=10_000),
        with_final_prompt=True,
    )
    assert isinstance(outcome, Trajectory), outcome
    return outcome


def credited(
    trajectory: Trajectory, *, level: str
) -> tuple[TrainedEpisode, dict[str, list[float]]]:
    """The episode with its advantages, and the values of the tokens of each row."""
    rows = cut_into_rows(trajectory.steps, form="merged")
    metadata = metadata_of(trajectory, group=GroupName(1, 0), retry=0)
    beside = {f"train-1-0_0_{place}": row for place, row in enumerate(beside_rows(rows, metadata))}
    rng = np.random.default_rng(0)
    values = {key: rng.uniform(-1, 1, row.spans[-1].stop) for key, row in beside.items()}
    step = TrainingStep.of(
        beside,
        number=1,
        algorithm=AlgorithmConfig.model_validate(
            {"name": "gae", "discount": DISCOUNT, "gae_lambda": LAMBDA, "gae_level": level}
        ),
        num_optimizer_steps=1,
        groups=["train-1-0"],
    )
    name = RowKey.parse(next(iter(beside))).episode
    (episode,) = step.with_values(CriticValues(values, {name: FINAL})).credited().credit
    return episode, {key: of_row.tolist() for key, of_row in values.items()}


def test_the_program_is_what_the_critic_has_to_cope_with(trajectory: Trajectory) -> None:
    rows = cut_into_rows(trajectory.steps, form="merged")

    calls = [[(call.agent, call.trained) for call in step.calls] for step in trajectory.steps]
    assert calls == [
        [("", False)],
        [("worker", True)],
        [("planner", True), ("planner", True)],
        [("worker", True)],
    ]
    assert trajectory.stop_reason.truncated
    assert trajectory.final_prompt_tokens is not None
    assert max(len(row.calls) for row in rows) == 2  # the worker's conversation is one


@pytest.mark.parametrize("level", ["step", "token"])
def test_the_advantages_of_a_program_are_those_of_their_definition(
    trajectory: Trajectory, level: str
) -> None:
    episode, values = credited(trajectory, level=level)

    read: dict[int, list[list[float]]] = {}
    for call in episode.calls:
        of_call = values[call.row][call.span.start : call.span.stop]
        read.setdefault(call.span.step, []).append(of_call)
    # By token the first one of the step counts, by step that of its last call.
    firsts = {step: calls[0 if level == "token" else -1][0] for step, calls in read.items()}
    rewards = [step.reward for step in trajectory.steps]

    def value(step: int) -> float:
        if step == len(rewards):
            return FINAL
        return firsts.get(step, rewards[step] + DISCOUNT * value(min(step + 1, len(rewards))))

    errors = [rewards[t] + DISCOUNT * value(t + 1) - value(t) for t in range(len(rewards))]
    returns = [
        value(t) + sum((DISCOUNT * LAMBDA) ** (u - t) * errors[u] for u in range(t, len(rewards)))
        for t in range(len(rewards))
    ]
    assert errors[0] == 0  # the judge's: nothing was chosen
    assert episode.credit.value_targets == pytest.approx(returns)
    raw = np.array(
        [
            returns[step] - (token if level == "token" else firsts[step])
            for step, calls in sorted(read.items())
            for token in np.concatenate(calls).tolist()
        ]
    )
    found = np.concatenate([call.token_advantages for call in episode.calls])
    assert found == pytest.approx((raw - raw.mean()) / np.sqrt(raw.var(ddof=1) + 1e-8))
    assert len(set(found.round(6))) >= 3


@pytest.mark.parametrize("level", ["step", "token"])
def test_a_step_without_a_trained_call_weighs_nothing_in_the_critics_loss(
    trajectory: Trajectory, level: str
) -> None:
    episode, _ = credited(trajectory, level=level)

    assert sum(call.value_weights.sum() for call in episode.calls) == pytest.approx(1.0)
    counts = [[0, *(1 if level == "step" else 7 for _ in trajectory.steps[1:])]]
    by_audit = value_weights_of(counts, {"gae_level": level, "loss_unit": "step"})
    assert sum(c * w for c, w in zip(counts[0], by_audit[0], strict=True)) == pytest.approx(1.0)
