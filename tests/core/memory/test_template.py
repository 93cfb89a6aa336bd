"""The layout of prompts, to the letter."""

import pytest

from longhaul_core.errors import ConfigError
from longhaul_core.memory import PromptTemplate, WindowMemory, build_memory
from longhaul_core.types import Message, Observation

ROOM = Observation(text="A room.", admissible_actions=("left", "right"))


def test_an_empty_template_adds_nothing_but_the_actions() -> None:
    assert build_memory("none", template=PromptTemplate()).compose(ROOM) == (
        Message(role="user", content="A room.\nActions: left | right"),
    )


def test_actions_are_listed_only_if_wanted_and_known() -> None:
    silent = PromptTemplate(list_actions=False)
    assert silent.user_message(ROOM).content == "A room."
    assert PromptTemplate().user_message(Observation(text="A room.")).content == "A room."
    none_left = Observation(text="A room.", admissible_actions=())
    assert PromptTemplate().user_message(none_left).content == "A room.\nActions: "


def test_a_window_shows_the_past_above_the_present() -> None:
    memory = WindowMemory(size=2, template=PromptTemplate(instruction="Act."))
    for place, action in (("Sea.", "down"), ("Hall.", "left"), ("Cave.", "up")):
        memory.write(observation=Observation(text=place), reply="", action=action)
    (message,) = memory.compose(ROOM)
    assert message.content == (
        "Past:\nHall.\n> left\nCave.\n> up\nNow:\nA room.\nActions: left | right\nAct."
    )


@pytest.mark.parametrize(
    ("kind", "size", "message"),
    [
        ("windw", 1, "'windw': must be one of none, window, full, or package.module:name"),
        ("window", 0, "at least 1, got 0"),
    ],
)
def test_an_unknown_kind_and_an_empty_window_are_refused(
    kind: str, size: int, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        build_memory(kind, size=size, template=PromptTemplate())
