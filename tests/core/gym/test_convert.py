"""What Gymnasium returns, as our nouns."""

import numpy as np
import pytest

from longhaul_core.gym.convert import to_observation, to_step_result


def test_what_info_does_not_say_is_unknown() -> None:
    observation = to_observation("room", {})
    assert observation.admissible_actions is None
    assert observation.anchor == "room"


def test_no_admissible_action_is_not_the_same_as_not_saying() -> None:
    assert to_observation("room", {"admissible_actions": []}).admissible_actions == ()


def test_numpy_scalars_become_plain_ones() -> None:
    result = to_step_result(
        "room",
        np.float32(0.5),
        terminated=np.bool_(True),
        truncated=np.bool_(False),
        info={"success": np.bool_(False), "action_accepted": np.bool_(False)},
    )
    assert type(result.reward) is float
    assert (result.terminated, result.truncated) == (True, False)
    assert (result.success, result.action_accepted) == (False, False)


@pytest.mark.parametrize(
    ("reward", "terminated", "solved"),
    [(1.0, True, True), (0.0, True, False), (-1.0, True, False), (1.0, False, False)],
)
def test_without_a_word_on_success_a_paid_end_is_one(
    reward: float, terminated: bool, solved: bool
) -> None:
    result = to_step_result("room", reward, terminated=terminated, truncated=False, info={})
    assert result.success is solved


def test_success_is_the_environments_word_where_it_says_so() -> None:
    result = to_step_result("", 1.0, terminated=True, truncated=False, info={"success": False})
    assert not result.success


@pytest.mark.parametrize(
    ("text", "info", "message"),
    [
        (np.zeros(3), {}, "must be text, got ndarray"),
        ("", {"anchor_state": 3}, "anchor_state.*got int"),
        ("", {"admissible_actions": "go"}, "must be a list of text, got str"),
        ("", {"admissible_actions": ["go", 3]}, "holds 3"),
    ],
)
def test_a_wrong_type_is_named(text: object, info: dict[str, object], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        to_observation(text, info)


def test_a_reward_that_is_no_number_is_refused() -> None:
    with pytest.raises(ValueError, match="nan"):
        to_step_result("", float("nan"), terminated=False, truncated=False, info={})
