"""What programs may rely on: parameters, ETags, compression, the OpenAPI document."""

import json
from collections.abc import Iterator
from importlib import import_module
from io import BytesIO
from pathlib import Path
from typing import Any, get_args

import pytest
from fastapi.testclient import TestClient

from apps.conftest import SampleStore
from longhaul_api.app import create_app
from longhaul_api.settings import ApiSettings
from longhaul_core.exchange import FORMATS
from longhaul_core.store import Label, StoreWriter
from longhaul_core.store.records import RunKind
from longhaul_core.store.session import read_only_engine
from store_samples import make_record, make_trajectory, run_started


@pytest.fixture(scope="module")
def client(sample: SampleStore) -> Iterator[TestClient]:
    engine = read_only_engine(sample.url)
    with TestClient(
        create_app(engine, ApiSettings(sql_store=sample.url)), base_url="http://127.0.0.1"
    ) as client:
        yield client
    engine.dispose()


@pytest.fixture(scope="module")
def document(client: TestClient) -> dict[str, Any]:
    return client.get("/openapi.json").json()


def operations(document: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    return [(path, each) for path, found in document["paths"].items() for each in found.values()]


def addresses(document: dict[str, Any], sample: SampleStore) -> list[str]:
    """Each address, of the sample's run and its best-known episode."""
    episode = sample.solved.summary
    values = {
        "run_id": sample.run_id,
        "episode_id": episode.episode_id,
        "phase": episode.phase,
        "training_step": episode.training_step,
        "group_index": episode.group_index,
        "step_index": 0,
        "call_index": 0,
        "content_hash": "0" * 64,
        "name": "worst_episodes",
    }
    required = {
        "/events": f"?run={sample.run_id}&cursor=0",
        "/search": "?words=oak",
        "/comparison": f"?a={sample.run_id}@0&b={sample.run_id}@12",
        "/runs/{run_id}/export": "?format=verl",
        "/sql/cookbook/{name}": f"?param=run%3D{sample.run_id}",
    }
    return [
        path.format(**values) + required.get(path, "")
        for path, found in document["paths"].items()
        if "get" in found
    ]


def test_a_parameter_that_an_address_does_not_know_is_refused_everywhere(
    client: TestClient, document: dict[str, Any], sample: SampleStore
) -> None:
    found = addresses(document, sample)
    assert len(found) > 25
    for address in found:
        sign = "&" if "?" in address else "?"
        refused = client.get(f"{address}{sign}sucess=true")
        assert refused.status_code == 422, address
        assert "sucess" in refused.json()["detail"], address
    refused = client.post("/sql?sucess=true", json={"sql": "SELECT 1"})
    assert (refused.status_code, "sucess" in refused.text) == (422, True)


def test_every_address_answers_what_its_document_says(
    client: TestClient, document: dict[str, Any], sample: SampleStore
) -> None:
    for address in addresses(document, sample):
        answer = client.get(address)
        expected = 404 if address.startswith("/media") else 200
        assert answer.status_code == expected, (address, answer.text)


def test_what_did_not_change_is_not_sent_again(client: TestClient, sample: SampleStore) -> None:
    for address in ("/runs", f"/runs/{sample.run_id}/episodes", f"/runs/{sample.run_id}/curve"):
        first = client.get(address)
        assert first.headers["cache-control"] == "private, no-cache"
        tag = first.headers["etag"]
        again = client.get(address, headers={"If-None-Match": f'"other", {tag}'})
        assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
        other = client.get(address, headers={"If-None-Match": '"other"'})
        assert (other.status_code, other.content) == (200, first.content)


def test_an_answer_that_changed_has_another_name(client: TestClient, sample: SampleStore) -> None:
    address = f"/runs/{sample.run_id}/episodes"
    tag = client.get(address, params={"limit": 1}).headers["etag"]
    assert client.get(address, params={"limit": 2}).headers["etag"] != tag


def test_large_answers_are_compressed_where_that_is_asked_for(
    client: TestClient, sample: SampleStore
) -> None:
    address = f"/runs/{sample.run_id}/episodes?limit=100"
    plain = client.get(address, headers={"Accept-Encoding": "identity"})
    packed = client.get(address, headers={"Accept-Encoding": "gzip"})
    assert packed.headers["content-encoding"] == "gzip"
    assert "content-encoding" not in plain.headers
    assert packed.json() == plain.json()
    assert int(packed.headers["content-length"]) < int(plain.headers["content-length"]) / 4


def test_head_is_answered_as_get_without_a_body(client: TestClient, sample: SampleStore) -> None:
    for address in ("/runs", f"/runs/{sample.run_id}"):
        head, get = client.head(address), client.get(address)
        assert (head.status_code, head.content) == (200, b"")
        assert head.headers["etag"] == get.headers["etag"]


def test_the_document_describes_everything(document: dict[str, Any]) -> None:
    names = [operation["operationId"] for _, operation in operations(document)]
    assert len(names) == len(set(names)) > 25
    assert all(name.isidentifier() and len(name) < 25 for name in names)
    for path, operation in operations(document):
        assert operation["description"], path
        for parameter in operation.get("parameters", []):
            assert parameter.get("description"), (path, parameter["name"])
            if parameter["in"] == "path":
                assert "example" in parameter, (path, parameter["name"])
        assert {"400", "401", "403", "422", "503"} <= operation["responses"].keys()
        content = operation["responses"]["422"]["content"]["application/json"]
        assert content["schema"] == {"$ref": "#/components/schemas/Problem"}, path
    for name, schema in document["components"]["schemas"].items():
        for field, property_schema in schema.get("properties", {}).items():
            assert property_schema.get("description"), (name, field)


def test_an_address_that_is_always_there_promises_no_404(document: dict[str, Any]) -> None:
    assert "404" not in document["paths"]["/storage"]["get"]["responses"]
    assert "404" in document["paths"]["/runs/{run_id}"]["get"]["responses"]


def test_the_document_names_the_token_and_the_words(document: dict[str, Any]) -> None:
    assert document["security"] == [{"token": []}, {}]
    assert document["components"]["securitySchemes"]["token"]["scheme"] == "bearer"
    schemas = document["components"]["schemas"]
    assert schemas["RunSummary"]["properties"]["kind"]["enum"] == [*get_args(RunKind)]
    assert "cancelled" in schemas["RunSummary"]["properties"]["status"]["enum"]
    stop = schemas["EpisodeSummary"]["properties"]["stop_reason"]["anyOf"]
    assert "horizon_reached" in next(each["enum"] for each in stop if each["type"] == "string")


def test_a_runs_configuration_is_json(client: TestClient, sample: SampleStore) -> None:
    found = client.get(f"/runs/{sample.run_id}/config").json()
    assert found["config"]["algorithm"] == {"name": "gigpo"}
    assert found["provenance"] == [{}]


def test_storage_is_counted(client: TestClient) -> None:
    found = client.get("/storage").json()
    assert found["num_runs"] == 1
    assert found["num_bytes"] > 100_000


@pytest.mark.parametrize("name", FORMATS)
def test_episodes_are_exported_in_each_format(
    client: TestClient, sample: SampleStore, name: str
) -> None:
    address = f"/runs/{sample.run_id}/export"
    asked = {"format": name, "success": "true", "phase": "train"}
    answer = client.get(address, params=asked)
    assert answer.status_code == 200
    assert "attachment" in answer.headers["content-disposition"]
    if name == "messages":
        values = import_module("pyarrow.parquet").read_table(BytesIO(answer.content)).to_pylist()
    else:
        values = json.loads(answer.text) if name == "agentgym" else answer.text.splitlines()
    same = {"success": "true", "phase": "train", "limit": "1000"}
    solved = client.get(f"/runs/{sample.run_id}/episodes", params=same).json()["rows"]
    if name in ("agentgym", "agentgym_eval", "atif", "agent_lightning"):
        assert len(values) == len(solved) > 3
    else:
        assert len(values) == sum(row["num_calls"] for row in solved)


def test_an_export_of_what_is_not_there_is_refused_before_it_begins(
    client: TestClient, sample: SampleStore
) -> None:
    assert client.get("/runs/none/export", params={"format": "verl"}).status_code == 404
    address = f"/runs/{sample.run_id}/export"
    assert client.get(address, params={"format": "pickle"}).status_code == 422
    failed = client.get(address, params={"format": "verl", "failed": "true"})
    assert (failed.status_code, "not exported" in failed.text) == (422, True)


def test_labels_of_a_run_are_paged(client: TestClient, sample: SampleStore) -> None:
    address = f"/runs/{sample.run_id}/labels"
    assert client.get(address).json() == {"rows": [], "next_key": None}


def test_labels_come_by_episode_and_step(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with StoreWriter(path) as writer:
        records = [make_record(make_trajectory(), run_id=run_id) for run_id in ("run", "RUN")]
        writer.write([run_started("run"), run_started("RUN"), *records])
        marks = [(None, "good", "ada"), (1, "stuck", "ada"), (1, "stuck", "judge")]
        writer.write(
            Label(
                episode_id=record.episode_id,
                step_index=step_index,
                name=name,
                value="yes",
                author=author,
                created_at=1.0,
            )
            for record in records
            for step_index, name, author in marks
        )
    engine = read_only_engine(path)
    with TestClient(create_app(engine, ApiSettings()), base_url="http://127.0.0.1") as client:
        first = client.get("/runs/run/labels", params={"limit": 2}).json()
        assert [(row["step_index"], row["author"]) for row in first["rows"]] == [
            (None, "ada"),
            (1, "ada"),
        ]
        asked = {"limit": 2, "after": first["next_key"]}
        second = client.get("/runs/run/labels", params=asked).json()
        assert [row["author"] for row in second["rows"]] == ["judge"]
        assert second["next_key"] is None
        by_judge = client.get("/runs/run/labels", params={"author": "judge"}).json()
        assert [row["episode_id"] for row in by_judge["rows"]] == [records[0].episode_id]
        assert client.get("/runs/run/labels", params={"after": "x"}).status_code == 422
    engine.dispose()
