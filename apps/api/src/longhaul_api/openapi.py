"""What the OpenAPI document says beyond the types: names, words of enumerations, examples, tokens.

The fields of answers are the store's, described where they are declared. Those whose name says
everything there are described here, by name, since one name means one thing everywhere.
"""

import json
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from typing import Any, get_args

from fastapi import FastAPI

from longhaul_core.store.queries import ChangeKind
from longhaul_core.store.records import DiscardReason, Phase, RunKind, RunStatus
from longhaul_core.types import (
    Continuation,
    CreditedBy,
    FailureCause,
    FinishReason,
    Split,
    SplitReason,
    StopReason,
)

__all__ = ["FIELDS", "TAGS", "WORDS", "describe"]

TAGS = [
    {"name": "runs", "description": "Which runs there are, how they go, what went wrong in them."},
    {"name": "metrics", "description": "Measurements of each training step."},
    {"name": "groups", "description": "The attempts at one task, compared with each other."},
    {"name": "comparison", "description": "Results on panels, and two of them compared."},
    {"name": "episodes", "description": "Lists of episodes, and one with every step."},
    {"name": "replay", "description": "The parts of one episode, for a page that replays it."},
    {"name": "search", "description": "Words in observations, prompts and replies."},
    {"name": "labels", "description": "Remarks of people and judges."},
    {"name": "events", "description": "What happens in a run, as it happens."},
    {"name": "export", "description": "Episodes as files of other programs."},
    {"name": "media", "description": "Pictures."},
    {"name": "storage", "description": "How much room the store takes."},
    {"name": "sql", "description": "One SELECT over the documented tables and views."},
]

WORDS: dict[str, tuple[str, ...]] = {
    "phase": get_args(Phase),
    "status": get_args(RunStatus),
    "split": tuple(each.value for each in Split),
    "stop_reason": tuple(each.value for each in StopReason),
    "failure_cause": tuple(each.value for each in FailureCause),
    "cause": tuple(each.value for each in FailureCause),
    "finish_reason": tuple(each.value for each in FinishReason),
    "continuation": tuple(each.value for each in Continuation),
    "credited_by": tuple(each.value for each in CreditedBy),
    "split_reason": tuple(each.value for each in SplitReason),
    "discard_reason": get_args(DiscardReason),
    "retention": ("removed", "sampled"),
}
"""Every word that a text field of that name may be."""
_KINDS = {"RunSummary": get_args(RunKind), "Change": get_args(ChangeKind)}

FIELDS: dict[str, str] = {
    "action": "What the environment was given.",
    "attempt": "Of the run: 0, or how often it had been resumed.",
    "author": "Who remarked it: a person, or a judge.",
    "call_index": "0-based place in the step, in the order of the calls.",
    "created_at": "Unix time.",
    "detail": "What is wrong, for people.",
    "duration_seconds": "Seconds from reset to the end.",
    "ended_at": "Unix time; null while it is running.",
    "environment": "Id of the environment.",
    "environment_seconds": "Seconds that the environment took for the step.",
    "episode_id": "`run/attempt/phase/training step/group/sample_index/retry`.",
    "episode_return": "Undiscounted sum of rewards; null if it failed.",
    "failed": "Whether something broke: no return, no success, in no baseline.",
    "goal": "What is to be done, in a line for people.",
    "group_index": "0-based place of the task in the training step's batch, or in the panel.",
    "host": "Name of the machine; null if it is not known.",
    "mean_return": "Mean undiscounted return of the episodes that ended.",
    "message": "What happened, for people; mostly empty.",
    "name": "For people.",
    "num_episodes": "Episodes that ended.",
    "num_failed_episodes": "Episodes that failed, retried ones included.",
    "num_invalid_actions": "Replies that were no action, or no admissible one.",
    "num_action_tokens": "Tokens that our engine sampled.",
    "num_prompt_tokens": "Tokens that our engine read.",
    "num_steps": "Steps.",
    "optimizer_step_index": "0-based optimizer step of the training step; null untrained.",
    "panel": "Name of the list of tasks.",
    "phase": "What it was played for.",
    "pid": "The process; null if it is not known.",
    "retry": "0 for the first try at this place of the group.",
    "reward": "Paid for this step alone.",
    "rows": "The rows of the page.",
    "run_id": "Id of a run.",
    "sample_index": "0-based place in its group.",
    "split": "Which part of the task list.",
    "started_at": "Unix time.",
    "status": "How it stands.",
    "step_index": "0-based place in the episode.",
    "success": "Whether the environment says that the task was solved; null if it failed.",
    "task_id": "Of the task, unique within its environment.",
    "trained": "Whether it was in the loss.",
    "training_step": "1-based; 0 for a validation before training.",
    "value": "The number, or what is said.",
    "a": "The first of the two.",
    "act_call_index": "The call that chose the action; null where no model did.",
    "action_valid": "Whether the reply was an action, and an admissible one.",
    "advantage": "How much better than its baseline; null without credit.",
    "agent": "Which agent of several made it; empty where there is one.",
    "anchor_hash": "Of the anchor state: steps of a group with equal ones are compared.",
    "attempts": "Each process that worked on the run, the first one first.",
    "b": "The second of the two.",
    "b_episode_ids": "Of the episodes that the second played.",
    "b_return": "Mean return of the second.",
    "b_success": "Mean success of the second.",
    "bytes_per_step": "Bytes on disk for a step; 0 while there is none.",
    "calls": "Calls of models, in the order they were made.",
    "cancel_requested": "Whether somebody asked it to stop.",
    "continuation": "How its prompt relates to the calls before; null in a loop.",
    "conversation": "Which conversation of the episode, from 0.",
    "cost_usd": "What a hosted model charged, in US dollars; null where nobody knows.",
    "credit_share": "What the advantage is multiplied by for its tokens.",
    "credited_by": "Which step's advantage that is.",
    "description": "What it does.",
    "difference": "The second less the first.",
    "discount": "Weight of the next step's reward, per step.",
    "earlier_call_index": "The call whose prompt is compared with; null for the first.",
    "environment_version": "Of the environment's rules.",
    "episode_advantage": "The part of the advantage that all steps share.",
    "estimator": "Formula for advantages.",
    "expected": "What it should be.",
    "failure_cause": "Why it failed; null if it did not.",
    "failure_message": "What was being done, and the error; null if it did not fail.",
    "cause": "Which side of the episode broke, and how.",
    "finish_reason": "Why the model stopped writing.",
    "first": "Number of the first one.",
    "found": "What it is.",
    "generate_seconds": "Seconds that the engine took for the reply.",
    "high": "Upper end of the confidence interval.",
    "ids": "Token ids, in order.",
    "kind": "Which kind it is.",
    "labels": "Remarks on the episode and its steps.",
    "last_training_step": "The newest that was audited; null if no training step was over.",
    "later_group": "The next group.",
    "loss_weight": "Weight of each of its tokens in the loss; null without credit.",
    "max_return": "Greatest return of its episodes; null if all failed.",
    "mean_num_steps": "Mean length of the episodes that ended, in steps.",
    "media_type": "Of the picture.",
    "members": "The group's episodes.",
    "messages": "Chat messages.",
    "min_return": "Least return of its episodes; null if all failed.",
    "model": "Which model answered; empty for the policy that is trained.",
    "not_checked": "What could not be checked, and why.",
    "num_cached_tokens": "Leading prompt tokens from the engine's prefix cache; null unknown.",
    "num_checked": "Cases that the rule was checked on.",
    "num_findings": "Cases where the rule did not hold.",
    "num_lost": "Tasks that only the first solved.",
    "num_messages": "How many messages.",
    "num_runs": "Runs in the store.",
    "num_subjects": "How many were left unchecked.",
    "num_tasks": "Tasks of the panel.",
    "num_training_steps": "Training steps: planned of a run, checked of an audit.",
    "pictures": "Shown beside the text.",
    "policy_version": "Optimizer steps behind the weights that sampled it; null unknown.",
    "progress": "How much of the store is indexed.",
    "purpose": "What a call was made for: `act`, `plan`, `remember`, `judge` or a word.",
    "queue_seconds": "Seconds until the engine began with the request.",
    "reason": "Why.",
    "require_thinking": "Whether a reply without a thought is no action.",
    "return_to_go": "Discounted sum of the shaped rewards from this step on.",
    "role": "Who speaks.",
    "rule": "Name of the rule.",
    "rules": "The rules, and how many cases of each did not hold.",
    "shaped_reward": "What returns are made of: the reward, shaped, less what lowers them.",
    "sizes": "Bytes of each token, in order.",
    "source": "The node that it begins at.",
    "step_advantage": "The part of the advantage that is the step's own.",
    "steps": "Steps, in order.",
    "stop_reason": "Why it ended; null if it failed.",
    "summary": "The whole in a row.",
    "task_seed": "Seeds the environment's reset.",
    "tool_calls": "Tools that the reply asks for.",
    "tools": "What replies could ask for.",
    "top_p": "Of nucleus sampling; 1 leaves nothing out.",
    "limit": "Rows of a page.",
    "type": "PostgreSQL's word for a column; null where a view computes it.",
    "is_view": "Whether it is computed from tables.",
    "columns": "Its columns, in order.",
}
"""By name of a field or a parameter, what it is; fields that their own docstring describes have no
entry."""
IN_PATHS: dict[str, str | int] = {
    "call_index": 0,
    "content_hash": "9f86d081884c7d65" * 4,
    "episode_id": "20260101-sample-0001/0/train/3/0/1/0",
    "group_index": 0,
    "name": "worst_episodes",
    "phase": "train",
    "run_id": "20260101-sample-0001",
    "step_index": 0,
    "training_step": 3,
}
"""An example of each parameter of a path; answers have theirs in `examples.json`."""


def describe(app: FastAPI) -> None:
    """Let the application's document say it; call this after the routes."""
    plain = app.openapi

    @cache
    def openapi() -> dict[str, Any]:
        document = plain()
        schemas = document["components"]["schemas"]
        for of_framework in ("HTTPValidationError", "ValidationError"):
            schemas.pop(of_framework, None)  # errors.py answers with `Problem`
        for name, schema in schemas.items():
            for field, property_schema in schema.get("properties", {}).items():
                _complete(
                    field, property_schema, words=_KINDS.get(name) if field == "kind" else None
                )
        for path, operation in _operations(document):
            for parameter in operation.get("parameters", []):
                _complete_parameter(parameter)
            _show(operation)
            if "{" not in path and not operation.get("parameters"):
                operation["responses"].pop("404", None)
        document["components"]["securitySchemes"] = {
            "token": {
                "type": "http",
                "scheme": "bearer",
                "description": "Asked for where the server was started with one.",
            }
        }
        document["security"] = [{"token": []}, {}]
        return document

    app.openapi = openapi


def _operations(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for path, operations in document["paths"].items():
        for operation in operations.values():
            yield path, operation


def _show(operation: dict[str, Any]) -> None:
    """Add what it answered over a small store, and the request where that has a body."""
    content = operation["responses"]["200"]["content"]
    shown = _examples().get(operation["operationId"])
    if shown is None:
        if any(media_type.startswith("image/") for media_type in content):
            return  # pictures are bytes
        raise LookupError(f"examples.json has none of {operation['operationId']!r}")
    if "requestBody" in operation:
        asked = operation["requestBody"]["content"]["application/json"]
        asked["examples"] = {"sample": {"value": shown["body"]}}
    content[shown["media_type"]]["examples"] = {
        "sample": {"summary": shown["asked"], "value": shown["answer"]}
    }


@cache
def _examples() -> dict[str, Any]:
    """By operation, what was asked and answered; `tests/apps/api/example_answers.py` writes it."""
    return json.loads(files("longhaul_api").joinpath("examples.json").read_text("utf-8"))


def _complete(name: str, schema: dict[str, Any], *, words: tuple[str, ...] | None) -> None:
    """Add description and words to a field that has none."""
    if name in FIELDS:
        schema.setdefault("description", FIELDS[name])
    for plain in (schema, *schema.get("anyOf", [])):
        if plain.get("type") == "string" and "enum" not in plain and (words or name in WORDS):
            plain["enum"] = list(words or WORDS[name])


def _complete_parameter(parameter: dict[str, Any]) -> None:
    name = parameter["name"]
    described = parameter["schema"].get("description", FIELDS.get(name))
    if described is not None:
        parameter.setdefault("description", described)
    if parameter["in"] == "path":
        parameter.setdefault("example", IN_PATHS[name])
