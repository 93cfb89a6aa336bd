"""SQL's tasks: a question about a database.

Of a generated database a task id is `DOMAIN-NUMBER/FAMILY`, e.g. `shop-3/top_things`; of BIRD-SQL
it is `PART/NUMBER`, e.g. `dev/12`, the question's place in its file from 0. A database is in one
split, and so is a question of the same words in a domain.
"""

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from longhaul_core.environment import Determinism, EnvironmentPrompt
from longhaul_core.errors import ConfigError
from longhaul_core.types import Split, Task
from longhaul_envs.packaged import PackagedOptions, PackagedSource
from longhaul_envs.sql.bird import load_bird, schema_of
from longhaul_envs.sql.domains import DOMAINS
from longhaul_envs.sql.generated import make_database
from longhaul_envs.task_lists import shared_out, stable_seed

__all__ = ["Asked", "SQLOptions", "asked", "draw_asked", "source", "tasks"]

_FORMS, _SCHEMAS, _SCORINGS = ("explore", "single"), ("always", "first", "hidden"), ("rows", "sets")
_MAX_DATABASES, _MAX_SHOWN_ROWS = 500, 1000
_MIN_STEPS, _MAX_STEPS = 10_000, 1_000_000_000
_TASK_ID = re.compile(r"([a-z]+)-([0-9]{1,9})/([a-z_]+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class SQLOptions(PackagedOptions):
    """What can be chosen about SQL."""

    environment_id = "longhaul/SQL-v0"
    episodes_per_process = 4
    rules = ("form", "schema", "scoring", "shown_rows", "max_steps")

    bird: str = ""
    """Folder with BIRD-SQL's `train` and `dev`; empty for generated databases. Chooses tasks."""
    num_databases: int = 10
    """Generated databases of each domain, 1 to 500. Chooses tasks."""
    form: str = "explore"
    """`explore`: queries, then an answer. `single`: one statement, which is the answer. A rule."""
    schema: str = "always"
    """When the tables are listed: `always`, at the `first` observation, or never: `hidden`. A
    rule."""
    scoring: str = "rows"
    """`rows`: equal rows count, and their order where the gold query asks for one. `sets`: BIRD's
    own, neither counts. A rule."""
    shown_rows: int = 20
    """Rows of a result that are shown, 1 to 1000. A rule."""
    max_steps: int = 50_000_000
    """Of SQLite's machine that a query may take, 10,000 to 1,000,000,000. A rule."""

    def __post_init__(self) -> None:
        for name, allowed in (("form", _FORMS), ("schema", _SCHEMAS), ("scoring", _SCORINGS)):
            if getattr(self, name) not in allowed:
                raise ConfigError(
                    f"{name} must be one of {', '.join(allowed)}, got {getattr(self, name)!r}"
                )
        for name, low, high in (
            ("num_databases", 1, _MAX_DATABASES),
            ("shown_rows", 1, _MAX_SHOWN_ROWS),
            ("max_steps", _MIN_STEPS, _MAX_STEPS),
        ):
            if not low <= getattr(self, name) <= high:
                raise ConfigError(f"{name} must be from {low} to {high}, got {getattr(self, name)}")
        if self.bird:
            load_bird(Path(self.bird))


@dataclass(frozen=True, slots=True)
class Asked:
    """A question, and all that is needed to ask it."""

    task_id: str
    database: str
    """Its name."""
    schema: tuple[str, ...]
    """A line for each table."""
    question: str
    hint: str
    """BIRD-SQL's evidence; may be empty."""
    gold: str
    source: bytes | Path
    """The database: the content of its file, or the file."""


def tasks(split: Split, options: SQLOptions, limit: int | None = None) -> tuple[Task, ...]:
    """The first `limit` tasks of `split`."""
    if options.bird:
        bird = load_bird(Path(options.bird))
        return tuple(
            options.task(
                task_id, split, goal=bird.questions[task_id].text, data_hash=bird.data_hash
            )
            for task_id in bird.splits[split][:limit]
        )
    return tuple(
        options.task(task_id, split, goal=goal)
        for task_id, goal in _generated(options.num_databases)[split][:limit]
    )


def asked(task_id: str, options: SQLOptions) -> Asked:
    """The question of a task id.

    Raises:
        ValueError: No task has this id.
    """
    if options.bird:
        return _asked_of_bird(task_id, Path(options.bird))
    match = _TASK_ID.fullmatch(task_id)
    if match is not None and match[1] in {domain.name for domain in DOMAINS}:
        database = make_database(match[1], int(match[2]))
        for question in database.questions:
            if question.family == match[3]:
                return Asked(
                    task_id=task_id,
                    database=database.domain,
                    schema=database.schema,
                    question=question.text,
                    hint="",
                    gold=question.gold,
                    source=database.image,
                )
    raise ValueError(
        f"no SQL task is called {task_id!r}; ids look like 'shop-3/top_things' (domain, number, "
        "family of questions)"
    )


def draw_asked(options: SQLOptions, seed: int) -> Asked:
    """A question of any split; the same seed draws the same one."""
    if options.bird:
        every = list(load_bird(Path(options.bird)).questions)
    else:
        listed = _generated(options.num_databases)
        every = [task_id for split in Split for task_id, _ in listed[split]]
    return asked(every[stable_seed(f"sql {seed}") % len(every)], options)


def _asked_of_bird(task_id: str, folder: Path) -> Asked:
    question = load_bird(folder).questions.get(task_id)
    if question is None:
        raise ValueError(
            f"no task of BIRD-SQL is called {task_id!r}; ids look like 'dev/12' (part, number)"
        )
    return Asked(
        task_id=task_id,
        database=question.file.stem,
        schema=schema_of(question.file),
        question=question.text,
        hint=question.evidence,
        gold=question.gold,
        source=question.file,
    )


@cache
def _generated(num_databases: int) -> dict[Split, list[tuple[str, str]]]:
    """Task ids with their questions: one of each database, then a second of each."""
    names = [f"{domain.name}-{number}" for domain in DOMAINS for number in range(num_databases)]
    shared = shared_out(names)
    met: set[tuple[str, str]] = set()
    listed: dict[Split, list[tuple[str, str]]] = {}
    for split in (Split.TEST, Split.VALIDATION, Split.TRAIN):
        mine: list[tuple[int, str, str]] = []
        for name in shared[split]:
            domain, _, number = name.partition("-")
            database = make_database(domain, int(number))
            for place, question in enumerate(database.questions):
                if (domain, question.text) not in met:
                    mine.append((place, f"{name}/{question.family}", question.text))
        met |= {(task_id.partition("-")[0], text) for _, task_id, text in mine}
        listed[split] = [(task_id, text) for _, task_id, text in sorted(mine)]
    return listed


_LOOKS = (
    "You answer a question about an SQLite database. The action `query` with a SELECT statement "
    "shows its first rows; make as many as you need. The action `answer` with a SELECT statement "
    "ends the task: the rows that it gives are your answer."
)
_SINGLE = (
    "You answer a question about an SQLite database by one SELECT statement: the rows that it "
    "gives are your answer."
)
_HIDDEN = " The table sqlite_master tells which tables there are."


def _prompt(options: SQLOptions) -> EnvironmentPrompt:
    system = _LOOKS if options.form == "explore" else _SINGLE
    return EnvironmentPrompt(
        system=system + (_HIDDEN if options.schema == "hidden" else ""),
        instruction=(
            "What comes next: query SELECT ..., or answer SELECT ...?"
            if options.form == "explore"
            else "Which SELECT statement answers the question?"
        ),
    )


source = PackagedSource(
    SQLOptions,
    tasks,
    lambda options: options.description(
        summary="answer a question about a database by a query, after looks at its data",
        prompt=_prompt(options),
        actions=(
            "`query SELECT ...` or `answer SELECT ...`"
            if options.form == "explore"
            else "a SELECT statement"
        ),
        # BIRD-SQL's own queries need functions of time, and those can read the clock
        determinism=Determinism.FIRST_OBSERVATION if options.bird else Determinism.EXACT,
    ),
)
