"""Tests for `longhaul_core.store.token_stream`."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import Engine, text
from sqlalchemy.orm import Session

from longhaul_core.errors import StoreError
from longhaul_core.store import StoreWriter, queries
from longhaul_core.store.token_stream import Stream, TokenReader, TokenWriter
from longhaul_core.types import SampledTokens
from store_samples import make_program, make_record, make_trajectory, run_started

token_ids = st.lists(st.integers(-(2**31), 2**31 - 1), max_size=40).map(tuple)
streams = st.builds(
    Stream, st.sampled_from(["", "walker"]), st.sampled_from(["act", "plan"]), st.integers(0, 2)
)
ACT = Stream("", "act", 0)


class Packed(NamedTuple):
    """A call of an episode, and how it is stored."""

    sampled: SampledTokens
    stream: Stream
    num_shared: int
    blob: bytes


def packed(
    calls: Sequence[tuple[tuple[int, ...], tuple[int, ...], Stream]],
) -> list[Packed]:
    writer = TokenWriter()
    found: list[Packed] = []
    for prompt, reply, stream in calls:
        sampled = SampledTokens(
            prompt_tokens=prompt,
            action_tokens=reply,
            behavior_logprobs=(-0.5,) * len(reply),
            policy_version=0,
        )
        num_shared, blob = writer.packed(sampled, stream=stream)
        found.append(Packed(sampled, stream, num_shared, blob))
    return found


def read(calls: Sequence[Packed]) -> list[tuple[tuple[int, ...], tuple[int, ...]] | None]:
    """Prompt and reply of each, put together as the naive definition says."""
    reader = TokenReader()
    last: dict[tuple[str, str, int] | tuple[str, str], tuple[int, ...]] = {}
    found: list[tuple[tuple[int, ...], tuple[int, ...]] | None] = []
    for number, call in enumerate(calls):
        counts = (
            len(call.sampled.prompt_tokens) - call.num_shared,
            len(call.sampled.action_tokens),
        )
        parts = reader.read(call.blob, counts=counts, call=f"call {number}")
        assert parts is not None
        others, reply = (tuple(np.frombuffer(part, "<i4").tolist()) for part in parts)
        agent, purpose, _ = stream = call.stream
        before = last.get(stream, last.get((agent, purpose), ()))
        last[stream] = last[agent, purpose] = prompt = before[: call.num_shared] + others
        found.append((prompt, reply))
    return found


@given(st.lists(st.tuples(token_ids, token_ids, streams), max_size=8))
def test_any_tokens_come_back_exactly(
    calls: list[tuple[tuple[int, ...], tuple[int, ...], Stream]],
) -> None:
    assert read(packed(calls)) == [(prompt, reply) for prompt, reply, _ in calls]


def test_an_empty_prompt_one_token_and_a_million_come_back() -> None:
    many = tuple(range(1_000_000))
    calls = [((), (), ACT), ((7,), (), ACT), (many, many[::-1], ACT)]
    assert read(packed(calls)) == [(prompt, reply) for prompt, reply, _ in calls]


def test_what_a_window_repeats_at_another_place_takes_a_tenth() -> None:
    draw = np.random.default_rng(0)
    seen = [tuple(draw.integers(0, 151_936, 300).tolist()) for _ in range(50)]
    prompts = [
        tuple(token for part in seen[max(0, index - 5) : index + 1] for token in part)
        for index in range(50)
    ]
    blobs = [call.blob for call in packed([(prompt, (), ACT) for prompt in prompts])]

    plain = 4 * sum(len(prompt) for prompt in prompts)
    assert sum(map(len, blobs)) < plain / 7  # one part of six is new, and takes half of its bytes


@given(st.data())
def test_no_damaged_byte_is_read_as_a_token(data: st.DataObject) -> None:
    calls = packed([((1, 2, 3, 4), (5, 6), ACT), ((1, 2, 9), (7,), ACT)])
    damaged = data.draw(st.integers(0, 1), label="call")
    blob = bytearray(calls[damaged].blob)
    place = data.draw(st.integers(0, len(blob) - 1), label="byte")
    blob[place] ^= data.draw(st.integers(1, 255), label="bits")
    calls[damaged] = calls[damaged]._replace(blob=bytes(blob))

    with pytest.raises(StoreError, match=f"the tokens of call {damaged} are damaged"):
        read(calls)


def test_a_block_whose_predecessor_is_another_is_not_read() -> None:
    first, second = packed([((1, 2, 3, 4), (5, 6), ACT), ((1, 2), (5, 6), ACT)])
    with pytest.raises(StoreError, match=r"the tokens of call 0 (cannot be read|are)"):
        read([second, first])


def test_after_pruned_tokens_none_are_read() -> None:
    _, second = packed([((1, 2, 3), (4,), ACT), ((1, 2, 3, 5), (6,), ACT)])
    reader = TokenReader()
    assert reader.read(None, counts=(3, 1), call="call 0") is None
    assert reader.read(second.blob, counts=(1, 1), call="call 1") is None


def test_damage_in_a_store_is_an_error_that_names_the_call(
    writer: StoreWriter, opened: Engine, session: Session
) -> None:
    writer.write([run_started(), make_record(make_program())])
    writer.write([make_record(make_trajectory(sample_index=1))])
    with opened.begin() as connection:
        where = "WHERE episode_id = 'run/0/train/1/0/0/0' AND step_index = 1"
        blob = connection.scalar(text(f"SELECT tokens FROM call_tokens {where}"))
        connection.execute(
            text(f"UPDATE call_tokens SET tokens = :blob {where}"), {"blob": bytes(blob[:-1])}
        )

    with pytest.raises(StoreError, match="call 0 of step 1 of run/0/train/1/0/0/0 are damaged"):
        queries.get_episode(session, episode_id="run/0/train/1/0/0/0")
    without = queries.get_episode(session, episode_id="run/0/train/1/0/0/0", tokens=False)
    assert without.steps[1].calls[0].reply == "go north"
    assert queries.get_episode(session, episode_id="run/0/train/1/0/1/0").steps[0].calls[0].tokens
