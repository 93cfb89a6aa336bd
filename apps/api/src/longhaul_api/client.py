"""A client of the API: typed answers, pages as iterators, a run's events as an iterator.

    with Client("http://127.0.0.1:8000") as client:
        for episode in client.episodes(run_id, where=EpisodeWhere(success=True)):
            print(episode.task_id, episode.episode_return)

Answers are the dataclasses of `longhaul_core.store.queries`, as functions there return them.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from threading import Lock
from types import TracebackType
from typing import Any, NamedTuple, Self, TypeVar, cast

import httpx
from pydantic import TypeAdapter

from longhaul_api.routes.events import SECONDS_BETWEEN_SIGNS
from longhaul_api.routes.runs import RunConfiguration
from longhaul_core.errors import ConfigError, StoreError
from longhaul_core.exchange import EpisodeWhere, FormatName
from longhaul_core.store import queries
from longhaul_core.store.queries.labels import LabelOfRun, LabelPage
from longhaul_core.store.records import Phase, RunKind, RunStatus
from longhaul_core.types import FailureCause

__all__ = ["Client"]

ROWS_PER_PAGE = 200
SECONDS_BETWEEN_TRIES = 1.0
"""To connect again."""
SECONDS_TO_RETURN = 120.0
"""For a server, or its store, that went away while a run was followed."""
SECONDS_OF_SILENCE = 4 * SECONDS_BETWEEN_SIGNS
"""After which a connection on which a run is followed is taken for broken."""
ERRORS: dict[int, type[Exception]] = {
    400: ConfigError,
    401: PermissionError,
    403: PermissionError,
    404: LookupError,
    422: ConfigError,
    503: StoreError,
}
"""What an answer that is none raises."""
AnswerT = TypeVar("AnswerT")
Parameters = Mapping[str, str | int | float | bool | Sequence[str] | None]


class Client:
    """Reads one API. Each method asks one address; those that return an iterator ask for pages."""

    def __init__(
        self,
        address: str = "http://127.0.0.1:8000",
        *,
        token: str | None = None,
        timeout: float = 60.0,
        http: httpx.Client | None = None,
    ) -> None:
        """Nothing is asked yet.

        Args:
            address: Of the API: of `uv run api`, or a viewer's with `/api`.
            token: Where the server asks for one.
            timeout: Seconds until an answer begins.
            http: Asks instead of a client of its own, and is not closed; the other arguments do
                not count then.
        """
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        own = http is None
        self._http = (
            httpx.Client(base_url=address, headers=headers, timeout=timeout) if own else http
        )
        self._own = own

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Release the connections."""
        if self._own:
            self._http.close()

    def runs(
        self, *, status: RunStatus | None = None, kind: RunKind | None = None
    ) -> Iterator[queries.RunSummary]:
        """All runs, newest first."""
        after: str | None = None
        while True:
            asked = {"status": status, "kind": kind, "limit": ROWS_PER_PAGE, "after": after}
            rows = self._get("/runs", list[queries.RunSummary], asked)
            yield from rows
            if len(rows) < ROWS_PER_PAGE:
                return
            after = rows[-1].run_id

    def run(self, run_id: str) -> queries.RunDetail:
        """One run with its attempts."""
        return self._get(f"/runs/{run_id}", queries.RunDetail)

    def config(self, run_id: str) -> RunConfiguration:
        """A run's configuration and provenance."""
        return self._get(f"/runs/{run_id}/config", RunConfiguration)

    def curve(self, run_id: str, *, phase: Phase | None = None) -> list[queries.CurvePoint]:
        """Mean return, success and length by training step."""
        return self._get(f"/runs/{run_id}/curve", list[queries.CurvePoint], {"phase": phase})

    def metric_names(self, run_id: str) -> list[str]:
        """Names of the run's metrics."""
        return self._get(f"/runs/{run_id}/metrics", list[str])

    def metrics(self, run_id: str, *names: str) -> dict[str, list[queries.MetricPoint]]:
        """Values by training step; of all metrics if none is named."""
        kind = dict[str, list[queries.MetricPoint]]
        return self._get(f"/runs/{run_id}/metrics/series", kind, {"name": names})

    def evaluations(self, run_id: str) -> list[queries.EvaluationResult]:
        """Results on the run's panels."""
        return self._get(f"/runs/{run_id}/evaluations", list[queries.EvaluationResult])

    def audits(self, run_id: str) -> list[queries.AuditDetail]:
        """What audits of the run found, the newest first."""
        return self._get(f"/runs/{run_id}/audits", list[queries.AuditDetail])

    def episodes(
        self,
        run_id: str,
        *,
        where: EpisodeWhere | None = None,
        sort: queries.EpisodeSort = "training_step",
        descending: bool = True,
    ) -> Iterator[queries.EpisodeSummary]:
        """A run's episodes that match, in order; what is written meanwhile may be missing."""
        asked = _where(where) | {"sort": sort, "descending": descending}
        for page in self._pages(f"/runs/{run_id}/episodes", queries.EpisodePage, asked):
            yield from page.rows

    def episode(self, episode_id: str, *, tokens: bool = False) -> queries.EpisodeDetail:
        """One episode with all its steps; `tokens` adds token ids and logprobs."""
        return self._get(f"/episodes/{episode_id}", queries.EpisodeDetail, {"tokens": tokens})

    def step(self, episode_id: str, step_index: int) -> queries.StepDetail:
        """One step with its calls and their tokens."""
        return self._get(f"/episodes/{episode_id}/steps/{step_index}", queries.StepDetail)

    def failures(
        self, run_id: str, *, cause: FailureCause | None = None
    ) -> Iterator[queries.Failure]:
        """A run's failed episodes, the newest training step first."""
        asked: Parameters = {"cause": cause}
        for page in self._pages(f"/runs/{run_id}/failures", queries.FailurePage, asked):
            yield from page.rows

    def groups(
        self, run_id: str, *, phase: Phase | None = None, has_signal: bool | None = None
    ) -> Iterator[queries.GroupSummary]:
        """A run's groups, the newest training step first."""
        asked: Parameters = {"phase": phase, "has_signal": has_signal}
        for page in self._pages(f"/runs/{run_id}/groups", queries.GroupPage, asked):
            yield from page.rows

    def group(
        self, run_id: str, *, training_step: int, group_index: int, phase: Phase = "train"
    ) -> queries.GroupDetail:
        """One group with its episodes."""
        address = f"/runs/{run_id}/groups/{phase}/{training_step}/{group_index}"
        return self._get(address, queries.GroupDetail)

    def search(self, words: str, *, run_id: str | None = None) -> Iterator[queries.SearchHit]:
        """Steps whose text has all the words, the newest first."""
        for page in self._pages("/search", queries.SearchPage, {"words": words, "run_id": run_id}):
            yield from page.rows

    def labels(self, run_id: str, *, name: str | None = None) -> Iterator[LabelOfRun]:
        """Remarks on the run's episodes and steps."""
        for page in self._pages(f"/runs/{run_id}/labels", LabelPage, {"name": name}):
            yield from page.rows

    def picture(self, content_hash: str) -> bytes:
        """The bytes of a picture."""
        answer = self._http.get(f"/media/{content_hash}")
        _require(answer)
        return answer.content

    def storage(self) -> queries.StorageStats:
        """The store's size, and what is in it."""
        return self._get("/storage", queries.StorageStats)

    def export(
        self, run_id: str, *, format: FormatName, where: EpisodeWhere | None = None
    ) -> Iterator[bytes]:
        """A file of the run's episodes in another program's format, piece by piece."""
        asked = _given(_where(where) | {"format": format})
        with self._http.stream("GET", f"/runs/{run_id}/export", params=asked) as answer:
            _require(answer)
            yield from answer.iter_bytes()

    def events(self, run_id: str, *, cursor: int | None = None) -> Iterator[queries.Changes]:
        """What changes in a run, as it is committed, until the run is over or deleted.

        A connection that breaks is made again, from where it was: no change is lost or comes twice.

        Args:
            run_id: The run to follow.
            cursor: Of what was seen last; 0 begins with the first commit; None with what comes from
                now on.

        Raises:
            LookupError: There is no such run.
            httpx.TransportError: The server is not to be reached, for `SECONDS_TO_RETURN`.
            StoreError: Its store cannot be read, for as long.
        """
        away_since: float | None = None
        while True:
            asked = _given({"run": run_id, "cursor": cursor})
            try:
                with self._http.stream(
                    "GET", "/events", params=asked, timeout=SECONDS_OF_SILENCE
                ) as answer:
                    _require(answer)
                    away_since = None
                    for event in _server_sent(answer.iter_lines()):
                        if event.kind == "end":
                            return
                        changes = _read(queries.Changes, event.data)
                        cursor = changes.cursor
                        yield changes
            except (httpx.TransportError, StoreError):
                now = time.monotonic()
                away_since = now if away_since is None else away_since
                if cursor is None or now - away_since > SECONDS_TO_RETURN:
                    raise
            time.sleep(SECONDS_BETWEEN_TRIES)

    def _pages(
        self, address: str, kind: type[AnswerT], parameters: Parameters
    ) -> Iterator[AnswerT]:
        after: str | None = None
        while True:
            asked = {**parameters, "limit": ROWS_PER_PAGE, "after": after}
            page = self._get(address, kind, asked)
            yield page
            after = cast("str | None", getattr(page, "next_key"))  # noqa: B009 - each page has one
            if after is None:
                return

    def _get(
        self, address: str, kind: type[AnswerT], parameters: Parameters | None = None
    ) -> AnswerT:
        """One answer.

        Raises:
            LookupError: There is no such thing (404).
            ConfigError: The question makes no sense (422), or names another host (400).
            PermissionError: The token is missing, or another (401, 403).
            StoreError: The store cannot be read now (503).
            httpx.HTTPStatusError: Anything else that is no answer.
        """
        answer = self._http.get(address, params=_given(parameters or {}))
        _require(answer)
        return _read(kind, answer.content)


def _where(where: EpisodeWhere | None) -> dict[str, Any]:
    return {} if where is None else where.model_dump(mode="json", exclude_defaults=True)


def _given(parameters: Parameters) -> dict[str, Any]:
    return {name: value for name, value in parameters.items() if value is not None}


def _require(answer: httpx.Response) -> None:
    if answer.is_success:
        return
    answer.read()
    if answer.status_code in ERRORS:
        raise ERRORS[answer.status_code](answer.json()["detail"])
    answer.raise_for_status()


def _read(kind: type[AnswerT], content: str | bytes) -> AnswerT:
    with _making_adapters:
        adapter = _adapter(kind)
    return adapter.validate_json(content)


_making_adapters = Lock()
"""pydantic parses the classes' source, which Python 3.11 does not survive in two threads at once:
SystemError, "AST constructor recursion depth mismatch"."""


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:  # noqa: ANN401 - a class, or a generic alias
    return TypeAdapter(kind)


class _Event(NamedTuple):
    kind: str
    data: str


def _server_sent(lines: Iterator[str]) -> Iterator[_Event]:
    """Events of a stream; comments and an event that breaks off are none."""
    kind, data = "message", list[str]()
    for line in lines:
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        match name:
            case "event":
                kind = value
            case "data":
                data.append(value)
            case "" if not line and data:
                yield _Event(kind, "\n".join(data))
                kind, data = "message", []
            case _:
                pass
