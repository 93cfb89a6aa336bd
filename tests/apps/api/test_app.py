"""The API over a real store: every address, its filters, and what it refuses."""

from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from fastapi.testclient import TestClient
from sqlalchemy import text
from sqlalchemy.exc import OperationalError

from apps.api.conftest import StartApi
from apps.conftest import SampleStore
from longhaul_core.store import StoreWriter
from longhaul_core.store.session import read_only_engine
from store_samples import run_started


def read(client: TestClient, address: str, **parameters: str | int | bool) -> Any:  # noqa: ANN401
    answer = client.get(address, params=parameters)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_runs_say_how_far_they_are(client: TestClient, sample: SampleStore) -> None:
    (run,) = read(client, "/runs")
    assert run["run_id"] == sample.run_id
    assert run["status"] == "finished"
    assert run["num_training_steps_done"] == run["num_training_steps"] == 12
    assert run["num_failed_episodes"] == 4
    assert read(client, "/runs", status="running") == []


def test_a_run_has_its_configuration_and_attempts(client: TestClient, sample: SampleStore) -> None:
    run = read(client, f"/runs/{sample.run_id}")
    assert '"gigpo"' in run["config_json"]
    assert [attempt["attempt"] for attempt in run["attempts"]] == [0]


def test_the_curve_has_a_point_for_each_training_step(
    client: TestClient, sample: SampleStore
) -> None:
    curve = read(client, f"/runs/{sample.run_id}/curve", phase="train")
    assert [point["training_step"] for point in curve] == list(range(1, 13))
    assert {point["num_episodes"] + point["num_failed_episodes"] for point in curve} == {16}


def test_metrics_equal_what_the_episodes_say(client: TestClient, sample: SampleStore) -> None:
    assert "train/mean_return" in read(client, f"/runs/{sample.run_id}/metrics")
    series = read(client, f"/runs/{sample.run_id}/metrics/series", name="train/mean_return")
    curve = read(client, f"/runs/{sample.run_id}/curve", phase="train")
    assert [point["value"] for point in series["train/mean_return"]] == pytest.approx(
        [point["mean_return"] for point in curve]
    )


def test_evaluations_and_failures_are_listed(client: TestClient, sample: SampleStore) -> None:
    evaluations = read(client, f"/runs/{sample.run_id}/evaluations")
    assert [one["training_step"] for one in evaluations] == [0, 12]
    failures = read(client, f"/runs/{sample.run_id}/failures", cause="environment_error")["rows"]
    assert len(failures) == 4
    assert "server gone" in failures[0]["message"]
    assert read(client, f"/runs/{sample.run_id}/failures", cause="policy_timeout")["rows"] == []


def test_episodes_are_filtered_sorted_and_paged(client: TestClient, sample: SampleStore) -> None:
    address = f"/runs/{sample.run_id}/episodes"
    solved = read(client, address, success=True, limit=1000, count_up_to=1000)
    assert all(row["success"] for row in solved["rows"])
    assert solved["total"] == len(solved["rows"]) > 10
    returns = [
        row["episode_return"]
        for row in read(client, address, failed=False, sort="episode_return", limit=1000)["rows"]
    ]
    assert returns == sorted(returns, reverse=True)
    first = read(client, address, limit=3)
    second = read(client, address, limit=3, after=first["next_key"])
    assert first["rows"] + second["rows"] == read(client, address, limit=6)["rows"]


def test_an_episode_is_what_was_played(client: TestClient, sample: SampleStore) -> None:
    stored = sample.solved
    episode = read(client, f"/episodes/{stored.summary.episode_id}", tokens=True)
    assert [[call["reply"] for call in step["calls"]] for step in episode["steps"]] == [
        [call.reply for call in step.calls] for step in stored.steps
    ]
    for step in episode["steps"]:
        for call in step["calls"]:
            assert len(call["tokens"]["action_tokens"]) == call["num_action_tokens"] > 0
            assert len(call["tokens"]["behavior_logprobs"]) == call["num_action_tokens"]
        assert step["advantage"] == pytest.approx(
            step["episode_advantage"] + step["step_advantage"]
        )
    rewards = sum(step["reward"] for step in episode["steps"])
    assert rewards == pytest.approx(episode["summary"]["episode_return"])


def test_tokens_come_only_if_asked_for(client: TestClient, sample: SampleStore) -> None:
    episode = read(client, f"/episodes/{sample.solved.summary.episode_id}")
    call = episode["steps"][0]["calls"][0]
    assert call["tokens"] is None
    assert call["num_action_tokens"] > 0
    assert call["messages"][0]["role"] == "system"


def test_one_step_comes_with_its_tokens_and_an_escaped_id_works_too(
    client: TestClient, sample: SampleStore
) -> None:
    episode_id = sample.solved.summary.episode_id
    plain = read(client, f"/episodes/{episode_id}/steps/1")
    escaped = read(client, f"/episodes/{quote(episode_id, safe='')}/steps/1")
    assert plain == escaped
    assert plain["step_index"] == 1
    tokens = sample.solved.steps[1].calls[0].tokens
    assert tokens is not None
    assert plain["calls"][0]["tokens"]["prompt_tokens"] == list(tokens.prompt_tokens)


def test_a_group_holds_its_attempts(client: TestClient, sample: SampleStore) -> None:
    groups = read(client, f"/runs/{sample.run_id}/groups", phase="train", training_step=3)
    assert len(groups["rows"]) == 4
    group = read(client, f"/runs/{sample.run_id}/groups/train/3/0")
    assert sorted(member["sample_index"] for member in group["members"]) == [0, 1, 2, 3]


@pytest.mark.parametrize(
    "address",
    [
        "/runs/none",
        "/runs/none/episodes",
        "/runs/none/metrics",
        "/runs/none/groups",
        "/episodes/none",
        "/episodes/none/steps/0",
        "/runs/{run}/groups/train/999/0",
    ],
)
def test_what_is_not_there_is_404_and_named(
    client: TestClient, sample: SampleStore, address: str
) -> None:
    answer = client.get(address.format(run=sample.run_id))
    assert answer.status_code == 404
    assert "there is no" in answer.json()["detail"]


def test_a_step_beyond_the_end_says_how_many_there_are(
    client: TestClient, sample: SampleStore
) -> None:
    answer = client.get(f"/episodes/{sample.solved.summary.episode_id}/steps/9999")
    assert answer.status_code == 404
    assert f"has {len(sample.solved.steps)} steps" in answer.json()["detail"]


@pytest.mark.parametrize(
    "parameters",
    [
        {"limit": "0"},
        {"limit": "1001"},
        {"after": "no key"},
        {"count_up_to": "99999999999999999999"},
        {"sort": "episode_return; DROP TABLE runs"},
        {"phase": "nonsense"},
        {"no_such_filter": "1"},
    ],
)
def test_a_parameter_without_sense_is_422_and_named_with_its_value(
    client: TestClient, sample: SampleStore, parameters: dict[str, str]
) -> None:
    answer = client.get(f"/runs/{sample.run_id}/episodes", params=parameters)
    assert answer.status_code == 422
    ((name, value),) = parameters.items()
    detail = answer.json()["detail"]
    assert detail.startswith(f"{name}: ")
    assert value in detail


def test_every_refusal_has_the_one_shape(client: TestClient) -> None:
    for address, status_code in [("/runs/none", 404), ("/nowhere", 404), ("/runs?limit=0", 422)]:
        answer = client.get(address)
        assert answer.status_code == status_code
        assert isinstance(answer.json()["detail"], str)
    responses = client.get("/openapi.json").json()["paths"]["/runs"]["get"]["responses"]
    assert {
        code: answer["content"]["application/json"]["schema"]["$ref"]
        for code, answer in responses.items()
        if code != "200"
    } == dict.fromkeys(["400", "401", "403", "404", "422", "503"], "#/components/schemas/Problem")


def test_head_is_get_without_its_body(client: TestClient, sample: SampleStore) -> None:
    for address in ("/runs", f"/episodes/{sample.solved.summary.episode_id}", "/runs/none", "/"):
        whole, head = client.get(address), client.head(address)
        assert head.content == b""
        assert head.status_code == whole.status_code
        assert head.headers["content-length"] == whole.headers["content-length"]


def test_head_of_a_live_runs_events_is_answered_at_once(
    running_api: StartApi, tmp_path: Path
) -> None:
    store = str(tmp_path / "store.db")
    with StoreWriter(store) as writer:
        writer.write([run_started("run")])
        address = f"{running_api(store).address}/events"
        for cursor in ({}, {"cursor": "0"}, {"cursor": "1"}):
            head = httpx.head(address, params={"run": "run"} | cursor, timeout=60)
            assert (head.status_code, head.content) == (200, b"")
            assert head.headers["content-type"].startswith("text/event-stream")


def test_nothing_is_changed_by_any_address(client: TestClient, sample: SampleStore) -> None:
    paths: dict[str, dict[str, Any]] = client.get("/openapi.json").json()["paths"]
    others = [
        (path, method) for path, found in paths.items() for method in found if method != "get"
    ]
    assert others == [("/sql", "post")]  # a SELECT is too long for an address
    assert client.post(f"/runs/{sample.run_id}").status_code == 405
    assert client.delete(f"/runs/{sample.run_id}").status_code == 405


def test_the_engine_itself_cannot_write(sample: SampleStore) -> None:
    engine = read_only_engine(sample.url)
    with pytest.raises(OperationalError, match="readonly"), engine.connect() as connection:
        connection.execute(text("DELETE FROM runs"))
    engine.dispose()


def test_openapi_describes_every_operation_and_parameter(client: TestClient) -> None:
    document = client.get("/openapi.json").json()
    found = [(path, each) for path, by in document["paths"].items() for each in by.values()]
    for path, operation in found:
        assert operation["description"], path
        assert "404" in operation["responses"] or not operation.get("parameters"), path
        for parameter in operation.get("parameters", []):
            described = {"phase", "group_index", "min_training_step", "max_training_step"}
            described |= {"stop_reason", "environment", "task_id", "min_return", "max_return"}
            described |= {"descending", "limit", "success"}  # say it by their names
            assert "description" in parameter or parameter["name"] in described, (path, parameter)


def test_the_reference_page_names_every_address_and_loads_nothing(client: TestClient) -> None:
    page = client.get("/").text
    for path in client.get("/openapi.json").json()["paths"]:
        assert path in page
    assert "http://" not in page
    assert "https://" not in page
    assert "<script" not in page
