"""An expert demonstrates, and a model imitates it, by the commands that a user types."""

import json
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from math import log
from pathlib import Path

import pytest
from sqlalchemy.orm import Session

from longhaul_core.audit import audit_run, one_line
from longhaul_core.store import read_only_engine
from longhaul_core.store.queries import violations
from training.launching import (
    Launched,
    kill_group,
    run,
    trainer,
    wait_for_the_dead,
    wait_until,
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

FILE = str(Path(__file__).with_name("imitation.toml"))


@pytest.fixture(scope="module")
def imitated(tmp_path_factory: pytest.TempPathFactory) -> Launched:
    """Killed during a commit, and resumed where the source's name stands for another run."""
    folder = tmp_path_factory.mktemp("imitation")
    demonstrate(folder, num_tasks=40)
    imitating = trainer(folder, "imitate", FILE, "--from", "experts", "imitation.best_per_task=2")
    wait_until(imitating, lambda: any(folder.glob("runs/*/checkpoints/global_step_3")))
    wait_until(imitating, while_a_commit_is_written(folder), every=0.002)
    kill_group(imitating)
    wait_for_the_dead(folder)
    demonstrate(folder, num_tasks=2)
    resumed = run(folder, "resume", "last")
    assert resumed.returncode == 0, resumed.output
    return resumed


@pytest.fixture(scope="module")
def preferred(imitated: Launched, tmp_path_factory: pytest.TempPathFactory) -> Launched:
    """What was imitated goes on by DPO, on what it scored before it imitated and after."""
    folder = tmp_path_factory.mktemp("preferred")
    shutil.copy(imitated.folder / "longhaul.db", folder)
    played = f'[{{ run = "{imitated.run_id}", where = {{ phase = "validation" }} }}]'
    launched = run(
        folder,
        *("imitate", FILE, "name=preferred"),
        *(f"model.path={imitated.run_folder / 'model'}", f"imitation.sources={played}"),
        *("imitation.loss=dpo", "num_training_steps=2", "tasks_per_training_step=2"),
        *("optimizer.optimizer_steps_per_training_step=1", "optimizer.learning_rate=1e-3"),
        *("validation.num_tasks=0", "checkpoint.every=2"),
    )
    assert launched.returncode == 0, launched.output
    return launched


@pytest.fixture(scope="module")
def beside(imitated: Launched, tmp_path_factory: pytest.TempPathFactory) -> Launched:
    """What was imitated goes on by reinforcement learning, and imitates beside it."""
    folder = tmp_path_factory.mktemp("beside")
    shutil.copy(imitated.folder / "longhaul.db", folder)
    launched = run(
        folder,
        *("train", FILE, "name=beside", f"model.path={imitated.run_folder / 'model'}"),
        *("imitation.coefficient=0.5", "imitation.decay_training_steps=2"),
        'imitation.sources=[{run="experts"}]',
        *("tasks_per_training_step=2", "num_training_steps=3", "validation.num_tasks=0"),
        *('optimizer.rows="merged"', "loss.kl_coefficient=0.1", "optimizer.learning_rate=1e-3"),
    )
    assert launched.returncode == 0, launched.output
    return launched


def while_a_commit_is_written(folder: Path) -> Callable[[], bool]:
    """The write-ahead log changes from now on."""
    log = folder / "longhaul.db-wal"
    first = log.stat().st_mtime_ns
    return lambda: log.stat().st_mtime_ns != first


def demonstrate(folder: Path, *, num_tasks: int) -> None:
    shown = run(folder, "demonstrate", FILE, "--tasks", str(num_tasks), "runs_directory=shown")
    assert shown.returncode == 0, shown.output
    assert f"solved  {num_tasks} of {num_tasks} episodes" in shown.output


def test_the_store_has_what_the_expert_did_and_what_was_imitated(imitated: Launched) -> None:
    played = imitated.query(
        "SELECT r.kind, count(*), sum(e.success) FROM episodes e JOIN runs r ON r.id = e.run_id "
        "WHERE e.phase = 'train' AND NOT e.rolled_back GROUP BY 1 ORDER BY 1"
    )
    replies = imitated.query(
        "SELECT DISTINCT r.kind, c.reply, c.num_action_tokens, c.trained FROM calls c "
        "JOIN episodes e ON e.id = c.episode_id JOIN runs r ON r.id = e.run_id "
        "WHERE e.phase = 'train' ORDER BY 1, 2"
    )

    assert played == [("demonstrate", 42, 42), ("train", 180, 180)]
    assert replies == [
        ("demonstrate", "+", None, 0),
        ("demonstrate", "-", None, 0),
        ("train", "+", 2, 1),  # and the end token
        ("train", "-", 2, 1),
    ]


def test_what_was_imitated_became_likelier(imitated: Launched) -> None:
    losses = [
        value
        for (value,) in imitated.query(
            "SELECT value FROM metrics WHERE name = 'actor/policy_loss' AND NOT rolled_back "
            "ORDER BY training_step"
        )
    ]

    assert len(losses) == 6
    assert losses[0] > 4.0  # of 4,096 tokens, e^8.3
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] < losses[0] / 2


def test_the_policy_plays_what_it_imitated(imitated: Launched) -> None:
    before, after = (
        imitated.value(
            "SELECT success_rate FROM evaluations WHERE training_step = ? AND run_id = ?",
            training_step,
            imitated.run_id,
        )
        for training_step in (0, 6)
    )

    assert before == 0.0
    assert after > 0.25


def test_the_audit_finds_nothing(imitated: Launched) -> None:
    engine = read_only_engine(imitated.folder / "longhaul.db")
    with Session(engine) as session:
        report = audit_run(session, imitated.run_id)
        broken = violations(session, run_id=imitated.run_id)
    engine.dispose()

    assert [one_line(finding) for finding in report.findings] == []
    assert broken == []
    assert imitated.query("PRAGMA integrity_check") == [("ok",)]
    assert imitated.query("PRAGMA foreign_key_check") == []
    checked = {rule.name: rule.num_checked for rule in report.rules}
    assert checked["end_tokens"] == checked["advantage"] > 100
    assert report.training_steps == tuple(range(1, 7))


@pytest.mark.parametrize(
    ("statement", "rule"),
    [
        ("UPDATE calls SET finish_reason = 'length' WHERE {one}", "end_tokens"),
        ("UPDATE calls SET reply = '<|im_end|>' WHERE {one}", "end_tokens"),
        ("UPDATE call_tokens SET behavior_logprobs = policy_logprobs WHERE {one}", "tokens"),
        ("UPDATE steps SET advantage = 0.5 WHERE {one}", "advantage"),
        ("UPDATE groups SET group_size = 3", "group_size"),
    ],
)
def test_the_audit_finds_a_fault_of_imitation(
    imitated: Launched, tmp_path: Path, statement: str, rule: str
) -> None:
    ((episode_id,),) = imitated.query("SELECT max(id) FROM episodes WHERE trained")
    one = f"episode_id = '{episode_id}' AND step_index = 0"
    store = shutil.copy(imitated.folder / "longhaul.db", tmp_path / "store.db")
    with closing(sqlite3.connect(store)) as connection, connection:
        assert connection.execute(statement.format(one=one)).rowcount > 0
    engine = read_only_engine(store)
    with Session(engine) as session:
        report = audit_run(session, imitated.run_id)
    engine.dispose()

    assert rule in {finding.rule for finding in report.findings}


def test_a_resume_goes_on_with_the_episodes_that_were_chosen(imitated: Launched) -> None:
    kept = json.loads((imitated.run_folder / "demonstrations.json").read_text())
    first, _ = imitated.query(
        "SELECT id FROM runs WHERE kind = 'demonstrate' AND name = 'experts' ORDER BY started_at"
    )
    attempts = imitated.value("SELECT max(attempt) FROM attempts WHERE run_id = ?", imitated.run_id)

    shown = [each for task in kept["tasks"] for each in task["demonstrations"]]
    assert {each["episode_id"].split("/")[0] for each in shown} == {*first}
    assert len(kept["tasks"]) == 40
    assert attempts == 1


def test_what_is_preferred_becomes_likelier_than_what_is_rejected(preferred: Launched) -> None:
    measured = {
        name: values
        for name, *values in preferred.query(
            "SELECT name, min(value) FILTER (WHERE training_step = 1), "
            "min(value) FILTER (WHERE training_step = 2) FROM metrics "
            "WHERE name LIKE 'dpo/%' GROUP BY name"
        )
    }

    assert measured["dpo/pairs"] == [2.0, 2.0]
    # before the first update the policy is the reference
    assert measured["dpo/loss"][0] == pytest.approx(log(2), abs=1e-6)
    assert measured["dpo/margin"][0] == pytest.approx(0.0, abs=1e-6)
    assert measured["dpo/margin"][1] > 0.1
    assert measured["dpo/loss"][1] < log(2)
    assert measured["dpo/accuracy"][1] == 1.0


def test_pairs_are_stored_as_they_were_trained(preferred: Launched) -> None:
    trained = preferred.query(
        "SELECT e.training_step, e.group_index, e.success, e.episode_advantage, "
        "min(c.loss_weight), count(c.reference_logprob_sum) = count(*) FROM episodes e "
        "JOIN calls c ON c.episode_id = e.id JOIN runs r ON r.id = e.run_id "
        "WHERE r.name = 'preferred' AND e.phase = 'train' GROUP BY e.id ORDER BY e.id"
    )

    assert len(trained) == 8
    assert all(weight == 0.25 and whole for *_, weight, whole in trained)
    assert all((advantage > 0) == bool(success) for _, _, success, advantage, *_ in trained)
    # β σ(0), by the factor of four episodes and two pairs
    assert [abs(a) for step, _, _, a, *_ in trained if step == 1] == pytest.approx([0.1] * 4)
    assert all(abs(a) < 0.1 for step, _, _, a, *_ in trained if step == 2)


@pytest.mark.parametrize(
    ("statement", "rule"),
    [
        ("", ""),
        ("UPDATE calls SET reference_logprob_sum = reference_logprob_sum - 9", "advantage"),
        ("UPDATE calls SET reference_logprob_sum = NULL", "reference_logprobs"),
        ("UPDATE steps SET advantage = -advantage", "advantage"),
    ],
)
def test_the_audit_follows_the_advantages_of_pairs(
    preferred: Launched, tmp_path: Path, statement: str, rule: str
) -> None:
    ((run_id, episode_id),) = preferred.query(
        "SELECT r.id, max(e.id) FROM runs r JOIN episodes e ON e.run_id = r.id "
        "WHERE r.name = 'preferred'"
    )
    store = shutil.copy(preferred.folder / "longhaul.db", tmp_path / "store.db")
    if statement:
        one = f"episode_id = '{episode_id}' AND step_index = 0"
        with closing(sqlite3.connect(store)) as connection, connection:
            assert connection.execute(f"{statement} WHERE {one}").rowcount > 0
    engine = read_only_engine(store)
    with Session(engine) as session:
        report = audit_run(session, run_id)
    engine.dispose()

    found = {finding.rule for finding in report.findings}
    assert rule in found if rule else found == set()
    checked = {each.name: each.num_checked for each in report.rules}
    assert checked["advantage"] == checked["reference_logprobs"] > 8


def test_its_weights_go_on_from_a_stored_step(imitated: Launched, tmp_path: Path) -> None:
    shutil.copy(imitated.folder / "longhaul.db", tmp_path)
    ((episode, replayed),) = imitated.query(
        "SELECT e.id, s.action FROM episodes e JOIN steps s ON s.episode_id = e.id "
        "WHERE e.phase = 'validation' AND s.step_index = 0 AND e.num_steps > 1 ORDER BY 1 LIMIT 1"
    )

    played = run(
        tmp_path,
        *("branch", episode, "--step", "1", "--continuations", "6"),
        *("--checkpoint", str(imitated.run_folder), "runs_directory=runs"),
    )

    assert played.returncode == 0, played.output
    assert "6 of 6 continuations" in played.output
    ((kind, status),) = played.query("SELECT kind, status FROM runs WHERE kind = 'branch'")
    assert (kind, status) == ("branch", "finished")
    found = played.query(
        "SELECT phase, trained, branched_from, branched_at_step FROM episodes "
        "WHERE phase = 'branch'"
    )
    assert found == [("branch", 0, episode, 1)] * 6
    calls = played.query(
        "SELECT c.step_index > 0, c.num_action_tokens IS NOT NULL, count(*) FROM calls c "
        "JOIN episodes e ON e.id = c.episode_id WHERE e.phase = 'branch' GROUP BY 1, 2 ORDER BY 1"
    )
    assert [each[:2] for each in calls] == [(0, 0), (1, 1)]  # replayed, and sampled
    assert calls[0][2] == 6
    actions = played.query(
        "SELECT DISTINCT action FROM steps s JOIN episodes e ON e.id = s.episode_id "
        "WHERE e.phase = 'branch' AND s.step_index = 0"
    )
    assert actions == [(replayed,)]


def test_reinforcement_imitates_beside_its_groups_until_the_coefficient_is_0(
    beside: Launched,
) -> None:
    played = beside.query(
        "SELECT phase, training_step, count(*), sum(trained) FROM episodes "
        "WHERE run_id = ? GROUP BY 1, 2 ORDER BY 1, 2",
        beside.run_id,
    )
    weights = beside.query(
        "SELECT l.training_step, l.optimizer_step_index, sum(l.weight_low * l.num_tokens) "
        "FROM loss_inputs l JOIN episodes e ON e.id = l.episode_id "
        "WHERE e.run_id = ? AND e.phase = 'demonstration' GROUP BY 1, 2 ORDER BY 1, 2",
        beside.run_id,
    )

    assert played == [
        *(("demonstration", number, 2, 2) for number in (1, 2)),
        *(("train", number, 8, 8) for number in (1, 2, 3)),
    ]
    assert [(step, part) for step, part, _ in weights] == [(1, 0), (1, 1), (2, 0), (2, 1)]
    assert [weight for _, _, weight in weights] == pytest.approx([0.5, 0.5, 0.25, 0.25])
    measured = beside.query(
        "SELECT name, count(*), min(value) FROM metrics "
        "WHERE run_id = ? AND name LIKE 'imitation/%' GROUP BY 1 ORDER BY 1",
        beside.run_id,
    )
    assert [(name, number) for name, number, _ in measured] == [
        ("imitation/coefficient", 2),
        ("imitation/episodes", 2),
        ("imitation/loss", 2),
        ("imitation/tokens", 2),
    ]
    assert all(least > 0 for _, _, least in measured)


def test_the_audit_holds_what_is_imitated_beside_groups_to_its_rules(beside: Launched) -> None:
    engine = read_only_engine(beside.folder / "longhaul.db")
    with Session(engine) as session:
        report = audit_run(session, beside.run_id)
        broken = violations(session, run_id=beside.run_id)
    engine.dispose()

    assert [one_line(finding) for finding in report.findings] == []
    assert broken == []
    checked = {rule.name: rule.num_checked for rule in report.rules}
    assert checked["demonstrations"] == 6
    assert checked["end_tokens"] > 8
