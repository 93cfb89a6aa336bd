"""How the episodes of a list are spread over returns, lengths and training steps."""

import math
from dataclasses import dataclass
from typing import Literal

from sqlalchemy import ColumnElement, Integer, case, cast, func, select
from sqlalchemy.orm import Session

from longhaul_core.store.models import EpisodeRow
from longhaul_core.store.queries.base import Answer
from longhaul_core.store.queries.episode_lists import EpisodeFilter, episode_conditions

__all__ = ["HistogramBar", "HistogramColumn", "episode_histogram"]

HistogramColumn = Literal["episode_return", "num_steps", "training_step"]


@dataclass(frozen=True, slots=True)
class HistogramBar(Answer):
    """Episodes whose value lies in one range."""

    least: float
    """The smallest value in it; a filter from here on has the whole bar."""
    most: float
    """The largest value in it."""
    num_episodes: int
    num_solved: int


def episode_histogram(
    session: Session, *, where: EpisodeFilter, column: HistogramColumn, max_bars: int = 24
) -> list[HistogramBar]:
    """Bars over a column of the episodes that match, from low to high; empty ranges are left out.

    Where there are no more than `max_bars` different values each has a bar of its own: rewards are
    often few numbers. Otherwise all bars are equally wide; of whole numbers, by a whole number.

    Args:
        session: Only read from.
        where: Which episodes. Those without a value (a failed one has no return) are in no bar.
        column: What the bars are over.
        max_bars: At most so many, 1 or more.
    """
    value: ColumnElement[float] = EpisodeRow.__table__.columns[column]
    conditions = [*episode_conditions(session, where), value.is_not(None)]
    solved = func.sum(case((EpisodeRow.success.is_(True), 1), else_=0))
    each = session.execute(
        select(value, value, func.count(), solved)
        .where(*conditions)
        .group_by(value)
        .order_by(value)
        .limit(max_bars + 1)
    ).all()
    if len(each) <= max_bars:
        return [HistogramBar(*row) for row in each]
    low, high = session.execute(select(func.min(value), func.max(value)).where(*conditions)).one()
    width = (high - low) / max_bars
    if column != "episode_return":
        width = math.ceil((high - low + 1) / max_bars)
    place = (value - low) / float(width)
    # Not negative, so that a cast of SQLite, which cuts the fraction off, rounds down as well.
    floor = func.floor(place) if session.get_bind().dialect.name == "postgresql" else place
    below = cast(floor, Integer)
    # The largest value lies on the upper end of the last bar, and is in it.
    number = case((below < max_bars, below), else_=max_bars - 1).label("number")
    rows = session.execute(
        select(number, func.min(value), func.max(value), func.count(), solved)
        .where(*conditions)
        .group_by(number)
        .order_by(number)
    )
    return [HistogramBar(*row[1:]) for row in rows]
