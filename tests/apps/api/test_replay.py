"""The routes of one episode's parts: what they give, and when they give nothing again."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

import longhaul_api
import longhaul_core
from apps.long_episode import EPISODE_ID, write_long_store
from longhaul_api.app import create_app
from longhaul_api.responses import code_version
from longhaul_api.settings import ApiSettings
from longhaul_core.store import Label, StoreWriter
from longhaul_core.store.session import read_only_engine
from store_samples import make_record, make_trajectory, measured, run_started

API, CORE = (Path(package.__path__[0]) for package in (longhaul_api, longhaul_core))
PARTS = ("outline", "texts", "changes", "transcript", "steps/2", "steps/2/calls/0/tokens")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    url = str(tmp_path_factory.mktemp("long") / "store.db")
    write_long_store(url, num_steps=6)
    return url


@pytest.fixture(scope="module")
def client(store: str) -> Iterator[TestClient]:
    engine = read_only_engine(store)
    with TestClient(create_app(engine, ApiSettings()), base_url="http://127.0.0.1") as client:
        yield client
    engine.dispose()


def read(client: TestClient, part: str) -> Any:  # noqa: ANN401
    answer = client.get(f"/episodes/{EPISODE_ID}/{part}")
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_the_outline_has_columns_of_equal_length_and_no_text(client: TestClient) -> None:
    outline = read(client, "outline")
    assert {len(column) for column in outline["steps"].values()} == {6}
    assert {len(column) for column in outline["calls"].values()} == {6}
    assert outline["summary"]["episode_id"] == EPISODE_ID
    assert "Room 0" not in str(outline)


def test_texts_of_a_range_name_their_messages_by_number(client: TestClient) -> None:
    texts = read(client, "texts?from=1&to=3")
    assert [step["step_index"] for step in texts["steps"]] == [1, 2]
    prompt = texts["steps"][1]["calls"][0]["prompt"]
    shown = [texts["messages"][str(number)]["role"] for number in prompt]
    assert shown == ["system", "user", "assistant", "user", "assistant", "user"]
    assert texts["steps"][0]["calls"][0]["tokens"]["ids"]
    bare = read(client, "texts?from=1&to=2&tokens=false")
    assert bare["steps"][0]["calls"][0]["tokens"] is None


def test_a_message_is_sent_once_however_many_prompts_have_it(client: TestClient) -> None:
    system = read(client, "texts")["messages"]["0"]["parts"][0]
    sent = client.get(f"/episodes/{EPISODE_ID}/texts").text
    assert sent.count(system) == 1
    assert client.get(f"/episodes/{EPISODE_ID}").text.count(system) == 6


def test_changes_say_what_a_prompt_kept_dropped_and_added(client: TestClient) -> None:
    changes = read(client, "changes?from=4&to=5")
    assert [(each["step_index"], each["earlier_step_index"]) for each in changes] == [(4, 3)]
    kinds = [change["kind"] for change in changes[0]["messages"]]
    assert kinds == ["kept", *["dropped"] * 4, "kept", "added", "added"]
    assert [kind for kind, _ in changes[0]["tokens"]] == ["kept", "dropped", "kept", "added"]


def test_tokens_are_sliced_through_prompt_and_reply(client: TestClient) -> None:
    whole = read(client, "steps/2/calls/0/tokens")
    begins = whole["num_prompt_tokens"]
    part = read(client, f"steps/2/calls/0/tokens?from={begins - 2}&to={begins + 2}")
    assert part["ids"] == whole["ids"][begins - 2 : begins + 2]
    assert part["reply"]["behavior_logprobs"] == whole["reply"]["behavior_logprobs"][:2]
    assert part["reply"]["policy_entropies"] == [0.0, 0.25]
    prompt = read(client, "steps/2/calls/0/tokens?to=5")
    assert (prompt["reply"], len(prompt["ids"])) == (None, 5)


def test_neighbours_name_the_group(client: TestClient) -> None:
    near = read(client, "neighbours")
    assert [member["sample_index"] for member in near["members"]] == [0, 1]
    assert (near["earlier_group"], near["later_group"]) == (None, None)


def test_a_credited_episode_is_not_sent_twice(client: TestClient, store: str) -> None:
    addresses = [f"/episodes/{EPISODE_ID}/{part}" for part in PARTS]
    known = [{"If-None-Match": client.get(each).headers["etag"]} for each in addresses]
    for address, headers in zip(addresses, known, strict=True):
        again = client.get(address, headers=headers)
        assert (again.status_code, again.content) == (304, b""), address
    label = Label(
        episode_id=EPISODE_ID, step_index=1, name="odd", value="1", author="me", created_at=1.0
    )
    with StoreWriter(store) as writer:
        writer.write([label])
    for address, headers in zip(addresses, known, strict=True):
        assert client.get(address, headers=headers).status_code == 200, address


def test_what_another_release_answered_is_sent_anew(client: TestClient, tmp_path: Path) -> None:
    address = f"/episodes/{EPISODE_ID}/texts"
    tag = client.get(address).headers["etag"]
    episode, code = tag.strip('"').split("-")
    assert code == code_version((API, CORE))
    for earlier in (episode, f"{episode}-{'0' * len(code)}"):
        answer = client.get(address, headers={"If-None-Match": f'"{earlier}"'})
        assert answer.status_code == 200

    copied = tmp_path / "core"
    shutil.copytree(CORE, copied)
    assert code_version((API, copied)) == code
    changed = copied / "store" / "queries" / "replay" / "texts.py"
    changed.write_bytes(changed.read_bytes() + b"\n")
    later = tmp_path / "later"
    copied.rename(later)
    assert code_version((API, later)) != code


AFTER_AN_UPDATE = """
import sys
from pathlib import Path

from fastapi.testclient import TestClient

import longhaul_core
from longhaul_api.app import create_app
from longhaul_api.settings import ApiSettings
from longhaul_core.store.session import read_only_engine

store, address = sys.argv[1:]
app = create_app(read_only_engine(store), ApiSettings())
changed = Path(longhaul_core.__path__[0], "store", "queries", "replay", "texts.py")
changed.write_bytes(changed.read_bytes() + b"\\n")
with TestClient(app, base_url="http://127.0.0.1") as client:
    print(longhaul_core.__path__[0], client.get(address).headers["etag"])
"""


def test_a_server_whose_files_are_updated_goes_on_naming_the_code_that_it_runs(
    store: str, tmp_path: Path
) -> None:
    for package in (API, CORE):
        shutil.copytree(package, tmp_path / "packages" / package.name)
    address = f"/episodes/{EPISODE_ID}/texts"
    told = subprocess.run(
        [sys.executable, "-c", AFTER_AN_UPDATE, store, address],
        env=os.environ | {"PYTHONPATH": str(tmp_path / "packages")},
        capture_output=True,
        text=True,
        check=True,
    )
    core, tag = told.stdout.split()
    assert core == str(tmp_path / "packages" / CORE.name)
    assert tag.strip('"').split("-")[1] == code_version((API, CORE))


def test_an_episode_without_credit_has_the_tag_of_its_content_alone(
    client: TestClient, store: str
) -> None:
    record = make_record(make_trajectory(), run_id="other")
    with StoreWriter(store) as writer:
        writer.write([run_started("other"), record])
    answer = client.get(f"/episodes/{record.episode_id}/outline")
    assert answer.status_code == 200
    assert answer.headers["etag"].startswith("W/")  # that of a credited one is known unread


@pytest.mark.parametrize("part", [*PARTS, "neighbours"])
def test_what_is_not_there_is_404(client: TestClient, part: str) -> None:
    answer = client.get(f"/episodes/none/0/train/1/0/0/0/{part}")
    assert answer.status_code == 404
    assert "there is no episode" in answer.json()["detail"]


@pytest.mark.parametrize(
    "part", ["texts?from=-1", "changes?to=x", "steps/-1", "steps/1/calls/0/tokens?from=1.5"]
)
def test_a_number_that_makes_no_sense_is_422(client: TestClient, part: str) -> None:
    assert client.get(f"/episodes/{EPISODE_ID}/{part}").status_code == 422


def test_the_truth_of_a_step_is_there_as_soon_as_its_continuations_are(tmp_path: Path) -> None:
    record = make_record(make_trajectory())
    store = str(tmp_path / "store.db")
    with StoreWriter(store) as writer:
        writer.write([run_started(), record])
    engine = read_only_engine(store)
    with TestClient(create_app(engine, ApiSettings()), base_url="http://127.0.0.1") as client:
        address = f"/episodes/{record.episode_id}/truth"
        assert client.get(address).json() == []
        with StoreWriter(store) as writer:
            writer.write(
                measured(record.episode_id, choice=[(0.0, 0.0)] * 40, taken=[(0.0, 1.0)] * 40)
            )
        [truth] = client.get(address).json()
        assert client.get("/episodes/nobody/truth").status_code == 404
    engine.dispose()
    assert (truth["continued_by"], truth["discount"]) == ("random", 0.5)
    [step] = truth["steps"]
    assert (step["step_index"], step["has_effect"]) == (1, True)
    assert step["value"]["estimate"] == 0.0 < step["value"]["high"]
    assert step["action_value"]["num_continuations"] == 40
    assert step["advantage"]["low"] < step["advantage"]["estimate"] == 1.0
