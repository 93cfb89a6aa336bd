"""Tests for `longhaul_trainer.verl.queue_rows`."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longhaul_trainer.config import RunConfig
from longhaul_trainer.verl.queue_rows import MARGIN, most_rows, rows_of_a_training_step


def a_run(**sections: object) -> RunConfig:
    smallest: dict[str, object] = {"num_training_steps": 1, "tasks_per_training_step": 4}
    return RunConfig.model_validate(smallest | sections)


def rollout(group_size: int = 8, horizon: int = 10) -> dict[str, object]:
    return {"group_size": group_size, "horizon": horizon}


def test_a_row_is_a_step_and_a_panel_s_rows_lie_beside_them() -> None:
    run = a_run(rollout=rollout(), validation={"num_tasks": 5, "test_num_tasks": 7})

    assert rows_of_a_training_step(run) == 4 * 8 * 10
    assert most_rows(run) == MARGIN * (4 * 8 * 10 + 7 * 10)


def test_a_run_of_256_times_8_episodes_of_50_steps_has_room() -> None:
    run = a_run(tasks_per_training_step=256, rollout=rollout(8, 50))

    assert rows_of_a_training_step(run) == 102_400  # more than the 100,000 of verl's default
    assert (most_rows(run) or 0) >= 102_400


@pytest.mark.parametrize(
    ("sections", "rows_of_an_episode"),
    [
        ({"agent": {"kind": "plan_then_act"}}, 20),
        ({"memory": {"kind": "summary", "train_summaries": True, "summarize_every": 4}}, 10 + 3),
        ({"memory": {"kind": "summary", "summarize_every": 4}}, 10),
        ({"algorithm": {"name": "gae"}}, 10 + 1),
    ],
)
def test_further_trained_calls_and_the_critic_s_last_row_are_counted(
    sections: dict[str, object], rows_of_an_episode: int
) -> None:
    assert rows_of_a_training_step(a_run(rollout=rollout(), **sections)) == (
        4 * 8 * rows_of_an_episode
    )


def test_remax_plays_one_episode_more_in_each_group() -> None:
    assert rows_of_a_training_step(a_run(rollout=rollout(), algorithm={"name": "remax"})) == (
        4 * 9 * 10
    )


def test_the_longest_environment_of_several_counts() -> None:
    run = a_run(
        rollout=rollout(),
        environments=[
            {"id": "longhaul/BabyAI-v0", "horizon": 3},
            {"id": "longhaul/TextCraft-v0", "horizon": 6},
        ],
    )

    assert rows_of_a_training_step(run) == 4 * 8 * 6


def test_batches_that_are_played_ahead_and_refills_have_room() -> None:
    panel = {"num_tasks": 1, "test_num_tasks": 1}
    sync = a_run(rollout=rollout(), validation=panel)
    ahead = a_run(
        rollout=rollout(),
        validation=panel,
        trainer={"mode": "colocate_async", "prefetch_batches": 2, "max_staleness": 3},
    )
    refilled = a_run(
        rollout=rollout(), validation=panel, sampling={"dynamic": True, "max_refills": 5}
    )

    def batches(run: RunConfig) -> float:
        return ((most_rows(run) or 0) / MARGIN - 10) / (4 * 8 * 10)

    assert [batches(run) for run in (sync, ahead, refilled)] == [1, 1 + 3, 1 + 5]


def test_every_episode_of_a_panel_has_room() -> None:
    panel = {"num_tasks": 50, "test_num_tasks": 100, "temperature": 0.4}
    mixed = [{"id": "longhaul/BabyAI-v0"}, {"id": "longhaul/TextCraft-v0"}]

    def rows(samples: int, **sections: object) -> int:
        validation = panel | {"samples_per_task": samples}
        return most_rows(a_run(rollout=rollout(), validation=validation, **sections)) or 0

    assert rows(8) - rows(1) == MARGIN * 7 * 100 * 10
    # a panel has as many tasks of each environment
    assert rows(8, environments=mixed) - rows(8) == MARGIN * 8 * 100 * 10


@pytest.mark.parametrize(
    "sections", [{"agent": {"kind": "mine:Agent"}}, {"memory": {"kind": "mine:Memory"}}]
)
def test_parts_of_one_s_own_have_no_limit_since_nobody_knows_their_calls(
    sections: dict[str, object],
) -> None:
    assert most_rows(a_run(rollout=rollout(), **sections)) is None


@given(
    tasks=st.integers(1, 64),
    group=st.integers(2, 16),
    horizon=st.integers(1, 60),
    ahead=st.integers(1, 3),
)
def test_there_is_always_room_for_the_batches_that_are_there_at_once(
    tasks: int, group: int, horizon: int, ahead: int
) -> None:
    run = a_run(
        tasks_per_training_step=tasks,
        rollout=rollout(group, horizon),
        trainer={"mode": "colocate_async", "prefetch_batches": ahead, "max_staleness": ahead},
    )

    assert (most_rows(run) or 0) >= (1 + ahead) * tasks * group * horizon
