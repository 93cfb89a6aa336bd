"""What the child process is asked."""

import json
from dataclasses import dataclass
from typing import Any, cast

from longhaul_core.sql_box.limits import Fence, QueryLimits

__all__ = ["Request"]


@dataclass(frozen=True)
class Request:
    """One statement, where to run it, and within what."""

    dialect: str
    store: str
    """SQLite: the file as `file:…` address; PostgreSQL: a connection string."""
    sql: str
    relations: tuple[str, ...]
    limits: QueryLimits
    without: frozenset[Fence]
    """Fences left out: tests show by it that each of them holds something."""

    @classmethod
    def read(cls, text: str) -> "Request":
        """The request that `box` wrote."""
        given = cast("dict[str, Any]", json.loads(text))
        return cls(
            dialect=given["dialect"],
            store=given["store"],
            sql=given["sql"],
            relations=tuple(given["relations"]),
            limits=QueryLimits(**given["limits"]),
            without=frozenset(Fence(name) for name in given["without"]),
        )

    def has(self, fence: Fence) -> bool:
        """Whether this fence stands."""
        return fence not in self.without
