"""Databases and questions made from a number.

A database is a domain's four tables, filled by chance. Of it one question of each family is
asked, whose gold query was run when the question was made: it has a result, and not too long
a one. Only `Random.random` is drawn from, the one method whose values Python promises never to
change.
"""

import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import lru_cache
from random import Random
from typing import TypeVar

from longhaul_envs.sql.domains import DOMAINS, Domain
from longhaul_envs.task_lists import stable_seed

__all__ = ["FAMILIES", "Database", "Question", "make_database"]

_FIRST = ("Ada", "Bo", "Cleo", "Dev", "Ewa", "Finn", "Gita", "Hugo", "Ines", "Juno", "Kofi", "Lena")
_LAST = ("Abel", "Brandt", "Costa", "Diaz", "Ekman", "Frost", "Grant", "Hale", "Ito", "Janssen")
_MAX_ROWS, _MAX_ATTEMPTS = 15, 40

_Item = TypeVar("_Item")


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked, and the query that answers it."""

    family: str
    text: str
    gold: str


@dataclass(frozen=True, slots=True)
class Database:
    """A database as the bytes of its file, and what is asked of it."""

    domain: str
    image: bytes
    schema: tuple[str, ...]
    """A line for each table."""
    questions: tuple[Question, ...]
    """At most one of each family."""


@dataclass(frozen=True, slots=True)
class _Draw:
    """What a family makes a question of."""

    domain: Domain
    random: Random
    connection: sqlite3.Connection

    def one_of(self, items: Sequence[_Item]) -> _Item:
        return items[int(self.random.random() * len(items))]

    def between(self, low: int, high: int) -> int:
        """A whole number, both ends included."""
        return low + int(self.random.random() * (high - low + 1))

    def value_of(self, column: str, table: str) -> int:
        """One that occurs."""
        rows = self.connection.execute(f"SELECT {column} FROM {table} ORDER BY rowid").fetchall()
        return int(self.one_of(rows)[0])


@lru_cache(maxsize=512)
def make_database(domain_name: str, number: int) -> Database:
    """The database of a domain and a number, and its questions.

    Raises:
        KeyError: There is no such domain.
    """
    domain = {known.name: known for known in DOMAINS}[domain_name]
    random = Random(stable_seed(f"sql {domain_name} {number}"))
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        draw = _Draw(domain, random, connection)
        connection.execute("BEGIN")
        schema = _create_tables(draw)
        _fill(draw)
        connection.execute("COMMIT")
        questions = [_asked(family, draw) for family in FAMILIES]
        return Database(
            domain.name,
            connection.serialize(),
            schema,
            tuple(question for question in questions if question is not None),
        )


def _create_tables(draw: _Draw) -> tuple[str, ...]:
    d = draw.domain
    tables = (
        f"{d.person.many}(id INTEGER PRIMARY KEY, name TEXT, {d.group.one} TEXT, age INTEGER)",
        f"{d.maker.many}(id INTEGER PRIMARY KEY, name TEXT, {d.origin.one} TEXT)",
        f"{d.thing.many}(id INTEGER PRIMARY KEY, title TEXT, {d.kind.one} TEXT, "
        f"{d.measure} INTEGER, {d.maker.one}_id INTEGER REFERENCES {d.maker.many}(id))",
        f"{d.event.many}(id INTEGER PRIMARY KEY, "
        f"{d.person.one}_id INTEGER REFERENCES {d.person.many}(id), "
        f"{d.thing.one}_id INTEGER REFERENCES {d.thing.many}(id), "
        f"{d.amount} INTEGER, {d.day} TEXT)",
    )
    for table in tables:
        draw.connection.execute(f"CREATE TABLE {table}")
    return tables


def _fill(draw: _Draw) -> None:
    d = draw.domain
    names = _shuffled(draw, [f"{first} {last}" for first in _FIRST for last in _LAST])
    num_persons, num_makers = draw.between(18, 36), draw.between(6, 9)
    persons = [(name, draw.one_of(d.groups), draw.between(18, 80)) for name in names[:num_persons]]
    makers = [
        (name, draw.one_of(d.origins)) for name in names[num_persons : num_persons + num_makers]
    ]
    titles = _shuffled(draw, [f"{a} {b}" for a in d.title_words[0] for b in d.title_words[1]])
    things = [
        (title, draw.one_of(d.kinds), draw.between(*d.measures), draw.between(1, num_makers))
        for title in titles[: draw.between(16, 28)]
    ]
    events = [
        (
            draw.between(1, num_persons),
            draw.between(1, len(things)),
            draw.between(*d.amounts),
            f"{draw.between(2019, 2024)}-{draw.between(1, 12):02}-{draw.between(1, 28):02}",
        )
        for _ in range(draw.between(50, 120))
    ]
    filled = zip(
        (d.person, d.maker, d.thing, d.event), (persons, makers, things, events), strict=True
    )
    for noun, rows in filled:
        places = ", ".join("?" * (1 + len(rows[0])))
        numbered = [(number, *row) for number, row in enumerate(rows, start=1)]
        draw.connection.executemany(f"INSERT INTO {noun.many} VALUES ({places})", numbered)


def _shuffled(draw: _Draw, items: list[str]) -> list[str]:
    rest = list(items)
    return [rest.pop(int(draw.random.random() * len(rest))) for _ in items]


def _asked(family: str, draw: _Draw) -> Question | None:
    """A question of the family whose answer has rows, but not many, and no NULL."""
    for _ in range(_MAX_ATTEMPTS):
        text, gold = FAMILIES[family](draw)
        rows = draw.connection.execute(gold).fetchall()
        is_zero = rows in ([(0,)], [(None,)])
        if 0 < len(rows) <= _MAX_ROWS and not is_zero:
            return Question(family, text, gold)
    return None


def _count_of_group(draw: _Draw) -> tuple[str, str]:
    d, group = draw.domain, draw.one_of(draw.domain.groups)
    return (
        f"How many {d.person.many} are of the {d.group.one} {group}?",
        f"SELECT COUNT(*) FROM {d.person.many} WHERE {d.group.one} = '{group}'",
    )


def _things_above(draw: _Draw) -> tuple[str, str]:
    d, kind = draw.domain, draw.one_of(draw.domain.kinds)
    least = draw.value_of(d.measure, d.thing.many)
    return (
        f"Give the title of every {d.thing.one} of the {d.kind.one} {kind} with {d.measure} above "
        f"{least}.",
        f"SELECT title FROM {d.thing.many} WHERE {d.kind.one} = '{kind}' AND {d.measure} > {least}",
    )


def _top_things(draw: _Draw) -> tuple[str, str]:
    d, count = draw.domain, draw.between(2, 6)
    return (
        f"Give title and {d.measure} of the {count} {d.thing.many} with the highest {d.measure}, "
        "the highest first, equal ones by title.",
        f"SELECT title, {d.measure} FROM {d.thing.many} ORDER BY {d.measure} DESC, title "
        f"LIMIT {count}",
    )


def _number_per_group(draw: _Draw) -> tuple[str, str]:
    d, age = draw.domain, draw.between(20, 60)
    return (
        f"How many {d.person.many} older than {age} are there of each {d.group.one}? Give "
        f"{d.group.one} and number, by {d.group.one} in the order of the alphabet; leave out "
        f"{d.group.many} without any.",
        f"SELECT {d.group.one}, COUNT(*) FROM {d.person.many} WHERE age > {age} "
        f"GROUP BY {d.group.one} ORDER BY {d.group.one}",
    )


def _kinds_with_high_average(draw: _Draw) -> tuple[str, str]:
    d, least = draw.domain, draw.between(*draw.domain.measures)
    return (
        f"Of which {d.kind.many} is the average {d.measure} of the {d.thing.many} above {least}?",
        f"SELECT {d.kind.one} FROM {d.thing.many} GROUP BY {d.kind.one} "
        f"HAVING AVG({d.measure}) > {least}",
    )


def _busiest_persons(draw: _Draw) -> tuple[str, str]:
    d, count = draw.domain, draw.between(2, 6)
    return (
        f"Which {count} {d.person.many} have the most {d.event.many}? Give name and number of "
        f"{d.event.many}, the most first, equal ones by name.",
        f"SELECT p.name, COUNT(*) AS number FROM {d.person.many} p JOIN {d.event.many} e "
        f"ON e.{d.person.one}_id = p.id GROUP BY p.id ORDER BY number DESC, p.name LIMIT {count}",
    )


def _persons_without(draw: _Draw) -> tuple[str, str]:
    d, kind = draw.domain, draw.one_of(draw.domain.kinds)
    return (
        f"Give the name of every {d.person.one} without any of the {d.event.many} for a "
        f"{d.thing.one} of the {d.kind.one} {kind}.",
        f"SELECT name FROM {d.person.many} WHERE id NOT IN (SELECT e.{d.person.one}_id "
        f"FROM {d.event.many} e JOIN {d.thing.many} t ON t.id = e.{d.thing.one}_id "
        f"WHERE t.{d.kind.one} = '{kind}')",
    )


def _total_of_origin(draw: _Draw) -> tuple[str, str]:
    d, origin = draw.domain, draw.one_of(draw.domain.origins)
    return (
        f"What is the total {d.amount} of all {d.event.many} for {d.thing.many} whose "
        f"{d.maker.one} is of the {d.origin.one} {origin}?",
        f"SELECT SUM(e.{d.amount}) FROM {d.event.many} e "
        f"JOIN {d.thing.many} t ON t.id = e.{d.thing.one}_id "
        f"JOIN {d.maker.many} m ON m.id = t.{d.maker.one}_id WHERE m.{d.origin.one} = '{origin}'",
    )


def _above_the_average(draw: _Draw) -> tuple[str, str]:
    d, kind = draw.domain, draw.one_of(draw.domain.kinds)
    return (
        f"How many {d.thing.many} of the {d.kind.one} {kind} have {d.measure} above the average "
        f"of all {d.thing.many}?",
        f"SELECT COUNT(*) FROM {d.thing.many} WHERE {d.kind.one} = '{kind}' AND "
        f"{d.measure} > (SELECT AVG({d.measure}) FROM {d.thing.many})",
    )


def _makers_met_by_group(draw: _Draw) -> tuple[str, str]:
    d, group = draw.domain, draw.one_of(draw.domain.groups)
    year = draw.between(2019, 2024)
    return (
        f"Which {d.maker.many} made {d.thing.many} of which {d.person.many} of the {d.group.one} "
        f"{group} have {d.event.many} in {year}? Give each name once, in the order of the "
        "alphabet.",
        f"SELECT DISTINCT m.name FROM {d.maker.many} m "
        f"JOIN {d.thing.many} t ON t.{d.maker.one}_id = m.id "
        f"JOIN {d.event.many} e ON e.{d.thing.one}_id = t.id "
        f"JOIN {d.person.many} p ON p.id = e.{d.person.one}_id "
        f"WHERE p.{d.group.one} = '{group}' AND substr(e.{d.day}, 1, 4) = '{year}' ORDER BY m.name",
    )


def _days_of_one(draw: _Draw) -> tuple[str, str]:
    d = draw.domain
    number = draw.value_of("id", d.person.many)
    (name,) = draw.connection.execute(
        f"SELECT name FROM {d.person.many} WHERE id = ?", (number,)
    ).fetchone()
    return (
        f"Give {d.day} and {d.amount} of every one of the {d.event.many} of {name}, and the title "
        f"of the {d.thing.one}.",
        f"SELECT e.{d.day}, e.{d.amount}, t.title FROM {d.event.many} e "
        f"JOIN {d.person.many} p ON p.id = e.{d.person.one}_id "
        f"JOIN {d.thing.many} t ON t.id = e.{d.thing.one}_id WHERE p.name = '{name}'",
    )


def _best_of_each_kind(draw: _Draw) -> tuple[str, str]:
    d = draw.domain
    least = draw.between(2, 4)
    return (
        f"For each {d.kind.one} with at least {least} {d.thing.many}, give the {d.kind.one} and "
        f"the highest {d.measure}, by {d.kind.one} in the order of the alphabet.",
        f"SELECT {d.kind.one}, MAX({d.measure}) FROM {d.thing.many} GROUP BY {d.kind.one} "
        f"HAVING COUNT(*) >= {least} ORDER BY {d.kind.one}",
    )


FAMILIES: dict[str, Callable[[_Draw], tuple[str, str]]] = {
    "count_of_group": _count_of_group,
    "things_above": _things_above,
    "top_things": _top_things,
    "number_per_group": _number_per_group,
    "kinds_with_high_average": _kinds_with_high_average,
    "busiest_persons": _busiest_persons,
    "persons_without": _persons_without,
    "total_of_origin": _total_of_origin,
    "above_the_average": _above_the_average,
    "makers_met_by_group": _makers_met_by_group,
    "days_of_one": _days_of_one,
    "best_of_each_kind": _best_of_each_kind,
}
"""Name of a family to what makes a question and its gold query."""
