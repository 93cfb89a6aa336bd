"""Where the states of a group's graph are drawn: in columns by their distance to success.

States from which an episode reached the goal stand above, the nearer the further to the right.
Those without a way there stand below, each a column to the right of the state that led to it. The
same graph is always laid out the same.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from heapq import heappop, heappush
from typing import NamedTuple

from longhaul_core.store.queries import StateGraph

__all__ = ["Place", "laid_out"]

SWEEPS = 4
"""Times that the columns are gone through in each direction, to put neighbours side by side."""
BAND_GAP = 1.0
"""Rows that stay free between the states with a way to the goal and those without."""


class Place(NamedTuple):
    """Where a state stands."""

    column: int
    """From 0, left to right."""
    row: float
    """From 0, top to bottom; states of a column are at least 1 apart."""


def laid_out(graph: StateGraph) -> dict[int, Place]:
    """The place of each node, by its number."""
    edges = [(edge.source, edge.target) for edge in graph.edges if edge.source != edge.target]
    distances = {n.number: n.distance for n in graph.nodes if n.distance is not None}
    furthest = max(distances.values(), default=0)
    columns = {node: furthest - distance for node, distance in distances.items()}
    lost = [node.number for node in graph.nodes if node.distance is None]
    starts = [node.number for node in graph.nodes if node.num_starts]
    columns |= _columns_of_lost(lost, edges, known=columns, starts=starts)
    rows: dict[int, float] = {}
    top = 0.0
    for band in (list(distances), lost):
        if band:
            placed = _rows(band, edges, columns=columns)
            least = min(placed.values())
            rows |= {node: top + row - least for node, row in placed.items()}
            top = max(rows.values()) + 1 + BAND_GAP
    return {node: Place(columns[node], rows[node]) for node in sorted(columns)}


def _columns_of_lost(
    lost: Collection[int],
    edges: Sequence[tuple[int, int]],
    *,
    known: Mapping[int, int],
    starts: Collection[int],
) -> dict[int, int]:
    """A column to the right of the leftmost state that leads there; 0 for a start."""
    following: dict[int, list[int]] = defaultdict(list)
    for source, target in edges:
        following[source].append(target)
    wanted = set(lost)
    found: dict[int, int] = {}
    waiting = [(0, node) for node in starts if node in wanted]
    for node, column in known.items():
        waiting += [(column + 1, target) for target in following[node] if target in wanted]
    waiting.sort()
    while waiting:
        column, node = heappop(waiting)
        if node not in found:
            found[node] = column
            for target in following[node]:
                if target in wanted:
                    heappush(waiting, (column + 1, target))
    return found


def _rows(
    band: Sequence[int], edges: Sequence[tuple[int, int]], *, columns: Mapping[int, int]
) -> dict[int, float]:
    """Rows of the states of a band: each as near to its neighbours as there is room."""
    before: dict[int, list[int]] = defaultdict(list)
    after: dict[int, list[int]] = defaultdict(list)
    within = set(band)
    for source, target in edges:
        if source in within and target in within and columns[source] < columns[target]:
            after[source].append(target)
            before[target].append(source)
    by_column: dict[int, list[int]] = defaultdict(list)
    for node in sorted(band):
        by_column[columns[node]].append(node)
    rows = {
        node: float(place) - (len(nodes) - 1) / 2
        for nodes in by_column.values()
        for place, node in enumerate(nodes)
    }
    in_order = sorted(by_column)
    for _ in range(SWEEPS):
        for order, neighbours in ((in_order, before), (in_order[::-1], after)):
            for column in order:
                _settle(by_column[column], neighbours, rows)
    for column in in_order:
        _settle(by_column[column], before, rows)
    return rows


def _settle(
    nodes: Sequence[int], neighbours: Mapping[int, Sequence[int]], rows: dict[int, float]
) -> None:
    """Move the states of a column to the mean of their neighbours' rows, at least 1 apart."""
    wanted = {
        node: sum(rows[each] for each in neighbours[node]) / len(neighbours[node])
        if neighbours.get(node)
        else rows[node]
        for node in nodes
    }
    order = sorted(nodes, key=lambda node: (wanted[node], rows[node], node))
    placed: list[float] = []
    for node in order:
        placed.append(max(wanted[node], placed[-1] + 1) if placed else wanted[node])
    pushed = sum(row - wanted[node] for node, row in zip(order, placed, strict=True)) / len(order)
    rows |= {node: row - pushed for node, row in zip(order, placed, strict=True)}
