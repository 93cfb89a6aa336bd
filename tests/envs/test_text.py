"""Tests for `longhaul_envs.text`: the space of a text environment."""

from typing import Any

import gymnasium
import pytest
from gymnasium.spaces import Text, Tuple
from gymnasium.utils.env_checker import check_env
from gymnasium.vector.utils import batch_space
from hypothesis import given
from hypothesis import strategies as st

from longhaul_envs.text import text_space

PAGE = 'café — 漢字 🙂\n\t<button id="7">Köp</button>\r\n\x0b\u2028 ' * 1000


class Page(gymnasium.Env[str, str]):
    """Shows what a web page may hold."""

    def __init__(self) -> None:
        self.observation_space = self.action_space = text_space()

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed)
        return PAGE, {}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        return PAGE, 0.0, False, False, {}


def test_gymnasiums_checker_passes_an_environment_that_shows_a_web_page() -> None:
    assert len(PAGE) > 8192

    check_env(Page(), skip_render_check=True)


@given(text=st.text(max_size=64))
def test_every_text_without_half_a_surrogate_pair_is_in_the_space(text: str) -> None:
    assert text_space(64).contains(text)


@pytest.mark.parametrize(
    "stranger", ["12345", "\ud83d", b"1", 1, None], ids=["long", "half pair", "bytes", "int", "no"]
)
def test_what_is_no_such_text_is_outside(stranger: object) -> None:
    assert not text_space(4).contains(stranger)


@pytest.mark.parametrize("limit", [1, 4, 1_000_000])
def test_samples_are_in_the_space_and_follow_its_seed(limit: int) -> None:
    space = text_space(limit)
    space.seed(3)
    first = [space.sample() for _ in range(50)]
    space.seed(3)

    assert [space.sample() for _ in range(50)] == first
    assert len(set(first)) > 1
    assert all(space.contains(text) for text in first)


def test_spaces_of_equal_limits_are_equal_and_gymnasium_knows_what_they_are() -> None:
    assert text_space(7) == text_space(7) != text_space(8)
    assert isinstance(text_space(7), Text)
    assert batch_space(text_space(7), 2) == Tuple([text_space(7), text_space(7)])
