"""Tests for `longhaul_core.advantages.weights`."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longhaul_core.advantages import LossUnit, loss_weights, loss_weights_by_purpose

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


SHARES = {"act": 0.7, "remember": 0.3, "plan": 0.5}
by_purpose = st.lists(
    st.lists(st.tuples(*[st.integers(0, 9)] * 3), min_size=1, max_size=6), min_size=1, max_size=5
).filter(lambda batch: any(any(map(any, steps)) for steps in batch))


def split(batch: list[list[tuple[int, ...]]]) -> dict[str, list[list[int]]]:
    """The tokens of each purpose, from what each step has of each."""
    return {
        purpose: [[step[place] for step in steps] for steps in batch]
        for place, purpose in enumerate(SHARES)
    }


def total(counts: list[list[int]], weights: tuple[tuple[float, ...], ...]) -> float:
    return sum(
        count * weight
        for of_episode, found in zip(counts, weights, strict=True)
        for count, weight in zip(of_episode, found, strict=True)
    )


@pytest.mark.parametrize(
    ("loss_unit", "act", "remember"),
    [
        # Actions of 2 and 4 tokens, and of 3; one summary of 200, in the first step.
        ("token", [[0.7 / 9, 0.7 / 9], [0.7 / 9]], 0.3 / 200),
        ("step", [[0.7 / 6, 0.7 / 12], [0.7 / 9]], 0.3 / 200),
        ("episode", [[0.7 / 12, 0.7 / 12], [0.7 / 6]], 0.3 / 200),
    ],
)
def test_purposes_match_the_hand_worked_batch(
    loss_unit: LossUnit, act: list[list[float]], remember: float
) -> None:
    found = loss_weights_by_purpose(
        {"act": [[2, 4], [3]], "remember": [[200, 0], [0]]}, shares=SHARES, loss_unit=loss_unit
    )

    for weights, wanted in zip(found["act"], act, strict=True):
        assert weights == pytest.approx(wanted)
    assert found["remember"] == (pytest.approx((remember, 0.0)), (0.0,))


@given(by_purpose, st.sampled_from(UNITS))
def test_each_purpose_weighs_its_share_of_those_that_are_there(
    batch: list[list[tuple[int, ...]]], loss_unit: LossUnit
) -> None:
    counts = split(batch)
    found = loss_weights_by_purpose(counts, shares=SHARES, loss_unit=loss_unit)

    there = [purpose for purpose in SHARES if any(map(any, counts[purpose]))]
    whole = sum(SHARES[purpose] for purpose in there)
    for purpose in SHARES:
        share = SHARES[purpose] / whole if purpose in there else 0.0
        assert total(counts[purpose], found[purpose]) == pytest.approx(share)


@given(by_purpose, st.sampled_from(UNITS), st.integers(2, 50))
def test_more_tokens_of_one_purpose_leave_the_others_as_they_were(
    batch: list[list[tuple[int, ...]]], loss_unit: LossUnit, factor: int
) -> None:
    counts = split(batch)
    longer = counts | {"remember": [[factor * n for n in steps] for steps in counts["remember"]]}
    before, after = (
        loss_weights_by_purpose(each, shares=SHARES, loss_unit=loss_unit)
        for each in (counts, longer)
    )

    assert after["act"] == before["act"]
    assert after["plan"] == before["plan"]
    for short, long in zip(before["remember"], after["remember"], strict=True):
        assert [factor * weight for weight in long] == pytest.approx(list(short))


@given(batches, st.sampled_from(UNITS))
def test_one_purpose_alone_weighs_as_if_there_were_no_shares(
    batch: list[list[int]], loss_unit: LossUnit
) -> None:
    nothing = [[0] * len(counts) for counts in batch]
    found = loss_weights_by_purpose(
        {"act": batch, "remember": nothing}, shares=SHARES, loss_unit=loss_unit
    )
    assert found["act"] == loss_weights(batch, loss_unit=loss_unit)  # bit for bit
    assert not any(map(any, found["remember"]))


@pytest.mark.parametrize(
    ("counts", "loss_unit", "words"),
    [
        ({"act": [[1]], "judge": [[0]]}, "token", "share of purpose 'judge' must be above 0, got "),
        ({"act": [[0]], "plan": [[0]]}, "token", "at least one action token, got none"),
        ({"act": [[-1, 3]]}, "step", "must not be negative, got -1"),
        ({"act": [[1]]}, "fixed_token", "no purpose a denominator of its own"),
    ],
)
def test_purposes_that_cannot_be_weighed_are_refused(
    counts: dict[str, list[list[int]]], loss_unit: LossUnit, words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        loss_weights_by_purpose(counts, shares=SHARES, loss_unit=loss_unit)
