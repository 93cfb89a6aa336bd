r"""How near advantages come to the true ones, each figure with an interval over groups.

Every figure is a function of sums over groups, so that a resample of the groups is a weighted sum
of what each contributes.

What says nothing is counted, and never taken for a 0: a step whose true advantage is 0 has no sign
to agree with, a step whose credit is 0 or missing has none to agree by, and in an episode or a
group where either is constant there is no order to compare.

Shapes: N steps of a group or an episode, G groups, R resamples, M numbers that a group contributes.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from longhaul_core.advantages.credit import FloatArray
from longhaul_core.evaluation import Interval
from longhaul_core.evaluation.intervals import check_confidence
from longhaul_core.truth.ranks import kendall, spearman

__all__ = [
    "GroupAdvantages",
    "Judgement",
    "drawn_groups",
    "planted_right",
    "planted_wrong",
    "score_against_truth",
    "shuffled",
]

BoolArray = npt.NDArray[np.bool_]
GroupAdvantages = Sequence[FloatArray]
"""One number for each step of each episode of a group; NaN where it is not known."""

_ROUNDING = 1e-9
"""Numbers nearer than this share of their group's largest are equal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """One estimator against the truth. A figure is None where no group defines it."""

    sign_agreement: Interval | None
    """Share of the steps with effect and credit whose credit has the true sign."""
    sign_by_chance: Interval | None
    """What the same credit would reach, shuffled inside each group."""
    spearman_in_episode: Interval | None
    """Mean over the episodes that order their steps, in both credit and truth."""
    spearman_in_group: Interval | None
    """Mean over groups, of all steps of a group together."""
    kendall_in_episode: Interval | None
    kendall_in_group: Interval | None
    decisive_recall: Interval | None
    """Mean over the episodes with credit: the share of their decisive steps that are among the same
    number of steps with the largest credit, whatever its sign, and have the true sign."""
    calibration_slope: Interval | None
    """Slope of the true advantage over the credit inside groups, of steps with credit: 1 where one
    more of credit is one more of worth, in the environment's units."""
    share_without_effect: Interval | None
    """Of all steps whose truth is known: the true advantage is 0."""
    share_without_credit: Interval | None
    """Of the steps with effect: credit of 0, or none."""
    effective_share: Interval | None
    """Effective sample size of the credit, as a share of the steps of the groups that have credit:
    1 where each step has as much, 1 / N where one of N has all."""
    share_of_episodes_ordered: Interval | None
    """Of all episodes: rank correlations inside them are defined."""
    num_steps: int
    """Whose truth is known."""


def score_against_truth(
    credit: Sequence[GroupAdvantages],
    truth: Sequence[GroupAdvantages],
    *,
    effects: Sequence[Sequence[BoolArray]] | None = None,
    seed: int = 0,
    confidence: float = 0.95,
    num_resamples: int = 2000,
) -> Judgement:
    """Judge the advantages that an estimator gives.

    Args:
        credit: Its advantages, for each group.
        truth: The true ones, of the same steps; at least 2 groups.
        effects: Which steps have an effect, where the truth is sampled; None means each step whose
            true advantage is not 0. Orders and slopes are of all steps.
        seed: Of the resampling.
        confidence: Between 0 and 1. The intervals are percentile bootstraps over groups.
        num_resamples: At least 100.

    Raises:
        ValueError: The two differ in groups, episodes or steps, one of them is infinite, or an
            argument is out of range.
    """
    check_confidence(confidence)
    _require_same_steps(credit, truth)
    if effects is None:
        effects = [[episode != 0.0 for episode in group] for group in truth]
    sums_GM = np.stack([_sums(*all_of) for all_of in zip(credit, truth, effects, strict=True)])
    drawn_RG = drawn_groups(len(sums_GM), seed=seed, num_resamples=num_resamples)
    resampled_MR: FloatArray = (drawn_RG @ sums_GM).T
    totals_M = sums_GM.sum(axis=0).tolist()

    def share(part: int, whole: int) -> Interval | None:
        """A quotient of sums; None where no group has the divisor."""
        if totals_M[whole] == 0.0:
            return None
        has_R = resampled_MR[whole] != 0.0
        found_R: FloatArray = resampled_MR[part, has_R] / resampled_MR[whole, has_R]
        low, high = np.quantile(found_R, [(1 - confidence) / 2, (1 + confidence) / 2]).tolist()
        num_defined = int((sums_GM[:, whole] > 0).sum())
        return Interval(totals_M[part] / totals_M[whole], low, high, confidence, num_defined)

    return Judgement(
        sign_agreement=share(_AGREE, _SIGNED),
        sign_by_chance=share(_AGREE_BY_CHANCE, _SIGNED),
        spearman_in_episode=share(_RHO, _ORDERED),
        spearman_in_group=share(_GROUP_RHO, _ORDERED_GROUP),
        kendall_in_episode=share(_TAU, _ORDERED),
        kendall_in_group=share(_GROUP_TAU, _ORDERED_GROUP),
        decisive_recall=share(_RECALL, _RECALLED),
        calibration_slope=share(_PRODUCT, _SQUARE),
        share_without_effect=share(_NO_EFFECT, _STEPS),
        share_without_credit=share(_NO_CREDIT, _EFFECT),
        effective_share=share(_EFFECTIVE, _EFFECTIVE_OF),
        share_of_episodes_ordered=share(_ORDERED, _EPISODES),
        num_steps=int(totals_M[_STEPS]),
    )


def drawn_groups(num_groups: int, *, seed: int, num_resamples: int) -> npt.NDArray[np.int64]:
    """How often each resample has each group, shape (R, G).

    Raises:
        ValueError: There are fewer than 2 groups, or fewer than 100 resamples.
    """
    if num_groups < 2:
        raise ValueError(f"a judgement needs at least 2 groups for its intervals, got {num_groups}")
    if num_resamples < 100:
        raise ValueError(f"number of resamples must be at least 100, got {num_resamples}")
    shares_G = np.full(num_groups, 1 / num_groups)
    return np.random.default_rng(seed).multinomial(num_groups, shares_G, size=num_resamples)


(
    _STEPS, _NO_EFFECT, _EFFECT, _NO_CREDIT, _SIGNED, _AGREE, _AGREE_BY_CHANCE,
    _EPISODES, _ORDERED, _RHO, _TAU, _ORDERED_GROUP, _GROUP_RHO, _GROUP_TAU,
    _RECALLED, _RECALL, _PRODUCT, _SQUARE, _EFFECTIVE, _EFFECTIVE_OF,
) = range(20)  # fmt: skip
"""Places of what a group contributes."""


def _sums(
    credit: GroupAdvantages, truth: GroupAdvantages, effects: Sequence[BoolArray]
) -> FloatArray:
    found_M = np.zeros(_EFFECTIVE_OF + 1)
    bounds = np.cumsum([len(episode) for episode in truth])[:-1]
    raw_N = np.concatenate(list(credit))
    credit_N, truth_N = _settled(raw_N), _settled(np.concatenate(list(truth)))
    known_N = ~np.isnan(truth_N)
    effect_N = known_N & (truth_N != 0.0) & np.concatenate(list(effects))
    credited_N = ~np.isnan(credit_N) & (credit_N != 0.0)
    signed_N = effect_N & credited_N
    found_M[_STEPS] = known_N.sum()
    found_M[_NO_EFFECT] = (known_N & ~effect_N).sum()
    found_M[_EFFECT] = effect_N.sum()
    found_M[_NO_CREDIT] = (effect_N & ~credited_N).sum()
    found_M[_SIGNED] = signed_N.sum()
    says_good_N, is_good_N = credit_N[signed_N] > 0.0, truth_N[signed_N] > 0.0
    found_M[_AGREE] = (says_good_N == is_good_N).sum()
    if signed_N.any():
        says, good = says_good_N.mean(), is_good_N.mean()
        found_M[_AGREE_BY_CHANCE] = signed_N.sum() * (says * good + (1 - says) * (1 - good))
    for one, true, has_effect in zip(
        np.split(credit_N, bounds),
        np.split(truth_N, bounds),
        np.split(effect_N, bounds),
        strict=True,
    ):
        found_M[_EPISODES] += 1
        both = ~np.isnan(one) & ~np.isnan(true)
        rho, tau = spearman(one[both], true[both]), kendall(one[both], true[both])
        if rho is not None and tau is not None:
            found_M[[_ORDERED, _RHO, _TAU]] += [1.0, rho, tau]
        known = ~np.isnan(true)
        if has_effect.any() and np.nan_to_num(one[known]).any():
            recalled = _recall(one[known], true[known], has_effect[known])
            found_M[[_RECALLED, _RECALL]] += [1.0, recalled]
    both = ~np.isnan(credit_N) & known_N
    rho, tau = spearman(credit_N[both], truth_N[both]), kendall(credit_N[both], truth_N[both])
    if rho is not None and tau is not None:
        found_M[[_ORDERED_GROUP, _GROUP_RHO, _GROUP_TAU]] = [1.0, rho, tau]
    sizes_N = np.abs(credit_N[both])
    if sizes_N.any():
        # Kish's effective sample size of weights as large as the credit
        found_M[[_EFFECTIVE, _EFFECTIVE_OF]] = [
            sizes_N.sum() ** 2 / (sizes_N**2).sum(),
            len(sizes_N),
        ]
    x_N, y_N = credit_N[credited_N & known_N], truth_N[credited_N & known_N]
    if len(x_N) > 1 and np.ptp(x_N) > 0.0:
        x_N = x_N - x_N.mean()
        found_M[[_PRODUCT, _SQUARE]] = [(x_N * y_N).sum(), (x_N**2).sum()]
    return found_M


def _recall(credit_N: FloatArray, truth_N: FloatArray, effect_N: FloatArray) -> float:
    """Of one episode's decisive steps: the fewest that hold half of what its actions changed.

    Steps of equal credit share the places that are left for them.
    """
    sizes_N = np.where(effect_N, np.abs(truth_N), 0.0)
    descending_N = np.sort(sizes_N)[::-1]
    number = int(np.searchsorted(np.cumsum(descending_N), float(sizes_N.sum()) / 2)) + 1
    decisive_N = sizes_N >= descending_N[number - 1]
    number = int(decisive_N.sum())
    said_N = np.abs(np.nan_to_num(credit_N))
    cut = np.sort(said_N)[::-1][number - 1]
    above_N, at_N = said_N > cut, said_N == cut
    places_N = above_N + at_N * (number - above_N.sum()) / at_N.sum()
    right_N = np.sign(np.nan_to_num(credit_N)) == np.sign(truth_N)
    return float((places_N * decisive_N * right_N).sum() / number)


def _settled(values_N: FloatArray) -> FloatArray:
    """Values of a group, those that differ by rounding alone made equal."""
    largest = float(np.nanmax(np.abs(values_N), initial=0.0))
    if largest == 0.0:
        return values_N
    unit = _ROUNDING * largest
    return np.round(values_N / unit) * unit


def _require_same_steps(
    credit: Sequence[GroupAdvantages], truth: Sequence[GroupAdvantages]
) -> None:
    found = [[len(episode) for episode in group] for group in credit]
    wanted = [[len(episode) for episode in group] for group in truth]
    if len(found) != len(wanted):
        raise ValueError(f"the truth is of {len(wanted)} groups, and {len(found)} were judged")
    for place, (one, other) in enumerate(zip(found, wanted, strict=True)):
        if one != other:
            raise ValueError(
                f"episodes of group {place} have {other} true advantages but {one} judged ones; "
                "give one for each step, NaN where it is not known"
            )
        if any(np.isinf(episode).any() for episode in (*credit[place], *truth[place])):
            raise ValueError(
                f"advantages of group {place} are infinite; give NaN where one is not known"
            )


def planted_right(truth: Sequence[GroupAdvantages]) -> list[list[FloatArray]]:
    """A control that must score 1: the truth itself."""
    return [[episode.copy() for episode in group] for group in truth]


def planted_wrong(truth: Sequence[GroupAdvantages]) -> list[list[FloatArray]]:
    """A control that must score as low as can be: the truth with the other sign."""
    return [[-episode for episode in group] for group in truth]


def shuffled(truth: Sequence[GroupAdvantages], *, seed: int) -> list[list[FloatArray]]:
    """A control that must score chance: the truth, shuffled over the known steps of each group."""
    random = np.random.default_rng(seed)

    def of(group: GroupAdvantages) -> list[FloatArray]:
        mixed_N = np.concatenate(list(group))
        known_N = ~np.isnan(mixed_N)
        mixed_N[known_N] = random.permutation(mixed_N[known_N])
        return np.split(mixed_N, np.cumsum([len(episode) for episode in group])[:-1])

    return [of(group) for group in truth]
