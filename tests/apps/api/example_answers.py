"""The examples of the API's document: what it answers over a small store whose times are fixed.

    PYTHONPATH=tests python tests/apps/api/example_answers.py

writes them anew after an answer has changed; `test_examples.py` holds that nobody forgets it.
"""

import json
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, cast

from fastapi.testclient import TestClient

import longhaul_api
from longhaul_api.app import create_app
from longhaul_api.settings import ApiSettings
from longhaul_core.store import (
    Evaluation,
    Label,
    Metrics,
    PanelTasks,
    RunEnded,
    StoreWriter,
    maintenance,
    open_store,
)
from longhaul_core.store.session import read_only_engine
from longhaul_core.types import Split
from store_samples import (
    make_audit,
    make_decisions,
    make_failure,
    make_loss_input,
    make_record,
    make_task,
    make_trajectory,
    measured,
)
from walks import Walk, credited, records, settings, started

__all__ = ["FILE", "Example", "answers", "write_example_store"]

FILE = Path(longhaul_api.__file__).with_name("examples.json")
RUN = "run"
EPISODE = f"/episodes/{RUN}/0/train/1/0/0/0"
GROUP = f"/runs/{RUN}/groups/train/1/0"
ADDRESSES = (
    "/runs",
    f"/runs/{RUN}",
    f"/runs/{RUN}/config",
    f"/runs/{RUN}/audits",
    f"/runs/{RUN}/curve",
    f"/runs/{RUN}/evaluations",
    f"/runs/{RUN}/results",
    f"/runs/{RUN}/failures",
    f"/runs/{RUN}/labels",
    f"/runs/{RUN}/metrics",
    f"/runs/{RUN}/metrics/series",
    f"/runs/{RUN}/episodes?limit=1",
    f"/runs/{RUN}/export?format=conversations",
    f"/runs/{RUN}/groups?limit=1",
    GROUP,
    f"{GROUP}/steps",
    f"{GROUP}/anchors",
    f"{GROUP}/graph",
    f"{GROUP}/advantages?estimator=gigpo&estimator=gae",
    f"/comparison?a={RUN}@0&b={RUN}@1",
    f"{EPISODE}?tokens=true",
    f"{EPISODE}/outline",
    f"{EPISODE}/texts",
    f"{EPISODE}/changes",
    f"{EPISODE}/transcript",
    f"{EPISODE}/neighbours",
    f"/episodes/{RUN}/0/train/1/0/1/0/truth",
    f"{EPISODE}/steps/0",
    f"{EPISODE}/steps/0/calls/0/tokens",
    "/search?words=you",
    f"/events?run={RUN}&cursor=0",
    "/storage",
    "/sql/schema",
    "/sql/cookbook",
    f"/sql/cookbook/worst_episodes?param=run%3D{RUN}",
)
"""One for each operation that reads, but pictures, which are bytes."""
STATEMENT = "SELECT episode_id, episode_return FROM episode_summary ORDER BY episode_id LIMIT 2"
FIXED: Mapping[str, object] = {
    "indexed_at": 1_760_000_300.0,
    "num_bytes": 1_048_576,
    "bytes_per_step": 65_536.0,
    "seconds": 0.02,
    "text_index_bytes": 8_192,
}
"""What depends on the moment or the machine, and what stands in its place."""


class Example(NamedTuple):
    """An answer, and what was asked."""

    operation: str
    """Its id in the document."""
    asked: str
    media_type: str
    answer: Any
    body: dict[str, Any] | None = None
    """What was sent."""


def write_example_store(store: str) -> None:
    """A run of one training step: a group of two, evaluated before and after."""
    walks = [
        Walk(states="ab", actions="nn", reward=1.0),
        Walk(states="ac", actions="n?", final="d"),
    ]
    chosen = settings()
    group = records(walks, run_id=RUN)
    panel = make_task(9, split=Split.VALIDATION)
    played = [
        make_record(
            make_trajectory(task=panel, rewards=(0.0, float(step)), success=step > 0),
            run_id=RUN,
            phase="validation",
            training_step=step,
            group_size=1,
        )
        for step in (0, 1)
    ]
    with StoreWriter(store) as writer:
        writer.write(
            [
                started(chosen, RUN),
                PanelTasks(run_id=RUN, name="fixed", split=Split.VALIDATION, tasks=(panel,)),
                *group,
                make_record(make_failure(sample_index=1), run_id=RUN, training_step=1, retry=1),
                *make_decisions(group),
                *credited([walks], [group], chosen),
                *(make_loss_input(record) for record in group),
                *played,
                *(
                    Evaluation(
                        run_id=RUN,
                        attempt=0,
                        training_step=step,
                        panel="fixed",
                        split=Split.VALIDATION,
                        num_episodes=1,
                        mean_return=float(step),
                        success_rate=float(step),
                    )
                    for step in (0, 1)
                ),
                Metrics(run_id=RUN, attempt=0, training_step=1, values={"actor/entropy": 0.7}),
                replace(make_audit(run_id=RUN), findings=()),
                RunEnded(
                    run_id=RUN, attempt=0, status="finished", message="", ended_at=1_760_001e3
                ),
                *measured(group[1].episode_id, step=0, choice=[(1.0,)], taken=[(0.0,)]),
            ]
        )
        writer.write(
            [
                Label(
                    episode_id=group[1].episode_id,
                    step_index=1,
                    name="note",
                    value="walks into the wall",
                    author="ada",
                    created_at=1_760_000_900.0,
                )
            ]
        )
    engine = open_store(store)
    maintenance.index_text(engine)
    engine.dispose()


def answers(store: str) -> list[Example]:
    """What the API answers over it, the moment and the machine taken out."""
    engine = read_only_engine(store)
    app = create_app(engine, ApiSettings(sql_store=store))
    found: list[Example] = []
    with TestClient(app, base_url="http://127.0.0.1") as client:
        for address in ADDRESSES:
            answer = client.get(address)
            assert answer.status_code == 200, (address, answer.text)
            found.append(_example(client, "get", address, answer))
        body = {"sql": STATEMENT}
        answer = client.post("/sql", json=body)
        assert answer.status_code == 200, answer.text
        found.append(_example(client, "post", "/sql", answer)._replace(body=body))
    engine.dispose()
    return found


def _example(client: TestClient, method: str, address: str, answer: Any) -> Example:  # noqa: ANN401
    media_type = answer.headers["content-type"].partition(";")[0]
    said = _fixed(answer.json()) if media_type == "application/json" else answer.text
    if address in ("/sql/schema", "/sql/cookbook"):
        said = said[:1]  # the documentation of tables and questions, which is long
    return Example(_operation(client, method, address), address, media_type, said)


def _operation(client: TestClient, method: str, address: str) -> str:
    """The id of the operation that answers an address."""
    app = cast("Any", client.app)
    scope = {"type": "http", "method": method.upper(), "path": address.partition("?")[0]}
    scope |= {"headers": [], "root_path": ""}
    for route in app.routes:
        match, _ = route.matches(scope)
        if match.value == 2:  # whole
            return str(route.unique_id)
    raise AssertionError(address)


def _fixed(value: Any) -> Any:  # noqa: ANN401
    if isinstance(value, dict):
        found = cast("dict[str, Any]", value)
        return {
            name: FIXED[name] if name in FIXED and each is not None else _fixed(each)
            for name, each in found.items()
        }
    if isinstance(value, list):
        return [_fixed(each) for each in cast("list[Any]", value)]
    return value


def main() -> None:
    """Write the file."""
    with tempfile.TemporaryDirectory() as folder:
        store = str(Path(folder) / "store.db")
        write_example_store(store)
        made = {
            each.operation: {
                "asked": each.asked,
                "media_type": each.media_type,
                "answer": each.answer,
            }
            | ({} if each.body is None else {"body": each.body})
            for each in answers(store)
        }
    FILE.write_text(json.dumps(made, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
