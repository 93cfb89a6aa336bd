"""Records as table rows: pure functions, so that the writer only has to send them.

Each returns plain dictionaries keyed by column name, what SQLAlchemy's bulk inserts take.

The one decision to know: a column of a record's field has the field's name, and `row_of` moves it
by the column's type. Written out is only what is packed, computed or called otherwise.
"""

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict
from enum import Enum
from functools import cache
from typing import Any, get_args

from sqlalchemy import Boolean, Double, Integer, LargeBinary, String, Text

from longhaul_core.errors import StoreError
from longhaul_core.redaction import redacted
from longhaul_core.store.message_text import MessageCutter, message_runs
from longhaul_core.store.models import (
    Base,
    CallRow,
    CriticLossInputRow,
    EpisodeRow,
    FailureRow,
    GroupRow,
    LossInputRow,
    MediaRow,
    MessageRow,
    ObservationRow,
    StepRow,
    TaskRow,
)
from longhaul_core.store.packing import (
    content_hash,
    pack_entropies,
    pack_logprobs,
    storable_message,
)
from longhaul_core.store.records import (
    CallCredit,
    CriticLossInputs,
    EpisodeCredit,
    EpisodeRecord,
    LossInputs,
)
from longhaul_core.store.token_stream import Stream, TokenWriter
from longhaul_core.text import storable_text
from longhaul_core.types import (
    Call,
    FailedEpisode,
    MediaType,
    Message,
    Observation,
    Picture,
    Sampling,
    Step,
    Task,
    Tool,
    ToolCall,
    Trajectory,
)

__all__ = [
    "Row",
    "call_credit_rows",
    "call_row",
    "call_tokens_credit_rows",
    "episode_row",
    "failure_row",
    "float_or_none",
    "group_row",
    "loss_input_rows",
    "media_row",
    "message_row",
    "observation_row",
    "row_of",
    "step_credit_rows",
    "step_row",
    "task_hash",
    "task_row",
    "tool_list_row",
]

Value = str | int | float | bool | bytes | None
Row = dict[str, Value]


def row_of(model: type[Base], *records: object, **given: Value) -> Row:
    """A row of a table: each column is what is given, or the field of its name in a record.

    Numbers are made Python's own, since a database driver knows no numpy, and free text is made
    storable. A text of limited length, which is a key or a word of ours, stays as it is.

    Args:
        model: The table.
        records: The first one with a field of a column's name has its value.
        given: Columns that are none of the fields, as they are to be stored.

    Returns:
        Without the columns that none has: they are null, or the database counts them.
    """
    row: Row = given
    for place, name, stored in _moved(model, tuple(map(type, records)), tuple(given)):
        value = getattr(records[place], name)
        row[name] = None if value is None else stored(value)
    return row


@cache
def _moved(
    model: type[Base], records: tuple[type, ...], given: tuple[str, ...]
) -> tuple[tuple[int, str, Callable[[Any], Value]], ...]:
    """Place of the record, name and form of each column that `row_of` moves.

    Raises:
        TypeError: What is given is no column.
    """
    columns = Base.metadata.tables[model.__tablename__].columns
    if strays := sorted(set(given) - set(columns.keys())):
        raise TypeError(f"{model.__tablename__} has no column {', '.join(strays)}")
    found: list[tuple[int, str, Callable[[Any], Value]]] = []
    for column in columns:
        having = [place for place, record in enumerate(records) if hasattr(record, column.name)]
        if having and column.name not in given:
            stored = next(form for kind, form in _FORMS if isinstance(column.type, kind))
            found.append((having[0], column.name, stored))
    return tuple(found)


def _text(value: str | Enum) -> str:
    return str(value.value) if isinstance(value, Enum) else value


_FORMS: Sequence[tuple[type, Callable[[Any], Value]]] = (
    (Boolean, bool),
    (Integer, int),
    (Double, float),
    (LargeBinary, bytes),
    (Text, storable_text),  # before String, which it is one of
    (String, _text),
)


def task_hash(task: Task) -> str:
    """The task's key: equal for equal tasks, whatever their goal says for people."""
    data = (task.data,) if task.data else ()  # as before there was any
    return content_hash(
        task.environment,
        task.version,
        task.data_hash,
        task.task_id,
        str(int(task.seed)),
        task.split.value,
        *data,
    )


def task_row(task: Task) -> Row:
    """A row of `tasks`."""
    return row_of(TaskRow, task, hash=task_hash(task))


def group_row(record: EpisodeRecord, *, rolled_back: bool) -> Row:
    """The row of `groups` that the episode belongs to."""
    return row_of(
        GroupRow, record, task_hash=task_hash(record.outcome.task), rolled_back=rolled_back
    )


def episode_row(record: EpisodeRecord, *, rolled_back: bool) -> Row:
    """A row of `episodes`; what a failed episode does not have is null."""
    outcome = record.outcome
    ended = outcome if isinstance(outcome, Trajectory) else None
    sampled = [
        call.sampled for step in outcome.steps for call in step.calls if call.sampled is not None
    ]
    versions = [int(tokens.policy_version) for tokens in sampled]
    of_ended = dict.fromkeys(("success", "stop_reason", "episode_return")) if ended is None else {}
    return row_of(
        EpisodeRow,
        record,
        outcome,
        id=record.episode_id,
        task_hash=task_hash(outcome.task),
        rolled_back=rolled_back,
        failed=ended is None,
        terminated=None if ended is None else ended.stop_reason.terminated,
        truncated=None if ended is None else ended.stop_reason.truncated,
        num_steps=len(outcome.steps),
        num_calls=sum(len(step.calls) for step in outcome.steps),
        num_prompt_tokens=sum(len(tokens.prompt_tokens) for tokens in sampled),
        num_action_tokens=sum(len(tokens.action_tokens) for tokens in sampled),
        num_invalid_actions=sum(not step.action_valid for step in outcome.steps),
        oldest_policy_version=min(versions, default=None),
        newest_policy_version=max(versions, default=None),
        trained=False,
        **of_ended,
        **_final_observation(None if ended is None else ended.final_observation),
    )


def _final_observation(observation: Observation | None) -> Row:
    if observation is None:
        return dict.fromkeys(
            (
                "final_observation",
                "final_picture_hashes_json",
                "final_anchor_state",
                "final_anchor_hash",
            )
        )
    anchor = observation.anchor_state
    return {
        "final_observation": storable_text(observation.text),
        "final_picture_hashes_json": _picture_hashes_json(observation.pictures),
        "final_anchor_state": None if anchor is None else storable_text(anchor),
        "final_anchor_hash": content_hash(observation.anchor),
    }


def failure_row(record: EpisodeRecord, failed: FailedEpisode) -> Row:
    """A row of `failures`."""
    message = storable_message(redacted(failed.message))
    return row_of(FailureRow, failed, episode_id=record.episode_id, message=message)


def step_row(episode_id: str, step: Step) -> Row:
    """A row of `steps`: the numbers. Credit comes later."""
    acting = [place for place, call in enumerate(step.calls) if call is step.act]
    return row_of(
        StepRow,
        step,
        episode_id=episode_id,
        step_index=step.index,
        trained=False,
        anchor_hash=content_hash(step.observation.anchor),
        act_call_index=acting[-1] if acting else None,
    )


def observation_row(episode_id: str, step: Step) -> Row:
    """A row of `observations`."""
    observation = step.observation
    admissible = observation.admissible_actions
    return row_of(
        ObservationRow,
        observation,
        episode_id=episode_id,
        step_index=step.index,
        picture_hashes_json=_picture_hashes_json(observation.pictures),
        admissible_actions_json=None if admissible is None else _json(admissible),
    )


def call_row(
    call: Call,
    *,
    place: tuple[str, int, int],
    message_numbers: Sequence[int],
    tools_number: int | None,
    packer: TokenWriter,
) -> tuple[Row, Row | None]:
    """A row of `calls`, and one of `call_tokens` if an engine of ours answered; credit comes later.

    Args:
        call: What to keep.
        place: Its episode's key, its step and its place there.
        message_numbers: Keys of the prompt's messages in the episode, in order.
        tools_number: Key of its tools in the episode; None without any.
        packer: The episode's, which has packed the calls before this one.
    """
    key: Row = dict(zip(("episode_id", "step_index", "call_index"), place, strict=True))
    counts, blobs = _sampled(call, packer)
    row = row_of(
        CallRow,
        call,
        messages_json=message_runs(message_numbers),
        tool_calls_json=_tool_calls_json(call.tool_calls),
        tools_number=tools_number,
        sampling_json=None if call.sampling is None else _sampling_json(call.sampling, key),
        overridden_json=_json(call.overridden) if call.overridden else None,
        recalled_steps_json=_json(call.recalled_steps) if call.recalled_steps else None,
        **key,
        **counts,
    )
    return row, None if blobs is None else {**key, **blobs}


def _sampled(call: Call, packer: TokenWriter) -> tuple[Row, Row | None]:
    """What `calls` has of its tokens, and what `call_tokens` has."""
    tokens = call.sampled
    if tokens is None:
        names = (
            "policy_version",
            "num_prompt_tokens",
            "num_action_tokens",
            "num_shared_prompt_tokens",
        )
        return dict.fromkeys(names), None
    stream = Stream(call.agent, call.purpose, call.conversation)
    shared, block = packer.packed(tokens, stream=stream)
    counts: Row = {
        "policy_version": int(tokens.policy_version),
        "num_prompt_tokens": len(tokens.prompt_tokens),
        "num_action_tokens": len(tokens.action_tokens),
        "num_shared_prompt_tokens": shared,
    }
    return counts, {
        "tokens": block,
        "behavior_logprobs": pack_logprobs(tokens.behavior_logprobs or ()),
    }


def message_row(message: Message, *, place: tuple[str, int], cutter: MessageCutter) -> Row:
    """A row of `messages`.

    Args:
        message: What to keep.
        place: Its episode's key, and its number there.
        cutter: The episode's, which was shown the texts that the message may repeat.
    """
    episode_id, number = place
    parts = message.parts
    one_text = len(parts) == 1 and isinstance(parts[0], str)
    parts_json = None
    if not one_text:
        parts_json = _json(
            [{"picture": p.content_hash} if isinstance(p, Picture) else p for p in parts]
        )
    tool_calls_json = _tool_calls_json(message.tool_calls)
    asked_by = None if tool_calls_json is None else cutter.asked_before(tool_calls_json)
    reasoning = storable_text(message.reasoning)
    reasoning_source = cutter.within_a_reply(reasoning)
    return row_of(
        MessageRow,
        message,
        episode_id=episode_id,
        number=number,
        **cutter.cut(storable_text(message.text), number=number)._asdict(),
        parts_json=parts_json,
        tool_calls_json=tool_calls_json if asked_by is None else None,
        tool_calls_source=asked_by,
        reasoning=reasoning if reasoning and reasoning_source is None else None,
        reasoning_source=reasoning_source,
    )


def tool_list_row(tools: Sequence[Tool]) -> Row:
    """A row of `tool_lists`."""
    tools_json = _json([asdict(tool) for tool in tools])
    return {"content_hash": content_hash(tools_json), "tools_json": tools_json}


def media_row(picture: Picture) -> Row:
    """A row of `media`.

    Raises:
        StoreError: It is of a type that the store does not keep, or its bytes are not at hand.
    """
    if picture.media_type not in get_args(MediaType):
        raise StoreError(
            f"a picture of type {picture.media_type!r}: the store keeps "
            f"{', '.join(get_args(MediaType))}"
        )
    if picture.data is None:
        raise StoreError(
            f"picture {picture.content_hash} is not in the store, and was given without its bytes"
        )
    return row_of(MediaRow, picture, num_bytes=len(picture.data))


def _picture_hashes_json(pictures: Sequence[Picture]) -> str | None:
    return _json([picture.content_hash for picture in pictures]) if pictures else None


def _tool_calls_json(calls: Sequence[ToolCall]) -> str | None:
    return _json([asdict(call) for call in calls]) if calls else None


def _sampling_json(sampling: Sampling, key: Row) -> str:
    if not math.isfinite(sampling.temperature + sampling.top_p):
        raise StoreError(f"sampling of call {key} must be of finite numbers, got {sampling}")
    return _json(asdict(sampling) | {"altered": dict(sampling.altered)})


def _json(value: object) -> str:
    return storable_text(json.dumps(value, ensure_ascii=False))


def step_credit_rows(credit: EpisodeCredit, *, trained: bool) -> list[Row]:
    """What `credit` sets in `steps`, one row a step; keys are prefixed `new_`.

    Args:
        credit: Of one episode.
        trained: Whether the steps count as trained; a rolled back episode's never do.
    """
    nothing = (None,) * len(credit.advantages)
    numbers: dict[str, Sequence[float | None]] = {
        "value": credit.values or nothing,
        "value_target": credit.value_targets or nothing,
        "shaped_reward": credit.shaped_rewards,
        "return_to_go": credit.returns_to_go,
        "episode_advantage": (credit.episode_advantage,) * len(nothing),
        "step_advantage": credit.step_advantages,
        "advantage": credit.advantages,
        "loss_weight": credit.loss_weights,
    }
    found: list[Row] = []
    for index in range(len(nothing)):
        row: Row = {"of_episode": credit.episode_id, "of_step": index, "new_trained": trained}
        for name, values in numbers.items():
            row[f"new_{name}"] = float_or_none(values[index])
        found.append(row)
    return found


def call_credit_rows(credit: EpisodeCredit) -> list[Row]:
    """What `credit` sets in `calls`, one row a trained call; keys are prefixed `new_`."""
    return [
        {
            **_of_call(credit, call),
            "new_advantage": float(call.advantage),
            "new_loss_weight": float(call.loss_weight),
            "new_split_reason": call.split_reason,
            "new_reference_logprob_sum": float_or_none(call.reference_logprob_sum),
        }
        for call in credit.calls
    ]


def call_tokens_credit_rows(credit: EpisodeCredit) -> list[Row]:
    """What `credit` sets in `call_tokens`, likewise."""

    def packed(numbers: Sequence[float] | None) -> bytes | None:
        return None if numbers is None else pack_logprobs(numbers)

    return [
        {
            **_of_call(credit, call),
            "new_policy_logprobs": packed(call.policy_logprobs),
            "new_token_values": packed(call.token_values),
            "new_token_advantages": packed(call.token_advantages),
            "new_policy_entropies": None
            if call.policy_entropies is None
            else pack_entropies(call.policy_entropies),
        }
        for call in credit.calls
    ]


def _of_call(credit: EpisodeCredit, call: CallCredit) -> Row:
    """The keys that say which row is set."""
    return {
        "of_episode": credit.episode_id,
        "of_step": call.step_index,
        "of_call": call.call_index,
    }


def loss_input_rows(read: LossInputs | CriticLossInputs) -> list[Row]:
    """Rows of `loss_inputs` or of `critic_loss_inputs`."""
    model = LossInputRow if isinstance(read, LossInputs) else CriticLossInputRow
    return [
        row_of(
            model,
            row,
            read,
            episode_id=read.episode_id(row),
            training_step=int(read.training_step),  # a row's is that which played the episode
        )
        for row in read.rows
    ]


def float_or_none(number: float | None) -> float | None:
    """A number as Python's own."""
    return None if number is None else float(number)
