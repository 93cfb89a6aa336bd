"""Tests for `longhaul_core.advantages.weights`."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longhaul_core.advantages import LossUnit, loss_weights

UNITS: list[LossUnit] = ["token", "step", "episode"]

batches = st.lists(
    st.lists(st.integers(0, 9), min_size=1, max_size=6), min_size=1, max_size=5
).filter(lambda batch: any(any(counts) for counts in batch))


@pytest.mark.parametrize(
    ("loss_unit", "expected"),
    [
        # Two episodes: 2 + 4 tokens in two steps, 3 tokens in one step; 9 tokens, 3 steps.
        ("token", [[1 / 9, 1 / 9], [1 / 9]]),
        ("step", [[1 / 6, 1 / 12], [1 / 9]]),  # 1/3 of a step over 2, 4 and 3 tokens
        ("episode", [[1 / 12, 1 / 12], [1 / 6]]),  # 1/2 an episode over 6 and 3 tokens
    ],
)
def test_matches_the_hand_worked_batch(loss_unit: LossUnit, expected: list[list[float]]) -> None:
    weights = loss_weights([[2, 4], [3]], loss_unit=loss_unit)

    for found, wanted in zip(weights, expected, strict=True):
        assert found == pytest.approx(wanted)


@given(batches, st.sampled_from(UNITS))
def test_the_weights_of_all_tokens_add_up_to_one(
    batch: list[list[int]], loss_unit: LossUnit
) -> None:
    weights = loss_weights(batch, loss_unit=loss_unit)

    total = sum(
        count * weight
        for counts, episode in zip(batch, weights, strict=True)
        for count, weight in zip(counts, episode, strict=True)
    )
    assert total == pytest.approx(1.0)


@given(batches, st.sampled_from(UNITS))
def test_a_step_without_tokens_is_as_if_it_were_not_there(
    batch: list[list[int]], loss_unit: LossUnit
) -> None:
    padded = loss_weights([[*counts, 0] for counts in batch], loss_unit=loss_unit)

    for plain, longer in zip(loss_weights(batch, loss_unit=loss_unit), padded, strict=True):
        assert longer == (*plain, 0.0)


def test_a_long_episode_counts_no_more_than_a_short_one_by_episode() -> None:
    long, short = loss_weights([[5] * 50, [5]], loss_unit="episode")

    assert sum(5 * weight for weight in long) == pytest.approx(sum(5 * weight for weight in short))


def test_a_batch_without_tokens_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one action token, got none"):
        loss_weights([[0], [0, 0]], loss_unit="token")


def test_a_negative_count_is_refused() -> None:
    with pytest.raises(ValueError, match="must not be negative, got -1"):
        loss_weights([[3, -1]], loss_unit="step")


def test_a_fixed_token_weighs_the_same_whatever_the_lengths() -> None:
    # 1 / (2 episodes * 10 tokens), and 1 / (1 * 10)
    assert loss_weights([[2, 4], [3]], loss_unit="fixed_token", tokens_per_episode=10) == (
        (0.05, 0.05),
        (0.05,),
    )
    assert loss_weights([[2, 0], [0]], loss_unit="fixed_token", tokens_per_episode=10) == (
        (0.1, 0.0),
        (0.0,),
    )


@given(batches, st.integers(1, 50))
def test_fixed_tokens_are_tokens_up_to_one_factor(batch: list[list[int]], length: int) -> None:
    fixed = loss_weights(batch, loss_unit="fixed_token", tokens_per_episode=length)
    plain = loss_weights(batch, loss_unit="token")

    num_tokens = sum(map(sum, batch))
    factor = num_tokens / sum(any(counts) for counts in batch) / length
    for found, wanted in zip(fixed, plain, strict=True):
        assert found == pytest.approx([factor * weight for weight in wanted])


@pytest.mark.parametrize(
    ("unit", "length", "message"),
    [
        ("fixed_token", None, "loss_unit = 'fixed_token' alone, which needs it: got None"),
        ("token", 10, "alone, which needs it: got 10 with 'token'"),
        ("fixed_token", 0, "tokens_per_episode must be at least 1, got 0"),
    ],
)
def test_the_length_of_an_episode_belongs_to_fixed_tokens(
    unit: LossUnit, length: int | None, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        loss_weights([[1]], loss_unit=unit, tokens_per_episode=length)
