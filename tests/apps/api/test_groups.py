"""The API's routes of groups and of comparisons over a real store."""

from typing import Any

import pytest
from fastapi.testclient import TestClient

from apps.conftest import SampleStore
from variation import assert_both_signs


def read(client: TestClient, address: str, **parameters: str | bool | list[str]) -> Any:  # noqa: ANN401
    answer = client.get(address, params=parameters)
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.fixture(scope="module")
def group(client: TestClient, sample: SampleStore) -> str:
    """The address of a group of mixed outcomes."""
    rows = read(client, f"/runs/{sample.run_id}/groups", outcomes="mixed", phase="train")["rows"]
    first = next(row for row in rows if row["has_signal"])
    place = f"{first['phase']}/{first['training_step']}/{first['group_index']}"
    return f"/runs/{sample.run_id}/groups/{place}"


def test_outcomes_part_the_groups(client: TestClient, sample: SampleStore) -> None:
    address = f"/runs/{sample.run_id}/groups"
    everything = read(client, address, phase="train")["rows"]
    parts = {
        outcomes: read(client, address, phase="train", outcomes=outcomes)["rows"]
        for outcomes in ("mixed", "solved", "unsolved")
    }

    assert all(len(set(row["returns"])) > 1 for row in parts["mixed"])
    assert {row["success_rate"] for row in parts["unsolved"]} == {0.0}
    assert sum(map(len, parts.values())) == sum(row["num_episodes"] > 0 for row in everything)
    assert parts["mixed"]
    assert parts["unsolved"]


def test_steps_anchors_graph_and_advantages_are_of_the_same_steps(
    client: TestClient, group: str
) -> None:
    steps = {
        (episode["summary"]["episode_id"], step["step_index"]): step
        for episode in read(client, f"{group}/steps")["episodes"]
        if not episode["summary"]["failed"]
        for step in episode["steps"]
    }
    in_anchors = {
        (step["episode_id"], step["step_index"]): step["advantage"]
        for anchor in read(client, f"{group}/anchors")
        for step in anchor["steps"]
    }
    in_graph = {
        (step["episode_id"], step["step_index"])
        for edge in read(client, f"{group}/graph")["edges"]
        for step in edge["steps"]
    }
    trained, *_ = read(client, f"{group}/advantages")["estimators"]
    estimated = {
        (episode["episode_id"], index): advantage
        for episode in trained["episodes"]
        for index, advantage in enumerate(episode["advantages"])
    }

    assert trained["trained"]
    assert steps.keys() == in_anchors.keys() == in_graph == estimated.keys()
    assert_both_signs(estimated.values())
    assert in_anchors == estimated == {key: step["advantage"] for key, step in steps.items()}


def test_estimators_are_chosen_by_name(client: TestClient, group: str) -> None:
    found = read(client, f"{group}/advantages", estimator=["hgpo", "grpo"])["estimators"]
    assert [each["estimator"] for each in found] == ["grpo", "hgpo"]
    answer = client.get(f"{group}/advantages", params={"estimator": "ppo"})
    assert answer.status_code == 404
    assert "there is no estimator" in answer.json()["detail"]


@pytest.mark.parametrize("part", ["steps", "anchors", "graph", "advantages"])
def test_parts_of_a_group_that_is_not_there_are_404(
    client: TestClient, sample: SampleStore, part: str
) -> None:
    answer = client.get(f"/runs/{sample.run_id}/groups/train/999/0/{part}")
    assert answer.status_code == 404
    assert "there is no group 0" in answer.json()["detail"]


def test_results_of_a_run_are_compared(client: TestClient, sample: SampleStore) -> None:
    first, last = read(client, f"/runs/{sample.run_id}/results")
    assert first["panel_hash"] == last["panel_hash"]
    a, b = (f"{each['run_id']}@{each['training_step']}" for each in (first, last))

    found = read(client, "/comparison", a=a, b=b)

    assert found["a"]["success_rate"] == pytest.approx(first["success_rate"])
    difference = last["success_rate"] - first["success_rate"]
    assert found["success"]["difference"] == pytest.approx(difference)
    assert difference > 0
    changed = found["num_gained"] - found["num_lost"]
    assert changed == pytest.approx(difference * found["num_tasks"])


@pytest.mark.parametrize(
    ("b", "status", "message"),
    [
        ("RUN@0", 422, "both sides are run"),
        ("RUN", 422, "such as myrun@80"),
        ("RUN@7", 404, "it has them at 0, 12"),
        ("none@7", 404, "there is no run"),
    ],
)
def test_what_cannot_be_compared_is_refused_with_the_reason(
    client: TestClient, sample: SampleStore, b: str, status: int, message: str
) -> None:
    parameters = {"a": f"{sample.run_id}@0", "b": b.replace("RUN", sample.run_id)}
    answer = client.get("/comparison", params=parameters)
    assert answer.status_code == status
    assert message in answer.json()["detail"]
