"""Runs that play ahead: what is learned from is never too old, and the store says what it was."""

import subprocess
import sys
from pathlib import Path

import pytest

from training.launching import SMOKE, Launched, run
from training.slow_world import FOLDER, ID, UNTIL

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
    "checkpoint.every=2",
    'loss.importance_sampling="token"',
    "trainer.batches_ahead=1",
    "trainer.max_staleness=1",
)
SLOW_GOES_ON = {
    # The update of training step 2 is over: the group, of training step 1, is too old by then.
    "drop": "SELECT count(*) FROM metrics WHERE training_step = 2",
    # All other groups of training steps 1 and 2 are there: enough to learn from without it.
    "wait": """SELECT count(*) = 11 FROM (SELECT 1 FROM episodes WHERE phase = 'train'
               GROUP BY training_step, group_index HAVING count(*) = 2)""",
}


ENGINES = {"colocate_async": (), "separate_async": ("resources.num_engine_workers=1",)}


def launch(folder: Path, *, mode: str, on_stale: str, num_training_steps: int) -> Launched:
    description = folder / "slow.toml"
    packaged = 'id = "longhaul/TextCraft-v0"\noptions = { depth = 1 }'
    text = SMOKE.read_text(encoding="utf-8")
    assert packaged in text
    description.write_text(text.replace(packaged, f'id = "{ID}"'), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(__file__).parents[1]))
        patch.setenv(FOLDER, str(folder))
        patch.setenv(UNTIL, SLOW_GOES_ON[on_stale])
        launched = run(
            folder,
            "train",
            str(description),
            *COMMON,
            f'trainer.mode="{mode}"',
            *ENGINES[mode],
            f'trainer.on_stale="{on_stale}"',
            f"num_training_steps={num_training_steps}",
        )
    assert launched.returncode == 0, launched.output
    return launched


def assert_audit_is_clean(launched: Launched, *, num_training_steps: int) -> None:
    ended = subprocess.run(
        [str(Path(sys.executable).with_name("trainer")), "audit", launched.run_id],
        cwd=launched.folder,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
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


@pytest.fixture(scope="module")
def dropped(tmp_path_factory: pytest.TempPathFactory) -> Launched:
    folder = tmp_path_factory.mktemp("drop")
    return launch(folder, mode="colocate_async", on_stale="drop", num_training_steps=4)


@pytest.fixture(scope="module")
def waited(tmp_path_factory: pytest.TempPathFactory) -> Launched:
    folder = tmp_path_factory.mktemp("wait")
    return launch(folder, mode="separate_async", on_stale="wait", num_training_steps=3)


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
        "SELECT training_step, group_index, decided_training_step, update_index FROM groups "
        "WHERE discard_reason = 'stale'"
    )
    training_step, group_index, decided, update_index = lost
    assert (training_step, update_index) == (1, None)
    assert decided in (3, 4)
    assert dropped.query(
        "SELECT count(*), sum(trained), sum(failed) FROM episodes "
        "WHERE phase = 'train' AND training_step = 1 AND group_index = ?",
        group_index,
    ) == [(2, 0, 0)]
    counted = dropped.query("SELECT training_step, value FROM metrics WHERE name = 'groups/stale'")
    assert sorted(counted) == [(number, float(number == decided)) for number in (1, 2, 3, 4)]
    asked = dropped.query("SELECT training_step, count(*) FROM groups GROUP BY 1 ORDER BY 1")
    assert dict(asked)[decided] >= 4 or decided == 4
    assert dict(asked)[1] == 8


def test_the_learner_waits_for_a_group_that_would_be_too_old_later(waited: Launched) -> None:
    assert waited.value("SELECT count(*) FROM groups WHERE discard_reason IS NOT NULL") == 0
    ends = {
        (training_step, group_index): (taken, end)
        for training_step, group_index, taken, end in waited.query(
            "SELECT training_step, group_index, decided_training_step, "
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


@pytest.mark.parametrize("ended", ["dropped", "waited"])
def test_the_audit_finds_nothing(ended: str, request: pytest.FixtureRequest) -> None:
    launched: Launched = request.getfixturevalue(ended)

    assert_audit_is_clean(launched, num_training_steps=4 if ended == "dropped" else 3)
