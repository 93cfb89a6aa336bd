"""Tests for `longhaul_core.rollout.packed_calls`: a call in little memory."""

import math
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longhaul_core.rollout.packed_calls import LARGEST_TOKEN, PackedCall
from longhaul_core.types import Call, Message, SampledTokens

tokens = st.lists(st.integers(0, LARGEST_TOKEN)).map(tuple)


@given(tokens, st.lists(st.tuples(st.integers(0, LARGEST_TOKEN), st.floats(max_value=0.0))))
def test_a_call_comes_back_as_it_was(
    prompt: tuple[int, ...], reply: list[tuple[int, float]]
) -> None:
    call = Call(
        messages=(Message(role="user", content="hello"),),
        reply="hi",
        sampled=SampledTokens(
            prompt_tokens=prompt,
            action_tokens=tuple(token for token, _ in reply),
            behavior_logprobs=tuple(logprob for _, logprob in reply),
            policy_version=3,
        ),
        conversation=2,
    )
    assert PackedCall(call).whole() == call


@pytest.mark.parametrize("trained", [True, False])
def test_it_is_known_whether_a_call_is_trained(trained: bool) -> None:
    sampled = SampledTokens(
        prompt_tokens=(1,), action_tokens=(2,), behavior_logprobs=(-1.0,), policy_version=0
    )
    call = Call(messages=(), reply="", sampled=sampled, trained=trained)
    assert (PackedCall(call).trained, PackedCall(call).whole().trained) == (trained, trained)


def test_a_call_of_a_hosted_model_has_no_tokens() -> None:
    call = Call(messages=(), reply="hi", sampled=None, trained=False)
    assert PackedCall(call).tokens is None
    assert PackedCall(call).whole() == call


def test_a_kept_call_takes_little_more_than_its_packed_numbers() -> None:
    def call(number: int) -> Call:
        sampled = SampledTokens(
            prompt_tokens=tuple(range(1000 * number, 1000 * number + 4000)),
            action_tokens=tuple(range(1000 * number, 1000 * number + 300)),
            behavior_logprobs=tuple(-math.sqrt(number + place) for place in range(300)),
            policy_version=0,
        )
        return Call(messages=(), reply="", sampled=sampled)

    tracemalloc.start()
    try:
        kept = [PackedCall(call(number)) for number in range(20)]
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    packed = 4 * 4300 + 8 * 300
    assert taken / len(kept) < 1.1 * packed
