"""What a summary memory asks for, keeps and shows."""

from typing import Any

import pytest

from longhaul_core.errors import ConfigError
from longhaul_core.memory import PromptTemplate, SummaryMemory
from longhaul_core.types import Message, Observation
from memories import Model, taken_in

TEMPLATE = PromptTemplate(system="You walk.", summary_request="Sum up.")


def summary_memory(*, size: int = 1, every: int = 2, trained: bool = False) -> SummaryMemory:
    return SummaryMemory(
        size=size, every=every, template=TEMPLATE, max_summary_tokens=5, trained=trained
    )


def walked(memory: SummaryMemory, model: Model, *, num_rooms: int) -> None:
    for number in range(num_rooms):
        taken_in(memory, Observation(text=f"room {number}"), action=f"go {number}", model=model)


def shown(memory: SummaryMemory) -> str:
    return memory.compose(Observation(text="here"))[-1].text


def test_the_oldest_exchanges_and_the_summary_before_make_the_next_summary() -> None:
    memory, model = summary_memory(), Model()
    walked(memory, model, num_rooms=2)
    assert not model.prompts
    assert shown(memory) == "Past:\nroom 0\n> go 0\nroom 1\n> go 1\nNow:\nhere"

    walked(memory, model, num_rooms=1)  # the third exchange
    assert shown(memory) == "Summary:\nsummary 001\nPast:\nroom 0\n> go 0\nNow:\nhere"

    walked(memory, model, num_rooms=2)
    assert [prompt[-1].text for prompt in model.prompts] == [
        "Past:\nroom 0\n> go 0\nroom 1\n> go 1\nSum up.",
        "Summary:\nsummary 001\nPast:\nroom 0\n> go 0\nroom 0\n> go 0\nSum up.",
    ]
    assert model.prompts[0][0] == Message(role="system", content="You walk.")
    assert shown(memory).startswith("Summary:\nsummary 002\nPast:\nroom 1\n> go 1\nNow:")


def test_a_summary_has_its_own_length_and_is_trained_if_the_run_says_so() -> None:
    for trained in (False, True):
        model = Model()
        walked(summary_memory(trained=trained), model, num_rooms=3)
        assert (model.longest, model.trained) == ([5], [trained])


@pytest.mark.parametrize("reply", ["", "  \n", "<think>what was it", "<think>nothing</think> "])
def test_a_reply_without_a_summary_leaves_the_one_before(reply: str) -> None:
    memory, model = summary_memory(), Model(["Lost.", reply])
    walked(memory, model, num_rooms=5)
    assert len(model.prompts) == 2
    assert shown(memory).startswith("Summary:\nLost.\nPast:")


def test_what_the_model_thinks_aloud_is_no_part_of_the_summary() -> None:
    memory, model = summary_memory(), Model(["<think>hm, a hall</think>\nLost."])
    walked(memory, model, num_rooms=3)
    assert shown(memory).startswith("Summary:\nLost.\nPast:")


@pytest.mark.parametrize("name", ["size", "every", "max_summary_tokens"])
def test_a_number_below_one_is_refused(name: str) -> None:
    numbers: dict[str, Any] = {"size": 1, "every": 1, "max_summary_tokens": 1, name: 0}
    with pytest.raises(ConfigError, match=f"needs {name} of at least 1, got 0"):
        SummaryMemory(template=TEMPLATE, **numbers)
