"""Which step credits a call: hand-worked groups with a summary between steps, and a definition."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longhaul_core.advantages.estimators import ESTIMATORS
from longhaul_core.types import CreditedBy
from longhaul_trainer.config import AlgorithmConfig
from longhaul_trainer.training.credit import CriticValues
from longhaul_trainer.training.spans import FloatArray
from longhaul_trainer.training.step_metadata import GroupName, RowMetadata
from longhaul_trainer.training.training_step import TrainingStep
from row_metadata import MadeUpStep, rows_of
from variation import assert_several

Rows = dict[str, RowMetadata]
STEP, NEXT_STEP = CreditedBy.STEP, CreditedBy.NEXT_STEP
GROUP = GroupName(3, 0)


def credited(
    rows: Rows, values: Mapping[str, FloatArray] | None = None, **algorithm: object
) -> TrainingStep:
    step = TrainingStep.of(
        rows,
        number=3,
        algorithm=AlgorithmConfig.model_validate(algorithm),
        num_optimizer_steps=1,
        groups=[str(GROUP)],
    )
    return (step if values is None else step.with_values(CriticValues(values, {}))).credited()


def summarised(reward: float, anchor: str, *, share: float = 1.0) -> MadeUpStep:
    """A step of an action of 2 tokens, and of a summary of 3 that the next step reads."""
    return {
        "reward": reward,
        "anchor": anchor,
        "calls": (2, 3),
        "shares": (1.0, share),
        "credited_by": (STEP, NEXT_STEP),
    }


def two_episodes(*, share: float = 1.0) -> Rows:
    """Start, door, key and the goal for 4; start for 3, key, door and the wall."""
    won = [summarised(*step, share=share) for step in ((0, "start"), (0, "door"), (4, "key"))]
    lost = [summarised(*step, share=share) for step in ((3, "start"), (0, "key"), (0, "door"))]
    return rows_of(GROUP, 0, won, success=True) | rows_of(
        GROUP, 1, lost, success=False, final_anchor="wall"
    )


def in_order(step: TrainingStep) -> list[list[tuple[float, float]]]:
    """For each episode, what the action and the summary of each step are trained with."""
    return [
        [
            (act.advantage, summary.advantage)
            for act, summary in zip(episode.calls[::2], episode.calls[1::2], strict=True)
        ]
        for episode in step.credit
    ]


HAND_WORKED: Sequence[tuple[dict[str, Any], list[list[tuple[float, float]]]]] = [
    # returns 4 and 3, of mean 7/2: every step of an episode has the same
    ({"name": "grpo"}, [[(0.5, 0.5)] * 3, [(-0.5, -0.5)] * 3]),
    # returns-to-go 1 2 4 | 3 0 0; by state: start 1 3, door 2 0, key 4 0, means 2, 1, 2:
    # parts -1 1 2 | 1 -2 -1, beside 1/2 | -1/2; the last summary has no step after it
    (
        {"name": "gigpo", "discount": 0.5},
        [[(-0.5, 1.5), (1.5, 2.5), (2.5, 2.5)], [(0.5, -2.5), (-2.5, -1.5), (-1.5, -1.5)]],
    ),
    # steps to the goal from key 1, door 2, start 2, wall 3; worth 10 / 2^d of where a step leads:
    # 5/2 5 10 | 5 5/2 5/4; means start 15/4, door 25/8, key 25/4:
    # parts -5/4 15/8 15/4 | 5/4 -15/4 -15/8, beside 1/2 | -1/2
    (
        {"name": "graphgpo", "distance_decay": 0.5},
        [
            [(-0.75, 2.375), (2.375, 4.25), (4.25, 4.25)],
            [(0.75, -4.25), (-4.25, -2.375), (-2.375, -2.375)],
        ],
    ),
]


@pytest.mark.parametrize(("algorithm", "expected"), HAND_WORKED, ids=["grpo", "gigpo", "graphgpo"])
def test_a_summary_has_the_advantage_of_the_step_that_reads_it(
    algorithm: dict[str, Any], expected: list[list[tuple[float, float]]]
) -> None:
    found = in_order(credited(two_episodes(), scale_by_std=False, **algorithm))

    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)


def test_every_token_of_a_summary_has_its_share_of_that_advantage() -> None:
    step = credited(two_episodes(share=0.5), name="gigpo", discount=0.5, scale_by_std=False)

    first, *_ = step.credit
    assert [call.token_advantages.tolist() for call in first.calls] == [
        [-0.5] * 2, [0.75] * 3, [1.5] * 2, [1.25] * 3, [2.5] * 2, [1.25] * 3
    ]  # fmt: skip


WON, LOST = (3.0, 1.0, 3.0), (1.0, 1.5, 0.5)
"""What a critic expects before each step of the two episodes."""


def critic_values(rows: Rows, expected: Sequence[Sequence[float]]) -> dict[str, FloatArray]:
    """The value of a call's step at its first token, and 1/8 more at each one after it."""
    return {
        key: np.concatenate(
            [
                expected[row.sample_index][span.step] + np.arange(span.action_tokens) / 8
                for span in row.spans
            ]
        )
        for key, row in rows.items()
    }


def test_by_a_critic_of_steps_a_summary_is_credited_by_its_own_step() -> None:
    rows = two_episodes()

    step = credited(
        rows, critic_values(rows, (WON, LOST)), name="gae", discount=0.5, gae_lambda=1.0
    )

    # returns-to-go 1 2 4 | 3 0 0 less the values: -2 1 1 | 2 -3/2 -1/2, of mean 0; 5 tokens a step
    deviation = math.sqrt(5 * (4 + 1 + 1 + 4 + 2.25 + 0.25) / 29 + 1e-8)
    expected = np.array([[-2, 1, 1], [2, -1.5, -0.5]]) / deviation
    np.testing.assert_allclose(in_order(step), np.stack([expected, expected], axis=2))


@pytest.mark.parametrize("level", ["step", "token"])
def test_with_a_critic_it_is_of_no_matter_what_a_call_says(level: str) -> None:
    rows = two_episodes()
    own = {
        key: replace(row, spans=tuple(replace(span, credited_by=STEP) for span in row.spans))
        for key, row in rows.items()
    }
    values = critic_values(rows, (WON, LOST))

    said, silent = (
        credited(played, values, name="gae", gae_level=level, discount=0.5)
        for played in (rows, own)
    )

    found = [call.token_advantages.tolist() for call in said.calls]
    assert found == [call.token_advantages.tolist() for call in silent.calls]
    assert_several((one for call in found for one in call), at_least=6)
    if level == "token":
        of_step = said.credit[0].credit.token_advantages
        assert of_step is not None
        assert found[1] == list(of_step[0][2:])  # a summary's tokens follow those of the action


def test_the_next_step_of_an_exact_critic_is_blind_to_what_a_summary_did() -> None:
    """Why a critic's own step credits a summary.

    A summary keeps a fact or loses it, as often; with it 3 of 4 actions are right, without it 1.
    An exact critic expects 1/2 before it, and 3/4 or 1/4 where the next prompt shows it.
    """
    rows: Rows = {}
    expected: list[tuple[float, float]] = []
    for sample, (value, paid) in enumerate(
        [(0.75, 1), (0.75, 1), (0.75, 1), (0.75, 0), (0.25, 1), (0.25, 0), (0.25, 0), (0.25, 0)]
    ):
        rows |= rows_of(GROUP, sample, [summarised(0, "a"), {"reward": paid, "anchor": "b"}])
        expected.append((0.5, value))

    step = credited(rows, critic_values(rows, expected), name="gae", discount=1.0, gae_lambda=0.5)

    summaries = [episode.calls[1].advantage for episode in step.credit]
    next_steps = [episode.credit.advantages[1] for episode in step.credit]
    kept, lost = np.mean(summaries[:4]), np.mean(summaries[4:])
    assert kept == pytest.approx(-lost)
    assert kept > 0.5
    assert_several(next_steps)
    assert np.mean(next_steps[:4]) == pytest.approx(0, abs=1e-12)
    assert np.mean(next_steps[4:]) == pytest.approx(0, abs=1e-12)


CALLS = st.lists(
    st.tuples(
        st.integers(1, 4),
        st.sampled_from([-1.0, 0.0, 0.5, 1.0]),
        st.sampled_from(CreditedBy),
        st.booleans(),
    ),
    max_size=3,
)
"""Of a step: tokens, share, which step credits it, and whether it is trained."""
STEPS = st.lists(
    st.tuples(st.integers(-4, 4), st.sampled_from("abc"), CALLS), min_size=1, max_size=4
)
NAMES = sorted(name for name in ESTIMATORS if name not in ("gae", "remax"))


def naive(
    calls: Sequence[tuple[int, int, float, CreditedBy]], advantages: Sequence[float]
) -> list[list[float]]:
    """By the words of the definition: of each call, its tokens' advantages."""
    found: list[list[float]] = []
    for tokens, index, share, credited_by in calls:
        following = [later for later in range(len(advantages)) if later > index]
        by = following[0] if credited_by == "next_step" and following else index
        found.append([share * advantages[by] for _ in range(tokens)])
    return found


@given(st.lists(STEPS, min_size=2, max_size=4), st.sampled_from(NAMES))
@settings(deadline=None, max_examples=60)
def test_credit_follows_the_definition(played: list[list[Any]], name: str) -> None:
    rows: Rows = {}
    meant: list[list[tuple[int, int, float, CreditedBy]]] = []
    for sample, episode in enumerate(played):
        steps: list[MadeUpStep] = [
            {
                "reward": reward,
                "anchor": anchor,
                "calls": [call[0] for call in calls],
                "shares": [call[1] for call in calls],
                "credited_by": [call[2] for call in calls],
                "trained": [call[3] for call in calls],
            }
            for reward, anchor, calls in episode
        ]
        trained = [
            (tokens, index, share, credited_by)
            for index, (_, _, calls) in enumerate(episode)
            for tokens, share, credited_by, in_loss in calls
            if in_loss
        ]
        if trained:  # else it has no row
            rows |= rows_of(GROUP, sample, steps)
            meant.append(trained)
    if len(meant) < 2:
        return

    step = credited(rows, name=name, scale_by_std=True)

    assert len(step.credit) == len(meant)
    for episode, calls in zip(step.credit, meant, strict=True):
        found = [call.token_advantages.tolist() for call in episode.calls]
        assert found == naive(calls, episode.credit.advantages)
