"""How long a writer tries again where another program holds the store, or its server is away."""

from __future__ import annotations

import logging

from longhaul_core.errors import StoreError
from longhaul_core.store.addresses import is_temporary

__all__ = ["StoreRetries"]

logger = logging.getLogger(__name__)

LONGEST_AWAY_SECONDS = 480.0
"""Deleting runs, `VACUUM` and a restart of the server take minutes. Ranks of an update wait ten
minutes for one that waits for the writer; the last try comes before that, so the run ends with the
store's error."""

FIRST_PAUSE_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 30.0
"""Between two tries; each pause is twice the one before, up to the longest."""


class StoreRetries:
    """Of one writer, whose writes may be tried again: twice is as good as once."""

    def __init__(self) -> None:
        self._away_since: float | None = None
        """When the store was first found held or away, since it last took something."""
        self._pause = FIRST_PAUSE_SECONDS

    def took(self) -> None:
        """The store has taken something."""
        self._away_since, self._pause = None, FIRST_PAUSE_SECONDS

    def pause_after(self, error: StoreError, *, began: float, ended: float) -> float:
        """Seconds until the next try.

        Args:
            error: What the last try ended by.
            began: When that began, in seconds of the caller's clock.
            ended: When it ended.

        Raises:
            StoreError: The error, if it lasts, or has lasted for `LONGEST_AWAY_SECONDS`.
        """
        if not is_temporary(error):
            raise error
        self._away_since = began if self._away_since is None else self._away_since
        away = ended - self._away_since
        if away > LONGEST_AWAY_SECONDS:
            raise error
        logger.warning("no record was taken for %.0f s, trying again: %s", away, error)
        pause, self._pause = self._pause, min(2 * self._pause, LONGEST_PAUSE_SECONDS)
        return pause
