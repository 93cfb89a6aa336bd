"""The check finds what is wrong, and nothing where nothing is."""

from functools import cache
from pathlib import Path

import pytest

import own_source as own
from longhaul_envs.check import check_environment
from longhaul_envs.contract.subject import SETTLE_SECONDS

LEFT_BEHIND = {"Threading", "Describing", "Begetting"}
"""Worlds that leave behind what never ends: how long it is waited for changes nothing."""


@cache  # of one environment two findings are asked for
def problems_of(name: str) -> str:
    found = check_environment(
        f"broken/{name}-v0",
        import_modules=["broken_environments"],
        num_tasks=2,
        horizon=5,
        settle_seconds=0.1 if name in LEFT_BEHIND else SETTLE_SECONDS,
    )
    return "\n".join(found)


@pytest.mark.parametrize("name", ["Sound", "Spelling", "Drawn"])
def test_a_sound_environment_has_no_problems(name: str) -> None:
    assert problems_of(name) == ""


@pytest.mark.parametrize(
    ("name", "finding"),
    [
        ("Hashing", "is another one in another process"),
        ("Remembering", "depends on what was played before it"),
        ("Leaking", "start with the same observation"),
        ("Overlapping", "task '7' is in train and in validation"),
        ("Promising", "calls 'wait' admissible and does not accept it"),
        ("Fragile", "nonsense is handled: KeyError"),
        ("Permissive", "accepts '', which it did not list"),
        ("Hopeless", "the expert does not solve task '0' in 5 steps"),
        ("Generous", "pays 1 for 12345, which has another 'number', and 1 for the expert's way"),
        ("Rolling", "task '0' and the same actions give another episode\n"),
        ("Resuming", "task '0' and the same actions give another episode\n"),
        ("Sharing", "episodes_per_process must be 1"),
        ("Counting", "has another anchor state after actions that it refused"),
        ("Blurred", "has one anchor state after 0 and after"),
        ("Blurred", "and lists other actions there"),
        ("Faint", "'wait' then has another effect"),
        ("Undecided", "an episode ends in one way, and this step is both"),
        ("Echoing", "answers 100 kB with 100,"),
        ("Mute", "shows nothing after control characters"),
        ("Drifting", "give another episode in another process, from step 1 on"),
        ("Threading", "close leaves something behind: "),
        ("Describing", "descriptors, 0 children after 2"),
        ("Begetting", "processes outlive the one that closed it"),
        ("Grey", "has one colour"),
        ("Floating", "float32 of shape (8, 8, 3)"),
        ("Still", "states have the same picture"),
        ("Touched", "is another episode where its pictures are drawn"),
        ("Wordless", "its actions are Discrete(3), and must be gymnasium.spaces.Text"),
        ("Unlisted", "lists no task for split 'test'"),
    ],
)
def test_a_broken_rule_is_found_and_named(name: str, finding: str) -> None:
    assert finding in problems_of(name)


def test_an_unknown_id_is_a_problem_not_a_crash() -> None:
    assert "no environment 'broken/None-v0' is registered" in problems_of("None")


@pytest.fixture
def own_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The id of a source that is no Gymnasium environment, installed for this test."""
    metadata = tmp_path / "own_counter-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Name: own-counter\nVersion: 1.0\n", encoding="utf-8")
    (metadata / "entry_points.txt").write_text(
        f"[longhaul.environments]\n{own.ENVIRONMENT_ID} = own_source:source\n", encoding="utf-8"
    )
    monkeypatch.syspath_prepend(str(tmp_path))  # pyright: ignore[reportUnknownMemberType]
    return own.ENVIRONMENT_ID


@pytest.mark.parametrize(
    ("options", "finding"),
    [
        ({}, None),
        ({"kind": "lucky", "determinism": "first_observation"}, None),
        ({"kind": "lucky"}, "give another episode in another process, from step 1 on"),
        ({"kind": "fragile"}, "nonsense is handled: ValueError"),
        ({"kind": "trusting"}, "accepts '', which it did not list"),
        ({"kind": "twice"}, "RuntimeError: closed twice"),
    ],
)
def test_a_source_that_is_no_gymnasium_environment_is_held_to_the_protocol(
    own_source: str, options: dict[str, object], finding: str | None
) -> None:
    found = check_environment(own_source, options=options, num_tasks=2)
    assert (found == []) if finding is None else (finding in "\n".join(found))
