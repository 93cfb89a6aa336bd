"""An episode on an AgentGym server."""

import json
import logging
import math
from collections.abc import Mapping
from typing import cast

from longhaul_core.environment import StepResult
from longhaul_core.errors import EnvironmentFailure
from longhaul_core.text import well_formed
from longhaul_core.types import Observation, Task
from longhaul_envs.agentgym.dialects import Dialect
from longhaul_envs.agentgym.tasks import AgentGymOptions, item_of
from longhaul_envs.served import field_of
from longhaul_envs.wire import Connection, Places, shown

__all__ = ["AgentGymEnvironment", "Server"]

logger = logging.getLogger(__name__)


class Server:
    """What the episodes of this process know of one server."""

    def __init__(self, options: AgentGymOptions) -> None:
        self.options = options
        self.places = None if options.most_episodes is None else Places(options.most_episodes)
        self.played: set[int] = set()
        """Ids of environments in which an episode of this process is going on."""
        self.closes = True
        """Until it turns out that it has no `/close`."""

    def environment(self) -> "AgentGymEnvironment":
        """For one episode."""
        return AgentGymEnvironment(self)


class AgentGymEnvironment:
    """One episode, in an environment that the server creates for it.

    Task:
        An item of the server, by number.
    Action:
        What the server understands (`Dialect.actions`). It is sent once: the server numbers no
        steps, so one that was sent again might act twice.
    Reward:
        What the step adds to the score that the authors' client returns, so that the sum over the
        episode is the authors' score of it: that of its last step.
    Episode end:
        Terminated when the server says that it is done; WebArena also truncates. Success is a
        score of at least `Dialect.success_score` then.
    Failures:
        An answer that is an error, HTTP 200 or not, lacks a field, comes too late or not at all
        fails the episode, as does an environment that another episode of this process plays in.
    """

    def __init__(self, server: Server) -> None:
        self._server = server
        self._options = server.options
        self._dialect: Dialect = server.options.dialect
        self._has_place = False
        self._connection: Connection | None = None
        self._id: int | None = None
        self._score = 0.0
        self._num_steps = 0
        self._admissible = self._dialect.admissible_actions

    async def open(self) -> None:
        """Wait until the server keeps one more environment apart."""
        if self._server.places is not None:
            await self._server.places.take()
            self._has_place = True
        self._connection = Connection(
            self._options.base_url, timeout_seconds=self._options.timeout_seconds
        )

    async def reset(self, task: Task) -> Observation:
        """See `Environment.reset`."""
        dialect = self._dialect
        created = await self._post("/create", dialect.create_body)
        number = created if dialect.created_id is None else field_of(created, dialect.created_id)
        if not isinstance(number, int) or isinstance(number, bool):
            raise self._failure("/create", f"answered no id: {shown(created)}")
        if number in self._server.played:
            raise self._failure(
                "/create",
                f"answered the id {number}, in which an episode is going on: the server hands its "
                "environments out twice, or was restarted; play fewer at once (max_episodes)",
            )
        self._id = number
        self._server.played.add(number)
        words = await self._get(dialect.words_path) if dialect.words_path else None
        answer = await self._post(
            "/reset",
            {dialect.id_field: number, dialect.item_field: item_of(task.task_id)}
            | dict(dialect.reset_body),
        )
        seen = await self._get("/observation") if dialect.asks_first_observation else answer
        text = seen if isinstance(seen, str) else self._text(seen, dialect.first_fields)
        if dialect.broken_start and field_of(answer, dialect.text_field) == dialect.broken_start:
            raise self._failure("/reset", f"failed: {shown(answer)}")
        if isinstance(words, list):
            text = f"Words: {' '.join(str(word) for word in cast('list[object]', words))}\n{text}"
        return self._observation(text, answer)

    async def step(self, action: str) -> StepResult:
        """See `Environment.step`."""
        dialect = self._dialect
        before, sent = self._admissible, dialect.write(action)
        self._num_steps += 1
        answer = await self._post("/step", {dialect.id_field: self._id, "action": sent})
        text = self._text(answer, (dialect.text_field,))
        done = self._flag(answer, dialect.done_field)
        score = self._number(answer, dialect.score_field)
        if dialect.score_only_at_end and not done:
            score = self._score
        reward, self._score = score - self._score, score
        observation = self._observation(text, answer)
        return StepResult(
            observation=observation,
            reward=reward,
            terminated=done,
            truncated=not done
            and bool(dialect.truncated_field)
            and self._flag(answer, dialect.truncated_field),
            success=done and score >= dialect.success_score,
            action_accepted=sent in before
            if before is not None
            else not text.lstrip().startswith(dialect.refusals),
        )

    async def close(self) -> None:
        """Close the environment, if the server can, and the connection."""
        connection, self._connection = self._connection, None
        number, self._id = self._id, None
        try:
            if connection is not None and number is not None:
                await self._close_there(connection, number)
        finally:
            if number is not None:
                self._server.played.discard(number)
            if connection is not None:
                await connection.close()
            if self._has_place and self._server.places is not None:
                self._has_place = False
                self._server.places.give_back()

    async def _close_there(self, connection: Connection, number: int) -> None:
        if not self._server.closes:
            return
        status, answer = await connection.post("/close", {self._dialect.id_field: number})
        if status in (404, 405):
            self._server.closes = False
            logger.warning(
                "%s has no /close: each episode leaves an environment behind on the server, whose "
                "memory grows; restart it between runs",
                connection.url,
            )
        elif status != 200:
            logger.warning(
                "%s did not close environment %d: %s", connection.url, number, shown(answer)
            )

    async def _post(self, path: str, body: Mapping[str, object]) -> object:
        if self._connection is None:
            raise RuntimeError("the environment is not open")
        return self._good(path, *await self._connection.post(path, body))

    async def _get(self, path: str) -> object:
        if self._connection is None:
            raise RuntimeError("the environment is not open")
        params = {self._dialect.id_field: str(self._id)}
        return self._good(path, *await self._connection.get(path, params))

    def _good(self, path: str, status: int, answer: object) -> object:
        if status != 200:
            raise self._failure(path, f"answered status {status}: {shown(answer)}")
        if field_of(answer, "error") is not None:
            raise self._failure(path, f"answered an error: {shown(answer)}")
        return answer

    def _failure(self, path: str, what: str) -> EnvironmentFailure:
        where = f" in step {self._num_steps}" if self._num_steps else ""
        return EnvironmentFailure(f"{path} of {self._options.base_url} {what}{where}")

    def _observation(self, text: str, answer: object) -> Observation:
        dialect = self._dialect
        if dialect.actions_field:
            listed = field_of(answer, dialect.actions_field)
            if not isinstance(listed, list):
                raise self._failure(
                    "/reset or /step", f"answered no list of actions: {shown(answer)}"
                )
            self._admissible = tuple(str(one) for one in cast("list[object]", listed))
        elif dialect.actions_marker:
            text, self._admissible = _without_list(text, dialect.actions_marker)
        return Observation(
            text=well_formed(text),
            admissible_actions=None
            if self._admissible is None
            else tuple(well_formed(one) for one in self._admissible),
        )

    def _text(self, answer: object, fields: tuple[str, ...]) -> str:
        parts = [field_of(answer, name) for name in fields]
        if not all(isinstance(part, str) for part in parts):
            raise self._failure(
                "/reset or /step", f"answered no text as {' and '.join(fields)}: {shown(answer)}"
            )
        return "\n".join(cast("list[str]", parts))

    def _flag(self, answer: object, name: str) -> bool:
        value = field_of(answer, name)
        if not isinstance(value, bool):
            raise self._failure("/step", f"answered no true or false as {name}: {shown(answer)}")
        return value

    def _number(self, answer: object, name: str) -> float:
        value = field_of(answer, name)
        if not isinstance(value, int | float) or not math.isfinite(value):
            raise self._failure("/step", f"answered no number as {name}: {shown(answer)}")
        return float(value)  # the todo server's last reward is true or false


def _without_list(text: str, marker: str) -> tuple[str, tuple[str, ...] | None]:
    """The text before `marker`, and the JSON list after it; all of the text where there is none."""
    before, found, after = text.rpartition(marker)
    if not found:
        return text, None
    try:
        listed = json.loads(after)
    except ValueError:
        return text, None
    if not isinstance(listed, list):
        return text, None
    return before, tuple(str(one) for one in cast("list[object]", listed))
