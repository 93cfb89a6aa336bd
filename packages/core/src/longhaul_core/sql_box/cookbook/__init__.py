"""Questions that people ask of a store, each one SELECT for both databases.

Each is a file of this folder: `-- ` lines with the question, notes, and its parameters as
`-- :name type = default  what it is` (a type is `text`, `integer`, `run`, `episode` or `metric`),
then the statement, in which a parameter is `:name`, as `sqlite3` has it. `asking.py` answers one.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal, get_args

from longhaul_core.errors import QueryError

__all__ = ["Named", "Parameter", "Question", "question", "questions", "quoted"]

Named = Literal["run", "episode", "metric"]
"""What of the store a parameter may name."""

_PARAMETER = re.compile(
    rf"-- :(?P<name>\w+) (?P<type>text|integer|{'|'.join(get_args(Named))})"
    r"(?: = (?P<default>\S+))?  (?P<description>.+)"
)
_PLACE = re.compile(r"(?<![:\w]):(\w+)")
ORDER = (
    "worst_episodes",
    "groups_without_signal",
    "flipped_tasks",
    "solved_by_one_run",
    "first_solved",
    "never_solved",
    "forgotten_tasks",
    "repeated_actions",
    "invalid_actions",
    "action_diversity",
    "failure_causes",
    "horizon_hits",
    "rewards_by_step",
    "best_steps",
    "shared_states",
    "largest_token_gaps",
    "unread_calls",
    "dropped_by_memory",
    "memory_drops",
    "prompt_growth",
    "tokens_read_again",
    "cut_replies",
    "time_by_part",
    "slowest_steps",
    "observations_with",
    "metric_of_two_runs",
)
"""As the guide and the menus show them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """Something that a question is asked with."""

    name: str
    type: type[int] | type[str]
    default: str | None
    """None: it must be given."""
    description: str
    names: Named | None
    """What of the store it names, if anything."""

    @property
    def explained(self) -> str:
        """What it is, and how it is said."""
        said = " Its id, the beginning of just one, or `last`." if self.names == "run" else ""
        return f"{self.description}{said}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One question."""

    name: str
    question: str
    note: str
    """What one should know of the answer; may be empty."""
    parameters: tuple[Parameter, ...]
    sql: str
    """The statement, with `:name` where a parameter stands."""

    def filled(self, values: Mapping[str, str | int]) -> str:
        """The statement with its parameters as literals; a run by its whole id.

        Args:
            values: By name. Those with a default may be left out.

        Raises:
            QueryError: One is missing, is none of the question's, or is no integer where one is
                needed.
        """
        known = {parameter.name for parameter in self.parameters}
        problems = [f"it has no parameter {name!r}" for name in values if name not in known]
        literals: dict[str, str] = {}
        for parameter in self.parameters:
            value = values.get(parameter.name, parameter.default)
            if value is None:
                problems.append(f"{parameter.name!r} is missing: {parameter.description}")
                continue
            try:
                literals[parameter.name] = _literal(value, parameter)
            except ValueError:
                problems.append(f"{parameter.name!r} must be a whole number, got {value!r}")
        if problems:
            raise QueryError(
                f"the question {self.name!r} cannot be asked like that: {'; '.join(problems)}"
                f" (its parameters: {', '.join(sorted(known))})"
            )
        return _PLACE.sub(lambda place: literals[place[1]], self.sql)


def questions() -> tuple[Question, ...]:
    """All of them, in the guide's order."""
    return tuple(question(name) for name in ORDER)


def question(name: str) -> Question:
    """One of them.

    Raises:
        QueryError: There is none of that name.
    """
    if name not in ORDER:
        raise QueryError(f"the cookbook has no question {name!r}; it has {', '.join(ORDER)}")
    return _read(name)


@cache
def _read(name: str) -> Question:
    lines = Path(__file__).with_name(f"{name}.sql").read_text("utf-8").splitlines()
    head = [line for line in lines if line.startswith("--")]
    found = [(line, _PARAMETER.fullmatch(line)) for line in head[1:]]
    return Question(
        name=name,
        question=head[0].removeprefix("-- "),
        note=" ".join(line.removeprefix("-- ") for line, match in found if match is None),
        parameters=tuple(
            Parameter(
                name=match["name"],
                type=int if match["type"] == "integer" else str,
                default=match["default"],
                description=match["description"],
                names=next((each for each in get_args(Named) if each == match["type"]), None),
            )
            for _, match in found
            if match is not None
        ),
        sql="\n".join(lines[len(head) :]),
    )


def quoted(text: str) -> str:
    """A text as SQL has it."""
    return "'" + text.replace("'", "''") + "'"


def _literal(value: str | int, parameter: Parameter) -> str:
    return str(int(value)) if parameter.type is int else quoted(str(value))
