"""Recorded training steps give the advantages, weights, losses and gradients that they gave.

`golden_steps` describes the files, `golden_replay` what they are replayed through. These tests
guard refactorings, which change no number; other tests say what the numbers should be.
"""

import math
from collections import Counter
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import pytest

from trainer.verl.golden_steps import (
    MAX_ERROR,
    GoldenStep,
    Outputs,
    RecordedEpisode,
    differences,
    distances,
    first_of,
    names,
    read,
    replayed,
)

pytestmark = pytest.mark.slow  # a process imports verl

NAMES = names()


@pytest.fixture(scope="module")
def recorded() -> dict[str, GoldenStep]:
    return {name: read(name) for name in NAMES}


@pytest.fixture(scope="module")
def found(
    recorded: dict[str, GoldenStep], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Outputs]:
    """What the code of today makes of the recorded steps."""
    inputs = {name: step["inputs"] for name, step in recorded.items()}
    return replayed(inputs, folder=tmp_path_factory.mktemp("replay"))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("part", ["credit", "rows"])
def test_credit_and_rows_are_bit_for_bit_those_recorded(
    recorded: dict[str, GoldenStep], found: dict[str, Outputs], name: str, part: str
) -> None:
    expected = recorded[name]["outputs"]

    assert first_of([*differences(expected[part], found[name][part], place=part)]) == []


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("part", ["metrics", "gradients"])
def test_losses_and_gradients_are_bit_for_bit_those_recorded(
    recorded: dict[str, GoldenStep], found: dict[str, Outputs], name: str, part: str
) -> None:
    expected = recorded[name]["outputs"]
    if found[name]["arithmetic"] != expected["arithmetic"]:
        pytest.skip("float32 sums of this machine's kernels differ from the recording machine's")

    everywhere = [expected, *recorded[name].get("elsewhere", [])]
    off = [[*differences(each[part], found[name][part], place=part)] for each in everywhere]
    assert first_of(min(off, key=len)) == []


@pytest.mark.parametrize("name", NAMES)
def test_losses_and_gradients_are_those_recorded_but_for_rounding(
    recorded: dict[str, GoldenStep], found: dict[str, Outputs], name: str
) -> None:
    expected = recorded[name]["outputs"]

    assert found[name]["metrics"].keys() == expected["metrics"].keys()
    assert found[name]["gradients"].keys() == expected["gradients"].keys()
    far = [f"{place}: {d:.1e}" for place, d in distances(expected, found[name]) if d > MAX_ERROR]
    assert first_of(far) == []


# What is recorded


def ended(step: GoldenStep) -> Iterator[RecordedEpisode]:
    """The episodes that did not fail."""
    for group in step["inputs"]["groups"]:
        for tries in group["places"]:
            yield from (episode for episode in tries if episode["failure"] is None)


def sampled(rows: list[dict[str, list[Any]]]) -> int:
    return sum(any(row["loss_mask"]) for row in rows)


@pytest.mark.parametrize("name", NAMES)
def test_what_is_recorded_varies(recorded: dict[str, GoldenStep], name: str) -> None:
    inputs, outputs = recorded[name]["inputs"], recorded[name]["outputs"]
    episodes = [*ended(recorded[name])]
    steps = [step for episode in episodes for step in episode["steps"]]

    assert {math.copysign(1, step["reward"]) for step in steps if step["reward"]} == {-1, 1}
    assert len({len(episode["steps"]) for episode in episodes}) >= 4
    assert {"task_solved", "task_failed", "horizon_reached", "environment_limit"} <= {
        episode.get("stop_reason") for episode in episodes
    }
    assert {step["finish_reason"] for step in steps} == {"stop", "length"}
    assert {step["action_valid"] for step in steps} == {True, False}
    assert len({len(step["prompt"]) for step in steps}) >= 6
    assert len({len(step["reply"]) for step in steps}) == 6
    tries = Counter(
        tuple(episode["failure"] is None for episode in tries)
        for group in inputs["groups"]
        for tries in group["places"]
    )
    assert tries.keys() == {(True,), (False, True), (False, False)}
    for group in inputs["groups"]:
        states = Counter(
            step["anchor_state"] or step["observation"]
            for tries in group["places"]
            if tries[-1]["failure"] is None
            for step in tries[-1]["steps"]
        )
        assert not states or max(states.values()) > 1
    advantages = [a for credit in outputs["credit"] for a in credit["advantages"]]
    assert min(advantages) < 0 < max(advantages)
    assert len(set(advantages)) > 5
    assert 0 < outputs["metrics"]["actor/clip_fraction"] < 1
    for parameters in outputs["gradients"].values():
        assert all(gradient["norm"] > 0 for gradient in parameters.values())


def test_together_they_reach_every_part_of_a_training_step(
    recorded: dict[str, GoldenStep],
) -> None:
    settings = [step["inputs"]["settings"] for step in recorded.values()]
    outputs = [step["outputs"] for step in recorded.values()]

    assert len(recorded) == 6
    assert len({one["algorithm"]["name"] for one in settings}) >= 5
    assert {one["algorithm"].get("loss_unit", "token") for one in settings} == {
        *("token", "step", "episode", "fixed_token")
    }
    assert {one["loss"].get("kind", "ppo") for one in settings if "loss" in one} == {
        *("ppo", "gspo", "cispo")
    }
    reasons = Counter(
        reason for one in outputs for credit in one["credit"] for reason in credit["split_reasons"]
    )
    assert reasons.keys() == {
        *(None, "first_step", "one_row_per_step", "prompt_changed", "policy_changed", "row_full")
    }
    limit = recorded["gigpo_merged"]["inputs"]["settings"]["optimizer"]["max_row_tokens"]
    merged = [
        len(row["prompts"] + row["responses"])
        for row in recorded["gigpo_merged"]["outputs"]["rows"]["actor 0"]
        if 0 in row["response_mask"]
    ]
    assert max(merged) == limit
    updates = [update for one in outputs for update in one["rows"]]
    assert Counter(updates) == {"actor 0": 6, "actor 1": 3, "critic 0": 1, "critic 1": 1}
    for part in ("actor", "critic"):
        assert any(
            sampled(rows) < len(rows)
            for one in outputs
            for update, rows in one["rows"].items()
            if update.startswith(part)
        ), f"no row of the {part}'s fills up"
    metrics = [one["metrics"] for one in outputs]
    assert any(one["groups/left_out"] > one["groups/without_signal"] for one in metrics)
    assert any(one["groups/without_signal"] for one in metrics)
    assert any(0 < one["steps/stale_rate"] < 1 for one in metrics)
    assert any(one.get("actor/reference_kl") for one in metrics)
    assert any(one.get("episodes/reference_kl_per_token") for one in metrics)
    assert any(0 < one.get("critic/value_clip_fraction", 0) < 1 for one in metrics)
    levels = {one["loss"].get("importance_sampling", "none") for one in settings if "loss" in one}
    assert levels == {"none", "token", "sequence"}


# What would be found


def test_the_last_bit_of_one_advantage_would_be_found(recorded: dict[str, GoldenStep]) -> None:
    expected = recorded["gigpo_merged"]["outputs"]
    other = deepcopy(expected)
    advantages = other["credit"][3]["advantages"]
    advantages[1] = math.nextafter(advantages[1], math.inf)

    (line,) = differences(expected, other)

    assert line.startswith(".credit[3].advantages[1]: ")


def test_a_gradient_of_another_size_would_be_found(recorded: dict[str, GoldenStep]) -> None:
    expected = recorded["gigpo_merged"]["outputs"]
    other = deepcopy(expected)
    name = "model.norm.weight"
    gradient = other["gradients"]["actor 0"][name]
    gradient["sketch"] = [1.0001 * value for value in gradient["sketch"]]

    far = [place for place, distance in distances(expected, other) if distance > MAX_ERROR]

    assert far == [f"gradient actor 0 of {name}"]
