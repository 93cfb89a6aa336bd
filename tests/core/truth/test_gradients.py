"""Gradients of credit against those of the truth: by hand, and by the plain definition."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from longhaul_core.advantages.credit import FloatArray
from longhaul_core.truth import compare_gradients


def test_two_groups_by_hand() -> None:
    credit = np.array([[3.0, 0.0], [1.0, 2.0]])  # together (4, 2)
    truth = np.array([[1.0, 1.0], [3.0, -1.0]])  # together (4, 0)

    found = compare_gradients(credit, truth)

    assert found.cosine is not None
    assert found.variance is not None
    assert found.cosine.estimate == pytest.approx(4 / 20**0.5)
    # The groups lie (1, -1) and (-1, 1) beside their mean (2, 1), whose part along the truth is 2.
    assert found.variance.estimate == pytest.approx((2 + 2) / (2 - 1) / 2**2)


def by_definition(credit: FloatArray, truth: FloatArray) -> tuple[float, float]:
    mean, true = credit.mean(axis=0), truth.mean(axis=0)
    cosine = float(mean @ true / np.linalg.norm(mean) / np.linalg.norm(true))
    return cosine, variance_along(credit, true)


def variance_along(credit: FloatArray, true: FloatArray) -> float:
    mean = credit.mean(axis=0)
    scatter = sum(float(np.sum((group - mean) ** 2)) for group in credit)
    return scatter / (len(credit) - 1) / float(mean @ true / np.linalg.norm(true)) ** 2


@given(seed=st.integers(0, 10**6), num_groups=st.integers(2, 9), scale=st.floats(1e-3, 1e3))
def test_the_definition_whatever_the_scale(seed: int, num_groups: int, scale: float) -> None:
    random = np.random.default_rng(seed)
    truth = random.normal(size=(num_groups, 30)) + 0.5
    credit = truth + random.normal(size=truth.shape)

    found = compare_gradients(credit, truth, num_resamples=100)
    scaled = compare_gradients(scale * credit, truth, num_resamples=100)

    cosine, variance = by_definition(credit, truth)
    assert found.cosine is not None
    assert scaled.cosine is not None
    assert found.cosine.estimate == pytest.approx(cosine)
    assert tuple(scaled.cosine) == pytest.approx(tuple(found.cosine))
    if cosine > 0.0:
        assert found.variance is not None
        assert scaled.variance is not None
        assert found.variance.estimate == pytest.approx(variance)
        assert tuple(scaled.variance) == pytest.approx(tuple(found.variance))


def test_intervals_are_of_resampled_groups() -> None:
    random = np.random.default_rng(3)
    truth = random.normal(size=(6, 20)) + 0.5
    credit = truth + random.normal(size=truth.shape)

    found = compare_gradients(credit, truth, seed=5, num_resamples=400)

    shares = np.full(6, 1 / 6)
    drawn = np.random.default_rng(5).multinomial(6, shares, size=400)
    chosen = [np.repeat(np.arange(6), numbers) for numbers in drawn]
    cosines = [by_definition(credit[groups], truth[groups])[0] for groups in chosen]
    # Groups that are drawn twice have less variance, by (G - 1) / G in the mean.
    variances = [variance_along(credit[groups], truth.mean(axis=0)) * 6 / 5 for groups in chosen]
    for interval, values in zip(found, (cosines, variances), strict=True):
        assert interval is not None
        assert [interval.low, interval.high] == pytest.approx(np.quantile(values, [0.025, 0.975]))
        assert interval.low < interval.estimate < interval.high


def test_the_interval_of_the_variance_holds_it() -> None:
    random = np.random.default_rng(8)
    mean = random.normal(size=10)
    true = 2.0**2 * 10 / float(mean @ mean)  # deviation 2 in each of ten directions

    holds = 0
    for _ in range(200):
        drawn = mean + 2.0 * random.normal(size=(40, 10))
        found = compare_gradients(drawn, np.tile(mean, (40, 1)), num_resamples=200).variance
        assert found is not None
        holds += found.low <= true <= found.high
    assert 180 <= holds <= 200


def test_the_truth_has_a_cosine_of_one_and_its_opposite_no_variance() -> None:
    truth = np.random.default_rng(0).normal(size=(4, 12)) + 1.0

    right, wrong = compare_gradients(truth, truth), compare_gradients(-2 * truth, truth)

    assert right.cosine is not None
    assert wrong.cosine is not None
    assert tuple(right.cosine)[:3] == pytest.approx((1.0, 1.0, 1.0))
    assert tuple(wrong.cosine)[:3] == pytest.approx((-1.0, -1.0, -1.0))
    assert right.variance is not None
    assert wrong.variance is None


def test_groups_whose_gradients_nearly_cancel_keep_their_angle() -> None:
    random = np.random.default_rng(1)
    whole = random.normal(size=600_000).astype(np.float32)
    truth = np.stack([whole, -whole * np.float32(1.0001)])

    cosine, _ = compare_gradients(truth.copy(), truth)

    assert cosine is not None
    assert tuple(cosine)[:3] == pytest.approx((1.0, 1.0, 1.0), abs=1e-6)


def test_a_credit_of_nothing_has_no_gradient() -> None:
    truth = np.ones((3, 2))

    assert compare_gradients(np.zeros((3, 2)), truth) == (None, None)
    assert compare_gradients(truth, np.zeros((3, 2))) == (None, None)


def test_what_cannot_be_compared_is_refused() -> None:
    with pytest.raises(ValueError, match=r"shape \(3, 2\), and those that are judged have \(2, 2"):
        compare_gradients(np.ones((2, 2)), np.ones((3, 2)))
    with pytest.raises(ValueError, match="at least 2 groups for its intervals, got 1"):
        compare_gradients(np.ones((1, 2)), np.ones((1, 2)))
    with pytest.raises(ValueError, match="resamples must be at least 100, got 99"):
        compare_gradients(np.ones((2, 2)), np.ones((2, 2)), num_resamples=99)
