"""Routes under `/sql`.

They are there for callers on this machine, and for callers with the token. A server that others
reach has a token always (`ApiSettings`), so that these two are all.
"""

from collections.abc import Callable
from typing import Annotated, Any

import anyio
from anyio import to_thread
from fastapi import APIRouter, Body, Path, Query, Request
from pydantic import BaseModel, ConfigDict, Field

from longhaul_core.errors import StoreError
from longhaul_core.sql_box.box import MOST_AT_ONCE, QueryResult, run_query
from longhaul_core.sql_box.cookbook import Question, question, questions
from longhaul_core.sql_box.cookbook.asking import ask_question
from longhaul_core.sql_box.files import json_cell
from longhaul_core.sql_box.limits import QueryLimits
from longhaul_core.sql_box.relations import Relation, relations

router = APIRouter(prefix="/sql", tags=["sql"])

MOST_ROWS = 10_000
MOST_SECONDS = 30.0
MOST_WAITING = 16
"""Statements, for one of `MOST_AT_ONCE` places."""


class Statement(BaseModel):
    """One SELECT."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {"sql": "SELECT run_id, status, num_episodes FROM run_summary", "rows": 100}
            ]
        },
    )

    sql: str = Field(max_length=100_000, description="SELECT, WITH … SELECT or VALUES.")
    rows: int = Field(1000, ge=1, le=MOST_ROWS, description="At most so many rows.")
    seconds: float = Field(10.0, gt=0, le=MOST_SECONDS, description="At most so long.")


class Answer(BaseModel):
    """Answer to a statement."""

    columns: list[str] = Field(description="Names, which may repeat.")
    rows: list[list[Any]] = Field(
        description="Values in the order of the columns; bytes are hexadecimal text after `0x`."
    )
    truncated: str | None = Field(
        description="`rows` or `bytes` if that limit left rows out; null if these are all."
    )
    seconds: float = Field(description="That the database took.")


class CookbookParameter(BaseModel):
    """A parameter of a question."""

    name: str
    type: str = Field(description="text or integer.")
    default: str | None = Field(description="Null: it must be given.")
    description: str


class CookbookQuestion(BaseModel):
    """A question that is ready to ask."""

    name: str
    question: str = Field(description="What it answers, for people.")
    note: str = Field(description="What one should know of the answer.")
    parameters: list[CookbookParameter] = Field(description="What to fill in, maybe nothing.")
    sql: str = Field(description="With `:name` where a parameter stands.")


@router.post("")
async def ask(request: Request, statement: Annotated[Statement, Body()]) -> Answer:
    """Answer one SELECT over the documented tables and views. It can change nothing."""
    store, limits = _store(request), QueryLimits(rows=statement.rows, seconds=statement.seconds)
    return await _answered(request, lambda: run_query(store, statement.sql, limits=limits))


@router.get("/schema")
def schema() -> list[Relation]:
    """The views and tables that a statement may name, with what each column holds."""
    return list(relations())


@router.get("/cookbook")
def cookbook() -> list[CookbookQuestion]:
    """Questions that are ready to ask."""
    return [_shown(each) for each in questions()]


@router.get("/cookbook/{name}")
async def ask_cookbook(
    request: Request,
    name: Annotated[str, Path(description="Of a question in `/sql/cookbook`.")],
    parameters: Annotated[
        list[str], Query(alias="param", description="Each as `name=value`.", max_length=20)
    ] = [],  # noqa: B006 - FastAPI copies it
    rows: Annotated[int, Query(ge=1, le=MOST_ROWS, description="At most so many rows.")] = 1000,
) -> Answer:
    """Ask a question of the cookbook."""
    try:
        asked = question(name)
    except ValueError as error:
        raise LookupError(str(error)) from error
    pairs = (one.partition("=") for one in parameters)
    values = {key: value for key, _, value in pairs}
    store, limits = _store(request), QueryLimits(rows=rows)
    return await _answered(request, lambda: ask_question(store, asked, values, limits=limits))


async def _answered(request: Request, ask: Callable[[], QueryResult]) -> Answer:
    """What `ask` answers, in one of the few threads that run statements.

    Who waits for one holds no other: those that answer everything else stay free.

    Raises:
        StoreError: As many wait as may.
    """
    places: anyio.CapacityLimiter = request.app.state.sql_places
    if places.statistics().tasks_waiting >= MOST_WAITING:
        raise StoreError(
            f"{MOST_AT_ONCE} statements run and {MOST_WAITING} wait already, as many as may: try "
            "again in a while"
        )
    return await to_thread.run_sync(lambda: answer_of(ask()), limiter=places)


def answer_of(result: QueryResult) -> Answer:
    """The answer in JSON."""
    return Answer(
        columns=list(result.columns),
        rows=[[json_cell(value) for value in row] for row in result.rows],
        truncated=result.truncated,
        seconds=result.seconds,
    )


def _store(request: Request) -> str:
    """Address of the store for typed SQL.

    Raises:
        StoreError: PostgreSQL, and no fenced role was named.
    """
    store: str | None = request.app.state.sql_store
    if store is None:
        raise StoreError(
            "typed SQL is off: on PostgreSQL it needs the address of a fenced role, in "
            "LONGHAUL_SQL_STORE; `trainer store fence-role` makes one"
        )
    return store


def _shown(each: Question) -> CookbookQuestion:
    return CookbookQuestion(
        name=each.name,
        question=each.question,
        note=each.note,
        parameters=[
            CookbookParameter(
                name=one.name,
                type="integer" if one.type is int else "text",
                default=one.default,
                description=one.explained,
            )
            for one in each.parameters
        ],
        sql=each.sql,
    )
