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
from longhaul_core.store.message_text import MessageCutter
from longhaul_core.store.packing import (
    content_hash,
    pack_logprobs,
    storable_message,
    storable_text,
)
from longhaul_core.store.records import (
    CriticLossInputs,
    EpisodeCredit,
    EpisodeRecord,
    LossInput,
    LossInputs,
)
from longhaul_core.store.redaction import redacted
from longhaul_core.store.token_stream import TokenWriter
from longhaul_core.types import (
    Call,
    FailedEpisode,
    MediaType,
    Message,
    Observation,
    Picture,
    Step,
    Task,
    ToolCall,
    Trajectory,
)

__all__ = [
    "Row",
    "call_credit_rows",
    "call_row",
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
]

Row = dict[str, str | int | float | bool | bytes | None]


def task_hash(task: Task) -> str:
    """The task's key: equal for equal tasks, whatever their goal says for people."""
    return content_hash(
        task.environment,
        task.version,
        task.data_hash,
        task.task_id,
        str(int(task.seed)),
        task.split.value,
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
    packer: TokenWriter,
) -> Row:
    """A row of `calls`. Credit comes later.

    Args:
        call: What to keep.
        place: Its episode's key, its step and its place there.
        message_numbers: Keys of the prompt's messages in the episode, in order.
        packer: The episode's, which has packed the calls before this one.
    """
    episode_id, step_index, call_index = place
    return {
        "episode_id": episode_id,
        "step_index": step_index,
        "call_index": call_index,
        "purpose": storable_text(call.purpose),
        "agent": storable_text(call.agent),
        "model": storable_text(call.model),
        "messages_json": json.dumps(message_numbers, separators=(",", ":")),
        "reply": storable_text(call.reply),
        "tool_calls_json": _tool_calls_json(call.tool_calls),
        "finish_reason": call.finish_reason.value,
        "dropped_exchanges": int(call.dropped_exchanges),
        "queue_seconds": float(call.queue_seconds),
        "generate_seconds": float(call.generate_seconds),
        "num_cached_tokens": call.num_cached_tokens,
        "trained": bool(call.trained),
        "credit_share": float(call.credit_share),
        **_sampled(call, packer),
    }


def _sampled(call: Call, packer: TokenWriter) -> Row:
    tokens = call.sampled
    if tokens is None:
        return dict.fromkeys(
            (
                "policy_version",
                "num_prompt_tokens",
                "num_action_tokens",
                "num_shared_prompt_tokens",
                "tokens",
                "behavior_logprobs",
            )
        )
    shared, block = packer.packed(tokens, program=(call.agent, call.purpose))
    return {
        "policy_version": int(tokens.policy_version),
        "num_prompt_tokens": len(tokens.prompt_tokens),
        "num_action_tokens": len(tokens.action_tokens),
        "num_shared_prompt_tokens": shared,
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
    own_lines, pieces_json = cutter.cut(storable_text(message.text), number=number)
    tool_call_id = message.tool_call_id
    return {
        "episode_id": episode_id,
        "number": number,
        "role": message.role,
        "own_lines": own_lines,
        "pieces_json": pieces_json,
        "parts_json": parts_json,
        "tool_calls_json": _tool_calls_json(message.tool_calls),
        "tool_call_id": None if tool_call_id is None else storable_text(tool_call_id),
    }


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

    def packed(numbers: Sequence[float] | None) -> bytes | None:
        return None if numbers is None else pack_logprobs(numbers)

    owner = credit.episode_id
    return [
        {
            "of_episode": owner,
            "of_step": call.step_index,
            "of_call": call.call_index,
            "new_advantage": _finite(call.advantage, name="advantage", owner=owner),
            "new_loss_weight": _finite(call.loss_weight, name="loss weight", owner=owner),
            "new_split_reason": call.split_reason,
            "new_policy_logprobs": packed(call.policy_logprobs),
            "new_token_values": packed(call.token_values),
            "new_token_advantages": packed(call.token_advantages),
        }
        for call in credit.calls
    ]


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
