"""Dynamic sampling, a reward of the run's own and oversampling through the whole stack.

One of the runs plays as a run on GPUs does, in two agent loops that are processes of their own.
"""

from itertools import accumulate
from pathlib import Path

import pytest

from training.coin_world import ID, PLAYERS, PRICE
from training.launching import Launched, audit, in_world, path_with_tests, run, wait_for_the_dead
from variation import assert_several

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

COMMON = (
    'environment.import_modules=["training.coin_world"]',
    'algorithm.reward_shaping="training.coin_world:cheaper"',
    "algorithm.invalid_action_penalty=0.25",
    'algorithm.invalid_action_penalty_on="return"',
    "num_training_steps=3",
    "rollout.group_size=2",
    "validation.num_tasks=2",
    "validation.every=0",
    "validation.before=false",
    "checkpoint.every=3",
    "sampling.dynamic=true",
)
OPTIONS = {
    "stragglers are stopped": (
        "sampling.extra_tasks=2",
        "rollout.agent_loops=2",
        "rollout.concurrent_episodes=3",
        "environment.num_workers=4",
    ),
    "played ahead": (
        'trainer.mode="colocate_async"',
        "trainer.prefetch_batches=1",
        "trainer.max_staleness=1",
        'horizon_schedule.kind="success_gated"',
        "horizon_schedule.stages=[2, 4, 6]",
        "horizon_schedule.success_threshold=0.1",
        "horizon_schedule.success_window=1",
    ),
}


@pytest.fixture(scope="module", params=OPTIONS)
def options(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def trained(options: str, tmp_path_factory: pytest.TempPathFactory) -> Launched:
    folder: Path = tmp_path_factory.mktemp("sampling")
    (players := folder / "players").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", path_with_tests())
        patch.setenv(PLAYERS, str(players))
        launched = run(folder, "train", *in_world(ID), *COMMON, *OPTIONS[options])
    assert launched.returncode == 0, launched.output
    return launched


def test_only_groups_whose_returns_differ_are_trained(trained: Launched) -> None:
    fates = trained.query(
        """
        SELECT coalesce(g.discard_reason, g.update_index IS NOT NULL),
            max(e.episode_return) > min(e.episode_return)
        FROM groups g JOIN episodes e ON e.run_id = g.run_id AND e.phase = g.phase
            AND e.training_step = g.training_step AND e.group_index = g.group_index
        WHERE g.phase = 'train' GROUP BY g.training_step, g.group_index
        """
    )

    assert all(differ == 1 for fate, differ in fates if fate == 1)
    assert all(differ == 0 for fate, differ in fates if fate == "no_signal")
    assert any(fate == "no_signal" for fate, _ in fates)
    sizes = trained.query(
        "SELECT resolved_training_step, count(*) FROM groups "
        "WHERE update_index IS NOT NULL GROUP BY 1"
    )
    assert sizes == [(1, 4), (2, 4), (3, 4)]


def test_what_is_not_trained_on_waits_or_is_stopped(trained: Launched, options: str) -> None:
    waited = trained.value(
        "SELECT count(*) FROM groups WHERE resolved_training_step > training_step"
    )
    stopped = trained.value("SELECT count(*) FROM failures WHERE cause = 'stopped_early'")
    undecided = trained.value(
        "SELECT count(*) FROM groups WHERE phase = 'train' AND resolved_training_step IS NULL"
    )

    assert undecided == 0 or options == "played ahead"
    assert trained.value("SELECT count(*) FROM episodes WHERE failed AND trained") == 0
    if options == "stragglers are stopped":
        assert waited == 0
        assert stopped > 0
    else:
        assert waited > 0
        assert stopped == 0


def test_each_agent_loop_plays_and_is_gone_after_the_end(trained: Launched, options: str) -> None:
    players = {int(player.name) for player in (trained.folder / "players").iterdir()}
    trainers = {pid for (pid,) in trained.query("SELECT pid FROM attempts")}

    if options == "stragglers are stopped":
        assert len(players) == 2
        assert not players & trainers
        assert most_in_flight(trained) == 3  # rollout.concurrent_episodes, in shares of 2 and 1
    else:
        assert players == trainers
    wait_for_the_dead(trained.folder)


def most_in_flight(trained: Launched) -> int:
    """Most episodes that were being played at one moment."""
    episodes = trained.query("SELECT started_at, started_at + duration_seconds FROM episodes")
    # Ends come before starts: a slot is free when its episode's time is over.
    moments = sorted([(start, 1) for start, _ in episodes] + [(end, -1) for _, end in episodes])
    return max(accumulate(change for _, change in moments))


def test_a_horizon_grows_where_groups_are_left_out(trained: Launched, options: str) -> None:
    horizons = trained.query(
        "SELECT DISTINCT training_step, horizon FROM episodes "
        "WHERE phase = 'train' AND training_step <= 2 ORDER BY 1"
    )

    by_success, by_stages = [(1, 2), (2, 4)], [(1, 4), (2, 4)]
    assert horizons == (by_success if options == "played ahead" else by_stages)


def test_credit_saw_the_runs_own_rewards_and_the_store_keeps_both(trained: Launched) -> None:
    rows = trained.query("SELECT reward, shaped_reward, action_valid FROM steps WHERE trained")

    assert_several(reward for reward, _, _ in rows)
    assert all(shaped == reward - PRICE - 0.25 * (not valid) for reward, shaped, valid in rows)


def test_the_audit_finds_nothing(trained: Launched) -> None:
    audit(trained)
    assert trained.value("SELECT sum(num_findings) FROM audits") == 0
