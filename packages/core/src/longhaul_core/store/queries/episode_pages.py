"""Which episodes are on a page, where no index has them in the page's order: their ids, no rows.

A list sorted by a value reads the value of every episode. Most of the time went into the places
of episodes whose value is the same: rewards are often few numbers, and half of a run's episodes
may have the largest. So the values are sorted alone, and ties are read in the index's order, which
ends as soon as the page is full. No part of it relies on the order that a database gives equals.
"""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, or_, select
from sqlalchemy.orm import Session

from longhaul_core.store.models import EpisodeRow
from longhaul_core.store.queries.keyset import after_key, key_order

__all__ = ["ids_by_value"]


def ids_by_value(
    session: Session,
    *,
    conditions: Sequence[ColumnElement[bool]],
    value: ColumnElement[Any],
    place: Sequence[ColumnElement[Any]],
    descending: bool,
    after: Sequence[Any] | None,
    limit: int,
) -> list[str]:
    """The ids of a page's episodes, in no order.

    Args:
        session: Only read from.
        conditions: On `episodes`: which are in the list.
        value: The column that sorts it; NULL comes last in either direction.
        place: The columns that order equals, not null, in the order of an index; they tell each
            episode from any other.
        descending: The direction of `value` and `place`.
        after: `value` and `place` of the last episode of the page before; None begins.
        limit: The most ids.
    """

    def of_equals(wanted: float | None, *more: ColumnElement[bool], most: int) -> Sequence[str]:
        return session.scalars(
            select(EpisodeRow.id)
            .where(*conditions, value.is_not_distinct_from(wanted), *more)
            .order_by(*key_order(place, descending=descending))
            .limit(most)
        ).all()

    found: list[str] = []
    rest = list(conditions)
    if after is not None:
        last, *behind = after
        found += of_equals(last, after_key(place, behind, descending=descending), most=limit)
        if last is None:
            return found
        beyond = value < last if descending else value > last
        rest.append(or_(beyond, value.is_(None)))
    missing = limit - len(found)
    if missing == 0:
        return found
    [order] = key_order([value], descending=descending)
    first = session.execute(
        select(EpisodeRow.id, value).where(*rest).order_by(order.nulls_last()).limit(missing + 1)
    ).all()
    if len(first) <= missing:
        return [*found, *(row[0] for row in first)]
    last = first[-1][1]
    # Of those that are equal to the first that is left out, some may be better placed than these.
    sure = [row[0] for row in first if row[1] != last]
    found += sure
    return [*found, *of_equals(last, most=limit - len(found))] if len(found) < limit else found
