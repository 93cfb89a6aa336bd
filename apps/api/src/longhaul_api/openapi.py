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
    "split_reason": tuple(each.value for each in SplitReason),
    "discard_reason": get_args(DiscardReason),
    "retention": ("removed", "sampled"),
}
"""Every word that a text field of that name may be."""
_KINDS = {"RunSummary": get_args(RunKind), "Change": get_args(ChangeKind)}

EPISODE = "20260101-sample-0001/0/train/3/0/1/0"
FIELDS: dict[str, tuple[str, Any]] = {
    "action": ("What the environment was given.", "north"),
    "attempt": ("Of the run: 0, or how often it had been resumed.", 0),
    "author": ("Who remarked it: a person, or a judge.", "ada"),
    "call_index": ("0-based place in the step, in the order of the calls.", 0),
    "content_hash": ("SHA-256 of the bytes as hexadecimal text.", "9f86d081884c7d65" * 4),
    "created_at": ("Unix time.", 1_760_000_000.0),
    "data": ("What there is.", None),
    "detail": ("What is wrong, for people.", "there is no run 'x' in the store"),
    "duration_seconds": ("Seconds from reset to the end.", 2.5),
    "ended_at": ("Unix time; null while it is running.", 1_760_000_100.0),
    "environment": ("Id of the environment.", "longhaul/TextCraft-v0"),
    "environment_seconds": ("Seconds that the environment took for the step.", 0.01),
    "episode_id": ("`run/attempt/phase/training step/group/sample_index/retry`.", EPISODE),
    "episode_return": ("Undiscounted sum of rewards; null if it failed.", 1.0),
    "failed": ("Whether something broke: no return, no success, in no baseline.", False),
    "goal": ("What is to be done, in a line for people.", "craft an oak sign"),
    "group_index": ("0-based place of the task in the training step's batch, or in the panel.", 0),
    "host": ("Name of the machine; null if it is not known.", "node-1"),
    "horizon": ("The step limit in force.", 50),
    "index": ("0-based place.", 0),
    "mean_return": ("Mean undiscounted return of the episodes that ended.", 0.4),
    "message": ("What happened, for people; mostly empty.", ""),
    "name": ("For people.", "textcraft"),
    "num_episodes": ("Episodes that ended.", 16),
    "num_failed_episodes": ("Episodes that failed, retried ones included.", 0),
    "num_invalid_actions": ("Replies that were no action, or no admissible one.", 0),
    "num_action_tokens": ("Tokens that our engine sampled.", 60),
    "num_prompt_tokens": ("Tokens that our engine read.", 400),
    "num_steps": ("Steps.", 12),
    "observation": ("What the environment showed.", "You see an oak log."),
    "optimizer_step_index": ("0-based optimizer step of the training step; null untrained.", 0),
    "panel": ("Name of the list of tasks.", "fixed"),
    "phase": ("What it was played for.", "train"),
    "pid": ("The process; null if it is not known.", 4711),
    "retry": ("0 for the first try at this place of the group.", 0),
    "reward": ("Paid for this step alone.", 0.0),
    "rolled_back": ("Whether a resume went on from before it.", False),
    "rows": ("The rows of the page.", None),
    "run_id": ("Id of a run.", "20260101-sample-0001"),
    "sample_index": ("0-based place in its group.", 1),
    "seed": ("Seeds the sampling of the actions.", 1),
    "split": ("Which part of the task list.", "train"),
    "started_at": ("Unix time.", 1_760_000_000.0),
    "status": ("How it stands.", "finished"),
    "step_index": ("0-based place in the episode.", 0),
    "success": ("Whether the environment says that the task was solved; null if it failed.", True),
    "success_rate": ("Successes over episodes that ended, in [0, 1].", 0.5),
    "task_id": ("Of the task, unique within its environment.", "train/00012"),
    "trained": ("Whether it was in the loss.", True),
    "training_step": ("1-based; 0 for a validation before training.", 3),
    "value": ("The number, or what is said.", None),
    "a": ("The first of the two.", None),
    "act_call_index": ("The call that chose the action; null where no model did.", 0),
    "action_valid": ("Whether the reply was an action, and an admissible one.", True),
    "advantage": ("How much better than its baseline; null without credit.", 0.5),
    "agent": ("Which agent of several made it; empty where there is one.", ""),
    "anchor_hash": (
        "Of the anchor state: steps of a group with equal ones are compared.",
        "0" * 32,
    ),
    "attempts": ("Each process that worked on the run, the first one first.", None),
    "b": ("The second of the two.", None),
    "b_episode_ids": ("Of the episodes that the second played.", None),
    "b_return": ("Mean return of the second.", 1.0),
    "b_success": ("Mean success of the second.", 1.0),
    "bytes_per_step": ("Bytes on disk for a step; 0 while there is none.", 5_740.0),
    "calls": ("Calls of models, in the order they were made.", None),
    "cancel_requested": ("Whether somebody asked it to stop.", False),
    "continuation": (
        "How its prompt relates to the calls before; null in a loop.",
        "exact",
    ),
    "conversation": ("Which conversation of the episode, from 0.", 0),
    "cost_usd": ("What a hosted model charged, in US dollars; null where nobody knows.", 0.002),
    "credit_share": ("What the step's advantage is multiplied by for its tokens.", 1.0),
    "description": ("What it does.", "Look at a thing."),
    "reference_logprob_sum": (
        "Of its tokens, by the weights that the run starts from; null unless it trains pairs.",
        -3.5,
    ),
    "difference": ("The second less the first.", 0.1),
    "discount": ("Weight of the next step's reward, per step.", 0.95),
    "earlier_call_index": ("The call whose prompt is compared with; null for the first.", 0),
    "environment_version": ("Of the environment's rules.", "1"),
    "episode_advantage": (
        "The part of the advantage that all steps share.",
        0.5,
    ),
    "estimator": ("Formula for advantages.", "gigpo"),
    "expected": ("What it should be.", "0.5"),
    "failure_cause": ("Why it failed; null if it did not.", None),
    "failure_message": ("What was being done, and the error; null if it did not fail.", None),
    "cause": ("Which side of the episode broke, and how.", "environment_error"),
    "finish_reason": ("Why the model stopped writing.", "stop"),
    "first": ("Number of the first one.", 0),
    "found": ("What it is.", "0.4"),
    "generate_seconds": ("Seconds that the engine took for the reply.", 0.25),
    "high": ("Upper end of the confidence interval.", 0.3),
    "ids": ("Token ids, in order.", None),
    "kind": ("Which kind it is.", None),
    "labels": ("Remarks on the episode and its steps.", None),
    "last_training_step": ("The newest that was audited; null if no training step was over.", 12),
    "later_group": ("The next group.", None),
    "loss_weight": ("Weight of each of its tokens in the loss; null without credit.", 0.25),
    "max_return": ("Greatest return of its episodes; null if all failed.", 1.0),
    "mean_num_steps": ("Mean length of the episodes that ended, in steps.", 12.5),
    "media_type": ("Of the picture.", "image/png"),
    "members": ("The group's episodes.", None),
    "messages": ("Chat messages.", None),
    "min_return": ("Least return of its episodes; null if all failed.", 0.0),
    "model": ("Which model answered; empty for the policy that is trained.", ""),
    "not_checked": ("What could not be checked, and why.", None),
    "num_cached_tokens": ("Leading prompt tokens from the engine's prefix cache; null unknown.", 0),
    "num_checked": ("Cases that the rule was checked on.", 128),
    "num_findings": ("Cases where the rule did not hold.", 0),
    "num_lost": ("Tasks that only the first solved.", 2),
    "num_messages": ("How many messages.", 1),
    "num_runs": ("Runs in the store.", 3),
    "num_subjects": ("How many were left unchecked.", 0),
    "num_tasks": ("Tasks of the panel.", 64),
    "num_unplayed": ("Episodes of the panel that failed for good; null unknown.", 0),
    "num_training_steps": ("Training steps: planned of a run, checked of an audit.", 12),
    "pictures": ("Shown beside the text.", None),
    "policy_version": ("Optimizer steps behind the weights that sampled it; null unknown.", 7),
    "progress": ("How much of the store is indexed.", None),
    "purpose": ("What a call was made for: `act`, `plan`, `remember`, `judge` or a word.", "act"),
    "queue_seconds": ("Seconds until the engine began with the request.", 0.01),
    "reason": ("Why.", "no token ids were kept"),
    "require_thinking": ("Whether a reply without a thought is no action.", False),
    "return_to_go": ("Discounted sum of the shaped rewards from this step on.", 0.9),
    "role": ("Who speaks.", "user"),
    "rule": ("Name of the rule.", "advantages"),
    "rules": ("The rules, and how many cases of each did not hold.", None),
    "shaped_reward": ("What returns are made of: the reward, shaped, less what lowers them.", 0.0),
    "sizes": ("Bytes of each token, in order.", None),
    "source": ("The node that it begins at.", None),
    "step_advantage": (
        "The part of the advantage that is the step's own.",
        0.1,
    ),
    "steps": ("Steps, in order.", None),
    "stop_reason": ("Why it ended; null if it failed.", "task_solved"),
    "summary": ("The whole in a row.", None),
    "task_seed": ("Seeds the environment's reset.", 0),
    "tool_calls": ("Tools that the reply asks for.", None),
    "tools": ("What replies could ask for.", None),
    "top_p": ("Of nucleus sampling; 1 leaves nothing out.", 1.0),
    "limit": ("Rows of a page.", 50),
    "type": ("PostgreSQL's word for a column; null where a view computes it.", "text"),
    "is_view": ("Whether it is computed from tables.", True),
    "columns": ("Its columns, in order.", None),
}
"""By name of a field or a parameter: what it is, and an example; None: there is none to give."""


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
    """Add description, example and words to a field that has none."""
    text, example = FIELDS.get(name, (None, None))
    if text is not None and "description" not in schema:
        schema["description"] = text
    if example is not None and _fits(example, schema):
        schema.setdefault("examples", [example])
    for plain in (schema, *schema.get("anyOf", [])):
        if plain.get("type") == "string" and "enum" not in plain and (words or name in WORDS):
            plain["enum"] = list(words or WORDS[name])


_TYPES: dict[type[object], tuple[str, ...]] = {
    bool: ("boolean",),
    int: ("integer", "number"),
    float: ("number",),
    str: ("string",),
}


def _fits(example: object, schema: dict[str, Any]) -> bool:
    """Whether a field may have that value: a name may be of a number here, and of a list there."""
    types = {plain.get("type") for plain in (schema, *schema.get("anyOf", []))}
    return bool(types & set(_TYPES[type(example)]))


def _complete_parameter(parameter: dict[str, Any]) -> None:
    text, example = FIELDS.get(parameter["name"], (None, None))
    if "description" not in parameter:
        described = parameter["schema"].get("description", text)
        if described is not None:
            parameter["description"] = described
    [own] = parameter["schema"].get("examples", [example])
    if own is not None and parameter["in"] == "path":
        parameter.setdefault("example", own)
