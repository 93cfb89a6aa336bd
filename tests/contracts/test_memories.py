"""What every memory promises, held against each of them."""

import os
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longhaul_core.memory import MEMORIES, Memory, PromptTemplate, build_memory
from longhaul_core.types import Message, Observation
from memories import Model, taken_in

TEMPLATE = PromptTemplate(system="You craft.", instruction="Write one action.")
KINDS = [*MEMORIES, *os.environ.get("LONGHAUL_MEMORIES", "").split()]
"""The built-in memories, and those of one's own: `LONGHAUL_MEMORIES=my_module:MyMemory`."""
Build = Callable[[], Memory]


@pytest.fixture(params=KINDS)
def build(request: pytest.FixtureRequest) -> Build:
    return lambda: build_memory(request.param, size=3, summarize_every=2, template=TEMPLATE)


def seen(number: int) -> Observation:
    return Observation(text=f"room {number:03}", admissible_actions=("left", "right"))


def after(memory: Memory, num_exchanges: int) -> Memory:
    model = Model()
    for number in range(num_exchanges):
        taken_in(
            memory,
            seen(number),
            reply=f"reply {number:03}",
            action=f"do {number:03}",
            model=model,
        )
    return memory


def length(messages: tuple[Message, ...]) -> int:
    return sum(len(message.text) for message in messages)


def test_a_prompt_is_a_system_message_and_turns_that_end_with_the_observation(build: Build) -> None:
    for num_exchanges in range(6):
        messages = after(build(), num_exchanges).compose(seen(99))
        assert messages[0] == Message(role="system", content="You craft.")
        roles = [message.role for message in messages[1:]]
        assert roles == ["user", "assistant"] * (len(roles) // 2) + ["user"]
        assert messages[-1].text.endswith("room 099\nActions: left | right\nWrite one action.")


@pytest.mark.parametrize("kind", KINDS)
def test_an_instruction_in_the_system_message_is_in_no_other(kind: str) -> None:
    template = replace(TEMPLATE, instruction_place="system")
    memory = build_memory(kind, size=3, summarize_every=2, template=template)

    for num_exchanges in range(6):
        messages = after(memory, num_exchanges).compose(seen(99))
        assert messages[0] == Message(role="system", content="You craft.\nWrite one action.")
        assert not any("Write one action." in message.text for message in messages[1:])
        assert messages[-1].text.endswith("room 099\nActions: left | right")


def test_composing_changes_nothing(build: Build) -> None:
    memory = after(build(), 5)
    first = memory.compose(seen(9))
    if memory.num_remembered:
        memory.compose(seen(8), drop=1)
    assert memory.compose(seen(9)) == first


def test_two_memories_share_nothing(build: Build) -> None:
    used, fresh = build(), build()
    after(used, 4)
    assert fresh.num_remembered == 0
    assert fresh.compose(seen(0)) == build().compose(seen(0))


def test_dropping_leaves_out_the_oldest_and_never_lengthens_the_prompt(build: Build) -> None:
    memory = after(build(), 5)
    prompts = [memory.compose(seen(9), drop=drop) for drop in range(memory.num_remembered + 1)]
    lengths = [length(prompt) for prompt in prompts]
    assert lengths == sorted(lengths, reverse=True)
    assert len(set(lengths)) == len(lengths)
    if memory.num_remembered > 1:
        everything = " ".join(message.text for message in prompts[1])
        oldest = 5 - memory.num_remembered
        assert f"room {oldest:03}" not in everything
        assert f"room {oldest + 1:03}" in everything


@pytest.mark.parametrize("kind", [kind for kind in MEMORIES if kind != "summary"])
def test_what_drops_everything_shows_what_a_fresh_memory_does(kind: str) -> None:
    memory = after(build_memory(kind, size=3, template=TEMPLATE), 5)
    fresh = build_memory(kind, size=3, template=TEMPLATE)
    assert memory.compose(seen(9), drop=memory.num_remembered) == fresh.compose(seen(9))


def test_a_summary_is_what_is_left_of_a_prompt_that_drops_everything() -> None:
    memory = after(build_memory("summary", size=3, summarize_every=2, template=TEMPLATE), 5)
    *_, asked = memory.compose(seen(9), drop=memory.num_remembered)
    *_, fresh = build_memory("summary", size=3, summarize_every=2, template=TEMPLATE).compose(
        seen(9)
    )
    assert asked.text == f"Summary:\nsummary 001\nNow:\n{fresh.text}"


def test_dropping_more_than_there_is_is_refused(build: Build) -> None:
    memory = after(build(), 2)
    with pytest.raises(ValueError, match=str(memory.num_remembered + 1)):
        memory.compose(seen(0), drop=memory.num_remembered + 1)
    with pytest.raises(ValueError, match="-1"):
        memory.compose(seen(0), drop=-1)


@pytest.mark.parametrize("kind", [kind for kind in MEMORIES if kind != "full"])
@given(size=st.integers(1, 6), more=st.integers(1, 4), extra=st.integers(0, 60))
def test_the_prompt_of_a_bounded_memory_does_not_grow_with_the_step(
    kind: str, size: int, more: int, extra: int
) -> None:
    def made() -> Memory:
        return build_memory(
            kind, size=size, summarize_every=more, max_earlier=more, template=TEMPLATE
        )

    full = {"none": 0, "window": size, "summary": size + more - 1}.get(kind, size + more)
    # A summary's prompt is longest before the next summary.
    at_window = after(made(), full + (more if kind == "summary" else 0))
    later = after(made(), full + extra)
    assert length(later.compose(seen(99))) <= length(at_window.compose(seen(99)))
    if kind != "summary":
        assert length(later.compose(seen(99))) == length(at_window.compose(seen(99)))
    assert later.num_remembered <= full


def test_full_history_extends_the_earlier_prompt_by_the_reply_as_it_was() -> None:
    memory = build_memory("full", template=PromptTemplate(reply_prefix="<action>"))
    earlier = memory.compose(seen(0))
    taken_in(memory, seen(0), reply="left</action> \n", action="left")
    later = memory.compose(seen(1))
    assert later[: len(earlier)] == earlier
    assert later[len(earlier)] == Message(role="assistant", content="<action>left</action> \n")
