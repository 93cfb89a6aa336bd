r"""How near the gradient of a credit comes to the gradient of the true advantages.

Shapes: G groups, P weights, R resamples.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from longhaul_core.advantages.credit import FloatArray
from longhaul_core.evaluation import Interval
from longhaul_core.evaluation.intervals import check_confidence
from longhaul_core.truth.judging import drawn_groups

__all__ = ["GradientFigures", "compare_gradients"]

_Gradients = npt.NDArray[np.floating[Any]]
"""In float32 or float64."""
_WEIGHTS_AT_ONCE = 2**18


class GradientFigures(NamedTuple):
    """Of one credit; None where it, or the truth, has no gradient."""

    cosine: Interval | None
    """Between the gradients of all groups together."""
    variance: Interval | None
    """Of one group's gradient, over all weights together, when the credit is scaled so that the
    mean of its groups has length 1 along the true gradient: (variance of a group) / (that part of
    the mean)². A batch of n groups has 1 / n of it. None too where the cosine is not positive."""


def compare_gradients(
    credit_GP: _Gradients,
    truth_GP: _Gradients,
    *,
    seed: int = 0,
    confidence: float = 0.95,
    num_resamples: int = 2000,
) -> GradientFigures:
    """Compare the gradients of groups, with percentile bootstraps over groups.

    Args:
        credit_GP: Of each group, by the credit that is judged.
        truth_GP: By the true advantages; at least 2 groups.
        seed: Of the resampling, whose groups are those of `score_against_truth`.
        confidence: Between 0 and 1.
        num_resamples: At least 100.

    Raises:
        ValueError: The two have different shapes, or an argument is out of range.
    """
    check_confidence(confidence)
    if credit_GP.shape != truth_GP.shape:
        raise ValueError(
            f"gradients of the truth have shape {truth_GP.shape}, and those that are judged have "
            f"{credit_GP.shape}"
        )
    num_groups = len(truth_GP)
    # Of sums over groups all lengths and angles follow from the groups' products.
    own_GG = _products(credit_GP, credit_GP)
    cross_GG = _products(credit_GP, truth_GP)
    true_GG = _products(truth_GP, truth_GP)
    drawn_RG = drawn_groups(num_groups, seed=seed, num_resamples=num_resamples)
    weights_RG = np.vstack([np.ones((1, num_groups)), drawn_RG]) / num_groups

    def products(of_GG: FloatArray) -> FloatArray:
        return np.einsum("rg,gh,rh->r", weights_RG, of_GG, weights_RG)

    own_R, cross_R, true_R = products(own_GG), products(cross_GG), products(true_GG)
    unbiased_R = np.full(len(weights_RG), num_groups / (num_groups - 1))
    unbiased_R[1:] **= 2  # groups that are drawn twice lie nearer to each other
    variance_R = (weights_RG @ np.diag(own_GG) - own_R) * unbiased_R
    along_R = weights_RG @ cross_GG.mean(axis=1)  # times the length of the whole truth
    with np.errstate(divide="ignore", invalid="ignore"):
        cosine_R = cross_R / np.sqrt(own_R * true_R)
        relative_R = np.where(along_R > 0.0, variance_R * true_R[0] / along_R**2, np.nan)

    def interval(found_R: FloatArray) -> Interval | None:
        if not np.isfinite(found_R[0]):
            return None
        known_R = found_R[1:][np.isfinite(found_R[1:])]
        low, high = np.quantile(known_R, [(1 - confidence) / 2, (1 + confidence) / 2]).tolist()
        return Interval(float(found_R[0]), low, high, confidence, num_groups)

    return GradientFigures(cosine=interval(cosine_R), variance=interval(relative_R))


def _products(one_GP: _Gradients, other_GP: _Gradients) -> FloatArray:
    """Of each group's gradient with each, shape (G, G), in float64.

    Gradients of groups may nearly cancel, and products in float32 would leave noise of their sum.
    """
    found_GG = np.zeros((len(one_GP), len(other_GP)))
    for start in range(0, one_GP.shape[1], _WEIGHTS_AT_ONCE):
        part = slice(start, start + _WEIGHTS_AT_ONCE)
        found_GG += one_GP[:, part].astype(np.float64) @ other_GP[:, part].astype(np.float64).T
    return found_GG
