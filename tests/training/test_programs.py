"""Runs of programs: the agents of `examples/agents`, as they are, through the whole stack."""

import json
import shutil
import sys
from itertools import groupby
from pathlib import Path

import numpy as np
import pytest

from training import slow_agent
from training.critic import assert_a_critic_learned
from training.launching import Launched, audit, path_with_tests, run
from variation import assert_several

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

PROGRAMS = Path(__file__).with_name("programs.toml")
PICKED = Path(__file__).with_name("picked_agent.py")
VALUED = Path(__file__).with_name("valued_program.py")
AGENTS = ("openai", "framework", "team", "shell")
TRAINED_CALLS = (
    "FROM calls JOIN steps USING (episode_id, step_index) "
    "JOIN episodes ON episodes.id = episode_id JOIN tasks ON tasks.hash = task_hash "
    "WHERE episodes.trained AND calls.trained"
)


def write_tasks(folder: Path) -> None:
    """One hunt of each agent in training, so each training step has all of them."""
    hunts = [
        {"id": name, "split": "train", "agent": name, "start": [0, place], "treasure": [2, 1]}
        for place, name in enumerate(AGENTS)
    ]
    hunts += [
        {"id": split, "split": split, "agent": "openai", "start": [3, place], "treasure": [0, 0]}
        for place, split in enumerate(("validation", "test"))
    ]
    text = "\n".join(map(json.dumps, hunts))
    (folder / "hunts.jsonl").write_text(text + "\n", encoding="utf-8")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, agents_python: Path) -> Launched:
    folder = tmp_path_factory.mktemp("programs")
    write_tasks(folder)
    shutil.copy(PROGRAMS, folder)
    launched = run(
        folder,
        "train",
        PROGRAMS.name,
        'agent.kind="command"',
        f'agent.command=["{agents_python}", "{PICKED}"]',
    )
    assert launched.returncode == 0, launched.output
    return launched


def assert_audit_is_clean(launched: Launched) -> None:
    audit(launched)


def test_every_agent_plays_in_every_training_step_and_none_fails(trained: Launched) -> None:
    played = trained.query(
        "SELECT training_step, task_id, count(*), sum(failed) FROM episode_summary "
        "WHERE phase = 'train' GROUP BY 1, 2 ORDER BY 1, 2"
    )

    assert played == [(step, name, 3, 0) for step in (1, 2) for name in sorted(AGENTS)]


def test_the_audit_of_the_whole_run_is_clean(trained: Launched) -> None:
    assert_audit_is_clean(trained)


def test_a_conversation_that_goes_on_is_one_row(trained: Launched) -> None:
    kinds = trained.query(f"SELECT DISTINCT task_id, continuation {TRAINED_CALLS} ORDER BY 1, 2")

    assert ("openai", "exact") in kinds
    assert ("framework", "exact") in kinds or ("framework", "rewritten") in kinds
    rows, calls = trained.query(f"SELECT count(split_reason), count(*) {TRAINED_CALLS}")[0]
    assert rows < calls


def test_steps_have_the_rewards_and_states_that_the_client_reported(trained: Launched) -> None:
    steps = trained.query(
        "SELECT task_id, reward, anchor_hash FROM step_detail WHERE task_id = 'openai'"
    )

    assert_several((reward for _, reward, _ in steps), at_least=2)
    assert len({anchor for *_, anchor in steps}) >= 3


def test_planner_and_worker_are_told_apart(trained: Launched) -> None:
    agents = trained.query(f"SELECT DISTINCT agent {TRAINED_CALLS} AND task_id = 'team'")

    assert set(agents) == {("planner",), ("worker",)}


def test_the_weights_change_between_two_turns_of_a_program(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("turns")
    write_tasks(folder)
    shutil.copy(PROGRAMS, folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", path_with_tests())
        patch.setenv(slow_agent.FOLDER, str(folder))
        launched = run(
            folder,
            *("train", PROGRAMS.name, 'agent.kind="function"', "num_training_steps=3"),
            'agent.function="training.slow_agent:play"',
            *('trainer.mode="colocate_async"', "trainer.prefetch_batches=1"),
            *("trainer.max_staleness=1", 'trainer.on_stale="wait"', "tasks_per_training_step=2"),
            *("rollout.group_size=2", 'loss.importance_sampling="token"', "checkpoint.every=3"),
        )
    assert launched.returncode == 0, launched.output

    versions = launched.value(
        "SELECT max(number) FROM (SELECT count(DISTINCT policy_version) AS number "
        "FROM step_detail WHERE policy_version IS NOT NULL GROUP BY episode_id)"
    )
    assert versions > 1
    assert launched.value("SELECT count(*) FROM calls WHERE split_reason = 'policy_changed'") > 0
    assert_audit_is_clean(launched)


DISCOUNT, LAMBDA = 0.9, 0.8


@pytest.fixture(scope="module")
def valued(tmp_path_factory: pytest.TempPathFactory) -> Launched:
    """A critic; one task ends by itself, the other by the horizon, in the midst of a turn."""
    folder = tmp_path_factory.mktemp("valued")
    tasks = [
        {"id": name, "split": split, "place": f"island {name}", "turns": turns}
        for name, split, turns in (
            ("ends", "train", 1),
            ("is cut", "train", 9),
            ("validation", "validation", 1),
            ("test", "test", 1),
        )
    ]
    (folder / "hunts.jsonl").write_text("\n".join(map(json.dumps, tasks)), encoding="utf-8")
    shutil.copy(PROGRAMS, folder)
    launched = run(
        folder,
        *("train", PROGRAMS.name, 'agent.kind="command"', "tasks_per_training_step=2"),
        f'agent.command=["{sys.executable}", "{VALUED}"]',
        *("rollout.group_size=2", "rollout.horizon=4", "rollout.max_reply_tokens=12"),
        *('algorithm.name="gae"', f"algorithm.discount={DISCOUNT}"),
        *(f"algorithm.gae_lambda={LAMBDA}", "critic.learning_rate=1e-2"),
    )
    assert launched.returncode == 0, launched.output
    return launched


def test_a_critic_values_the_steps_of_a_program_and_the_prompt_that_the_horizon_refused(
    valued: Launched,
) -> None:
    assert_a_critic_learned(valued, num_training_steps=2, where="trained")
    cut = valued.query(
        "SELECT task_id, truncated, num_steps FROM episode_summary WHERE phase = 'train'"
    )
    assert sorted(set(cut)) == [("ends", 0, 3), ("is cut", 1, 4)]


def test_calls_of_two_agents_and_two_replies_of_a_step_are_trained_in_merged_rows(
    valued: Launched,
) -> None:
    calls = valued.query(
        "SELECT step_index, agent, count(*), sum(calls.trained) FROM calls "
        "JOIN episodes ON episodes.id = episode_id JOIN tasks ON tasks.hash = task_hash "
        "WHERE episodes.trained AND task_id = 'is cut' GROUP BY episode_id, 1, 2 ORDER BY 1, 2"
    )

    kinds = {(0, "", 1, 0), (1, "worker", 1, 1), (2, "planner", 2, 2), (3, "worker", 1, 1)}
    assert set(calls) == kinds
    rows, trained = valued.query(f"SELECT count(split_reason), count(*) {TRAINED_CALLS}")[0]
    assert rows < trained


def test_the_advantages_of_a_program_are_those_of_their_definition(valued: Launched) -> None:
    for training_step in (1, 2):
        steps = valued.query(
            "SELECT s.episode_id, s.shaped_reward, s.value, s.value_target, s.advantage, "
            "coalesce(e.final_value, 0.0), "
            "(SELECT coalesce(sum(num_action_tokens), 0) FROM calls c "
            "WHERE c.episode_id = s.episode_id AND c.step_index = s.step_index AND c.trained) "
            "FROM steps s JOIN episodes e ON e.id = s.episode_id "
            f"WHERE e.trained AND e.trained_training_step = {training_step} "
            "ORDER BY s.episode_id, s.step_index"
        )
        errors_and_later: list[float] = []
        for _, group in groupby(steps, key=lambda step: step[0]):
            episode = list(group)
            values = [value for _, _, value, *_ in episode] + [episode[0][5]]
            errors = [
                reward + DISCOUNT * values[place + 1] - values[place]
                for place, (_, reward, *_) in enumerate(episode)
            ]
            assert errors[0] == pytest.approx(0, abs=1e-6)  # the judge's: the policy chose nothing
            errors_and_later += [
                sum((DISCOUNT * LAMBDA) ** later * e for later, e in enumerate(errors[place:]))
                for place in range(len(episode))
            ]
        counts = [tokens for *_, tokens in steps]
        raw = np.array(errors_and_later)
        mean = np.average(raw, weights=counts)
        deviation = np.sqrt(np.dot(counts, (raw - mean) ** 2) / (sum(counts) - 1) + 1e-8)

        targets = [target - value for _, _, value, target, *_ in steps]
        assert targets == pytest.approx(errors_and_later, abs=1e-5)
        assert [step[4] for step in steps] == pytest.approx(
            ((raw - mean) / deviation).tolist(), abs=1e-4
        )
        assert_several((round(one, 4) for one in errors_and_later), at_least=4)


def test_the_audit_of_a_program_with_a_critic_is_clean(valued: Launched) -> None:
    assert_audit_is_clean(valued)
