"""Several calls a step, a memory that the model writes, two environments and pictures, trained."""

import json
from base64 import b64encode
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from streamlit.testing.v1 import AppTest

import longhaul_viewer
from longhaul_api.app import create_app
from longhaul_api.settings import ApiSettings
from longhaul_core.store.session import read_only_engine
from longhaul_core.types import Picture
from longhaul_viewer.settings import STORE_VARIABLE
from training import drawn_world, wordy_world
from training.drawn_world import picture
from training.launching import Launched, path_with_tests, run
from variation import assert_several

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

MIXTURE = Path(__file__).with_name("mixture.toml")
TRAINED_CALLS = (
    "FROM calls JOIN steps USING (episode_id, step_index) "
    "JOIN episodes ON episodes.id = episode_id JOIN tasks ON tasks.hash = task_hash "
    "WHERE episodes.trained"
)


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Launched:
    folder = tmp_path_factory.mktemp("mixture")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", path_with_tests())
        launched = run(folder, "train", str(MIXTURE))
    assert launched.returncode == 0, launched.output
    return launched


def test_both_environments_play_in_every_training_step(mixed: Launched) -> None:
    played = mixed.query(
        "SELECT training_step, environment, count(*) FROM episodes "
        "JOIN tasks ON tasks.hash = task_hash WHERE phase = 'train' GROUP BY 1, 2"
    )

    assert {environment for _, environment, _ in played} == {wordy_world.ID, drawn_world.ID}
    assert sum(number for *_, number in played) == 32
    panels = mixed.query("SELECT DISTINCT panel FROM evaluations ORDER BY panel")
    assert [panel for (panel,) in panels] == [
        "validation",
        f"validation/{drawn_world.ID}",
        f"validation/{wordy_world.ID}",
    ]


def test_planner_actor_and_summariser_are_trained_and_have_their_steps_credit(
    mixed: Launched,
) -> None:
    kinds = mixed.query(
        f"SELECT DISTINCT environment, purpose, agent, calls.trained {TRAINED_CALLS}"
    )
    assert set(kinds) == {
        (wordy_world.ID, "plan", "planner", 1),
        (wordy_world.ID, "act", "", 1),
        (wordy_world.ID, "remember", "", 1),
        (drawn_world.ID, "plan", "planner", 1),
        (drawn_world.ID, "act", "", 1),
    }
    credits = mixed.query(
        f"SELECT calls.advantage, credit_share * steps.advantage, calls.loss_weight {TRAINED_CALLS}"
    )
    assert_several((advantage for advantage, *_ in credits), at_least=8)
    assert all(advantage == meant for advantage, meant, _ in credits)
    assert all(weight > 0 for *_, weight in credits)


def test_the_loss_read_every_call_of_an_update_once(mixed: Launched) -> None:
    read = mixed.query(
        "SELECT count(*), max(number) FROM (SELECT count(*) AS number FROM loss_inputs "
        "WHERE num_tokens > 0 GROUP BY episode_id, step_index, call_index)"
    )

    assert read == [(mixed.value(f"SELECT count(*) {TRAINED_CALLS}"), 1)]


def test_the_audit_of_the_whole_run_is_clean(mixed: Launched) -> None:
    audited = run(mixed.folder, "audit", "last")

    assert audited.returncode == 0, audited.output
    (rules,) = mixed.query("SELECT rules_json FROM audits ORDER BY audited_at DESC LIMIT 1")
    checked = {rule["name"]: rule["num_checked"] for rule in json.loads(rules[0])}
    assert checked["pictures"] > 0
    assert checked["call_advantage"] > checked["advantage"]


def test_a_summary_takes_the_place_of_what_is_long_past(mixed: Launched) -> None:
    summaries = mixed.query(
        "SELECT c.reply, p.content FROM calls c JOIN prompt_messages p ON p.episode_id = "
        "c.episode_id AND p.step_index = c.step_index + 1 WHERE c.purpose = 'remember' "
        "AND p.role = 'user' AND p.content LIKE 'Summary:%'"
    )

    assert summaries
    assert all(summary.strip() in content for summary, content in summaries)


def test_a_picture_goes_from_the_environment_to_the_api_and_the_page(
    mixed: Launched, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = Picture.of(picture(1))
    ((episode_id, parts),) = mixed.query(
        "SELECT episode_id, parts_json FROM prompt_messages "
        "JOIN episodes ON episodes.id = episode_id WHERE step_index = 1 "
        "AND parts_json LIKE ? AND trained ORDER BY episode_id LIMIT 1",
        f"%{shown.content_hash}%",
    )
    assert "You wrote 1 times." in parts

    engine = read_only_engine(mixed.folder / "longhaul.db")
    with TestClient(create_app(engine, ApiSettings()), base_url="http://127.0.0.1") as client:
        answer = client.get(f"/media/{shown.content_hash}")
    engine.dispose()
    assert (answer.status_code, answer.headers["content-type"]) == (200, "image/png")
    assert answer.content == picture(1)

    monkeypatch.setenv(STORE_VARIABLE, str(mixed.folder / "longhaul.db"))
    views = Path(longhaul_viewer.__file__).with_name("views")
    app = AppTest.from_file(str(views.with_name("app.py")), default_timeout=60).run()
    app.query_params["episode"], app.query_params["step"] = episode_id, "1"
    app.switch_page("views/replay.py").run()
    assert not app.exception
    page = "\n".join(str(element.proto.body) for element in app.get("html"))
    assert b64encode(picture(1)).decode() in page
    assert b64encode(picture(0)).decode() not in page
    assert ">plan · planner</a>" in page
