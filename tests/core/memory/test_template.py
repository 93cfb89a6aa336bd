"""The layout of prompts, to the letter."""

from dataclasses import replace

import pytest

from longhaul_core.errors import ConfigError
from longhaul_core.memory import MEMORIES, PromptTemplate, WindowMemory, build_memory
from longhaul_core.types import Message, Observation, Picture
from memories import taken_in

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
        taken_in(memory, Observation(text=place), action=action)
    (message,) = memory.compose(ROOM)
    assert message.content == (
        "Past:\nHall.\n> left\nCave.\n> up\nNow:\nA room.\nActions: left | right\nAct."
    )


def test_pictures_follow_the_text_which_stays_as_it_is_without_them() -> None:
    template = PromptTemplate(instruction="Act.")
    map_, view = Picture.of(b"map"), Picture.of(b"view", media_type="image/jpeg")
    shown = replace(ROOM, pictures=(map_, view))

    message = template.user_message(shown, ["Hall.\n> left"])

    text = template.user_message(ROOM, ["Hall.\n> left"]).content
    assert message.content == (text, map_, view)
    assert message.text == text
    assert template.past_line(shown, "left") == template.past_line(ROOM, "left")


def test_the_instruction_may_be_the_end_of_the_system_message() -> None:
    template = PromptTemplate(system="You walk.", instruction="Act.", instruction_place="system")
    assert build_memory("none", template=template).compose(Observation(text="A room.")) == (
        Message(role="system", content="You walk.\nAct."),
        Message(role="user", content="A room."),
    )
    alone = PromptTemplate(instruction="Act.", instruction_place="system")
    assert alone.system_messages() == (Message(role="system", content="Act."),)
    assert PromptTemplate(instruction_place="system").system_messages() == ()


def test_a_summary_is_asked_for_without_the_instruction_of_actions() -> None:
    template = PromptTemplate(
        system="You walk.", instruction="Act.", instruction_place="system", summary_request="Sum."
    )
    system, asked = template.summary_messages(["Hall.\n> left"])
    assert (system.content, asked.content) == ("You walk.", "Past:\nHall.\n> left\nSum.")


def test_a_summary_stands_above_the_past_and_the_present() -> None:
    template = PromptTemplate(system="You walk.", instruction="Act.", summary_request="Sum up.")
    asked = template.user_message(Observation(text="A room."), ["Hall.\n> left"], summary="Lost.")
    assert asked.content == "Summary:\nLost.\nPast:\nHall.\n> left\nNow:\nA room.\nAct."
    alone = template.user_message(Observation(text="A room."), summary="Lost.")
    assert alone.content == "Summary:\nLost.\nNow:\nA room.\nAct."
    assert template.summary_messages(["Hall.\n> left"], summary="Lost.") == (
        Message(role="system", content="You walk."),
        Message(role="user", content="Summary:\nLost.\nPast:\nHall.\n> left\nSum up."),
    )


@pytest.mark.parametrize(
    ("kind", "size", "message"),
    [
        (
            "windw",
            1,
            f"'windw': must be one of {', '.join(MEMORIES)}, or package.module:name",
        ),
        ("window", 0, "at least 1, got 0"),
        ("summary", 0, "size of at least 1, got 0"),
    ],
)
def test_an_unknown_kind_and_an_empty_window_are_refused(
    kind: str, size: int, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        build_memory(kind, size=size, template=PromptTemplate())
