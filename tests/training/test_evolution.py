"""`trainer evolve`: experts, and two rounds of imitation, ended between them and gone on with."""

import json
from pathlib import Path

import pytest
from sqlalchemy.orm import Session

from longhaul_core.audit import audit_run, one_line
from longhaul_core.store import read_only_engine
from training.launching import FORKING, Launched, finish, trainer, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

FILE = str(Path(__file__).with_name("imitation.toml"))
SETTINGS = (
    "tasks_per_training_step=8",
    "warm_start.demonstrations=8",
    "imitation.new_model_layers=2",
    "imitation.best_per_task=2",
    "model.path=new",
    "optimizer.optimizer_steps_per_training_step=4",
    "evolution.rounds=2",
    "evolution.tasks=12",
    'evolution.settings=["num_training_steps=4"]',
)


@pytest.fixture(scope="module")
def evolved(tmp_path_factory: pytest.TempPathFactory) -> Launched:
    folder = tmp_path_factory.mktemp("evolution")
    begun = trainer(folder, "evolve", FILE, *SETTINGS, program=FORKING)
    wait_until(begun, lambda: any(folder.glob("runs/evolutions/*/round-2/*/config.toml")))
    begun.terminate()
    begun.wait(300)
    (evolution,) = folder.glob("runs/evolutions/*")
    assert f"trainer evolve {evolution}" in (folder / "output.txt").read_text("utf-8")
    gone_on = finish(trainer(folder, "evolve", str(evolution), program=FORKING), folder)
    assert gone_on.returncode == 0, gone_on.output
    return gone_on


def test_experts_are_imitated_first_and_then_what_the_model_played_well_too(
    evolved: Launched,
) -> None:
    finished = evolved.query(
        "SELECT id, name, config_json FROM runs WHERE status = 'finished' ORDER BY started_at"
    )
    (experts, first, second) = [run_id for run_id, *_ in finished]
    sources = [json.loads(config)["imitation"]["sources"] for *_, config in finished]
    solved = {
        task
        for (task,) in evolved.query(
            "SELECT task_hash FROM episodes WHERE run_id = ? AND phase = 'validation' AND success",
            first,
        )
    }
    shown = {
        task
        for (task,) in evolved.query("SELECT task_hash FROM episodes WHERE run_id = ?", experts)
    }
    imitated = {
        task
        for (task,) in evolved.query(
            "SELECT task_hash FROM episodes WHERE run_id = ? AND phase = 'train'", second
        )
    }

    assert [name.removeprefix("imitation-") for _, name, _ in finished] == [
        "experts",
        "round-1",
        "round-2",
    ]
    assert [source["run"] for source in sources[1]] == [experts]
    assert [source["run"] for source in sources[2]] == [experts, first]
    assert solved - shown  # it solved tasks that nobody had shown it
    assert imitated <= solved | shown
    assert imitated & (solved - shown)


def test_every_round_begins_with_the_same_weights(evolved: Launched) -> None:
    models = evolved.query("SELECT DISTINCT json_extract(config_json, '$.model.path') FROM runs")

    assert models == [(str(evolved.folder / "new"),)]


def test_the_audit_finds_nothing(evolved: Launched) -> None:
    ids = [
        run_id
        for (run_id,) in evolved.query(
            "SELECT id FROM runs WHERE kind = 'train' AND status = 'finished'"
        )
    ]
    engine = read_only_engine(evolved.folder / "longhaul.db")
    with Session(engine) as session:
        reports = [audit_run(session, run_id) for run_id in ids]
    engine.dispose()

    assert [one_line(finding) for report in reports for finding in report.findings] == []
    assert all(sum(rule.num_checked for rule in report.rules) > 100 for report in reports)
