"""What a sequence kept, dropped and added: by hand, as a property, and against `difflib`."""

import random
import time
from difflib import SequenceMatcher

from hypothesis import given
from hypothesis import strategies as st

from longhaul_core.differences import Change, differences

SEQUENCES = st.lists(st.integers(0, 6), max_size=24)


def test_a_window_that_slides_is_one_drop_and_one_addition() -> None:
    changes = differences("abcdefg", "adefghi")
    assert changes == (
        Change("kept", 0, 1, 0, 1),
        Change("dropped", 1, 3, 1, 1),
        Change("kept", 3, 7, 1, 5),
        Change("added", 7, 7, 5, 7),
    )


def test_nothing_in_common_is_dropped_and_then_added() -> None:
    assert differences("ab", "xyz") == (
        Change("dropped", 0, 2, 0, 0),
        Change("added", 2, 2, 0, 3),
    )
    assert differences("", "") == ()


@given(SEQUENCES, SEQUENCES)
def test_the_changes_applied_to_the_earlier_sequence_give_the_later_one(
    earlier: list[int], later: list[int]
) -> None:
    made: list[int] = []
    for change in differences(earlier, later):
        if change.kind == "kept":
            made += earlier[change.earlier_from : change.earlier_to]
        elif change.kind == "added":
            made += later[change.later_from : change.later_to]
    assert made == later


@given(SEQUENCES, SEQUENCES)
def test_the_changes_cover_both_sequences_and_what_is_kept_is_equal(
    earlier: list[int], later: list[int]
) -> None:
    place, now = 0, 0
    for change in differences(earlier, later):
        assert (change.earlier_from, change.later_from) == (place, now)
        place, now = change.earlier_to, change.later_to
        if change.kind == "kept":
            assert earlier[change.earlier_from : place] == later[change.later_from : now]
    assert (place, now) == (len(earlier), len(later))


@given(st.lists(st.integers(), unique=True, max_size=30), st.integers(0, 30), st.integers(0, 30))
def test_as_much_is_kept_as_difflib_keeps_of_what_does_not_repeat(
    items: list[int], first: int, last: int
) -> None:
    later = items[first:last] + items[:first]
    kept = sum(c.later_to - c.later_from for c in differences(items, later) if c.kind == "kept")
    blocks = SequenceMatcher(None, items, later, autojunk=False).get_matching_blocks()
    assert kept >= max(block.size for block in blocks)
    if first == 0 or last <= first:  # one run is kept, which both find
        assert kept == sum(block.size for block in blocks)


def test_long_prompts_of_common_words_are_compared_in_a_fraction_of_what_difflib_takes() -> None:
    draw = random.Random(1)

    def tokens(count: int) -> list[int]:
        return [int(draw.paretovariate(0.7)) % 40_000 for _ in range(count)]

    system, past = tokens(300), tokens(6_000)
    earlier, later = system + past, system + past[400:] + tokens(400)

    def took(work: object) -> float:
        assert callable(work)
        begin = time.process_time()
        work()
        return time.process_time() - begin

    ours = took(lambda: differences(earlier, later))
    theirs = took(
        lambda: SequenceMatcher(None, earlier, later, autojunk=False).get_matching_blocks()
    )
    assert ours < theirs / 5
    kept = sum(c.later_to - c.later_from for c in differences(earlier, later) if c.kind == "kept")
    assert kept >= len(system) + len(past) - 400
