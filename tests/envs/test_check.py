"""The check finds what is wrong, and nothing where nothing is."""

import pytest

from longhaul_envs.check import check_environment


def problems_of(name: str) -> str:
    found = check_environment(
        f"broken/{name}-v0", import_modules=["broken_environments"], num_tasks=2, horizon=5
    )
    return "\n".join(found)


def test_a_sound_environment_has_no_problems() -> None:
    assert problems_of("Sound") == ""


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
        ("Rolling", "the same actions give another episode"),
        ("Sharing", "episodes_per_process must be 1"),
        ("Wordless", "its actions are Discrete(3), and must be gymnasium.spaces.Text"),
        ("Unlisted", "lists no task for split 'test'"),
    ],
)
def test_a_broken_rule_is_found_and_named(name: str, finding: str) -> None:
    assert finding in problems_of(name)


def test_an_unknown_id_is_a_problem_not_a_crash() -> None:
    assert "no environment 'broken/None-v0' is registered" in problems_of("None")
