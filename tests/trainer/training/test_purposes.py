"""Shares of the loss by the purposes of calls: a long summary takes nothing from a short action."""

from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from longhaul_core.advantages import LossUnit
from longhaul_trainer.config import AlgorithmConfig
from longhaul_trainer.training.credit import CriticValues, TrainedEpisode
from longhaul_trainer.training.step_metadata import GroupName, RowMetadata
from longhaul_trainer.training.training_step import TrainingStep
from row_metadata import MadeUpStep, rows_of

SHARES = {"act": 0.75, "remember": 0.25}
UNITS: tuple[LossUnit, ...] = ("token", "step", "episode")
Episodes = Sequence[Sequence[Mapping[str, int]]]
"""Of each step, the tokens of its calls by purpose; the one that acts is the last."""


def rows(group: int, episodes: Episodes) -> dict[str, RowMetadata]:
    found: dict[str, RowMetadata] = {}
    for sample_index, steps in enumerate(episodes):
        made: list[MadeUpStep] = [
            {
                "reward": float(sample_index),
                "purposes": tuple(step),
                "calls": tuple(step.values()),
            }
            for step in steps
        ]
        found |= rows_of(GroupName(3, group), sample_index, made)
    return found


def credited(
    *groups: Episodes,
    purposes: Mapping[str, float] = SHARES,
    num_optimizer_steps: int = 1,
    **algorithm: object,
) -> tuple[TrainedEpisode, ...]:
    placed: dict[str, RowMetadata] = {}
    for number, episodes in enumerate(groups):
        placed |= rows(number, episodes)
    step = TrainingStep.of(
        placed,
        number=3,
        algorithm=AlgorithmConfig.model_validate({"name": "grpo"} | algorithm),
        num_optimizer_steps=num_optimizer_steps,
        groups=[str(GroupName(3, number)) for number in range(len(groups))],
        purposes=purposes,
    ).credited()
    for part in range(num_optimizer_steps):
        assert step.selection.weight_of(part) == pytest.approx(1.0)
    return step.credit


def weights(episodes: Sequence[TrainedEpisode], purpose: str) -> list[float]:
    return [c.loss_weight for e in episodes for c in e.calls if c.span.purpose == purpose]


def totals(episodes: Sequence[TrainedEpisode]) -> dict[str, float]:
    found: dict[str, float] = defaultdict(float)
    for call in (call for episode in episodes for call in episode.calls):
        found[call.span.purpose] += call.loss_weight * call.span.action_tokens
    return found


SUMMARISED: Episodes = [
    [{"remember": 200, "act": 10}, {"act": 2}],
    [{"act": 4}],
]


@pytest.mark.parametrize(
    ("loss_unit", "acts", "of_first_step"),
    [
        # 16 tokens of actions; three steps with an action; 1/2 an episode over 12 and 4 tokens
        ("token", [0.75 / 16] * 3, (0.25 + 10 * 0.75 / 16) / 210),
        ("step", [0.25 / 10, 0.25 / 2, 0.25 / 4], (0.25 + 0.25) / 210),
        ("episode", [0.375 / 12, 0.375 / 12, 0.375 / 4], (0.25 + 10 * 0.375 / 12) / 210),
    ],
)
def test_each_purpose_has_its_own_denominator_by_hand(
    loss_unit: str, acts: list[float], of_first_step: float
) -> None:
    episodes = credited(SUMMARISED, loss_unit=loss_unit)

    assert weights(episodes, "act") == pytest.approx(acts)
    assert weights(episodes, "remember") == pytest.approx([0.25 / 200])
    assert episodes[0].loss_weights[0] == pytest.approx(of_first_step)
    assert episodes[0].loss_weights[1] == pytest.approx(acts[1])


def test_without_shares_a_summary_takes_most_of_its_step() -> None:
    [first, *_] = weights(credited(SUMMARISED, purposes={}, loss_unit="step"), "act")
    assert first == 1 / (3 * 210)  # of the step's third, 10 of 210 tokens


def test_an_optimizer_step_without_a_purpose_gives_its_share_to_the_others() -> None:
    acts: Episodes = [[{"act": 3}], [{"act": 1}]]
    by_part = defaultdict[int, list[TrainedEpisode]](list)
    for episode in credited(SUMMARISED, acts, num_optimizer_steps=2):
        by_part[episode.optimizer_step].append(episode)

    assert totals(by_part[0]) == pytest.approx(SHARES)
    assert totals(by_part[1]) == pytest.approx({"act": 1.0})
    assert weights(by_part[1], "act") == [1 / 4, 1 / 4]  # bit for bit as without shares


def test_a_purpose_that_is_not_named_counts_with_actions() -> None:
    planned: Episodes = [[{"plan": 6, "act": 2}, {"remember": 5, "act": 4}], [{"act": 4}]]
    episodes = credited(planned)
    assert weights(episodes, "plan") + weights(episodes, "act") == pytest.approx([0.75 / 16] * 4)
    assert totals(episodes)["remember"] == pytest.approx(0.25)


def test_a_critics_loss_has_no_shares() -> None:
    with_shares, without = (
        credited_by_critic(SUMMARISED, purposes=purposes) for purposes in (SHARES, {})
    )
    assert with_shares == without


def credited_by_critic(
    episodes: Episodes, *, purposes: Mapping[str, float]
) -> list[list[list[float]]]:
    placed = rows(0, episodes)
    step = TrainingStep.of(
        placed,
        number=3,
        algorithm=AlgorithmConfig.model_validate({"name": "gae", "gae_level": "token"}),
        num_optimizer_steps=1,
        groups=[str(GroupName(3, 0))],
        purposes=purposes,
    )
    nothing = {key: np.zeros(row.spans[-1].stop) for key, row in placed.items()}
    step = step.with_values(CriticValues(nothing, {})).credited()
    return [[call.value_weights.tolist() for call in one.calls] for one in step.credit]


steps = st.lists(st.tuples(st.integers(1, 9), st.integers(0, 9)), min_size=1, max_size=4)
groups = st.lists(steps, min_size=2, max_size=4)


def as_episodes(drawn: Sequence[Sequence[tuple[int, int]]], *, factor: int = 1) -> Episodes:
    return [
        [({"remember": factor * long} if long else {}) | {"act": act} for act, long in episode]
        for episode in drawn
    ]


@given(groups, st.sampled_from(UNITS), st.integers(2, 60))
def test_longer_summaries_leave_actions_as_they_were(
    drawn: list[list[tuple[int, int]]], loss_unit: str, factor: int
) -> None:
    short, long = (
        credited(as_episodes(drawn, factor=each), loss_unit=loss_unit) for each in (1, factor)
    )
    assert weights(short, "act") == weights(long, "act")
    assert totals(long) == pytest.approx(totals(short))


@given(groups, st.sampled_from(UNITS))
def test_the_weights_are_those_of_the_definition(
    drawn: list[list[tuple[int, int]]], loss_unit: str
) -> None:
    """A loop over tokens: the share of the purpose over what its unit counts of it."""
    episodes = as_episodes(drawn)
    there = [p for p in SHARES if any(step.get(p) for episode in episodes for step in episode)]

    def naive(purpose: str, episode: int, step: int) -> float:
        tokens = [[each.get(purpose, 0) for each in one] for one in episodes]
        units = {
            "token": (sum(map(sum, tokens)), 1),
            "step": (sum(n > 0 for one in tokens for n in one), tokens[episode][step]),
            "episode": (sum(sum(one) > 0 for one in tokens), sum(tokens[episode])),
        }
        count, within = units[loss_unit]
        return SHARES[purpose] / sum(SHARES[p] for p in there) / count / within

    for number, one in enumerate(credited(episodes, loss_unit=loss_unit)):
        assert len(one.calls) >= len(episodes[number])
        for call in one.calls:
            expected = naive(call.span.purpose, number, call.span.step)
            assert call.loss_weight == pytest.approx(expected)
