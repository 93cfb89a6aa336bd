"""Runs that play ahead: what is learned from is never too old, and the store says what it was."""

import json
from collections.abc import Generator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from training import slow_world, wordy_world
from training.critic import assert_a_critic_learned
from training.greedy import assert_each_group_is_compared_with_its_greedy_episode
from training.launching import (
    Launched,
    audit,
    finish,
    in_world,
    kill_group,
    path_with_tests,
    run,
    trainer,
    wait_for_the_dead,
    wait_until,
)
from training.test_smoke_run import LOGPROB_BOUND
from training.thoughts import thoughts_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

COMMON = (
    'environment.import_modules=["training.slow_world"]',
    "environment.num_workers=3",
    "environment.step_deadline_seconds=300",
    "rollout.group_size=2",
    "rollout.horizon=2",
    'horizon_schedule.kind="fixed"',
    "horizon_schedule.stages=[]",
    "validation.num_tasks=2",
    "validation.before=false",
    "validation.every=0",
    "num_training_steps=3",
    "checkpoint.every=3",
    'loss.importance_sampling="token"',
    "trainer.prefetch_batches=1",
    "trainer.max_staleness=1",
)
ADAPTER = "model.lora_rank=4"
MERGED = ('memory.kind="full"', 'optimizer.rows="merged"')
COLOCATED = ('trainer.mode="colocate_async"',)
SEPARATE = ('trainer.mode="separate_async"', "resources.num_engine_workers=1")
CRITIC = ('algorithm.name="gae"', "critic.learning_rate=1e-3")
CRITIC_OF_TOKENS = (*CRITIC, 'algorithm.gae_level="token"', 'algorithm.whiten="episode"')
THOUGHTS = (
    'model.chat_template="chatml-thoughts"',
    "model.chat_template_kwargs.enable_thinking=false",
)
SLOW_GOES_ON = {
    # The update of training step 2 is over: the group, of training step 1, is too old by then.
    "drop": "SELECT count(*) FROM metrics WHERE training_step = 2",
    # All other groups of training steps 1 and 2 are there: enough to learn from without it.
    "wait": """SELECT count(*) = 11 FROM (SELECT 1 FROM episodes WHERE phase = 'train'
               GROUP BY training_step, group_index HAVING count(*) = 2)""",
}


@pytest.fixture(scope="module", autouse=True)
def worlds_are_found() -> Generator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", path_with_tests())
        yield


def arguments(folder: Path, world: str, *options: str, on_stale: str = "wait") -> list[str]:
    """What `trainer` is called with to train in `world`; later options win."""
    stale = f'trainer.on_stale="{on_stale}"'
    return ["train", *in_world(world), *COMMON, stale, *options]


def launch(folder: Path, *options: str, on_stale: str) -> Launched:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(slow_world.FOLDER, str(folder))
        patch.setenv(slow_world.UNTIL, SLOW_GOES_ON[on_stale])
        launched = run(folder, *arguments(folder, slow_world.ID, *options, on_stale=on_stale))
    assert launched.returncode == 0, launched.output
    return launched


def assert_audit_is_clean(launched: Launched, *, num_training_steps: int) -> None:
    audit(launched)
    audited = launched.query(
        "SELECT num_training_steps, num_findings FROM audits ORDER BY audited_at DESC LIMIT 1"
    )
    assert audited == [(num_training_steps, 0)]


def versions_of_each_update(launched: Launched) -> list[tuple[int, int, int]]:
    """Training step, and the oldest and newest weights that its update learned from."""
    return launched.query(
        "SELECT trained_training_step, min(policy_version), max(policy_version) FROM step_detail "
        "WHERE trained GROUP BY trained_training_step ORDER BY trained_training_step"
    )


class Killed(NamedTuple):
    """A run that was killed and went on, and the tasks that waited at its checkpoint."""

    launched: Launched
    waiting: list[str]


@pytest.fixture(scope="module")
def dropped(tmp_path_factory: pytest.TempPathFactory) -> Launched:
    folder = tmp_path_factory.mktemp("drop")
    options = (
        *(*COLOCATED, ADAPTER, "num_training_steps=4"),
        *('algorithm.name="grpo"', 'algorithm.loss_unit="episode"', "loss.kl_coefficient=0.01"),
    )
    return launch(folder, *options, on_stale="drop")


@pytest.fixture(scope="module")
def waited(tmp_path_factory: pytest.TempPathFactory) -> Launched:
    folder = tmp_path_factory.mktemp("wait")
    critic = (*CRITIC, "algorithm.gae_lambda=0.9", "critic.clip_range=0.2")
    return launch(folder, *SEPARATE, ADAPTER, *critic, on_stale="wait")


@pytest.fixture(scope="module")
def separate(tmp_path_factory: pytest.TempPathFactory) -> Launched:
    """A greedy episode beside each group; replies are drawn without seeds."""
    folder = tmp_path_factory.mktemp("separate")
    options = (
        *(*SEPARATE, *MERGED, 'algorithm.name="remax"'),
        *('prompt.instruction="Write."', 'prompt.instruction_place="system"'),
        'rollout.reproducibility="fast"',
    )
    launched = run(folder, *arguments(folder, wordy_world.ID, *options))
    assert launched.returncode == 0, launched.output
    return launched


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Killed:
    """Killed after the first checkpoint, while groups wait, and resumed. Two processes play.

    Its critic is of tokens, and each reply begins after an empty thought.
    """
    folder = tmp_path_factory.mktemp("killed")
    loops = "rollout.agent_loops=2"
    options = (*COLOCATED, *MERGED, *CRITIC_OF_TOKENS, *THOUGHTS, loops, "checkpoint.every=1")
    process = trainer(folder, *arguments(folder, wordy_world.ID, *options))
    state = "runs/*/checkpoints/global_step_1/longhaul.json"
    wait_until(process, lambda: any(folder.glob(state)), every=0.02)
    (checkpoint,) = folder.glob(state)
    waiting = json.loads(checkpoint.read_text(encoding="utf-8"))["waiting"]
    kill_group(process)
    wait_for_the_dead(folder)
    launched = finish(trainer(folder, "resume", "last"), folder)
    assert launched.returncode == 0, launched.output
    return Killed(launched, [task["task_id"] for task in waiting])


def test_an_update_learns_from_replies_of_several_policy_versions(dropped: Launched) -> None:
    versions = versions_of_each_update(dropped)

    assert [number for number, _, _ in versions] == [1, 2, 3, 4]
    assert any(oldest < newest for _, oldest, newest in versions), versions
    updates = 2
    assert all(
        (number - 2) * updates <= oldest and newest <= (number - 1) * updates
        for number, oldest, newest in versions
    ), versions
    assert dropped.value("SELECT count(*) FROM failures") == 0


def test_a_group_that_comes_too_late_is_thrown_away_and_another_task_is_played(
    dropped: Launched,
) -> None:
    (lost,) = dropped.query(
        "SELECT training_step, group_index, resolved_training_step, update_index FROM groups "
        "WHERE discard_reason = 'stale' AND training_step = 1"
    )
    training_step, group_index, decided, update_index = lost
    assert (training_step, update_index) == (1, None)
    assert decided in (3, 4)
    assert dropped.query(
        "SELECT count(*), sum(trained), sum(failed) FROM episodes "
        "WHERE phase = 'train' AND training_step = 1 AND group_index = ?",
        group_index,
    ) == [(2, 0, 0)]
    # Others may be late too: they wait for the process in which the slow episode is played.
    stale = dict(
        dropped.query(
            "SELECT resolved_training_step, count(*) FROM groups "
            "WHERE discard_reason = 'stale' GROUP BY 1"
        )
    )
    counted = dropped.query("SELECT training_step, value FROM metrics WHERE name = 'groups/stale'")
    assert sorted(counted) == [(number, float(stale.get(number, 0))) for number in (1, 2, 3, 4)]
    asked = dropped.query("SELECT training_step, count(*) FROM groups GROUP BY 1 ORDER BY 1")
    assert dict(asked)[decided] >= 4 or decided == 4
    assert dict(asked)[1] == 8


def test_the_learner_waits_for_a_group_that_would_be_too_old_later(waited: Launched) -> None:
    assert waited.value("SELECT count(*) FROM groups WHERE discard_reason IS NOT NULL") == 0
    ends = {
        (training_step, group_index): (taken, end)
        for training_step, group_index, taken, end in waited.query(
            "SELECT training_step, group_index, resolved_training_step, "
            "max(started_at + duration_seconds) FROM episodes "
            "JOIN groups USING (run_id, attempt, phase, training_step, group_index) "
            "WHERE phase = 'train' GROUP BY training_step, group_index"
        )
    }
    slow, (taken, slow_end) = max(
        ((group, fate) for group, fate in ends.items() if group[0] == 1), key=lambda one: one[1][1]
    )
    assert taken == 2, (slow, ends)
    # Others were there before it, enough to learn from, and were left for the next update.
    younger = [end for group, (number, end) in ends.items() if group[0] == 2 and number == 3]
    assert len(younger) >= 3
    assert all(end < slow_end for end in younger), ends


def test_what_waited_at_a_checkpoint_is_played_again_first(killed: Killed) -> None:
    asked = killed.launched.query(
        "SELECT DISTINCT training_step, group_index, task_id FROM episode_summary "
        "WHERE phase = 'train' AND attempt = 1 ORDER BY training_step, group_index"
    )
    updates = killed.launched.query(
        "SELECT trained_training_step, count(DISTINCT task_id), count(*) FROM episode_summary "
        "WHERE trained GROUP BY 1 ORDER BY 1"
    )
    trained = killed.launched.value(
        "SELECT count(DISTINCT task_id) FROM episode_summary WHERE trained"
    )

    assert len(killed.waiting) >= 4
    assert [task for _, _, task in asked[: len(killed.waiting)]] == killed.waiting
    assert updates == [(1, 4, 8), (2, 4, 8), (3, 4, 8)]
    assert trained == 12, "a task was learned from twice, or left out"


def test_a_critic_goes_on_where_it_stood(killed: Killed) -> None:
    steps = killed.launched.query(
        "SELECT attempt, trained_training_step, count(*), count(value), count(value_target), "
        "max(abs(value)) > 0 FROM steps JOIN episodes ON episodes.id = episode_id "
        "WHERE episodes.trained GROUP BY 1, 2 ORDER BY 1, 2"
    )

    # A fresh critic says 0 of everything: one that had forgotten would say so in step 2.
    assert [(*who, learned) for *who, _, _, _, learned in steps] == [
        (0, 1, 0),
        (1, 2, 1),
        (1, 3, 1),
    ]
    assert all(number == values == targets for _, _, number, values, targets, _ in steps)


def test_a_critic_of_tokens_and_its_policy_learn(killed: Killed) -> None:
    launched = killed.launched
    norms = launched.query(
        "SELECT training_step, value FROM metrics WHERE name = 'actor/grad_norm' "
        "AND NOT rolled_back ORDER BY 1"
    )

    assert_a_critic_learned(launched, num_training_steps=3, where="trained")
    assert [number for number, _ in norms] == [1, 2, 3]
    assert all(norm > 0 for _, norm in norms)


def test_the_sampler_agrees_with_a_learner_of_merged_rows_beside_a_critic(killed: Killed) -> None:
    differences = killed.launched.query(
        "SELECT value FROM metrics WHERE name = 'agreement/logprob_difference_mean' "
        "AND NOT rolled_back"
    )
    reasons = killed.launched.query(
        "SELECT DISTINCT calls.split_reason FROM calls JOIN steps USING (episode_id, step_index) "
        "WHERE steps.trained AND calls.trained"
    )

    assert len(differences) == 3
    assert all(0 < value < LOGPROB_BOUND for (value,) in differences), differences
    weights_came_between = {"policy_changed"}  # or not, as it happens
    assert {reason for (reason,) in reasons} - weights_came_between == {"first_step", None}


def test_replies_begin_after_an_empty_thought_where_the_run_says_so(killed: Killed) -> None:
    thoughts = thoughts_of(killed.launched)

    assert thoughts.num_prompts > 1
    assert thoughts.num_empty == thoughts.num_prompts
    assert thoughts.known_to_model


def test_engines_of_their_own_play_ahead_by_the_limit_and_no_more(separate: Launched) -> None:
    versions = versions_of_each_update(separate)

    assert [number for number, _, _ in versions] == [1, 2, 3]
    assert any(oldest < (number - 1) * 2 for number, oldest, _ in versions), versions
    assert all((number - 2) * 2 <= oldest for number, oldest, _ in versions), versions
    assert separate.value("SELECT count(*) FROM policy_versions") == 4


def test_each_group_is_compared_with_the_greedy_episode_that_was_played_beside_it(
    separate: Launched,
) -> None:
    assert_each_group_is_compared_with_its_greedy_episode(separate)
    updates = separate.query(
        "SELECT trained_training_step, count(*) FROM episodes WHERE trained GROUP BY 1 ORDER BY 1"
    )
    assert updates == [(1, 8), (2, 8), (3, 8)]


def test_replies_without_seeds_differ_within_a_group_and_rows_are_merged_all_the_same(
    separate: Launched,
) -> None:
    """The greedy one among them is drawn by none either way."""
    replies = separate.query(
        "SELECT training_step, group_index, count(DISTINCT reply) FROM call_detail "
        "WHERE phase = 'train' AND step_index = 0 GROUP BY 1, 2"
    )
    assert sum(number == 2 for *_, number in replies) > len(replies) / 2
    rows = separate.query("SELECT value FROM metrics WHERE name = 'rows/per_episode'")
    assert min(value for (value,) in rows) < 2
    system = "SELECT DISTINCT content FROM episode_messages WHERE role = 'system'"
    assert separate.query(system) == [("Write.",)]


def test_a_critic_beside_an_adapter_learns_from_engines_of_their_own(waited: Launched) -> None:
    assert_a_critic_learned(waited, num_training_steps=3, where="trained")


@pytest.mark.parametrize(
    ("ended", "num_training_steps"), [("dropped", 4), ("waited", 3), ("separate", 3), ("killed", 3)]
)
def test_the_audit_finds_nothing(
    ended: str, num_training_steps: int, request: pytest.FixtureRequest
) -> None:
    found: Any = request.getfixturevalue(ended)
    launched: Launched = found.launched if isinstance(found, Killed) else found

    assert_audit_is_clean(launched, num_training_steps=num_training_steps)
