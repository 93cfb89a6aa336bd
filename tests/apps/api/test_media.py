"""Pictures over HTTP, and episodes whose steps have several calls."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from shutil import copy

import pytest
from fastapi.testclient import TestClient

from apps.conftest import ProgramStore
from longhaul_api.app import create_app
from longhaul_api.settings import ApiSettings
from longhaul_core.store.session import read_only_engine


@pytest.fixture(scope="module")
def client(program: ProgramStore) -> Iterator[TestClient]:
    engine = read_only_engine(program.url)
    with TestClient(create_app(engine, ApiSettings()), base_url="http://127.0.0.1") as client:
        yield client
    engine.dispose()


def test_a_picture_is_its_bytes_and_is_kept_for_ever(
    client: TestClient, program: ProgramStore
) -> None:
    assert len(program.pictures) == 3
    for content_hash, data in program.pictures.items():
        answer = client.get(f"/media/{content_hash}")
        assert answer.content == data
        assert answer.headers["content-type"] == "image/png"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "immutable" in answer.headers["cache-control"]
        assert client.head(f"/media/{content_hash}").headers["content-length"] == str(len(data))


def test_an_unknown_picture_is_a_sentence(client: TestClient) -> None:
    answer = client.get("/media/" + "ab" * 32)
    assert answer.status_code == 404
    assert answer.json() == {"detail": f"there is no picture {'ab' * 32!r} in the store"}


def test_what_is_no_picture_is_not_served(program: ProgramStore, tmp_path: Path) -> None:
    store = str(copy(program.url, tmp_path / "changed.db"))
    with closing(sqlite3.connect(store)) as connection, connection:
        connection.execute("UPDATE media SET media_type = 'text/html'")
    engine = read_only_engine(store)
    with TestClient(create_app(engine, ApiSettings()), base_url="http://127.0.0.1") as client:
        answer = client.get(f"/media/{next(iter(program.pictures))}")
    engine.dispose()
    assert answer.status_code == 404
    assert "text/html" in answer.json()["detail"]


def test_a_file_that_cannot_hold_pictures_is_refused_before_it_begins(
    client: TestClient, program: ProgramStore
) -> None:
    episode = client.get(f"/episodes/{program.episode_id}").json()
    address = f"/runs/{episode['summary']['run_id']}/export"
    answer = client.get(address, params={"format": "messages"})
    assert answer.status_code == 422
    assert "pictures" in answer.json()["detail"]
    assert "conversations" in answer.json()["detail"]
    assert client.get(address, params={"format": "conversations"}).status_code == 200


def test_a_step_has_its_calls_with_parts_tools_and_tokens(
    client: TestClient, program: ProgramStore
) -> None:
    answer = client.get(f"/episodes/{program.episode_id}", params={"tokens": True})
    episode = answer.json()
    first, second, bare = episode["steps"]
    plan, act, remember, judge = first["calls"]
    assert [call["purpose"] for call in first["calls"]] == ["plan", "act", "remember", "judge"]
    assert (plan["agent"], plan["credit_share"], plan["advantage"]) == ("planner", 0.5, 0.25)
    text, picture = act["messages"][1]["parts"]
    assert text == "What now?"
    assert picture == {
        "content_hash": first["pictures"][0]["content_hash"],
        "media_type": "image/png",
    }
    assert act["tool_calls"] == [{"id": "call-1", "name": "look", "arguments": '{"at": "map"}'}]
    assert act["finish_reason"] == "tool_calls"
    assert act["tokens"]["action_tokens"] == [4, 5]
    assert (remember["trained"], remember["finish_reason"]) == (False, "length")
    assert (plan["credited_by"], remember["credited_by"]) == ("step", "next_step")
    assert (judge["model"], judge["tokens"], judge["num_action_tokens"]) == (
        "hosted/judge-1",
        None,
        None,
    )
    tool = second["calls"][0]["messages"][-1]
    assert (tool["role"], tool["tool_call_id"]) == ("tool", "call-1")
    assert (bare["calls"], bare["act_call_index"]) == ([], None)
    assert len(episode["final_pictures"]) == 1


def test_descriptions_of_fields_are_in_the_openapi_text(client: TestClient) -> None:
    schemas = client.get("/openapi.json").json()["components"]["schemas"]
    share = schemas["CallDetail"]["properties"]["credit_share"]["description"]
    assert share == "What the advantage is multiplied by for its tokens."
    words = schemas["CallDetail"]["properties"]["credited_by"]["enum"]
    assert words == ["step", "next_step"]
    undescribed = [
        f"{name}.{field}"
        for name in ("CallDetail", "PromptMessage", "StoredPicture", "CallTokens")
        for field, schema in schemas[name]["properties"].items()
        if "description" not in schema and "$ref" not in schema
    ]
    assert undescribed == []
