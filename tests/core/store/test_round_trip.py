"""Any episode comes back from the store as it was played."""

from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy.orm import Session

from longhaul_core.store import StoreWriter, queries, read_only_engine
from longhaul_core.store.queries import CallDetail, EpisodeDetail, PromptMessage, StoredPicture
from longhaul_core.types import (
    Call,
    Continuation,
    CreditedBy,
    FinishReason,
    Message,
    Observation,
    Picture,
    SampledTokens,
    Sampling,
    Split,
    Step,
    StopReason,
    Task,
    Tool,
    ToolCall,
    Trajectory,
)
from pictures import png
from store_samples import make_record, run_started

texts = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=60)
numbers = st.floats(-1e9, 1e9)
seconds = st.floats(0, 1e6)
seeds = st.integers(0, 2**63 - 1)
names = st.sampled_from(["", "act", "plan", "worker"])
pictures = st.sampled_from([Picture.of(png(color)) for color in ("red", "green")])
tool_lists = st.lists(st.builds(Tool, name=texts, description=texts, parameters=texts), max_size=3)
LOOK = ToolCall(id="call-1", name="look", arguments='{"at": "map"}')
WALK = ToolCall(id="call-2", name="walk", arguments='{"to": "north"}')
tool_calls = st.lists(
    st.builds(ToolCall, id=texts, name=texts, arguments=texts), max_size=2
) | st.lists(st.sampled_from([LOOK, WALK]), min_size=1, max_size=2)
THOUGHTS = "I look at the map.\nThen I go to the north."


def tuples(elements: st.SearchStrategy[Any], *, most: int = 3) -> st.SearchStrategy[Any]:
    return st.lists(elements, max_size=most).map(tuple)


@st.composite
def messages(draw: st.DrawFn) -> Message:
    role = draw(st.sampled_from(["system", "user", "assistant", "tool"]))
    mixed = st.lists(texts | pictures, min_size=2, max_size=3) | st.lists(
        pictures, min_size=1, max_size=1
    )
    fields: dict[str, Any] = {"role": role, "content": draw(texts | mixed.map(tuple))}
    if role == "assistant":
        fields["tool_calls"] = tuple(draw(tool_calls))
        fields["reasoning"] = draw(texts | st.just(THOUGHTS))
    if role == "tool":
        fields["tool_call_id"] = draw(texts)
    return Message(**fields)


@st.composite
def samplings(draw: st.DrawFn) -> Sampling:
    altered = draw(st.dictionaries(st.sampled_from(["top_k", "logit_bias", "min_p"]), texts))
    return Sampling(
        seed=draw(seeds),
        temperature=draw(seconds),
        top_p=draw(st.floats(0, 1)),
        max_tokens=draw(st.integers(1, 10_000)),
        stop=draw(tuples(texts)),
        altered=tuple(sorted(altered.items())),
    )


@st.composite
def calls(draw: st.DrawFn, shown: list[Message], tools: list[Tool]) -> Call:
    """Prompts begin alike, as those of an episode do."""
    tokens = draw(tuples(st.integers(0, 150_000), most=8))
    sampled = SampledTokens(
        prompt_tokens=tuple(range(draw(st.integers(0, 40)))) + draw(tuples(st.integers(0, 99))),
        action_tokens=tokens,
        behavior_logprobs=tuple(draw(st.floats(-50, 0, width=32)) for _ in tokens),
        policy_version=draw(st.integers(0, 1000)),
    )
    ours = draw(st.booleans())
    return Call(
        messages=tuple(shown[: draw(st.integers(0, len(shown)))])
        + draw(tuples(messages(), most=1)),
        reply=draw(texts | st.just(f"<think>\n{THOUGHTS}\n</think>\n\ngo north")),
        sampled=sampled if ours else None,
        purpose=draw(names),
        agent=draw(names),
        model=draw(texts),
        finish_reason=draw(st.sampled_from(FinishReason)),
        tools=tuple(tools[: draw(st.integers(0, len(tools)))]),
        tool_calls=tuple(draw(tool_calls)),
        conversation=draw(st.integers(0, 3)),
        continuation=draw(st.none() | st.sampled_from(Continuation)),
        sampling=draw(st.none() | samplings()),
        cost_usd=draw(st.none() | st.floats(0, 100)),
        trained=ours and draw(st.booleans()),
        credit_share=draw(numbers),
        credited_by=draw(st.sampled_from(CreditedBy)),
        dropped_exchanges=draw(st.integers(0, 9)),
        num_cached_tokens=draw(st.none() | st.integers(0, 9)),
        queue_seconds=draw(seconds),
        generate_seconds=draw(seconds),
    )


@st.composite
def observations(draw: st.DrawFn, *, last: bool = False) -> Observation:
    return Observation(
        text=draw(texts),
        pictures=draw(tuples(pictures, most=2)),
        admissible_actions=None if last else draw(st.none() | tuples(texts)),
        anchor_state=None if last else draw(st.none() | texts),
    )


@st.composite
def trajectories(draw: st.DrawFn) -> Trajectory:
    shown, tools = draw(st.lists(messages(), max_size=5)), draw(tool_lists)
    return Trajectory(
        task=Task(
            environment=draw(texts),
            version=draw(texts),
            data_hash=draw(texts),
            task_id=draw(texts),
            seed=draw(seeds),
            split=draw(st.sampled_from(Split)),
            data=draw(texts),
        ),
        sample_index=draw(st.integers(0, 99)),
        seed=draw(seeds),
        horizon=50,
        steps=tuple(
            Step(
                index=index,
                observation=draw(observations()),
                calls=draw(tuples(calls(shown, tools))),
                action=draw(texts),
                action_valid=draw(st.booleans()),
                reward=draw(numbers),
                environment_seconds=draw(seconds),
            )
            for index in range(draw(st.integers(1, 4)))
        ),
        stop_reason=draw(st.sampled_from(StopReason)),
        success=draw(st.booleans()),
        final_observation=draw(observations(last=True)),
        started_at=draw(seconds),
        duration_seconds=draw(seconds),
    )


def played(episode: EpisodeDetail, *, version: str, data_hash: str) -> Trajectory:
    """The trajectory that the store's answer is of; the answer has no hash of the data."""
    summary = episode.summary
    assert summary.stop_reason is not None
    assert summary.success is not None
    assert episode.final_observation is not None
    assert episode.environment_version == version
    return Trajectory(
        task=Task(
            environment=summary.environment,
            version=version,
            data_hash=data_hash,
            task_id=summary.task_id,
            seed=episode.task_seed,
            split=Split(summary.split),
            data=episode.task_data,
        ),
        sample_index=summary.sample_index,
        seed=episode.seed,
        horizon=summary.horizon,
        steps=tuple(
            Step(
                index=step.step_index,
                observation=Observation(
                    text=step.observation or "",
                    pictures=tuple(map(picture_of, step.pictures)),
                    admissible_actions=step.admissible_actions,
                    anchor_state=step.anchor_state,
                ),
                calls=tuple(map(call_of, step.calls)),
                action=step.action,
                action_valid=step.action_valid,
                reward=step.reward,
                environment_seconds=step.environment_seconds,
            )
            for step in episode.steps
        ),
        stop_reason=StopReason(summary.stop_reason),
        success=summary.success,
        final_observation=Observation(
            text=episode.final_observation,
            pictures=tuple(map(picture_of, episode.final_pictures)),
        ),
        started_at=summary.started_at,
        duration_seconds=summary.duration_seconds,
    )


def call_of(call: CallDetail) -> Call:
    same = [
        "purpose",
        "agent",
        "model",
        "tools",
        "tool_calls",
        "conversation",
        "sampling",
        "overridden",
        "cost_usd",
        "trained",
        "credit_share",
        "credited_by",
        "dropped_exchanges",
        "recalled_steps",
        "num_cached_tokens",
        "queue_seconds",
        "generate_seconds",
    ]
    fields: dict[str, Any] = {name: getattr(call, name) for name in same}
    assert call.reply is not None
    sampled = None
    if call.tokens is not None and call.policy_version is not None:
        sampled = SampledTokens(
            prompt_tokens=call.tokens.prompt_tokens,
            action_tokens=call.tokens.action_tokens,
            behavior_logprobs=call.tokens.behavior_logprobs,
            policy_version=call.policy_version,
        )
    return Call(
        messages=tuple(map(message_of, call.messages)),
        reply=call.reply,
        sampled=sampled,
        finish_reason=FinishReason(call.finish_reason),
        continuation=None if call.continuation is None else Continuation(call.continuation),
        **fields,
    )


def message_of(message: PromptMessage) -> Message:
    parts = tuple(
        picture_of(part) if isinstance(part, StoredPicture) else part for part in message.parts
    )
    [*_, last] = parts
    return Message(
        role=message.role,
        content=last if len(parts) == 1 and isinstance(last, str) else parts,
        tool_calls=message.tool_calls,
        tool_call_id=message.tool_call_id,
        reasoning=message.reasoning,
    )


def picture_of(picture: StoredPicture) -> Picture:
    return Picture(media_type=picture.media_type, content_hash=picture.content_hash)


places = count()


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[StoreWriter, Session]]:
    path = tmp_path_factory.mktemp("stored") / "store.db"
    with StoreWriter(path) as writer:
        writer.write([run_started()])
        engine = read_only_engine(path)
        with Session(engine) as session:
            yield writer, session
        engine.dispose()


@settings(max_examples=50, deadline=None)
@given(made=trajectories())
def test_any_trajectory_comes_back_equal(
    stored: tuple[StoreWriter, Session], made: Trajectory
) -> None:
    writer, session = stored
    record = make_record(made, group_index=next(places))
    writer.write([record])

    found = queries.get_episode(session, episode_id=record.episode_id)
    session.rollback()
    task = made.task
    assert played(found, version=task.version, data_hash=task.data_hash) == made
