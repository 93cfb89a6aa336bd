# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# (torch annotates little of `tolist`)
"""Tests for `longhaul_trainer.losses.importance`."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from longhaul_trainer.losses import ImportanceWeights, truncated_importance_weights
from longhaul_trainer.losses.importance import ImportanceLevel

LEVELS: tuple[ImportanceLevel, ...] = ("token", "sequence")


def weights_of(
    ratios: list[list[float]],
    *,
    level: ImportanceLevel,
    cap: float = 2.0,
    counted: list[list[bool]] | None = None,
    actions: list[list[int]] | None = None,
) -> ImportanceWeights:
    """Weights where the learner's probabilities are these multiples of the sampler's."""
    ratios_BT = torch.tensor(ratios, dtype=torch.float64)
    behavior_BT = torch.full_like(ratios_BT, -1.5)
    return truncated_importance_weights(
        old_logprobs_BT=behavior_BT + ratios_BT.log(),
        behavior_logprobs_BT=behavior_BT,
        counted_BT=torch.ones_like(ratios_BT, dtype=torch.bool)
        if counted is None
        else torch.tensor(counted),
        actions_BT=torch.zeros_like(ratios_BT, dtype=torch.int64)
        if actions is None
        else torch.tensor(actions),
        level=level,
        cap=cap,
    )


def test_matches_the_hand_worked_tokens() -> None:
    found = weights_of([[0.5, 1.5, 4.0]], level="token")

    assert found.weights_BT.tolist() == [pytest.approx([0.5, 1.5, 2.0])]
    assert found.truncated_BT.tolist() == [[False, False, True]]


def test_matches_the_hand_worked_replies() -> None:
    # 1/2 * 3/2 = 3/4, and 2 * 3/2 = 3, which is above 2
    found = weights_of([[0.5, 1.5], [2.0, 1.5]], level="sequence")

    assert found.weights_BT.tolist() == [pytest.approx([0.75, 0.75]), pytest.approx([2.0, 2.0])]
    assert found.truncated_BT.tolist() == [[False, False], [True, True]]


def test_each_action_of_a_row_is_a_sequence_of_its_own() -> None:
    # 1/2 * 3/2 = 3/4 and, past a gap that may hold anything, 3/2 * 4/5 = 6/5
    found = weights_of(
        [[0.5, 1.5, 9.0, 1.5, 0.8]],
        level="sequence",
        counted=[[True, True, False, True, True]],
        actions=[[0, 0, 0, 1, 1]],
    )

    assert found.weights_BT.tolist() == [pytest.approx([0.75, 0.75, 1.0, 1.2, 1.2])]


@pytest.mark.parametrize("level", LEVELS)
def test_what_is_not_counted_is_in_nothing(level: ImportanceLevel) -> None:
    found = weights_of([[1.5, 0.0], [1.0, math.inf]], level=level, counted=[[True, False]] * 2)

    assert found.weights_BT.tolist() == [pytest.approx([1.5, 1.0]), pytest.approx([1.0, 1.0])]
    assert found.truncated_BT.tolist() == [[False, False]] * 2


@pytest.mark.parametrize("level", LEVELS)
def test_no_gradient_goes_through_a_weight(level: ImportanceLevel) -> None:
    old_BT = torch.zeros(1, 2, requires_grad=True)
    found = truncated_importance_weights(
        old_logprobs_BT=old_BT,
        behavior_logprobs_BT=torch.full((1, 2), 0.1),
        counted_BT=torch.ones(1, 2, dtype=torch.bool),
        actions_BT=torch.zeros(1, 2, dtype=torch.int64),
        level=level,
        cap=2.0,
    )

    assert not found.weights_BT.requires_grad


@pytest.mark.parametrize("level", LEVELS)
def test_odds_beyond_any_float_are_the_cap(level: ImportanceLevel) -> None:
    found = truncated_importance_weights(
        old_logprobs_BT=torch.zeros(1, 1),
        behavior_logprobs_BT=torch.full((1, 1), -1e4),
        counted_BT=torch.ones(1, 1, dtype=torch.bool),
        actions_BT=torch.zeros(1, 1, dtype=torch.int64),
        level=level,
        cap=3.0,
    )

    assert found.weights_BT.tolist() == [[3.0]]


rows = st.lists(st.lists(st.floats(0.05, 20.0), min_size=3, max_size=3), min_size=1, max_size=4)


@given(rows, st.floats(1.0, 10.0))
@settings(deadline=None, max_examples=60)
def test_agrees_with_the_definition_row_by_row(ratios: list[list[float]], cap: float) -> None:
    by_token = weights_of(ratios, level="token", cap=cap)
    by_sequence = weights_of(ratios, level="sequence", cap=cap)

    for place, row in enumerate(ratios):
        assert by_token.weights_BT[place].tolist() == pytest.approx([min(r, cap) for r in row])
        whole = min(row[0] * row[1] * row[2], cap)
        assert by_sequence.weights_BT[place].tolist() == pytest.approx([whole] * 3)


@given(st.lists(st.floats(0.1, 1.0), min_size=4, max_size=4), st.floats(-3.0, 3.0))
@settings(deadline=None, max_examples=30)
def test_the_weighted_mean_over_what_was_sampled_is_the_learners_mean(
    weights: list[float], value: float
) -> None:
    """Σ_a behavior(a) · w(a) · f(a) = Σ_a old(a) · f(a), where no weight is truncated."""
    behavior = [0.4, 0.3, 0.2, 0.1]
    old = [weight / sum(weights) for weight in weights]
    values = [value, 1.0, -2.0, 0.5]

    found = truncated_importance_weights(
        old_logprobs_BT=torch.tensor([old], dtype=torch.float64).log(),
        behavior_logprobs_BT=torch.tensor([behavior], dtype=torch.float64).log(),
        counted_BT=torch.ones(1, 4, dtype=torch.bool),
        actions_BT=torch.zeros(1, 4, dtype=torch.int64),
        level="token",
        cap=100.0,
    ).weights_BT[0]

    mean = sum(b * w * v for b, w, v in zip(behavior, found.tolist(), values, strict=True))
    assert mean == pytest.approx(sum(p * v for p, v in zip(old, values, strict=True)))


@pytest.mark.parametrize("cap", [0.99, math.nan])
def test_a_cap_below_one_is_refused(cap: float) -> None:
    with pytest.raises(ValueError, match=f"cap must be at least 1, got {cap}"):
        weights_of([[1.0]], level="token", cap=cap)


def test_differing_shapes_are_refused() -> None:
    with pytest.raises(ValueError, match=r"differ in shape: \[\(1, 1\), \(1, 2\)\]"):
        weights_of([[1.0, 1.0]], level="token", counted=[[True]])
