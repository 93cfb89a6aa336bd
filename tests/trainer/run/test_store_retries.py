"""Tests for `run.store_retries`: when a write is tried again, and for how long."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longhaul_core.errors import StoreError
from longhaul_core.store.addresses import NoConnectionFree
from longhaul_trainer.run.store_retries import LONGEST_AWAY_SECONDS, StoreRetries


def held() -> StoreError:
    error = StoreError("database is locked")
    error.__cause__ = NoConnectionFree("all are taken")
    return error


def tried(retries: StoreRetries, *, at: float, seconds_a_try: float) -> list[float]:
    """The pauses from this moment on, until the store's error is raised."""
    pauses: list[float] = []
    with pytest.raises(StoreError, match="locked"):
        while True:
            ended = at + seconds_a_try
            pauses.append(retries.pause_after(held(), began=at, ended=ended))
            at = ended + pauses[-1]
    return pauses


def test_pauses_double_up_to_30_s_until_the_store_was_away_for_8_min() -> None:
    # 1 + 2 + 4 + 8 + 16 = 31 s, and 15 × 30 s more: the try at 481 s is the last.
    assert tried(StoreRetries(), at=1000, seconds_a_try=0) == [1, 2, 4, 8, 16, *[30] * 15]


def test_a_wait_that_was_too_long_is_not_begun_again_until_the_store_takes_something() -> None:
    retries = StoreRetries()
    tried(retries, at=0, seconds_a_try=30)
    assert tried(retries, at=1000, seconds_a_try=30) == []
    retries.took()
    assert tried(retries, at=2000, seconds_a_try=30)[:3] == [1, 2, 4]


def test_what_the_store_refuses_is_not_tried_again() -> None:
    with pytest.raises(StoreError, match="no such table"):
        StoreRetries().pause_after(StoreError("no such table: episodes"), began=0, ended=0)


@given(seconds=st.floats(0, 400))
def test_the_last_try_begins_8_min_and_a_pause_after_the_first_at_the_latest(
    seconds: float,
) -> None:
    pauses = tried(StoreRetries(), at=0, seconds_a_try=seconds)
    last = sum(pauses) + len(pauses) * seconds
    assert last <= LONGEST_AWAY_SECONDS + 30
    assert last + seconds > LONGEST_AWAY_SECONDS
