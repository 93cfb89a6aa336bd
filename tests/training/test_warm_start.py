"""`trainer train` of a file that begins warm: experts, a new model that imitates them, the rest."""

import json
from pathlib import Path

import pytest
from sqlalchemy.orm import Session

from longhaul_core.audit import audit_run, one_line
from longhaul_core.store import read_only_engine
from training.launching import FORKING, Launched, finish, trainer

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

FILE = str(Path(__file__).with_name("imitation.toml"))
WARM = (
    "num_training_steps=2",
    "tasks_per_training_step=8",
    "checkpoint.every=2",
    "warm_start.demonstrations=40",
    "warm_start.noise=0.2",
    'warm_start.settings=["num_training_steps=4", "tasks_per_training_step=30", '
    '"validation.num_tasks=0"]',
    "imitation.new_model_layers=2",
    "model.path=new",
)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Launched:
    folder = tmp_path_factory.mktemp("warm")
    launched = finish(trainer(folder, "train", FILE, *WARM, program=FORKING), folder)
    assert launched.returncode == 0, launched.output
    return launched


def test_reinforcement_goes_on_from_what_imitated_the_experts(trained: Launched) -> None:
    runs = trained.query("SELECT id, name, kind, status, config_json FROM runs ORDER BY started_at")
    configs = [json.loads(config) for *_, config in runs]
    (_, imitation, _) = [run_id for run_id, *_ in runs]

    assert [run[1:4] for run in runs] == [
        ("imitation-experts", "demonstrate", "finished"),
        ("imitation-imitation", "train", "finished"),
        ("imitation", "train", "finished"),
    ]
    assert configs[1]["imitation"]["sources"][0]["run"] == runs[0][0]
    assert configs[1]["model"]["path"] == str(trained.folder / "new")
    assert configs[2]["model"]["path"] == str(trained.folder / "runs" / imitation / "model")
    assert configs[2]["warm_start"]["demonstrations"] == 0


def test_chance_acts_in_a_share_of_the_experts_steps(trained: Launched) -> None:
    acted = dict(
        trained.query(
            "SELECT model, count(*) FROM call_detail JOIN episodes ON episodes.id = episode_id "
            "WHERE episodes.run_id LIKE '%-experts-%' GROUP BY model"
        )
    )

    assert 0.1 < acted["random"] / (acted["random"] + acted["expert"]) < 0.3


def test_the_new_model_has_learned_before_it_is_reinforced(trained: Launched) -> None:
    losses = [
        value
        for (value,) in trained.query(
            "SELECT value FROM metrics WHERE name = 'actor/policy_loss' AND run_id LIKE "
            "'%-imitation-imitation-%' ORDER BY training_step"
        )
    ]

    assert len(losses) == 4
    assert losses[-1] < 0.5 * losses[0]


def test_words_of_the_demonstrations_are_tokens_of_the_new_model(trained: Launched) -> None:
    vocabulary = json.loads((trained.folder / "new" / "tokenizer.json").read_text("utf-8"))
    tokens = vocabulary["model"]["vocab"].keys()

    assert {"Current", "assistant", "+", "-"} <= tokens
    assert 259 < len(tokens) <= 512


def test_the_audit_finds_nothing(trained: Launched) -> None:
    ids = [run_id for (run_id,) in trained.query("SELECT id FROM runs WHERE kind = 'train'")]
    engine = read_only_engine(trained.folder / "longhaul.db")
    with Session(engine) as session:
        reports = [audit_run(session, run_id) for run_id in ids]
    engine.dispose()

    assert [one_line(finding) for report in reports for finding in report.findings] == []
    assert all(sum(rule.num_checked for rule in report.rules) > 100 for report in reports)
