"""What of one sequence is kept in the next: prompts that grow, slide or are summarised.

Patience difference: what both have at their ends is kept; between the ends, what occurs exactly
once in each side is an anchor, and the longest chain of anchors in the same order divides the
rest. It is near linear for prompts of 15,000 tokens, where `difflib` is quadratic; `difflib`
decides what lies between anchors, where that is short.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from difflib import SequenceMatcher
from typing import Literal, NamedTuple, TypeVar

__all__ = ["Change", "differences"]

ItemT = TypeVar("ItemT", bound=Hashable)

_SHORT = 256
"""Most items on either side between two anchors that `difflib` compares."""


class Change(NamedTuple):
    """Consecutive items of two sequences. Over all changes, both are covered from end to end."""

    kind: Literal["kept", "dropped", "added"]
    earlier_from: int
    earlier_to: int
    """Items `[earlier_from, earlier_to)` of the earlier sequence; none of what is added."""
    later_from: int
    later_to: int
    """Those of the later one; none of what is dropped."""


def differences(earlier: Sequence[ItemT], later: Sequence[ItemT]) -> tuple[Change, ...]:
    """What the later sequence kept, dropped and added; where it did both, dropped comes first."""
    changes: list[Change] = []
    place, now = 0, 0  # in earlier, in later
    for first, second, length in _joined(_kept(earlier, later)):
        if first > place:
            changes.append(Change("dropped", place, first, now, now))
        if second > now:
            changes.append(Change("added", first, first, now, second))
        place, now = first + length, second + length
        if length:
            changes.append(Change("kept", first, place, second, now))
    return tuple(changes)


_Block = tuple[int, int, int]
"""Place in the earlier sequence, place in the later one, how many items."""


def _joined(blocks: Iterable[_Block]) -> Iterator[_Block]:
    """Blocks that follow each other as one; the last is empty and stands at both ends."""
    last: _Block = (0, 0, 0)
    for block in blocks:
        if block[0] == last[0] + last[2] and block[1] == last[1] + last[2]:
            last = (last[0], last[1], last[2] + block[2])
        else:
            if last[2]:
                yield last
            last = block
    yield last


def _kept(earlier: Sequence[ItemT], later: Sequence[ItemT]) -> Iterator[_Block]:
    """Equal runs in order, and an empty one at the ends."""
    gaps = [(0, len(earlier), 0, len(later))]
    while gaps:
        begin, end, start, stop = gaps.pop()
        head = 0
        while begin + head < end and start + head < stop:
            if earlier[begin + head] != later[start + head]:
                break
            head += 1
        yield begin, start, head
        begin, start = begin + head, start + head
        tail = 0
        while begin < end - tail and start < stop - tail:
            if earlier[end - tail - 1] != later[stop - tail - 1]:
                break
            tail += 1
        inner = (begin, end - tail, start, stop - tail)
        if tail:
            gaps.append((end - tail, end, stop - tail, stop))
        if inner[0] == inner[1] or inner[2] == inner[3]:
            continue
        anchors = _anchors(earlier, later, inner)
        if anchors:
            bounds = [*anchors, (inner[1], inner[3])]
            before = (inner[0], inner[2])
            between: list[tuple[int, int, int, int]] = []
            for place, now in bounds:
                between.append((before[0], place, before[1], now))
                before = (place, now)
            gaps.extend(reversed(between))
        elif max(inner[1] - inner[0], inner[3] - inner[2]) <= _SHORT:
            matcher = SequenceMatcher(
                None, earlier[inner[0] : inner[1]], later[inner[2] : inner[3]], autojunk=False
            )
            for place, now, length in matcher.get_matching_blocks():
                yield inner[0] + place, inner[2] + now, length
    yield len(earlier), len(later), 0


def _anchors(
    earlier: Sequence[ItemT], later: Sequence[ItemT], gap: tuple[int, int, int, int]
) -> list[tuple[int, int]]:
    """Places of what occurs once on each side, in an order that both sides have."""
    begin, end, start, stop = gap
    here = Counter(earlier[begin:end])
    there = Counter(later[start:stop])
    places = {
        later[now]: now
        for now in range(start, stop)
        if there[later[now]] == 1 and here[later[now]] == 1
    }
    pairs = [
        (place, places[earlier[place]]) for place in range(begin, end) if earlier[place] in places
    ]
    return _longest_rising(pairs)


def _longest_rising(pairs: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The most pairs whose second places rise as the first ones do (patience sorting)."""
    tops: list[int] = []  # the least last place of a chain of each length
    chosen: list[int] = []  # which pair that is
    before: list[int | None] = []
    for index, (_, place) in enumerate(pairs):
        length = bisect_left(tops, place)
        before.append(chosen[length - 1] if length else None)
        if length == len(tops):
            tops.append(place)
            chosen.append(index)
        else:
            tops[length], chosen[length] = place, index
    chain: list[tuple[int, int]] = []
    index = chosen[-1] if chosen else None
    while index is not None:
        chain.append(pairs[index])
        index = before[index]
    return chain[::-1]
