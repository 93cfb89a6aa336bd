"""Advantages against the true ones."""

import itertools
import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longhaul_core.advantages.credit import FloatArray
from longhaul_core.evaluation import Interval
from longhaul_core.truth import (
    Judgement,
    planted_right,
    planted_wrong,
    score_against_truth,
    shuffled,
)
from longhaul_core.truth.ranks import average_ranks, kendall, spearman

Advantages = list[list[FloatArray]]


def advantages(*groups: Sequence[Sequence[float]]) -> Advantages:
    return [[np.array(episode, dtype=np.float64) for episode in group] for group in groups]


TRUTH = advantages([[1.0, 0.0, -3.0], [2.0, -1.0]], [[1.0, -1.0], [0.0, 0.5]])
CREDIT = advantages([[1.0, 1.0, -2.0], [0.0, 1.0]], [[0.0, 0.0], [0.0, 0.0]])


def estimate(figure: Interval | None) -> float:
    assert figure is not None
    return figure.estimate


def test_two_groups_by_hand() -> None:
    judged = score_against_truth(CREDIT, TRUTH)

    # Of 9 steps 2 have no effect. Of the 7 others the credit of step 0 of the second episode is 0,
    # and so are the three of the second group.
    assert judged.num_steps == 9
    assert estimate(judged.share_without_effect) == pytest.approx(2 / 9)
    assert estimate(judged.share_without_credit) == pytest.approx(4 / 7)
    # Signs of the three: right (1, 1), right (-2, -3), wrong (1, -1).
    assert estimate(judged.sign_agreement) == pytest.approx(2 / 3)
    # By chance: 2/3 of the credit and 1/3 of the truth are above 0: 2/3 · 1/3 + 1/3 · 2/3
    assert estimate(judged.sign_by_chance) == pytest.approx(4 / 9)
    # Inside the two episodes of the first group; the others are constant.
    assert estimate(judged.share_of_episodes_ordered) == pytest.approx(2 / 4)
    # ranks 1.5 1.5 0 against 2 1 0: rho = 1.5 / √(1.5 · 2);   the other one is -1
    assert estimate(judged.spearman_in_episode) == pytest.approx((1.5 / 3**0.5 - 1) / 2)
    # of the three pairs one is tied in the credit, two agree: 2 / √(2 · 3);   the other one is -1
    assert estimate(judged.kendall_in_episode) == pytest.approx((2 / 6**0.5 - 1) / 2)
    # Decisive: -3 of 4, whose credit is the largest and right; 2 of 3, whose credit is the least.
    assert estimate(judged.decisive_recall) == pytest.approx((1 + 0) / 2)
    # Slope over (1, 1), (1, 0), (-2, -3), (1, -1): Σxy = 6, Σx = 1, Σy = -3, Σx² = 7
    assert estimate(judged.calibration_slope) == pytest.approx((4 * 6 + 3) / (4 * 7 - 1))


def test_the_slope_is_that_inside_groups() -> None:
    truth = advantages([[1.0, 3.0]], [[11.0, 13.0]], [[5.0, 8.0]])
    credit = advantages([[1.0, 2.0]], [[3.0, 4.0]], [[2.0, 4.0]])

    # Σ (x - x̄)(y - ȳ) = 1 + 1 + 3,   Σ (x - x̄)² = 1/2 + 1/2 + 2
    assert estimate(score_against_truth(credit, truth).calibration_slope) == pytest.approx(5 / 3)


def figures(judged: Judgement) -> dict[str, Interval | None]:
    return {
        "sign": judged.sign_agreement,
        "rho in episode": judged.spearman_in_episode,
        "rho in group": judged.spearman_in_group,
        "tau in episode": judged.kendall_in_episode,
        "tau in group": judged.kendall_in_group,
        "recall": judged.decisive_recall,
        "slope": judged.calibration_slope,
    }


def varied_truth(num_groups: int = 40) -> Advantages:
    """Few large advantages among many small ones; some steps without effect."""
    random = np.random.default_rng(3)

    def episode() -> FloatArray:
        steps = int(random.integers(4, 12))
        sizes = random.standard_normal(steps) * random.choice([0.01, 1.0], steps)
        return np.where(random.random(steps) < 0.2, 0.0, sizes)

    return [[episode() for _ in range(4)] for _ in range(num_groups)]


def test_planted_credit_scores_the_best_and_the_worst() -> None:
    truth = varied_truth()
    right = score_against_truth(planted_right(truth), truth)
    wrong = score_against_truth(planted_wrong(truth), truth)

    for name, found in figures(right).items():
        assert found is not None, name
        assert (found.low, found.high) == pytest.approx((1.0, 1.0)), name
    for name, found in figures(wrong).items():
        worst = 0.0 if name in {"sign", "recall"} else -1.0
        assert found is not None, name
        assert (found.low, found.high) == pytest.approx((worst, worst), abs=1e-12), name
    assert 0.1 < estimate(right.share_without_effect) < 0.3


def test_shuffled_credit_scores_chance_by_interval() -> None:
    truth = varied_truth()
    num_shuffles = 10
    judged = [score_against_truth(shuffled(truth, seed=s), truth) for s in range(num_shuffles)]

    for name in ("rho in episode", "rho in group", "tau in episode", "tau in group", "slope"):
        found = [figure for one in judged if (figure := figures(one)[name]) is not None]
        # 95 % intervals may miss once or twice.
        assert sum(one.low < 0.0 < one.high for one in found) >= num_shuffles - 2, name
        assert abs(np.mean([one.estimate for one in found])) < 0.03, name
        assert max(one.high - one.low for one in found) < 0.2, name
    signs = [(one.sign_agreement, estimate(one.sign_by_chance)) for one in judged]
    held = [sign is not None and sign.low < chance < sign.high for sign, chance in signs]
    assert sum(held) >= num_shuffles - 2
    assert max(estimate(one.decisive_recall) for one in judged) < 0.2


def test_what_says_nothing_is_counted_and_never_a_zero() -> None:
    truth = varied_truth()
    whole = [[np.full(len(e), float(p % 2) - 0.5) for p, e in enumerate(g)] for g in truth]
    silent = [[np.zeros(len(e)) for e in g] for g in truth]
    missing = [[np.full(len(e), np.nan) for e in g] for g in truth]

    same_in_an_episode = score_against_truth(whole, truth)
    assert same_in_an_episode.spearman_in_episode is None
    assert same_in_an_episode.kendall_in_episode is None
    assert same_in_an_episode.spearman_in_group is not None
    assert estimate(same_in_an_episode.share_of_episodes_ordered) == 0.0
    for nothing in (silent, missing):
        judged = score_against_truth(nothing, truth)
        assert set(figures(judged).values()) == {None}
        assert estimate(judged.share_without_credit) == 1.0
    # Groups that say nothing change no figure of those that do, but the shares.
    half = score_against_truth([*truth[:20], *silent[20:]], truth)
    for name, found in figures(half).items():
        assert estimate(found) == pytest.approx(1.0), name
    assert half.sign_agreement is not None
    assert half.sign_agreement.num_units == 20
    assert 0.4 < estimate(half.share_without_credit) < 0.6


def test_unknown_truth_is_left_out() -> None:
    hidden = advantages([[1.0, np.nan, -3.0], [2.0, -1.0]], [[1.0, -1.0], [np.nan, 0.5]])

    judged = score_against_truth(planted_right(TRUTH), hidden)

    assert judged.num_steps == 7
    assert estimate(judged.sign_agreement) == 1.0
    assert estimate(judged.spearman_in_group) == 1.0


def test_rounding_makes_no_order() -> None:
    noisy = [[e * (1.0 + 1e-13 * np.arange(len(e))) for e in group] for group in CREDIT]

    expected = figures(score_against_truth(CREDIT, TRUTH))
    for name, found in figures(score_against_truth(noisy, TRUTH)).items():
        assert found == pytest.approx(expected[name]), name


def test_an_interval_narrows_with_more_groups_and_follows_its_seed() -> None:
    def interval(num_groups: int, seed: int = 0) -> Interval:
        truth = varied_truth(num_groups)
        random = np.random.default_rng(1)
        noisy = [[e + random.standard_normal(len(e)) for e in g] for g in truth]
        found = score_against_truth(noisy, truth, seed=seed).spearman_in_group
        assert found is not None
        assert found.low < found.estimate < found.high
        return found

    few, many = interval(10), interval(160)
    assert (many.high - many.low) * 2 < few.high - few.low
    assert interval(10) == few != interval(10, seed=1)


@pytest.mark.parametrize(
    ("credit", "message"),
    [
        (CREDIT[:1], "the truth is of 2 groups, and 1 were judged"),
        ([CREDIT[0][::-1], CREDIT[1]], r"episodes of group 0 have \[3, 2\] true .* but \[2, 3\]"),
        (
            [TRUTH[0], [TRUTH[1][0], TRUTH[1][1] + np.inf]],
            "advantages of group 1 are infinite; give NaN",
        ),
    ],
)
def test_other_steps_are_refused(credit: Advantages, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        score_against_truth(credit, TRUTH)


def test_too_little_to_resample_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 2 groups for its intervals, got 1"):
        score_against_truth(CREDIT[:1], TRUTH[:1])
    with pytest.raises(ValueError, match="number of resamples must be at least 100, got 9"):
        score_against_truth(CREDIT, TRUTH, num_resamples=9)


def test_equal_values_share_their_ranks() -> None:
    one, other = np.array([3.0, 1.0, 3.0, 5.0]), np.array([2.0, 1.0, 0.0, 3.0])

    # ranks 1.5 0 1.5 3 against 2 1 0 3, less 1.5: products 0 + 0.75 + 0 + 2.25, squares 4.5 and 5
    assert spearman(one, other) == pytest.approx(3 / 22.5**0.5)
    # of 6 pairs one is tied in the first, four agree, one disagrees: (4 - 1) / √(5 · 6)
    assert kendall(one, other) == pytest.approx(3 / 30**0.5)


numbers = st.lists(st.tuples(st.integers(-3, 3), st.integers(-3, 3)), min_size=2, max_size=8)


@settings(max_examples=50)
@given(numbers)
def test_rank_correlations_are_those_of_their_definitions(pairs: list[tuple[int, int]]) -> None:
    xs, ys = (np.array(column, dtype=np.float64) for column in zip(*pairs, strict=True))
    concordant = discordant = x_untied = y_untied = 0
    for (x, y), (other_x, other_y) in itertools.combinations(pairs, 2):
        x_untied += x != other_x
        y_untied += y != other_y
        concordant += (x - other_x) * (y - other_y) > 0
        discordant += (x - other_x) * (y - other_y) < 0

    ranks = [
        [
            sum(a < value for a in column) + (sum(a == value for a in column) - 1) / 2
            for value in column
        ]
        for column in (xs.tolist(), ys.tolist())
    ]

    assert average_ranks(xs).tolist() == ranks[0]
    if x_untied and y_untied:
        expected = (concordant - discordant) / (x_untied * y_untied) ** 0.5
        assert kendall(xs, ys) == pytest.approx(expected)
        assert spearman(xs, ys) == pytest.approx(float(np.corrcoef(ranks[0], ranks[1])[0, 1]))
    else:
        assert (kendall(xs, ys), spearman(xs, ys)) == (None, None)


episodes = st.lists(st.tuples(st.integers(-2, 2), st.integers(-2, 2)), min_size=1, max_size=5)


@settings(max_examples=40)
@given(episodes)
def test_recall_is_the_mean_over_the_orders_of_equal_steps(pairs: list[tuple[int, int]]) -> None:
    credit, truth = ([float(value) for value in column] for column in zip(*pairs, strict=True))
    judged = score_against_truth(
        advantages([credit], [credit]), advantages([truth], [truth])
    ).decisive_recall
    if not any(truth) or not any(credit):
        assert judged is None
        return
    sizes = sorted(map(abs, truth), reverse=True)
    fewest = next(n for n in range(1, 6) if 2 * sum(sizes[:n]) >= sum(sizes))
    decisive = {step for step, value in enumerate(truth) if abs(value) >= sizes[fewest - 1]}
    found: list[float] = []
    for order in itertools.permutations(range(len(truth))):
        largest = sorted(order, key=lambda step: -abs(credit[step]))[: len(decisive)]
        hit = [step for step in largest if step in decisive and credit[step] * truth[step] > 0]
        found.append(len(hit) / len(decisive))
    assert estimate(judged) == pytest.approx(np.mean(found))


def test_sampled_truth_has_an_effect_only_where_its_interval_says_so() -> None:
    effects = [
        [np.abs(episode) > 0.9 for episode in group] for group in TRUTH
    ]  # all but 0.0, 0.5 and 0.0

    judged = score_against_truth(CREDIT, TRUTH, effects=effects)

    whole = score_against_truth(CREDIT, TRUTH)
    assert estimate(judged.share_without_effect) == pytest.approx(3 / 9)
    assert estimate(whole.share_without_effect) == pytest.approx(2 / 9)
    assert judged.spearman_in_episode == whole.spearman_in_episode  # orders are of all steps
    assert judged.calibration_slope == whole.calibration_slope
    # With an effect: +1 -3 +2 -1 | +1 -1, credited +1 -2 0 +1 | 0 0: right, right, wrong
    assert estimate(judged.sign_agreement) == pytest.approx(2 / 3)
    assert estimate(judged.share_without_credit) == pytest.approx(3 / 6)


def test_credit_of_steps_whose_truth_is_unknown_takes_no_place_of_a_decisive_one() -> None:
    truth = advantages([[2.0, math.nan, 0.1]], [[2.0, math.nan, 0.1]])
    credit = advantages([[1.0, 9.0, 0.0]], [[1.0, 9.0, 0.0]])

    assert estimate(score_against_truth(credit, truth).decisive_recall) == 1.0


def test_a_shuffle_leaves_what_is_unknown_in_its_place() -> None:
    truth = advantages([[1.0, math.nan, 2.0], [3.0, 4.0]], [[math.nan, 5.0, 6.0]])

    mixed = [shuffled(truth, seed=seed) for seed in range(10)]

    for found in mixed:
        for group, of in zip(found, truth, strict=True):
            for one, true in zip(group, of, strict=True):
                assert np.array_equal(np.isnan(one), np.isnan(true))
        assert sorted(np.concatenate(found[0])[[0, 2, 3, 4]]) == [1.0, 2.0, 3.0, 4.0]
    assert len({repr(found) for found in mixed}) > 1


def test_the_effective_share_says_over_how_many_steps_credit_is_spread() -> None:
    def share(*credit: Sequence[Sequence[float]]) -> Interval | None:
        truth = advantages(*([[1.0, 2.0, 3.0, 4.0]] for _ in credit))
        return score_against_truth(advantages(*credit), truth).effective_share

    even, one = [[2.0, -2.0, 2.0, -2.0]], [[0.0, 0.0, 5.0, 0.0]]
    assert estimate(share(even, even)) == 1.0
    assert estimate(share(one, one)) == 0.25
    # (1 + 3)² / (1 + 9) = 1.6 of 4 steps, and 4 of 4
    assert estimate(share([[1.0, 0.0, -3.0, 0.0]], even)) == pytest.approx(5.6 / 8)
    nothing = [[0.0] * 4]
    assert estimate(share(one, nothing)) == 0.25  # the group without credit is left out
    assert share(nothing, nothing) is None
