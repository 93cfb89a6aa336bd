"""Tests for `longhaul_core.advantages.similarity`."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longhaul_core.advantages import merge_similar

texts = st.lists(st.text("abc", max_size=8), max_size=8)


def test_states_that_read_nearly_alike_become_one() -> None:
    # "room 12:05" and "room 12:06" have 9 of 10 characters in common: 2 * 9 / 20 = 0.9
    states = ["room 12:05", "hall 12:05", "room 12:06", "room 12:05"]
    joined = ["room 12:05", "hall 12:05", "room 12:05", "room 12:05"]

    assert merge_similar(states, threshold=0.9) == joined
    assert merge_similar(states, threshold=0.91) == states


@pytest.mark.parametrize(
    ("one", "other", "likeness"),
    [
        ("abcd", "bcd", 6 / 7),
        ("abcbdab", "bdcaba", 8 / 13),  # bcba, bdab or bcab
        ("ab", "ba", 1 / 2),
        ("ab", "cd", 0.0),
        ("", "cd", 0.0),
    ],
)
def test_likeness_is_the_share_of_the_longest_common_subsequence(
    one: str, other: str, likeness: float
) -> None:
    def together(threshold: float) -> bool:
        return len(set(merge_similar([one, other], threshold=threshold))) == 1

    assert not together(likeness + 1e-6)
    assert likeness == 0.0 or together(likeness - 1e-6)


def test_a_state_is_compared_with_the_first_of_a_cluster_alone() -> None:
    # abcd and abce share 3 of 4, abce and abxe too; abcd and abxe only 2 of 4
    assert merge_similar(["abcd", "abce", "abxe"], threshold=0.75) == ["abcd", "abcd", "abxe"]


def test_long_texts_of_frequent_characters_are_compared_whole() -> None:
    # 4 of 416 characters differ, and every character is frequent
    plain = "the door is shut. the key is here. the lamp is off. " * 8
    other = plain.replace("shut", "open", 1)

    assert merge_similar([plain, other], threshold=0.98) == [other, other]


@given(texts, st.floats(0.05, 0.95), st.randoms(use_true_random=False))
def test_the_order_of_steps_does_not_matter(
    anchors: list[str], threshold: float, random: Random
) -> None:
    order = list(range(len(anchors)))
    random.shuffle(order)

    found = merge_similar(anchors, threshold=threshold)
    shuffled = merge_similar([anchors[place] for place in order], threshold=threshold)

    assert shuffled == [found[place] for place in order]


@given(texts, st.floats(0.05, 0.95))
def test_agrees_with_the_definition(anchors: list[str], threshold: float) -> None:
    """Compare every state with every representative, by the table of common subsequences."""
    heads: list[str] = []
    joined: dict[str, str] = {}
    for state in sorted(set(anchors)):
        alike = [
            head
            for head in heads
            if common(head, state) >= threshold * (len(head) + len(state)) / 2
        ]
        joined[state] = alike[0] if alike else state
        heads += [] if alike else [state]

    assert merge_similar(anchors, threshold=threshold) == [joined[state] for state in anchors]


def common(one: str, other: str) -> int:
    best = [[0] * (len(other) + 1) for _ in range(len(one) + 1)]
    for i, a in enumerate(one):
        for j, b in enumerate(other):
            best[i + 1][j + 1] = best[i][j] + 1 if a == b else max(best[i][j + 1], best[i + 1][j])
    return best[-1][-1]


@pytest.mark.parametrize("threshold", [0.0, 1.0, -0.5, 1.5, float("nan")])
def test_a_threshold_outside_its_range_is_refused(threshold: float) -> None:
    with pytest.raises(ValueError, match=rf"in \(0, 1\), both excluded, got {threshold}"):
        merge_similar(["a"], threshold=threshold)
