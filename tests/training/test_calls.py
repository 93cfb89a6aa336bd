"""Several calls a step, a memory that a model writes, three environments of a server, pictures."""

import json
from collections import Counter
from pathlib import Path

import httpx
import pytest
from fastapi.testclient import TestClient
from playwright.sync_api import expect

from apps.browser import browser_page, running_viewer
from environment_server import num_open_sessions, running_server
from longhaul_api.app import create_app
from longhaul_api.settings import ApiSettings
from longhaul_core.store.session import read_only_engine
from longhaul_core.types import Picture
from longhaul_viewer import links
from training import drawn_world, wordy_world
from training.drawn_world import picture
from training.launching import Launched, audit, run
from variation import assert_several

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

MIXTURE = Path(__file__).with_name("mixture.toml")
TRAINED_CALLS = (
    "FROM calls JOIN steps USING (episode_id, step_index) "
    "JOIN episodes ON episodes.id = episode_id JOIN tasks ON tasks.hash = task_hash "
    "WHERE episodes.trained"
)


SOKOBAN = "longhaul/Sokoban-v0"
SERVED: tuple[dict[str, object], ...] = (
    {"id": wordy_world.ID, "import_modules": ["training.wordy_world"]},
    {"id": drawn_world.ID, "import_modules": ["training.drawn_world"]},
    {
        "id": SOKOBAN,
        "import_modules": [],
        "options": {"observation": "image", "step_penalty": 0.01},
    },
)


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Launched:
    folder = tmp_path_factory.mktemp("mixture")
    limits = {"limits": {"num_workers": 2}}
    with running_server(*(one | limits for one in SERVED), folder=folder) as server:
        described = MIXTURE.read_text(encoding="utf-8").replace("SERVER", server.address)
        (folder / MIXTURE.name).write_text(described, encoding="utf-8")
        launched = run(folder, "train", MIXTURE.name)
        assert httpx.get(f"{server.address}/health", timeout=60).json()["status"] == "ready"
        assert num_open_sessions(server) == 0
    assert launched.returncode == 0, launched.output
    return launched


def test_all_environments_of_the_server_play_in_one_batch(mixed: Launched) -> None:
    played = mixed.query(
        "SELECT training_step, environment, count(*) FROM episodes "
        "JOIN tasks ON tasks.hash = task_hash WHERE phase = 'train' GROUP BY 1, 2"
    )

    ids = {wordy_world.ID, drawn_world.ID, SOKOBAN}
    assert {environment for _, environment, _ in played} == ids
    assert max(Counter(step for step, *_ in played).values()) == 3
    assert sum(number for *_, number in played) == 48
    panels = mixed.query("SELECT DISTINCT panel FROM evaluations ORDER BY panel")
    assert [panel for (panel,) in panels] == [
        "validation",
        f"validation/{drawn_world.ID}",
        f"validation/{wordy_world.ID}",
        f"validation/{SOKOBAN}",
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
        (SOKOBAN, "plan", "planner", 1),
        (SOKOBAN, "act", "", 1),
    }
    credits = mixed.query(
        "SELECT purpose, calls.advantage, calls.loss_weight, credit_share * steps.advantage, "
        "credit_share * coalesce((SELECT later.advantage FROM steps later WHERE later.episode_id = "
        "calls.episode_id AND later.step_index = calls.step_index + 1), steps.advantage) "
        f"{TRAINED_CALLS}"
    )
    assert_several((advantage for _, advantage, *_ in credits), at_least=8)
    assert all(weight > 0 for _, _, weight, *_ in credits)
    for purpose, advantage, _, own, later in credits:
        assert advantage == (later if purpose == "remember" else own)
    assert any(own != later for purpose, *_, own, later in credits if purpose == "remember")


def test_the_loss_read_every_call_of_an_update_once(mixed: Launched) -> None:
    read = mixed.query(
        "SELECT count(*), max(number) FROM (SELECT count(*) AS number FROM loss_inputs "
        "WHERE num_tokens > 0 GROUP BY episode_id, step_index, call_index)"
    )

    assert read == [(mixed.value(f"SELECT count(*) {TRAINED_CALLS}"), 1)]


def test_the_audit_of_the_whole_run_is_clean(mixed: Launched) -> None:
    audit(mixed)
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


@pytest.mark.usefixtures("installed_chromium")
def test_a_picture_goes_from_the_environment_to_the_api_and_the_page(
    mixed: Launched, tmp_path: Path
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

    store = str(mixed.folder / "longhaul.db")
    with running_viewer(store, tmp_path / "log") as address, browser_page() as page:
        page.goto(f"{address}/{links.address(links.REPLAY, episode=episode_id, step=1)}")
        drawn = page.locator(f'img[src*="{shown.content_hash}"]').first
        expect(drawn).to_be_visible(timeout=60_000)
        assert drawn.evaluate("image => image.decode().then(() => image.naturalWidth)") > 1
        expect(page.get_by_text("planner").first).to_be_visible()
