"""The store that the API's and the viewer's tests look at: what they show differs."""

import sqlite3
from collections.abc import Generator
from contextlib import closing
from typing import Any

import pytest

from apps.conftest import SampleStore
from variation import assert_both_signs, assert_several, assert_some_vary_within


@pytest.fixture(scope="module")
def store(sample: SampleStore) -> Generator[sqlite3.Connection]:
    with closing(sqlite3.connect(f"file:{sample.url}?mode=ro", uri=True)) as connection:
        yield connection


def test_returns_differ_within_groups_and_rewards_within_episodes(
    store: sqlite3.Connection,
) -> None:
    returns: list[tuple[Any, ...]] = store.execute(
        "SELECT training_step, group_index, episode_return FROM episodes WHERE trained"
    ).fetchall()
    rewards: list[tuple[Any, ...]] = store.execute(
        "SELECT episode_id, reward FROM steps WHERE trained"
    ).fetchall()

    assert_some_vary_within(((row[:2], row[2]) for row in returns), at_least=8)
    assert_some_vary_within(rewards, at_least=16)


@pytest.mark.parametrize(
    "column", ["advantage", "episode_advantage", "step_advantage", "return_to_go", "loss_weight"]
)
def test_credit_takes_several_values(store: sqlite3.Connection, column: str) -> None:
    rows = store.execute(f"SELECT {column} FROM steps WHERE trained").fetchall()

    assert_several((value for (value,) in rows), at_least=4)
    if "advantage" in column:
        assert_both_signs(value for (value,) in rows)
