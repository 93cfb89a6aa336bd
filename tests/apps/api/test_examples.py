"""The examples in the API's document: what a small store answers, each of its schema.

If an answer was changed on purpose: `PYTHONPATH=tests python tests/apps/api/example_answers.py`.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from jsonschema import Draft202012Validator, validate

from apps.api.example_answers import FILE, answers, write_example_store
from longhaul_api.app import create_app
from longhaul_api.openapi import describe
from longhaul_api.settings import ApiSettings
from longhaul_core.store import read_only_engine


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    url = str(tmp_path_factory.mktemp("examples") / "store.db")
    write_example_store(url)
    return url


@pytest.fixture(scope="module")
def document(store: str) -> dict[str, Any]:
    engine = read_only_engine(store)
    document = create_app(engine, ApiSettings(sql_store=store)).openapi()
    engine.dispose()
    return document


def operations(document: dict[str, Any]) -> list[dict[str, Any]]:
    return [each for found in document["paths"].values() for each in found.values()]


def test_the_examples_are_what_the_store_answers(store: str) -> None:
    shown = json.loads(FILE.read_text(encoding="utf-8"))
    made = answers(store)
    assert shown.keys() == {each.operation for each in made}
    for each in made:
        assert shown[each.operation]["answer"] == each.answer, each.asked
        assert shown[each.operation].get("body") == each.body, each.asked


def test_every_operation_shows_an_answer_of_its_schema(document: dict[str, Any]) -> None:
    without: list[str] = []
    for operation in operations(document):
        content = operation["responses"]["200"]["content"]
        examples = [
            (example["value"], of_type["schema"])
            for of_type in content.values()
            for example in of_type.get("examples", {}).values()
        ]
        without += [] if examples else [operation["operationId"]]
        for value, schema in examples:
            assert value, operation["operationId"]
            whole = schema | {"components": document["components"]}
            validate(value, whole, cls=Draft202012Validator)
    assert without == ["get_media"]


def test_every_operation_with_a_body_shows_one_of_its_schema(document: dict[str, Any]) -> None:
    bodies = [each["requestBody"] for each in operations(document) if "requestBody" in each]
    assert bodies
    for body in bodies:
        of_json = body["content"]["application/json"]
        whole = of_json["schema"] | {"components": document["components"]}
        validate(of_json["examples"]["sample"]["value"], whole, cls=Draft202012Validator)


def test_an_operation_without_an_example_is_an_error() -> None:
    def new(most: int) -> int:
        return most

    app = FastAPI(generate_unique_id_function=lambda route: route.name)
    app.add_api_route("/new", new)
    describe(app)
    with pytest.raises(LookupError, match="none of 'new'"):
        app.openapi()


def test_an_example_holds_nothing_of_the_machine_it_was_made_on() -> None:
    text = FILE.read_text(encoding="utf-8")
    assert str(Path.home()) not in text
    assert "/tmp" not in text
