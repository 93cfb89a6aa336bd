"""A run of a program that shows pictures to a model that reads them, through the whole stack."""

import base64
import json
import re
import shutil
import sys
from pathlib import Path

import pytest
from sqlalchemy.orm import Session

from longhaul_core.audit import AuditReport, audit_run, one_line
from longhaul_core.store import read_only_engine
from pictures import png
from training.greedy import assert_each_group_is_compared_with_its_greedy_episode
from training.launching import Launched, run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

PROGRAMS = Path(__file__).with_name("programs.toml")
SHOWING = Path(__file__).with_name("showing_program.py")
LOGPROB_BOUND = 1e-3
"""Nats per token, mean: the sampler may not draw placeholders, which the learner allows."""


def write_tasks(folder: Path) -> None:
    red, green, blue = (
        base64.b64encode(png(colour, width=160, height=96)).decode()
        for colour in ("red", "green", "blue")
    )
    tasks = [
        {"id": f"{split} {box}", "split": split, "box": box, "pictures": shown}
        for split, box, shown in (
            ("train", "red", [red, blue, green]),
            ("train", "green", [green, blue, red]),
            ("validation", "blue", [blue, red, blue]),
            ("test", "any", [blue, green, blue]),
        )
    ]
    (folder / "hunts.jsonl").write_text("\n".join(map(json.dumps, tasks)), encoding="utf-8")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Launched:
    """Two agent loops, and groups that are compared with a greedy episode."""
    folder = tmp_path_factory.mktemp("program_pictures")
    write_tasks(folder)
    shutil.copy(PROGRAMS, folder)
    launched = run(
        folder,
        *("train", PROGRAMS.name, 'agent.kind="command"', "model.path=tiny-vision"),
        f'agent.command=["{sys.executable}", "{SHOWING}"]',
        *("num_training_steps=1", "tasks_per_training_step=2", "rollout.group_size=3"),
        *("checkpoint.every=1", "optimizer.micro_batch_tokens=8192"),
        *('algorithm.name="remax"', "rollout.agent_loops=2"),
    )
    assert launched.returncode == 0, launched.output
    return launched


@pytest.fixture(scope="module")
def report(trained: Launched) -> AuditReport:
    engine = read_only_engine(trained.folder / "longhaul.db")
    with Session(engine) as session:
        found = audit_run(session, trained.run_id)
    engine.dispose()
    return found


def test_sampler_and_learner_agree_on_replies_to_a_program_s_pictures(trained: Launched) -> None:
    difference = trained.value(
        "SELECT value FROM metrics WHERE name = 'agreement/logprob_difference_mean'"
    )

    assert 0 < difference < LOGPROB_BOUND


def test_no_episode_failed_and_each_has_its_three_calls(trained: Launched) -> None:
    calls = trained.query(
        "SELECT e.failed, count(*) FROM episode_summary e JOIN calls c USING (episode_id) "
        "WHERE e.phase = 'train' GROUP BY e.episode_id"
    )

    assert calls == [(0, 3)] * 6


def test_a_conversation_is_one_row_until_a_picture_of_it_is_exchanged(trained: Launched) -> None:
    kinds = trained.query(
        "SELECT c.step_index, c.conversation, c.split_reason, count(*) "
        "FROM calls c JOIN episodes e ON e.id = c.episode_id WHERE e.trained GROUP BY 1, 2, 3"
    )
    continuations = trained.query(
        "SELECT DISTINCT c.step_index, c.continuation "
        "FROM calls c JOIN episodes e ON e.id = c.episode_id WHERE e.trained"
    )

    assert kinds == [(0, 0, "first_step", 6), (1, 0, None, 6), (2, 1, "new_conversation", 6)]
    # after another picture a reply is known again by its text, if that is not too short
    known, unknown = (2, "changed"), (2, "start")
    assert {(0, "start"), (1, "exact"), known} <= {*continuations}
    assert {*continuations} <= {(0, "start"), (1, "exact"), known, unknown}


def test_a_program_plays_the_greedy_episode_that_its_group_is_compared_with(
    trained: Launched,
) -> None:
    assert_each_group_is_compared_with_its_greedy_episode(trained)
    assert trained.value("SELECT count(*) FROM episode_summary WHERE failed") == 0


def test_programs_are_played_by_several_agent_loops(trained: Launched) -> None:
    (log,) = trained.folder.glob("runs/*/logs/longhaul.log")
    loops = re.findall(r"agent loop \d of 2 is process (\d+) on ", log.read_text("utf-8"))

    assert len(set(loops)) == 2


def test_the_audit_finds_nothing_and_counted_the_places_of_the_pictures(
    report: AuditReport,
) -> None:
    assert [one_line(finding) for finding in report.findings] == []
    (rule,) = (rule for rule in report.rules if rule.name == "unread_pictures")
    assert rule.num_checked == 18
    assert not [skip for skip in report.not_checked if skip.rule == "unread_pictures"]
