"""Which exchanges a memory of key events shows again."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longhaul_core.errors import ConfigError
from longhaul_core.memory import KeyEventsMemory, PromptTemplate
from longhaul_core.types import Observation, Picture
from memories import taken_in

TEMPLATE = PromptTemplate(system="You walk.")
HERE = Observation(text="here")


def key_events(*, size: int = 1, max_earlier: int = 2) -> KeyEventsMemory:
    return KeyEventsMemory(size=size, max_earlier=max_earlier, template=TEMPLATE)


def after(memory: KeyEventsMemory, *seen: Observation | str) -> KeyEventsMemory:
    """The memory after exchanges whose actions are numbered."""
    for number, what in enumerate(seen):
        observation = Observation(text=what) if isinstance(what, str) else what
        taken_in(memory, observation, action=f"do {number}")
    return memory


def shown(memory: KeyEventsMemory, *, drop: int = 0) -> str:
    return memory.compose(HERE, drop=drop)[-1].text


def test_what_repeats_pushes_nothing_out_and_what_is_new_pushes_out_the_oldest() -> None:
    # Hall and cave are new, then the agent goes back and forth, then the sea is new.
    seen = ["hall", "cave", "hall", "cave", "hall"]
    assert shown(after(key_events(), *seen)) == (
        "Earlier:\nhall\n> do 0\ncave\n> do 1\nPast:\nhall\n> do 4\nNow:\nhere"
    )
    memory = after(key_events(), *seen, "sea", "hall")
    assert shown(memory) == ("Earlier:\ncave\n> do 1\nsea\n> do 5\nPast:\nhall\n> do 6\nNow:\nhere")
    assert [shown(memory, drop=drop) for drop in (1, 2, 3)] == [
        "Earlier:\nsea\n> do 5\nPast:\nhall\n> do 6\nNow:\nhere",
        "Past:\nhall\n> do 6\nNow:\nhere",
        "here",
    ]


def test_actions_and_pictures_make_a_state_new_and_the_order_of_actions_does_not() -> None:
    def room(*actions: str, picture: bytes = b"dark") -> Observation:
        return Observation(
            text="A room.", admissible_actions=actions, pictures=(Picture.of(picture),)
        )

    seen = [room("up", "down"), room("down", "up"), room("up"), room("up", picture=b"lit")]
    memory = after(key_events(max_earlier=9), *seen, "end")
    assert [f"> do {number}\n" in shown(memory) for number in range(4)] == [True, False, True, True]


def test_the_anchor_state_which_nobody_is_shown_makes_nothing_new() -> None:
    seen = [Observation(text="A room.", anchor_state=state) for state in ("a", "b")]
    assert "> do 1\n" not in shown(after(key_events(), *seen, "end"))


@given(
    seen=st.lists(st.sampled_from("abcde"), max_size=12),
    size=st.integers(1, 4),
    max_earlier=st.integers(1, 4),
)
def test_it_shows_what_the_definition_says(seen: list[str], size: int, max_earlier: int) -> None:
    memory = after(key_events(size=size, max_earlier=max_earlier), *seen)

    before, last = list(enumerate(seen))[:-size], list(enumerate(seen))[-size:]
    events = [(place, what) for place, what in before if what not in seen[:place]][-max_earlier:]
    assert memory.num_remembered == len(events) + len(last)
    for drop in range(memory.num_remembered + 1):
        kept = [f"{what}\n> do {place}" for place, what in [*events, *last][drop:]]
        lines = shown(memory, drop=drop).replace("Earlier:\n", "").replace("Past:\n", "")
        assert lines == "\n".join([*kept, "Now:", "here"] if kept else ["here"])


@pytest.mark.parametrize("name", ["size", "max_earlier"])
def test_a_number_below_one_is_refused(name: str) -> None:
    numbers: dict[str, Any] = {"size": 1, "max_earlier": 1, name: 0}
    with pytest.raises(ConfigError, match=f"needs {name} of at least 1, got 0"):
        key_events(**numbers)
