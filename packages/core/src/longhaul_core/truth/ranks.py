"""Rank correlations of two lists, with ties.

Shapes: N places of both lists.
"""

import numpy as np

from longhaul_core.advantages.credit import FloatArray

__all__ = ["average_ranks", "kendall", "spearman"]


def spearman(one_N: FloatArray, other_N: FloatArray) -> float | None:
    """Spearman's rho: Pearson's correlation of the ranks, in [-1, 1].

    Returns:
        None where one of the lists is constant, and orders nothing.
    """
    if len(one_N) < 2:
        return None
    one_N, other_N = average_ranks(one_N), average_ranks(other_N)
    one_N, other_N = one_N - one_N.mean(), other_N - other_N.mean()
    spread = float(np.sqrt((one_N**2).sum() * (other_N**2).sum()))
    return float((one_N * other_N).sum()) / spread if spread > 0.0 else None


def kendall(one_N: FloatArray, other_N: FloatArray) -> float | None:
    r"""Kendall's tau-b, in [-1, 1].

        tau = (concordant - discordant pairs) / √((pairs not tied in one) (not tied in the other))

    Returns:
        None where one of the lists is constant, and orders nothing.

    Source:
        Kendall 1945, The treatment of ties in ranking problems.
    """
    one_NN = np.sign(one_N[:, np.newaxis] - one_N)
    other_NN = np.sign(other_N[:, np.newaxis] - other_N)
    untied = float(np.sqrt((one_NN**2).sum() * (other_NN**2).sum()))
    return float((one_NN * other_NN).sum()) / untied if untied > 0.0 else None


def average_ranks(values_N: FloatArray) -> FloatArray:
    """Ranks from 0 on; equal values have the mean of theirs."""
    _, place_N, count_K = np.unique(values_N, return_inverse=True, return_counts=True)
    first_K = np.cumsum(count_K) - count_K
    return (first_K + (count_K - 1) / 2)[place_N]
