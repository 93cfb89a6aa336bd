"""Records as table rows: pure functions, so that the writer only has to send them.

Each returns plain dictionaries keyed by column name, what SQLAlchemy's bulk inserts take.
Numbers are made Python's own (a database driver knows no numpy) and must be finite;
text is made storable; free text of people and errors loses its credentials.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import get_args

from longhaul_core.errors import StoreError
from longhaul_core.redaction import redacted
from longhaul_core.store.message_text import MessageCutter, message_runs
from longhaul_core.store.packing import (
    content_hash,
    pack_entropies,
    pack_logprobs,
    storable_message,
    storable_text,
)
from longhaul_core.store.records import (
    CallCredit,
    CriticLossInputs,
    EpisodeCredit,
    EpisodeRecord,
    LossInput,
    LossInputs,
)
from longhaul_core.store.token_stream import Stream, TokenWriter
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
    "group_row",
    "loss_input_rows",
    "media_row",
    "message_row",
    "observation_row",
    "step_credit_rows",
    "step_row",
    "task_hash",
    "task_row",
    "tool_list_row",
]

Row = dict[str, str | int | float | bool | bytes | None]


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
    return {
        "hash": task_hash(task),
        "environment": storable_text(task.environment),
        "version": storable_text(task.version),
        "data_hash": storable_text(task.data_hash),
        "task_id": storable_text(task.task_id),
        "seed": int(task.seed),
        "split": task.split.value,
        "goal": storable_text(task.goal),
        "data": storable_text(task.data),
    }


def group_row(record: EpisodeRecord, *, rolled_back: bool) -> Row:
    """The row of `groups` that the episode belongs to."""
    return {
        "run_id": record.run_id,
        "attempt": int(record.attempt),
        "phase": record.phase,
        "training_step": int(record.training_step),
        "group_index": int(record.group_index),
        "task_hash": task_hash(record.outcome.task),
        "group_size": record.group_size,
        "rolled_back": rolled_back,
    }


def episode_row(record: EpisodeRecord, *, rolled_back: bool) -> Row:
    """A row of `episodes`; what a failed episode does not have is null."""
    outcome = record.outcome
    ended = outcome if isinstance(outcome, Trajectory) else None
    episode_id = record.episode_id
    sampled = [
        call.sampled for step in outcome.steps for call in step.calls if call.sampled is not None
    ]
    versions = [int(tokens.policy_version) for tokens in sampled]
    return {
        "id": episode_id,
        "run_id": record.run_id,
        "attempt": int(record.attempt),
        "phase": record.phase,
        "training_step": int(record.training_step),
        "group_index": int(record.group_index),
        "sample_index": int(outcome.sample_index),
        "retry": int(record.retry),
        "task_hash": task_hash(outcome.task),
        "rolled_back": rolled_back,
        "failed": ended is None,
        "success": None if ended is None else bool(ended.success),
        "stop_reason": None if ended is None else ended.stop_reason.value,
        "terminated": None if ended is None else ended.stop_reason.terminated,
        "truncated": None if ended is None else ended.stop_reason.truncated,
        "episode_return": None
        if ended is None
        else _finite(ended.episode_return, name="return", owner=episode_id),
        "num_steps": len(outcome.steps),
        "horizon": int(outcome.horizon),
        "num_calls": sum(len(step.calls) for step in outcome.steps),
        "num_prompt_tokens": sum(len(tokens.prompt_tokens) for tokens in sampled),
        "num_action_tokens": sum(len(tokens.action_tokens) for tokens in sampled),
        "num_invalid_actions": sum(not step.action_valid for step in outcome.steps),
        "oldest_policy_version": min(versions, default=None),
        "newest_policy_version": max(versions, default=None),
        "seed": int(outcome.seed),
        "started_at": float(outcome.started_at),
        "duration_seconds": float(outcome.duration_seconds),
        "trained": False,
        "trained_training_step": None,
        "episode_advantage": None,
        "optimizer_step_index": None,
        **_final_observation(None if ended is None else ended.final_observation),
    }


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
    return {
        "episode_id": record.episode_id,
        "cause": failed.cause.value,
        "message": storable_message(redacted(failed.message)),
    }


def step_row(episode_id: str, step: Step) -> Row:
    """A row of `steps`: the numbers. Credit comes later.

    Raises:
        StoreError: The reward is not a finite number.
    """
    owner = f"step {step.index} of {episode_id}"
    acting = [place for place, call in enumerate(step.calls) if call is step.act]
    return {
        "episode_id": episode_id,
        "step_index": step.index,
        "action": storable_text(step.action),
        "action_valid": bool(step.action_valid),
        "reward": _finite(step.reward, name="reward", owner=owner),
        "trained": False,
        "anchor_hash": content_hash(step.observation.anchor),
        "act_call_index": acting[-1] if acting else None,
        "environment_seconds": float(step.environment_seconds),
    }


def observation_row(episode_id: str, step: Step) -> Row:
    """A row of `observations`."""
    observation = step.observation
    admissible = observation.admissible_actions
    anchor = observation.anchor_state
    return {
        "episode_id": episode_id,
        "step_index": step.index,
        "text": storable_text(observation.text),
        "picture_hashes_json": _picture_hashes_json(observation.pictures),
        "anchor_state": None if anchor is None else storable_text(anchor),
        "admissible_actions_json": None if admissible is None else _json(admissible),
    }


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
    row: Row = {
        **key,
        "purpose": storable_text(call.purpose),
        "agent": storable_text(call.agent),
        "model": storable_text(call.model),
        "messages_json": message_runs(message_numbers),
        "reply": storable_text(call.reply),
        "tool_calls_json": _tool_calls_json(call.tool_calls),
        "tools_number": tools_number,
        "conversation": int(call.conversation),
        "continuation": None if call.continuation is None else call.continuation.value,
        "sampling_json": None if call.sampling is None else _sampling_json(call.sampling, key),
        "cost_usd": _finite_or_none(call.cost_usd, name="cost", owner=_named(key)),
        "finish_reason": call.finish_reason.value,
        "dropped_exchanges": int(call.dropped_exchanges),
        "queue_seconds": float(call.queue_seconds),
        "generate_seconds": float(call.generate_seconds),
        "num_cached_tokens": call.num_cached_tokens,
        "trained": bool(call.trained),
        "credit_share": float(call.credit_share),
        **counts,
    }
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
        "behavior_logprobs": pack_logprobs(tokens.behavior_logprobs),
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
    tool_call_id = message.tool_call_id
    tool_calls_json = _tool_calls_json(message.tool_calls)
    asked_by = None if tool_calls_json is None else cutter.asked_before(tool_calls_json)
    reasoning = storable_text(message.reasoning)
    reasoning_source = cutter.within_a_reply(reasoning)
    return {
        "episode_id": episode_id,
        "number": number,
        "role": message.role,
        **cutter.cut(storable_text(message.text), number=number)._asdict(),
        "parts_json": parts_json,
        "tool_calls_json": tool_calls_json if asked_by is None else None,
        "tool_calls_source": asked_by,
        "tool_call_id": None if tool_call_id is None else storable_text(tool_call_id),
        "reasoning": reasoning if reasoning and reasoning_source is None else None,
        "reasoning_source": reasoning_source,
    }


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
    return {
        "content_hash": picture.content_hash,
        "media_type": picture.media_type,
        "num_bytes": len(picture.data),
        "data": picture.data,
    }


def _picture_hashes_json(pictures: Sequence[Picture]) -> str | None:
    return _json([picture.content_hash for picture in pictures]) if pictures else None


def _tool_calls_json(calls: Sequence[ToolCall]) -> str | None:
    return _json([asdict(call) for call in calls]) if calls else None


def _sampling_json(sampling: Sampling, key: Row) -> str:
    owner = _named(key)
    return _json(
        {
            "seed": int(sampling.seed),
            "temperature": _finite(sampling.temperature, name="temperature", owner=owner),
            "top_p": _finite(sampling.top_p, name="top_p", owner=owner),
            "max_tokens": int(sampling.max_tokens),
            "stop": sampling.stop,
            "altered": dict(sampling.altered),
        }
    )


def _named(key: Row) -> str:
    """A call by its key, for an error."""
    return f"call {key['call_index']} of step {key['step_index']} of {key['episode_id']}"


def _json(value: object) -> str:
    return storable_text(json.dumps(value, ensure_ascii=False))


def step_credit_rows(credit: EpisodeCredit, *, trained: bool) -> list[Row]:
    """What `credit` sets in `steps`, one row a step; keys are prefixed `new_`.

    Args:
        credit: Of one episode.
        trained: Whether the steps count as trained; a rolled back episode's never do.

    Raises:
        StoreError: A number is not finite.
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
            row[f"new_{name}"] = _finite_or_none(values[index], name=name, owner=credit.episode_id)
        found.append(row)
    return found


def call_credit_rows(credit: EpisodeCredit) -> list[Row]:
    """What `credit` sets in `calls`, one row a trained call; keys are prefixed `new_`.

    Raises:
        StoreError: A number is not finite.
    """
    owner = credit.episode_id
    return [
        {
            **_of_call(credit, call),
            "new_advantage": _finite(call.advantage, name="advantage", owner=owner),
            "new_loss_weight": _finite(call.loss_weight, name="loss weight", owner=owner),
            "new_split_reason": call.split_reason,
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
    """Rows of `loss_inputs` or of `critic_loss_inputs`.

    Raises:
        StoreError: A number is not finite.
    """
    found: list[Row] = []
    for row in read.rows:
        episode_id = read.episode_id(row)
        owner = f"what the loss read of step {row.step_index} of {episode_id}"
        numbers = {"weight_low": row.weight_low, "weight_high": row.weight_high}
        others: Row
        if isinstance(row, LossInput):
            numbers |= {"advantage_low": row.advantage_low, "advantage_high": row.advantage_high}
            name = "old_logprob_sum"
            others = {name: _finite(row.old_logprob_sum, name=name, owner=owner)}
        else:
            numbers |= {"target_low": row.target_low, "target_high": row.target_high}
            others = {"first_token": row.first_token}
        found.append(
            {
                "episode_id": episode_id,
                "step_index": int(row.step_index),
                "call_index": int(row.call_index),
                "training_step": int(read.training_step),
                "optimizer_step_index": int(read.optimizer_step_index),
                "rank": int(read.rank),
                "micro_batch": int(read.micro_batch),
                "row_index": int(row.row_index),
                "num_tokens": int(row.num_tokens),
            }
            | {
                name: _finite_or_none(number, name=name, owner=owner)
                for name, number in numbers.items()
            }
            | others
        )
    return found


def final_value(credit: EpisodeCredit) -> float | None:
    """The value of the final observation.

    Raises:
        StoreError: It is not a finite number.
    """
    return _finite_or_none(credit.final_value, name="final value", owner=credit.episode_id)


def _finite_or_none(number: float | None, *, name: str, owner: str) -> float | None:
    return None if number is None else _finite(number, name=name, owner=owner)


def _finite(number: float, *, name: str, owner: str) -> float:
    number = float(number)
    if not math.isfinite(number):
        raise StoreError(f"{name} of {owner} must be a finite number, got {number}")
    return number
