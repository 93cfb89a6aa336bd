"""What a format can hold of an episode comes back from a file of it as it was in the store."""

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from importlib import import_module
from io import BytesIO
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy.orm import Session

from core.exchange.conftest import episodes_of
from longhaul_core.errors import ConfigError
from longhaul_core.exchange import (
    FORMATS,
    FormatName,
    ImportSettings,
    export_episodes,
    format_named,
    import_files,
)
from longhaul_core.store import EpisodeRecord, RunStarted, StoreWriter, open_store
from longhaul_core.store.queries import CallDetail, EpisodeDetail, EpisodeFilter, StoredPicture
from longhaul_core.store.retention import Retention
from longhaul_core.types import Message, Observation, Picture, Step, StopReason, Trajectory
from pictures import png
from steps import one_call_step
from store_samples import (
    make_decisions,
    make_failure,
    make_program,
    make_record,
    make_task,
    make_trajectory,
)

parquet: Any = import_module("pyarrow.parquet")

Reading = Callable[[], AbstractContextManager[Session]]
PREFIX = "The next action is to"

texts = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=40)
instructions = st.lists(texts, max_size=1)
rewards = st.integers(-8, 8).map(lambda number: number / 4)
_numbers = count()


@st.composite
def trajectories(draw: st.DrawFn) -> Trajectory:
    """Of an environment: one call a step, with tokens, prompts of any texts."""
    steps: list[Step] = []
    for index in range(draw(st.integers(1, 4))):
        logprobs = draw(st.lists(st.integers(-64, 0).map(lambda each: each / 16), max_size=4))
        step = one_call_step(
            index,
            Observation(text=draw(texts)),
            messages=(
                *(
                    Message(role="system", content=each)
                    for each in draw(st.lists(texts, max_size=1))
                ),
                Message(role="user", content=draw(texts)),
            ),
            prompt_tokens=tuple(draw(st.lists(st.integers(0, 99), max_size=5))),
            action_tokens=tuple(range(len(logprobs))),
            behavior_logprobs=tuple(logprobs),
            reply=draw(texts),
            action=draw(texts),
            action_valid=draw(st.booleans()),
            reward=draw(rewards),
            policy_version=3,
        )
        steps.append(step)
    return replace(
        make_trajectory(task=make_task(draw(st.integers(0, 2)))),
        steps=tuple(steps),
        success=draw(st.booleans()),
        stop_reason=draw(st.sampled_from(StopReason)),
        final_observation=Observation(text=draw(texts)),
    )


def started(run_id: str, *, prefix: str = "") -> RunStarted:
    return RunStarted(
        run_id=run_id,
        name="x",
        kind="train",
        attempt=0,
        config_json=json.dumps({"prompt": {"reply_prefix": prefix}}),
        provenance_json="{}",
        started_at=0.0,
    )


def recorded(run_id: str, outcomes: list[Trajectory]) -> list[EpisodeRecord]:
    """Episodes of one training step, those of one task in one group."""
    groups: dict[str, list[Trajectory]] = {}
    for outcome in outcomes:
        groups.setdefault(outcome.task.task_id, []).append(outcome)
    return [
        make_record(
            replace(outcome, sample_index=sample_index),
            run_id=run_id,
            training_step=2,
            group_index=group_index,
        )
        for group_index, members in enumerate(groups.values())
        for sample_index, outcome in enumerate(members)
    ]


class Trip:
    """Out of a store and into it again."""

    def __init__(self, writer: StoreWriter, reading: Reading, folder: Path) -> None:
        self.writer, self.reading, self.folder = writer, reading, folder

    def exported(self, run_id: str, name: FormatName, where: EpisodeFilter | None = None) -> bytes:
        format = format_named(name)
        return b"".join(export_episodes(self.reading, run_id=run_id, format=format, where=where))

    def there_and_back(
        self, run_id: str, name: FormatName
    ) -> tuple[list[EpisodeDetail], list[EpisodeDetail]]:
        """Episodes of a run, and of the import of its export."""
        format = format_named(name)
        path = self.folder / f"{run_id}-{name}{format.suffix}"
        path.write_bytes(self.exported(run_id, name))
        back = f"{run_id}-{name}"
        import_files(self.writer, path, ImportSettings(format=format, run_id=back, name=back))
        with self.reading() as session:
            return episodes_of(session, run_id), episodes_of(session, back)


@pytest.fixture
def trip(writer: StoreWriter, reading: Reading, tmp_path: Path) -> Trip:
    return Trip(writer, reading, tmp_path)


def calls_of(episode: EpisodeDetail) -> list[CallDetail]:
    return [call for step in episode.steps for call in step.calls]


EPISODE = (
    *("environment", "task_id", "goal", "split", "phase", "training_step", "success"),
    *("stop_reason", "episode_return", "num_steps", "horizon", "duration_seconds"),
    *("started_at", "sample_index"),
)


def of_episode(episode: EpisodeDetail) -> dict[str, Any]:
    """What every format with facts of its own holds of an episode."""
    summary = episode.summary
    names = [
        "environment",
        "task_id",
        "goal",
        "split",
        "phase",
        "training_step",
        "success",
        "stop_reason",
    ]
    more = [
        "episode_return",
        "num_steps",
        "horizon",
        "duration_seconds",
        "started_at",
        "sample_index",
        "branched_from",
        "branched_at_step",
        "branched_action",
    ]
    found = {name: getattr(summary, name) for name in (*names, *more)}
    return found | {"final": episode.final_observation, "seed": episode.seed}


def of_steps(episode: EpisodeDetail) -> list[dict[str, Any]]:
    names = ["observation", "action", "action_valid", "reward"]
    return [{name: getattr(step, name) for name in names} for step in episode.steps]


def of_calls(episode: EpisodeDetail, *names: str) -> list[dict[str, Any]]:
    return [{name: getattr(call, name) for name in names} for call in calls_of(episode)]


FACTS = ("purpose", "agent", "finish_reason", "conversation", "continuation", "reply")


def held(name: FormatName, episode: EpisodeDetail) -> Any:  # noqa: ANN401 - compared, no more
    """What the format holds of an episode that has one call in each step."""
    summary = episode.summary
    replies = [call.reply for call in calls_of(episode)]
    match name:
        case "conversations" | "messages":
            return of_episode(episode), of_steps(episode), of_calls(episode, *FACTS, "messages")
        case "agent_lightning":
            names = (*FACTS, "messages", "tokens")
            return of_episode(episode), of_steps(episode), of_calls(episode, *names)
        case "atif":
            return of_episode(episode), of_steps(episode), of_calls(episode, *FACTS, "tokens")
        case "verl":
            rewards = [step.reward for step in episode.steps]
            known = (summary.environment, summary.task_id, summary.success, summary.training_step)
            return known, replies, rewards, summary.sample_index
        case "verl_agent":
            return replies, summary.episode_return, summary.training_step
        case "agentgym" | "agentgym_eval":
            shown = [step.observation for step in episode.steps]
            known = (summary.task_id, summary.episode_return, episode.final_observation)
            success = summary.success if name == "agentgym_eval" else None
            return known, shown, replies, success


@pytest.mark.parametrize("name", [name for name in FORMATS if name != "verl_agent"])
@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=25
)
@given(outcomes=st.lists(trajectories(), min_size=1, max_size=3))
def test_an_episode_comes_back(trip: Trip, name: FormatName, outcomes: list[Trajectory]) -> None:
    run_id = f"run-{next(_numbers)}"
    trip.writer.write([started(run_id), *recorded(run_id, outcomes)])
    before, after = trip.there_and_back(run_id, name)
    assert [held(name, each) for each in before] == [held(name, each) for each in after]


@pytest.mark.parametrize("name", ["conversations", "agent_lightning", "atif"])
def test_a_continuation_says_which_episode_it_continues(trip: Trip, name: FormatName) -> None:
    record = make_record(make_trajectory(), phase="branch", branched_action="up")
    trip.writer.write([started("run"), record])
    (before,), (after,) = trip.there_and_back("run", name)
    assert of_episode(after) == of_episode(before)
    assert after.summary.branched_action == "up"


def test_verl_agents_rows_come_back_without_their_episodes(trip: Trip) -> None:
    trip.writer.write([started("run"), *recorded("run", [make_trajectory()])])
    (before,), after = trip.there_and_back("run", "verl_agent")
    assert [held("verl_agent", each) for each in after] == [
        ([call.reply], before.summary.episode_return, 2) for call in calls_of(before)
    ]


@pytest.mark.parametrize("name", [name for name in FORMATS if name != "messages"])
def test_a_file_that_was_read_is_written_again_the_same(trip: Trip, name: FormatName) -> None:
    outcomes = [make_trajectory(), make_trajectory(sample_index=1), make_program()]
    trip.writer.write([started("run"), *recorded("run", outcomes)])
    trip.there_and_back("run", name)
    once = f"run-{name}"
    trip.there_and_back(once, name)
    first, second = (trip.exported(each, name) for each in (once, f"{once}-{name}"))
    assert len(first) > 100
    assert second.replace(f"{once}-{name}".encode(), once.encode()) == first


@pytest.mark.parametrize("name", ["conversations", "agent_lightning", "atif"])
def test_several_calls_a_step_stay_together(trip: Trip, name: FormatName) -> None:
    trip.writer.write([started("run"), *recorded("run", [make_program()])])
    (before,), (after,) = trip.there_and_back("run", name)
    judged = [[call for call in step.calls if call.purpose != "judge"] for step in before.steps]
    kept = [[call.reply for call in calls] for calls in judged if calls]
    if name == "atif":  # which has all calls, and steps without any
        kept = [[call.reply for call in step.calls] for step in before.steps]
    assert [[call.reply for call in step.calls] for step in after.steps] == kept
    assert after.summary.episode_return == before.summary.episode_return == 1.0
    asked = [each.tool_calls for each in calls_of(after) if each.tool_calls]
    assert asked == [
        each.tool_calls
        for each in calls_of(before)
        if each.tool_calls and name != "agent_lightning"  # which has the tokens of them alone
    ]


def test_pictures_travel_in_conversations(trip: Trip) -> None:
    trip.writer.write([started("run"), *recorded("run", [make_program()])])
    (before,), (after,) = trip.there_and_back("run", "conversations")
    shown = [[message.parts for message in call.messages] for call in calls_of(after)]
    assert shown == [
        [message.parts for message in call.messages]
        for call in calls_of(before)
        if call.purpose != "judge"
    ]
    parts = {part for prompt in shown for message in prompt for part in message}
    red = Picture.of(png("red"))
    assert StoredPicture(red.content_hash, red.media_type) in parts


@pytest.mark.parametrize("name", ["conversations", "atif"])
def test_what_the_renderer_wrote_of_a_reply_is_part_of_the_prompt(
    trip: Trip, name: FormatName
) -> None:
    trip.writer.write([started("run", prefix=PREFIX), *recorded("run", [make_trajectory()])])
    (before,), (after,) = trip.there_and_back("run", name)
    assert [call.reply for call in calls_of(after)] == [call.reply for call in calls_of(before)]
    line = json.loads(trip.exported("run", name).splitlines()[0])
    reply = calls_of(before)[0].reply
    assert reply is not None
    if name == "conversations":
        assert line["messages"][-1]["content"] == PREFIX + reply
        assert line["reply_prefix"] == PREFIX
    else:
        assert line["steps"][-1]["extra"]["reply_prefix"] == PREFIX


def test_a_programs_prompt_has_no_prefix(trip: Trip) -> None:
    trip.writer.write([started("run", prefix=PREFIX), *recorded("run", [make_program()])])
    lines = [json.loads(line) for line in trip.exported("run", "conversations").splitlines()]
    begun = [line["metadata"]["call"]["purpose"] for line in lines if "reply_prefix" in line]
    assert begun == []
    assert len(lines) == 4


def test_an_export_is_filtered_and_leaves_failures_out(trip: Trip) -> None:
    lost = make_trajectory(sample_index=1, success=False, rewards=(0.0,))
    records = recorded("run", [make_trajectory(), lost])
    failed = make_record(make_failure(sample_index=2), run_id="run", training_step=2)
    trip.writer.write([started("run"), *records, failed])
    solved = EpisodeFilter(success=True)
    logs = [json.loads(trip.exported("run", "agentgym", each)) for each in (None, solved)]
    assert [len(log) for log in logs] == [2, 1]
    with pytest.raises(ConfigError, match="failed episodes have no return"):
        trip.exported("run", "agentgym", EpisodeFilter(failed=True))
    with pytest.raises(LookupError, match="no run 'none'"):
        trip.exported("none", "agentgym")


@pytest.mark.parametrize("name", FORMATS)
def test_an_export_leaves_out_what_retention_removed(
    trip: Trip, name: FormatName, tmp_path: Path
) -> None:
    whole, removed = [
        make_record(make_trajectory(task=make_task(at)), training_step=at, group_size=1)
        for at in (2, 1)
    ]
    trip.writer.write([started("run"), whole])
    alone = trip.exported("run", name)
    trip.writer.write([removed, *make_decisions([whole, removed])])
    engine = open_store(tmp_path / "store.db")
    Retention(engine, run_id="run", sampled_groups=0).remove_some(up_to=1)
    engine.dispose()

    assert trip.exported("run", name) == alone


@pytest.mark.parametrize("name", FORMATS)
def test_an_export_of_nothing_is_a_file_of_nothing(trip: Trip, name: FormatName) -> None:
    trip.writer.write([started("run")])
    content = trip.exported("run", name)
    if name == "messages":
        assert parquet.read_table(BytesIO(content)).num_rows == 0
    else:
        assert json.loads(content) == [] if format_named(name).is_array else content == b""


def test_an_export_comes_in_pieces(trip: Trip) -> None:
    outcomes = [make_trajectory(task=make_task(number)) for number in range(50)]
    trip.writer.write([started("run"), *recorded("run", outcomes)])
    pieces = list(export_episodes(trip.reading, run_id="run", format=format_named("conversations")))
    assert [piece.count(b"\n") for piece in pieces if piece] == [60, 60, 30]
