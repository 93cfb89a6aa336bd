"""Tests for `longhaul_trainer.training.repeated_tokens`."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longhaul_core.types import Call, Continuation, SampledTokens
from longhaul_trainer.training.repeated_tokens import WINDOW, num_repeated_tokens
from variation import assert_several


def call(
    prompt: Sequence[int], continuation: Continuation | None, reply: Sequence[int] = (7,)
) -> Call:
    return Call(
        messages=(),
        reply="",
        sampled=SampledTokens(
            prompt_tokens=tuple(prompt),
            action_tokens=tuple(reply),
            behavior_logprobs=(-1.0,) * len(reply),
            policy_version=0,
        ),
        continuation=continuation,
    )


def naive(calls: Sequence[Call]) -> list[int]:
    """By the definition: each token of each prompt, with all windows that it lies in."""
    counts: list[int] = []
    earlier: list[tuple[int, ...]] = []
    for one in calls:
        assert one.sampled is not None
        prompt = one.sampled.prompt_tokens
        number = 0
        if one.continuation in (Continuation.FORKED, Continuation.CHANGED):
            shared = 0
            while any(other[: shared + 1] == prompt[: shared + 1] for other in earlier) and (
                shared < len(prompt)
            ):
                shared += 1
            seen = {
                other[first : first + WINDOW]
                for other in earlier
                for first in range(len(other) - WINDOW + 1)
            }
            number = sum(
                any(
                    prompt[first : first + WINDOW] in seen
                    for first in range(max(shared, place - WINDOW + 1), place + 1)
                    if first + WINDOW <= len(prompt)
                )
                for place in range(shared, len(prompt))
            )
        counts.append(number)
        earlier.append((*prompt, *one.sampled.action_tokens))
    return counts


STORY, SECOND = tuple(range(100, 140)), tuple(range(200, 230))


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        ((2, *STORY), 40),  # another first token: all of the story is read again
        ((1, *STORY), 0),  # all at the beginning, where the engine has it
        ((1, *STORY[:10], 5, *STORY[10:]), 30),
        ((2, *STORY[:15]), 0),  # too short to be no chance
        ((2, *STORY[:16]), 16),
        ((2, *SECOND[:16], 3, *STORY[8:]), 16 + 32),  # of the reply, and of the prompt
        ((2, *range(300, 340)), 0),
    ],
)
def test_tokens_behind_another_beginning_are_counted(
    prompt: tuple[int, ...], expected: int
) -> None:
    calls = [
        call((1, *STORY), Continuation.START, SECOND),
        call(prompt, Continuation.CHANGED),
    ]

    assert num_repeated_tokens(calls) == naive(calls) == [0, expected]


@pytest.mark.parametrize(
    "continuation", [None, Continuation.START, Continuation.EXACT, Continuation.REWRITTEN]
)
def test_prompts_that_go_on_or_begin_repeat_nothing(continuation: Continuation | None) -> None:
    calls = [call((1, *STORY), Continuation.START), call((2, *STORY), continuation)]

    assert num_repeated_tokens(calls) == [0, 0]


def test_a_call_whose_tokens_nobody_knows_counts_nothing() -> None:
    hosted = Call(messages=(), reply="", sampled=None, trained=False)

    assert num_repeated_tokens(
        [call((1, *STORY), Continuation.START), hosted, call((2, *STORY), Continuation.FORKED)]
    ) == [0, 0, 40]
    assert num_repeated_tokens([]) == []


PIECES = st.lists(
    st.sampled_from([(1,), (2, 3), STORY, STORY[5:25], SECOND, tuple(range(300, 318))]),
    min_size=1,
    max_size=4,
).map(lambda pieces: tuple(token for piece in pieces for token in piece))


@given(
    st.lists(st.tuples(PIECES, st.sampled_from([*Continuation]), PIECES), min_size=1, max_size=5)
)
def test_the_count_is_that_of_the_definition(
    drawn: list[tuple[tuple[int, ...], Continuation, tuple[int, ...]]],
) -> None:
    calls = [call(prompt, continuation, reply) for prompt, continuation, reply in drawn]

    assert num_repeated_tokens(calls) == naive(calls)


def test_the_examples_vary() -> None:
    calls = [call((place, *STORY[place:]), Continuation.CHANGED) for place in range(1, 9)]

    assert_several(num_repeated_tokens(calls), at_least=5)
