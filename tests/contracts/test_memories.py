"""What every memory promises, held against each of them."""

import os
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longhaul_core.memory import MEMORIES, Memory, PromptTemplate, build_memory
from longhaul_core.types import Message, Observation

TEMPLATE = PromptTemplate(system="You craft.", instruction="Write one action.")
KINDS = [*MEMORIES, *os.environ.get("LONGHAUL_MEMORIES", "").split()]
"""The built-in memories, and those of one's own: `LONGHAUL_MEMORIES=my_module:MyMemory`."""
Build = Callable[[], Memory]


@pytest.fixture(params=KINDS)
def build(request: pytest.FixtureRequest) -> Build:
    return lambda: build_memory(request.param, size=3, template=TEMPLATE)


def seen(number: int) -> Observation:
    return Observation(text=f"room {number:03}", admissible_actions=("left", "right"))


def after(memory: Memory, num_exchanges: int) -> Memory:
    for number in range(num_exchanges):
        memory.write(observation=seen(number), reply=f"reply {number:03}", action=f"do {number:03}")
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
    assert prompts[-1] == build().compose(seen(9))
    if memory.num_remembered > 1:
        everything = " ".join(message.text for message in prompts[1])
        oldest = 5 - memory.num_remembered
        assert f"room {oldest:03}" not in everything
        assert f"room {oldest + 1:03}" in everything


def test_dropping_more_than_there_is_is_refused(build: Build) -> None:
    memory = after(build(), 2)
    with pytest.raises(ValueError, match=str(memory.num_remembered + 1)):
        memory.compose(seen(0), drop=memory.num_remembered + 1)
    with pytest.raises(ValueError, match="-1"):
        memory.compose(seen(0), drop=-1)


@pytest.mark.parametrize("kind", ["none", "window"])
@given(size=st.integers(1, 6), extra=st.integers(0, 60))
def test_the_prompt_of_a_bounded_memory_does_not_grow_with_the_step(
    kind: str, size: int, extra: int
) -> None:
    template = PromptTemplate()
    at_window = after(build_memory(kind, size=size, template=template), size)
    later = after(build_memory(kind, size=size, template=template), size + extra)
    assert length(later.compose(seen(99))) == length(at_window.compose(seen(99)))
    assert later.num_remembered <= size


def test_full_history_extends_the_earlier_prompt_by_the_reply_as_it_was() -> None:
    memory = build_memory("full", template=PromptTemplate(reply_prefix="<action>"))
    earlier = memory.compose(seen(0))
    memory.write(observation=seen(0), reply="left</action> \n", action="left")
    later = memory.compose(seen(1))
    assert later[: len(earlier)] == earlier
    assert later[len(earlier)] == Message(role="assistant", content="<action>left</action> \n")
