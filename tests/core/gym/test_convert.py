"""What Gymnasium returns, as our nouns."""

from typing import Any

import gymnasium
import numpy as np
import pytest

from longhaul_core.gym import GymEnvironmentSpec
from longhaul_core.gym.convert import to_observation, to_step_result
from longhaul_core.gym.worker import OBSERVATION
from longhaul_core.types import MediaType, Picture


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
        (np.zeros(3), {}, "must be text, .*got ndarray"),
        ({"text": 3}, {}, "text'.* must be text, got int"),
        ({"text": "", "picture": np.zeros(3)}, {}, "bytes.*got ndarray.*pictures.png"),
        ({"text": "", "image": b""}, {}, "alone, has .'image'"),
        ("", {"anchor_state": 3}, "anchor_state.*got int"),
        ("", {"admissible_actions": "go"}, "must be a list of text, got str"),
        ("", {"admissible_actions": ["go", 3]}, "holds 3"),
    ],
)
def test_a_wrong_type_is_named(text: object, info: dict[str, object], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        to_observation(text, info)


@pytest.mark.parametrize("reward", [float("nan"), float("-inf"), 1.1e30, np.float32(-1e31)])
def test_a_reward_that_cannot_be_learned_from_is_refused(reward: float) -> None:
    with pytest.raises(ValueError, match=r"reward must be .*, got"):
        to_step_result("", reward, terminated=False, truncated=False, info={})


def test_an_episode_that_ends_in_two_ways_is_refused() -> None:
    with pytest.raises(ValueError, match="both terminated and truncated"):
        to_step_result("", 1.0, terminated=np.bool_(True), truncated=np.bool_(True), info={})


class Brief(gymnasium.Env[str, str]):
    """Is solved by its third step."""

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        self.num_steps = 0
        return "", {}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        self.num_steps += 1
        return "", 0.0, self.num_steps == 3, False, {}


gymnasium.register(  # pyright: ignore[reportUnknownMemberType]
    id="tests/Brief-v0", entry_point=f"{__name__}:Brief"
)


@pytest.mark.parametrize(("limit", "end"), [(2, (False, True)), (3, (True, False))])
def test_gymnasiums_time_limit_cuts_off_no_step_that_ends_the_task(
    limit: int, end: tuple[bool, bool]
) -> None:
    options = {"max_episode_steps": limit}
    environment = GymEnvironmentSpec(environment_id="tests/Brief-v0", options=options).make()
    environment.reset()
    for _ in range(limit - 1):
        assert environment.step("")[2:4] == (False, False)
    assert environment.step("")[2:4] == end


HEADS: list[tuple[bytes, MediaType]] = [
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff\xe0", "image/jpeg"),
    (b"RIFF\x10\x00\x00\x00WEBP", "image/webp"),
]


@pytest.mark.parametrize(("head", "media_type"), HEADS)
def test_a_picture_is_known_by_its_first_bytes(head: bytes, media_type: MediaType) -> None:
    data = head + b"\x00rest"
    observation = to_observation({"text": "room", "picture": data}, {})
    assert observation.text == "room"
    assert observation.pictures == (Picture.of(data, media_type=media_type),)
    assert observation.pictures[0].data == data


def test_a_dictionary_without_a_picture_is_its_text() -> None:
    for seen in ({"text": "room"}, {"text": "room", "picture": None}):
        assert to_observation(seen, {}) == to_observation("room", {})


def test_bytes_that_are_no_picture_are_refused() -> None:
    with pytest.raises(ValueError, match=r"PNG, JPEG or WebP.*b'GIF89a"):
        to_observation({"text": "", "picture": b"GIF89a"}, {})


def test_a_picture_goes_through_the_wire_of_a_worker_as_it_is() -> None:
    data = bytes(range(256))
    seen = to_observation({"text": "room", "picture": HEADS[0][0] + data}, {})
    read = OBSERVATION.validate_json(OBSERVATION.dump_json(seen))
    assert read == seen
    assert read.pictures[0].data == HEADS[0][0] + data
