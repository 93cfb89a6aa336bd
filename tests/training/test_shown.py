"""The API and the viewer show a store that the real trainer wrote."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from fastapi.testclient import TestClient
from streamlit.testing.v1 import AppTest

import longhaul_viewer
from longhaul_api.app import create_app
from longhaul_api.settings import ApiSettings
from longhaul_core.store.session import read_only_engine
from longhaul_viewer.settings import STORE_VARIABLE
from training.launching import Launched

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

EPISODE = (
    "SELECT id, group_index, num_steps FROM episodes WHERE trained AND training_step = 2 "
    "ORDER BY episode_return DESC, id LIMIT 1"
)


@pytest.fixture
def client(smoke: Launched) -> Iterator[TestClient]:
    store = smoke.folder / "longhaul.db"
    engine = read_only_engine(store)
    app = create_app(engine, ApiSettings(sql_store=str(store)))
    with TestClient(app, base_url="http://127.0.0.1") as client:
        yield client
    engine.dispose()


def test_every_address_of_the_api_answers_with_what_is_in_the_store(
    client: TestClient, smoke: Launched
) -> None:
    ((episode_id, group_index, num_steps),) = smoke.query(EPISODE)
    values = {
        "run_id": smoke.run_id,
        "phase": "train",
        "training_step": "2",
        "group_index": str(group_index),
        "episode_id": quote(episode_id, safe=""),
        "step_index": "0",
        "call_index": "0",
        "name": "worst_episodes",
    }
    results = client.get(f"/runs/{smoke.run_id}/results").json()
    first, *_, last = (f"{smoke.run_id}@{result['training_step']}" for result in results)
    queries = {
        "/runs/{run_id}/metrics/series": {"name": "actor/grad_norm"},
        "/runs/{run_id}/export": {"format": "conversations"},
        "/comparison": {"a": first, "b": last},
        "/search": {"words": "you"},
        "/sql/cookbook/{name}": {"param": f"run={smoke.run_id}"},
    }
    paths = client.get("/openapi.json").json()["paths"]

    assert paths.pop("/media/{content_hash}")  # this run shows none; see `test_calls.py`
    assert paths.pop("/events")  # has no end: `tests/apps/api/test_app.py`
    answers: dict[str, Any] = {}
    for path, operations in paths.items():
        if "get" not in operations:
            continue
        answer = client.get(path.format(**values), params=queries.get(path, {}))
        assert answer.status_code == 200, (path, answer.text)
        if answer.headers["content-type"] == "application/json":
            answers[path] = answer.json()

    (run,) = answers["/runs"]
    assert (run["run_id"], run["status"]) == (smoke.run_id, "finished")
    episode, step = answers["/episodes/{episode_id}"], "/episodes/{episode_id}/steps/{step_index}"
    assert len(episode["steps"]) == num_steps
    ((reply,),) = smoke.query(
        "SELECT reply FROM calls WHERE episode_id = ? AND step_index = 0", episode_id
    )
    assert [call["reply"] for call in answers[step]["calls"]] == [reply]
    norms = smoke.query(
        "SELECT value FROM metrics WHERE name = 'actor/grad_norm' ORDER BY training_step"
    )
    series = answers["/runs/{run_id}/metrics/series"]["actor/grad_norm"]
    assert [point["value"] for point in series] == [norm for (norm,) in norms]


def test_every_page_of_the_viewer_opens(smoke: Launched, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(STORE_VARIABLE, str(smoke.folder / "longhaul.db"))
    ((episode_id, group_index, _),) = smoke.query(EPISODE)
    run = {"run": smoke.run_id}
    pages = {
        "runs": {},
        "run": run,
        "episodes": run,
        "groups": run,
        "group": run
        | {"attempt": "0", "phase": "train", "training_step": "2", "group": str(group_index)},
        "replay": {"episode": episode_id},
        "compare": {},
        "sql": {},
        "storage": run,
        "play": {},
    }
    views = Path(longhaul_viewer.__file__).with_name("views")
    assert {path.stem for path in views.glob("[a-z]*.py")} == pages.keys()

    for view, query in pages.items():
        app = AppTest.from_file(str(views.with_name("app.py")), default_timeout=60).run()
        for name, value in query.items():
            app.query_params[name] = value
        app.switch_page(f"views/{view}.py").run()

        assert not app.exception, (view, app.exception)
        shown = "\n".join(str(element.proto.body) for element in app.get("html"))
        in_browser = view == "replay"  # drawn by its component: `tests/apps/viewer/test_replay.py`
        assert not query or in_browser or smoke.run_id in shown, view
        assert 'class="alert' not in shown, view
