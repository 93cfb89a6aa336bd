"""One player of a dialect: an episode after the other, each a session of the table."""

import msgspec

from longhaul_core.environment import StepResult
from longhaul_core.text import well_formed
from longhaul_core.types import Observation, Split, Task
from longhaul_envs.server.errors import Conflict, Gone, NotServed
from longhaul_envs.server.table import Owner, Served, SessionTable

__all__ = ["Seat", "every_task", "task_at"]

_OBSERVATION = msgspec.json.Decoder(Observation)
_STEP_RESULT = msgspec.json.Decoder(StepResult)


class Seat:
    """Plays one environment of the table. Belongs to the table's event loop."""

    def __init__(
        self, table: SessionTable, served: Served, *, dialect: str, holds: bool = False
    ) -> None:
        """A seat without an episode.

        Args:
            table: The sessions.
            served: What is played.
            dialect: Whose quota the sessions count for.
            holds: Whether an episode that has begun stays without a lease: the dialect's server
                notices, by a socket or by pings, that its client has gone, and leaves then.
        """
        self._table = table
        self._served = served
        self._owner = Owner(token="", client=dialect)
        self._holds = holds
        self._session: str | None = None
        self.num_steps = 0
        """Of the episode."""
        self.episode_return = 0.0
        """Undiscounted sum of its rewards."""

    async def reset(self, task: Task) -> Observation:
        """Begin an episode; one that goes on is left.

        Raises:
            Refused: The server has no place, or the environment cannot be reset.
        """
        self.leave()
        environment_id = self._served.description.id
        self._session = await self._table.create_soon(environment_id, owner=self._owner)
        self.num_steps, self.episode_return = 0, 0.0
        session = self._session
        answer = await self._table.reset(
            session, owner=self._owner, task_id=task.task_id, seed=task.seed
        )
        if self._holds:
            self._table.hold(session, owner=self._owner)
        return _OBSERVATION.decode(answer)

    async def step(self, action: str) -> StepResult:
        """Make the next step. Half of a surrogate pair in `action` becomes U+FFFD.

        Raises:
            Refused: There is no episode, it has ended, or the environment failed.
        """
        session, number = self._session, self.num_steps + 1
        if session is None:
            raise Conflict("there is no episode; reset it first")
        answer = await self._table.step(
            session, owner=self._owner, number=number, action=well_formed(action)
        )
        result = _STEP_RESULT.decode(answer)
        # A step that was asked for twice at once, or left meanwhile, is not counted again.
        if session == self._session and number > self.num_steps:
            self.num_steps = number
            self.episode_return += result.reward
        return result

    def observation(self) -> Observation:
        """What was shown last.

        Raises:
            Refused: Nothing yet, or the session is gone.
        """
        if self._session is None:
            raise Conflict("there is no episode; reset it first")
        return _OBSERVATION.decode(self._table.observation(self._session, owner=self._owner))

    def leave(self) -> None:
        """Give the episode up; safe to call again."""
        session, self._session = self._session, None
        if session is not None:
            try:
                self._table.close(session, owner=self._owner)
            except Gone:
                return  # it failed or its lease ran out: nothing is left to close


def task_at(served: Served, split: str, index: int) -> Task:
    """A task by split and place in its list.

    Raises:
        NotServed: There is none.
    """
    if split not in list(Split):
        raise NotServed(f"no split {split!r}; there are {', '.join(Split)}")
    listed = served.tasks(Split(split))
    if not 0 <= index < len(listed):
        raise NotServed(f"no task {index} in split {split!r}, which has {len(listed)}")
    return listed[index]


def every_task(served: Served) -> list[Task]:
    """The tasks of all splits in one list: train, validation, test."""
    return [task for split in Split for task in served.tasks(split)]
