"""Records as table rows: pure functions, so that the writer only has to send them.

Each returns plain dictionaries keyed by column name, what SQLAlchemy's bulk inserts take.
Numbers are made Python's own (a database driver knows no numpy) and must be finite;
text is made storable; free text of people and errors loses its credentials.
"""

import json
import math
from collections.abc import Sequence

from longhaul_core.errors import StoreError
from longhaul_core.store.packing import (
    content_hash,
    pack_logprobs,
    pack_tokens,
    shared_prefix_length,
    storable_message,
    storable_text,
)
from longhaul_core.store.records import CriticLossInputs, EpisodeCredit, EpisodeRecord, LossInputs
from longhaul_core.store.redaction import redacted
from longhaul_core.types import (
    FailedEpisode,
    FinishReason,
    Message,
    Observation,
    Step,
    Task,
    Trajectory,
)

__all__ = [
    "Row",
    "credit_rows",
    "episode_row",
    "failure_row",
    "group_row",
    "loss_input_rows",
    "message_row",
    "step_content_row",
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


def group_row(record: EpisodeRecord, *, superseded: bool) -> Row:
    """The row of `groups` that the episode belongs to."""
    return {
        "run_id": record.run_id,
        "attempt": int(record.attempt),
        "phase": record.phase,
        "training_step": int(record.training_step),
        "group_index": int(record.group_index),
        "task_hash": task_hash(record.outcome.task),
        "group_size": record.group_size,
        "superseded": superseded,
    }


def episode_row(record: EpisodeRecord, *, superseded: bool) -> Row:
    """A row of `episodes`; what a failed episode does not have is null."""
    outcome = record.outcome
    ended = outcome if isinstance(outcome, Trajectory) else None
    episode_id = record.episode_id
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
        "superseded": superseded,
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
        "num_prompt_tokens": sum(len(step.prompt_tokens) for step in outcome.steps),
        "num_action_tokens": sum(len(step.action_tokens) for step in outcome.steps),
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
        return dict.fromkeys(("final_observation", "final_anchor_state", "final_anchor_hash"))
    anchor = observation.anchor_state
    return {
        "final_observation": storable_text(observation.text),
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
    return {
        "episode_id": episode_id,
        "step_index": step.index,
        "action": storable_text(step.action),
        "action_valid": bool(step.action_valid),
        "reward": _finite(step.reward, name="reward", owner=owner),
        "trained": False,
        "anchor_hash": content_hash(step.observation.anchor),
        "num_prompt_tokens": len(step.prompt_tokens),
        "num_action_tokens": len(step.action_tokens),
        "policy_version": int(step.policy_version),
        "reply_cut": step.act is not None and step.act.finish_reason is FinishReason.LENGTH,
        "dropped_exchanges": int(step.dropped_exchanges),
        "queue_seconds": sum(float(call.queue_seconds) for call in step.calls),
        "generate_seconds": sum(float(call.generate_seconds) for call in step.calls),
        "environment_seconds": float(step.environment_seconds),
    }


def step_content_row(
    episode_id: str, step: Step, *, message_hashes: Sequence[str], previous: Step | None
) -> Row:
    """A row of `step_contents`: text and tokens.

    Args:
        episode_id: The episode's key.
        step: What to keep.
        message_hashes: Keys of the prompt's messages, in order.
        previous: The step before, whose leading prompt tokens are not repeated; None for
            the first. A memory that shows the whole history would fill the store with the
            square of the episode's length otherwise.
    """
    shared = 0
    if previous is not None:
        shared = shared_prefix_length(step.prompt_tokens, previous.prompt_tokens)
    observation = step.observation
    admissible = observation.admissible_actions
    anchor = observation.anchor_state
    return {
        "episode_id": episode_id,
        "step_index": step.index,
        "observation": storable_text(observation.text),
        "anchor_state": None if anchor is None else storable_text(anchor),
        "admissible_actions_json": None
        if admissible is None
        else storable_text(json.dumps(admissible, ensure_ascii=False)),
        "message_hashes_json": json.dumps(message_hashes),
        "reply": storable_text(step.reply),
        "num_shared_prompt_tokens": shared,
        "prompt_tokens": pack_tokens(step.prompt_tokens[shared:]),
        "action_tokens": pack_tokens(step.action_tokens),
        "behavior_logprobs": pack_logprobs(step.behavior_logprobs),
    }


def message_row(message: Message) -> Row:
    """A row of `messages`."""
    return {
        "hash": content_hash(message.role, message.text),
        "role": message.role,
        "content": storable_text(message.text),
    }


def credit_rows(credit: EpisodeCredit, *, trained: bool) -> list[Row]:
    """What `credit` sets in `steps`, one row a step; keys are prefixed `new_`.

    Args:
        credit: Of one episode.
        trained: Whether the steps count as trained; a superseded episode's never do.

    Raises:
        StoreError: A number is not finite.
    """
    owner = credit.episode_id
    values = credit.values or (None,) * len(credit.advantages)
    targets = credit.value_targets or (None,) * len(credit.advantages)
    reason_of = {call.step_index: call.split_reason for call in credit.calls}
    reasons = [reason_of.get(index) for index in range(len(credit.advantages))]
    episode_advantage = _finite(credit.episode_advantage, name="episode advantage", owner=owner)
    return [
        {
            "of_episode": owner,
            "of_step": index,
            "new_value": None if value is None else _finite(value, name="value", owner=owner),
            "new_value_target": None
            if target is None
            else _finite(target, name="value target", owner=owner),
            "new_shaped_reward": _finite(shaped, name="shaped reward", owner=owner),
            "new_return_to_go": _finite(return_to_go, name="return-to-go", owner=owner),
            "new_episode_advantage": episode_advantage,
            "new_step_advantage": _finite(step_advantage, name="step advantage", owner=owner),
            "new_advantage": _finite(advantage, name="advantage", owner=owner),
            "new_loss_weight": _finite(weight, name="loss weight", owner=owner),
            "new_split_reason": reason,
            "new_trained": trained,
        }
        for index, (
            value,
            target,
            shaped,
            return_to_go,
            step_advantage,
            advantage,
            weight,
            reason,
        ) in enumerate(
            zip(
                values,
                targets,
                credit.shaped_rewards,
                credit.returns_to_go,
                credit.step_advantages,
                credit.advantages,
                credit.loss_weights,
                reasons,
                strict=True,
            )
        )
    ]


def loss_input_rows(consumed: LossInputs) -> list[Row]:
    """Rows of `loss_inputs`.

    Raises:
        StoreError: A number is not finite.
    """
    found: list[Row] = []
    for row in consumed.rows:
        episode_id = consumed.episode_id(row)
        owner = f"consumed step {row.step_index} of {episode_id}"
        extremes = {
            "advantage_low": row.advantage_low,
            "advantage_high": row.advantage_high,
            "weight_low": row.weight_low,
            "weight_high": row.weight_high,
        }
        numbers: Row = {
            name: None if number is None else _finite(number, name=name, owner=owner)
            for name, number in extremes.items()
        }
        found.append(
            {
                "episode_id": episode_id,
                "step_index": int(row.step_index),
                "training_step": int(consumed.training_step),
                "optimizer_step_index": int(consumed.optimizer_step_index),
                "rank": int(consumed.rank),
                "micro_batch": int(consumed.micro_batch),
                "row_index": int(row.row_index),
                "num_tokens": int(row.num_tokens),
                "old_logprob_sum": _finite(
                    row.old_logprob_sum, name="old_logprob_sum", owner=owner
                ),
            }
            | numbers
        )
    return found


def critic_loss_input_rows(consumed: CriticLossInputs) -> list[Row]:
    """Rows of `critic_loss_inputs`.

    Raises:
        StoreError: A number is not finite.
    """
    found: list[Row] = []
    for row in consumed.rows:
        episode_id = consumed.episode_id(row)
        owner = f"consumed value {row.step_index} of {episode_id}"
        extremes = {
            "target_low": row.target_low,
            "target_high": row.target_high,
            "weight_low": row.weight_low,
            "weight_high": row.weight_high,
        }
        numbers: Row = {
            name: None if number is None else _finite(number, name=name, owner=owner)
            for name, number in extremes.items()
        }
        found.append(
            {
                "episode_id": episode_id,
                "step_index": int(row.step_index),
                "training_step": int(consumed.training_step),
                "optimizer_step_index": int(consumed.optimizer_step_index),
                "rank": int(consumed.rank),
                "micro_batch": int(consumed.micro_batch),
                "row_index": int(row.row_index),
                "num_tokens": int(row.num_tokens),
                "first_token": row.first_token,
            }
            | numbers
        )
    return found


def final_value(credit: EpisodeCredit) -> float | None:
    """The value of the final observation.

    Raises:
        StoreError: It is not a finite number.
    """
    if credit.final_value is None:
        return None
    return _finite(credit.final_value, name="final value", owner=credit.episode_id)


def _finite(number: float, *, name: str, owner: str) -> float:
    number = float(number)
    if not math.isfinite(number):
        raise StoreError(f"{name} of {owner} must be a finite number, got {number}")
    return number
