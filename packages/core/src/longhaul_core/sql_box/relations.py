"""The tables and views that SQL may name, with what each column holds.

The sentences are those of `store/models.py`, read from its source: there is one description of a
column. What a view computes has a sentence here.
"""

import ast
import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from sqlalchemy.dialects import postgresql

from longhaul_core.store import models
from longhaul_core.store.models import Base
from longhaul_core.store.views import Dialect, view_definitions

__all__ = ["Column", "Relation", "column_names", "relation_names", "relations"]

_VIEW_TABLES: Mapping[str, tuple[str, ...]] = {
    "episode_summary": ("episodes", "groups", "tasks", "failures", "runs"),
    "step_detail": ("steps", "calls", "episodes", "observations", "tasks"),
    "call_detail": ("calls", "episodes", "tasks", "tool_lists", "steps"),
    "call_loss_inputs": ("calls", "loss_inputs", "episodes", "steps"),
    "step_texts": ("observations",),
    "episode_messages": ("messages",),
    "prompt_messages": ("calls", "messages"),
    "token_logprobs": ("call_tokens", "calls"),
    "training_curve": ("episodes",),
    "lease_summary": ("leases", "episodes"),
    "run_summary": ("runs",),
}
"""Of a view's column, the table that a column of the same name describes comes first."""

_VIEWS: Mapping[str, str] = {
    "episode_summary": "An episode with its task, group and failure; of the run's lineage.",
    "step_detail": "A step with its text, numbers and credit, and the call that chose its action.",
    "call_detail": "A call of a model: prompt sizes, reply, times and credit.",
    "call_loss_inputs": "Each reading of a call by the loss function; nulls where it read none.",
    "step_texts": "The text of a step: observation, and the replies of its calls.",
    "episode_messages": "Each chat message of an episode's prompts, once.",
    "prompt_messages": "The chat messages of each call's prompt, in order.",
    "token_logprobs": "Each token of each reply: logprobs of sampler and learner, entropy.",
    "training_curve": "Means over the episodes of a training step.",
    "lease_summary": "An episode that a runner on another machine plays or played.",
    "run_summary": "A run with its counts.",
}

_OF_VIEWS: Mapping[str, str] = {
    "run_id": "The run.",
    "episode_id": "run/attempt/phase/training_step/group_index/sample_index/retry.",
    "run_name": "The run's name.",
    "name": "Name.",
    "failure_cause": "Why it failed, in one word; null unless it did.",
    "failure_message": "What the failure said; null unless it failed.",
    "task_data": "The task's data, as JSON.",
    "started": "When it began.",
    "ended": "When it ended; null while it goes on.",
    "heartbeat": "Last sign of life.",
    "observation": "What the environment showed before the action.",
    "num_prompt_tokens": "Read by our engine.",
    "num_action_tokens": "Sampled by our engine.",
    "queue_seconds": "Seconds that calls waited for the engine.",
    "generate_seconds": "Seconds that the engine wrote.",
    "update_training_step": "The training step whose update read the call.",
    "replies": "The replies of the step's calls, one below the other.",
    "content": "The message's text.",
    "position": "0-based place in the prompt.",
    "num_episodes": "Episodes that did not fail.",
    "num_failed": "Episodes that failed.",
    "mean_return": "Mean undiscounted return, over those that did not fail.",
    "success_rate": "Successes over episodes that did not fail, in [0, 1].",
    "mean_num_steps": "Mean number of steps.",
    "num_steps": "Steps.",
    "invalid_action_rate": "Invalid actions over steps, in [0, 1].",
    "state": "`playing`, `run_ended`, or the lease's outcome.",
    "leased": "When the runner took it.",
    "heard": "When the runner was last heard of.",
    "num_training_steps_planned": "Training steps planned.",
    "num_training_steps_done": "The last training step that left its metrics.",
    "num_calls": "Calls of models.",
    "token_index": "0-based place in the reply.",
    "behavior_logprob": "Natural log, of the weights that sampled the token.",
    "policy_logprob": "Natural log, of the learner's weights before the update; may be null.",
    "policy_entropy": "Nats, of the learner's distribution before the update; may be null.",
    "trained": "Whether it is in the loss.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column."""

    name: str
    type: str | None
    """PostgreSQL's word, which SQLite takes as well; None where a view computes it."""
    description: str
    """Empty where the name says all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Relation:
    """One table or view."""

    name: str
    is_view: bool
    description: str
    columns: tuple[Column, ...]


@cache
def relations() -> tuple[Relation, ...]:
    """Views first, in the order in which they are defined, then tables."""
    sentences = _sentences()
    tables = {
        table.name: Relation(
            name=table.name,
            is_view=False,
            description=sentences[table.name, ""],
            columns=tuple(
                Column(
                    name=column.name,
                    type=column.type.compile(dialect=postgresql.dialect()).lower(),
                    description=sentences.get((table.name, column.name), ""),
                )
                for column in table.columns
            ),
        )
        for table in Base.metadata.tables.values()
    }
    views = [
        Relation(
            name=name,
            is_view=True,
            description=_VIEWS[name],
            columns=tuple(_column_of(name, column, tables) for column in _columns_of_view(name)),
        )
        for name in view_definitions("sqlite")
    ]
    return (*views, *tables.values())


def relation_names(dialect: str) -> frozenset[str]:
    """Tables and views of a store; the text index has another form on each database."""
    known: Dialect = "sqlite" if dialect == "sqlite" else "postgresql"
    return frozenset({*Base.metadata.tables, *view_definitions(known), "step_search"})


@cache
def column_names() -> frozenset[str]:
    """Of all tables and views."""
    return frozenset(column.name for relation in relations() for column in relation.columns)


def _column_of(view: str, name: str, tables: Mapping[str, Relation]) -> Column:
    found = [
        column
        for table in _VIEW_TABLES[view]
        for column in tables[table].columns
        if column.name == name
    ]
    described = next((column.description for column in found if column.description), "")
    return Column(
        name=name,
        type=found[0].type if found else None,
        description=_OF_VIEWS.get(name, "") if not found or not described else described,
    )


@cache
def _columns_of_view(view: str) -> tuple[str, ...]:
    """By asking SQLite, of an empty database with the same tables and views."""
    return _columns_of_all_views()[view]


@cache
def _columns_of_all_views() -> dict[str, tuple[str, ...]]:
    import sqlite3

    from sqlalchemy.dialects import sqlite
    from sqlalchemy.schema import CreateTable

    with sqlite3.connect(":memory:") as connection:
        for table in Base.metadata.sorted_tables:
            connection.execute(str(CreateTable(table).compile(dialect=sqlite.dialect())))
        found: dict[str, tuple[str, ...]] = {}
        for name, definition in view_definitions("sqlite").items():
            connection.execute(f"CREATE VIEW {name} AS {definition}")
            rows = connection.execute(f"SELECT * FROM {name} LIMIT 0")
            found[name] = tuple(column[0] for column in rows.description)
    connection.close()
    return found


def _sentences() -> dict[tuple[str, str], str]:
    """(table, column) → its docstring in `models`; ("table", "") → the class's."""
    found: dict[tuple[str, str], str] = {}
    tree = ast.parse(inspect.getsource(models))
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    by_name = {mapper.class_.__name__: str(mapper.local_table) for mapper in Base.registry.mappers}
    for name, table in by_name.items():
        own = classes[name]
        found[table, ""] = inspect.cleandoc(ast.get_docstring(own) or "")
        inherited = [
            classes[base.id]
            for base in own.bases
            if isinstance(base, ast.Name) and base.id in classes
        ]
        for described in (*inherited, own):
            for statement, following in zip(described.body, described.body[1:], strict=False):
                if (
                    isinstance(statement, ast.AnnAssign)
                    and isinstance(statement.target, ast.Name)
                    and isinstance(following, ast.Expr)
                    and isinstance(following.value, ast.Constant)
                ):
                    text = " ".join(str(following.value.value).split())
                    found[table, statement.target.id] = text
    return found
