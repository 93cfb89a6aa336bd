"""Anchor states that are alike, taken as one.

Where no two observations are equal to the letter (search results, pages with a clock in
them), steps find company only if states that read nearly alike count as the same.
"""

from collections.abc import Mapping, Sequence


def merge_similar(anchors: Sequence[str], *, threshold: float) -> list[str]:
    r"""For each anchor state the one that stands for it.

    The likeness of two texts is

        2 L / (length of one + length of the other)

    with L the length of their longest common subsequence of characters: 1 for equal texts,
    0 for texts without a common character. States are taken in alphabetical order; each
    joins the first cluster whose representative, the cluster's first state, is at least
    `threshold` like it, or else begins one. Likeness is not transitive, so clusters depend
    on the order they are formed in: the alphabet makes them the same however episodes,
    steps and rows are ordered.

    Time grows with the number of distinct states, times the number of clusters, times the
    length of a state.

    Args:
        anchors: Anchor states of one group's steps; equal ones may repeat.
        threshold: In (0, 1), both excluded.

    Returns:
        Representatives, in the order of `anchors`.

    Raises:
        ValueError: If `threshold` is out of range.

    Source:
        The clusters: Feng et al. 2025, arXiv:2505.10978. Its reference code takes the states
        in row order and the common blocks that `difflib` finds, which are never longer than
        L, depend on which text comes first, and cost time with the square of the length.
    """
    if not 0.0 < threshold < 1.0:
        raise ValueError(f"similarity must lie in (0, 1), both excluded, got {threshold}")
    representatives: list[str] = []
    representative_of: dict[str, str] = {}
    for state in sorted(set(anchors)):
        places = _places_of_characters(state)
        for other in representatives:
            needed = threshold * (len(state) + len(other)) / 2
            if (
                min(len(state), len(other)) >= needed
                and _longest_common_subsequence(places, len(state), other) >= needed
            ):
                representative_of[state] = other
                break
        else:
            representatives.append(state)
            representative_of[state] = state
    return [representative_of[anchor] for anchor in anchors]


def _places_of_characters(text: str) -> dict[str, int]:
    """For each character the places where it stands, as the bits of a number."""
    places: dict[str, int] = {}
    for place, character in enumerate(text):
        places[character] = places.get(character, 0) | 1 << place
    return places


def _longest_common_subsequence(places: Mapping[str, int], length: int, other: str) -> int:
    """Length of the longest common subsequence of `other` and the text behind `places`.

    A bit that is 0 marks a place at which the longest subsequence found so far grew by one;
    one addition moves all such places at once.

    Source:
        Hyyrö 2004, Bit-Parallel LCS-length Computation Revisited.
    """
    bits = unchanged = (1 << length) - 1
    for character in other:
        matches = bits & places.get(character, 0)
        bits = (bits + matches | bits - matches) & unchanged
    return length - bits.bit_count()
