"""Anchor states that are alike, taken as one.

Where no two observations are equal to the letter (search results, pages with a clock in
them), steps find company only if states that read nearly alike count as the same.
"""

from collections.abc import Sequence
from difflib import SequenceMatcher


def merge_similar(anchors: Sequence[str], *, threshold: float) -> list[str]:
    """For each anchor state the one that stands for it.

    The likeness of two texts is `2 M / T`: M characters in common blocks, in the order of
    `difflib.SequenceMatcher`, of T in both. States are taken in alphabetical order; each
    joins the first cluster whose representative, the cluster's first state, is at least
    `threshold` like it, or else begins one. Likeness is not transitive, so clusters depend
    on the order they are formed in: the alphabet makes them the same however episodes,
    steps and rows are ordered.

    Time grows with the number of distinct states times the number of clusters, and each
    comparison with the product of two lengths.

    Args:
        anchors: Anchor states of one group's steps; equal ones may repeat.
        threshold: In (0, 1), both excluded.

    Returns:
        Representatives, in the order of `anchors`.

    Raises:
        ValueError: If `threshold` is out of range.

    Source:
        Feng et al. 2025, arXiv:2505.10978, section 4.2, and its reference code, which takes
        the states in row order.
    """
    if not 0.0 < threshold < 1.0:
        raise ValueError(f"similarity must lie in (0, 1), both excluded, got {threshold}")
    representatives: list[str] = []
    representative_of: dict[str, str] = {}
    # difflib's shortcut for long texts ("autojunk") would make likeness depend on length.
    matcher = SequenceMatcher(autojunk=False)
    for state in sorted(set(anchors)):
        matcher.set_seq2(state)
        for representative in representatives:
            matcher.set_seq1(representative)
            if (
                matcher.real_quick_ratio() >= threshold
                and matcher.quick_ratio() >= threshold
                and matcher.ratio() >= threshold
            ):
                representative_of[state] = representative
                break
        else:
            representatives.append(state)
            representative_of[state] = state
    return [representative_of[anchor] for anchor in anchors]
