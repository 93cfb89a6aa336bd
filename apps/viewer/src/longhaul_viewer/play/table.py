"""Where people sit and play: the episodes that are open in this process, each in its own sitting.

A sitting is one person's at one environment. Its episodes are one run of the store, of kind
`play`. An episode is written when it ends, with the start and the end of its run in the same
transaction; so no run is left that says it goes on, whatever becomes of this process.

The episodes are played on one event loop, in a thread of its own; the methods here are called from
others, and any number of them.
"""

import asyncio
import json
import logging
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal, TypeVar

from sqlalchemy import Engine

from longhaul_core.environment import EnvironmentDescription, EnvironmentSource
from longhaul_core.errors import ConfigError, StoreError
from longhaul_core.gym import GymEnvironmentSpec, GymSource, PooledSource
from longhaul_core.rollout import Branch, EpisodeOutcome, EpisodeSpec
from longhaul_core.store.addresses import is_temporary
from longhaul_core.store.records import EpisodeRecord, RunEnded, RunStarted
from longhaul_core.store.session import open_store
from longhaul_core.store.text_index import index_text
from longhaul_core.store.writer import StoreWriter
from longhaul_core.types import Task
from longhaul_envs.sources import new_source, source_at
from longhaul_viewer.play.game import FORMAT, MEMORY, MEMORY_SIZE, PERSON, Game, GameState

__all__ = ["IDLE_SECONDS", "MOST_SITTINGS", "Choice", "PlayTable", "Sitting", "source_of"]

IDLE_SECONDS = 1800.0
"""An episode that nobody acts in for so long is abandoned; a sitting that has ended so long ago is
forgotten."""
MOST_SITTINGS = 8
"""At once: each may hold a process of its environment."""
MOST_SOURCES = 8
"""Environments under their options that are remembered: each may hold a process that answers."""
LONGEST_ACTION = 100_000
"""Characters; what a person pastes goes into the store."""
CLOSE_SECONDS = 10.0
"""Longest wait for an environment in an episode that is given up."""
LONGEST_AWAY_SECONDS = 480.0
"""How long an episode waits for a store that another program holds, or whose server is away."""
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 1.0, 30.0
"""Between two tries; each pause is twice the one before, up to the longest."""
MOST_INDEXED = 2_000
"""Steps that are made findable after an episode: its own, unless others wait before them."""

logger = logging.getLogger(__name__)

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """An environment under its options, and who plays it."""

    environment_id: str
    options: Mapping[str, object] = field(default_factory=dict[str, object])
    server: str | None = None
    """Address of the environment server that plays it; None: this machine does."""
    import_modules: tuple[str, ...] = ()
    """That register it with Gymnasium."""


def source_of(choice: Choice) -> EnvironmentSource:
    """What answers for the environment.

    The newest `MOST_SOURCES` of this machine are kept; the process that answers for one ends when
    nobody holds it any more.

    Raises:
        ConfigError: It is not installed, or refuses its options.
    """
    spec = GymEnvironmentSpec(
        environment_id=choice.environment_id,
        options=choice.options,
        import_modules=choice.import_modules,
    )
    return _source(spec.to_json()) if choice.server is None else source_at(choice.server, spec)


@lru_cache(maxsize=MOST_SOURCES)
def _source(spec_json: str) -> EnvironmentSource:
    return new_source(GymEnvironmentSpec.from_json(spec_json))


@dataclass(slots=True, kw_only=True)
class Sitting:
    """One person at one environment."""

    id: str
    run_id: str
    choice: Choice
    horizon: int
    source: EnvironmentSource
    description: EnvironmentDescription
    began_at: float
    game: Game
    playing: "asyncio.Task[None] | None" = None
    over_at: float | None = None
    """When the newest episode ended, by the monotonic clock; None while it goes on."""
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while its episode is replaced, or it is forgotten."""

    @property
    def branch(self) -> Branch | None:
        """Where its episodes leave a stored one; None where they begin at their tasks."""
        return self.game.spec.branch


class PlayTable:
    """All sittings of this process, and the one writer of their episodes."""

    def __init__(
        self,
        store: str,
        *,
        account: str,
        idle_seconds: float = IDLE_SECONDS,
        most_sittings: int = MOST_SITTINGS,
    ) -> None:
        """Begin with nobody at the table.

        Args:
            store: Path or URL of a store; it is opened when the first episode has ended.
            account: Who plays, for the record.
            idle_seconds: See `IDLE_SECONDS`.
            most_sittings: At once, at least 1.
        """
        self._store = store
        self._account = account
        self._idle_seconds = idle_seconds
        self._most = most_sittings
        self._sittings: dict[str, Sitting] = {}
        self._writer: StoreWriter | None = None
        self._engine: Engine | None = None
        self._writing = asyncio.Lock()
        self._changed = threading.Condition()
        self._loop: asyncio.AbstractEventLoop
        self._end: asyncio.Event
        ready = threading.Event()
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._serve(ready)), name="play", daemon=True
        )
        self._thread.start()
        ready.wait()

    def begin(
        self,
        choice: Choice,
        task: Task,
        *,
        horizon: int,
        sitting_id: str = "",
        branch: Branch | None = None,
    ) -> str:
        """Begin an episode, and give up the one that the sitting has open.

        Args:
            choice: The environment.
            task: Of its lists.
            horizon: Most steps, at least 1.
            sitting_id: A sitting to go on with. It becomes another one, of another run, where the
                environment, the horizon or the branch is another.
            branch: A stored episode of this task and horizon, and the step from which the person
                goes on; None: from the beginning.

        Returns:
            The sitting's id: a word that nobody guesses.

        Raises:
            ConfigError: The environment cannot be had, the horizon is out of range, there is no
                place at the table, or the table is being closed.
        """
        if horizon < 1:
            raise ConfigError(f"the most steps must be at least 1, got {horizon}")
        self._refuse_if_closing()
        source = source_of(choice)
        description = source.describe()
        return self._call(
            self._begin(choice, task, horizon, sitting_id, source, description, branch)
        )

    def act(self, sitting_id: str, *, episode: int, step: int, action: str) -> bool:
        """Act in a step of the open episode; False where it did not wait for an action in it.

        Args:
            sitting_id: The sitting.
            episode: 0-based number of the episode in the sitting.
            step: 0-based number of the step in the episode.
            action: As it was typed or chosen.

        Raises:
            LookupError: There is no such sitting.
            ConfigError: The action is longer than `LONGEST_ACTION`.
        """
        if len(action) > LONGEST_ACTION:
            raise ConfigError(
                f"an action may have {LONGEST_ACTION:,} characters, this one has {len(action):,}"
            )
        game = self.sitting(sitting_id).game
        return self._call(_done(lambda: game.number == episode and game.act(step, action)))

    def leave(self, sitting_id: str) -> None:
        """Give up the open episode, if there is one.

        Raises:
            LookupError: There is no such sitting.
        """
        self._call(_done(self.sitting(sitting_id).game.leave))

    def sitting(self, sitting_id: str) -> Sitting:
        """A sitting.

        Raises:
            LookupError: There is none of this id, or not any more.
        """
        sitting = self._sittings.get(sitting_id)
        if sitting is None:
            raise LookupError(
                "this sitting is over: it was left for too long, another took its place after its "
                "last episode, or the viewer was started anew; episodes that were played are in "
                "the store"
            )
        return sitting

    def state(self, sitting_id: str, *, wait_seconds: float = 0.0) -> GameState:
        """The newest episode of a sitting, once it waits for the person or is over.

        Args:
            sitting_id: The sitting.
            wait_seconds: Longest wait for that; then it is as it stands.

        Raises:
            LookupError: There is no such sitting.
        """
        game = self.sitting(sitting_id).game
        with self._changed:
            self._changed.wait_for(
                lambda: game.state.stage in ("asked", "over"), timeout=wait_seconds
            )
        return game.state

    def close(self) -> None:
        """Give up and store every open episode, and end all processes. Safe to call twice."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._end.set)
            self._thread.join()

    async def _serve(self, ready: threading.Event) -> None:
        """The event loop's life; at its end every process and connection is given back."""
        self._loop, self._end = asyncio.get_running_loop(), asyncio.Event()
        ready.set()
        reaping = asyncio.create_task(self._reap())
        await self._end.wait()
        await reaping
        await self._close()

    async def _begin(
        self,
        choice: Choice,
        task: Task,
        horizon: int,
        sitting_id: str,
        source: EnvironmentSource,
        description: EnvironmentDescription,
        branch: Branch | None,
    ) -> str:
        before = self._sittings.get(sitting_id)
        if before is not None:
            async with before.turn:
                if self._sittings.get(sitting_id) is before:  # not forgotten meanwhile
                    await self._end_games([before])
                    same = (before.choice, before.horizon, _place_of(before.branch))
                    if same == (choice, horizon, _place_of(branch)):
                        self._refuse_if_closing()
                        number = before.game.number + 1
                        spec = EpisodeSpec(task=task, seed=0, group_index=number, branch=branch)
                        before.game = self._game(spec, before.source, description, horizon)
                        before.over_at = None
                        self._start(before)
                        return before.id
                    await self._forget(before)
        await self._make_room()
        self._refuse_if_closing()
        if isinstance(source, GymSource):
            source = PooledSource(source, num_workers=1)
        word, spec = secrets.token_urlsafe(12), EpisodeSpec(task=task, seed=0, branch=branch)
        sitting = Sitting(
            id=word,
            run_id=f"{time.strftime('%Y%m%d-%H%M%S')}-{_kind_of(branch)}-{secrets.token_hex(3)}",
            choice=choice,
            horizon=horizon,
            source=source,
            description=description,
            began_at=time.time(),
            game=self._game(spec, source, description, horizon),
        )
        self._sittings[word] = sitting
        self._start(sitting)
        return word

    def _refuse_if_closing(self) -> None:
        if self._end.is_set():
            raise ConfigError("the viewer is being closed: no episode begins any more")

    async def _make_room(self) -> None:
        """Forget the sittings that have been over for longest, as many as it takes.

        Raises:
            ConfigError: An episode is open in each.
        """
        while len(self._sittings) >= self._most:
            over = {
                each.over_at: each
                for each in self._sittings.values()
                if each.over_at is not None and not each.turn.locked()
            }
            if not over:
                raise ConfigError(
                    f"no place is free: {self._most} episodes are open, the most that may be; end "
                    f"one, or wait: one in which nobody acts for {self._idle_seconds / 60:g} "
                    "minutes is given up"
                )
            await self._forget(over[min(over)])

    def _game(
        self,
        spec: EpisodeSpec,
        source: EnvironmentSource,
        description: EnvironmentDescription,
        horizon: int,
    ) -> Game:
        return Game(
            spec,
            source=source,
            description=description,
            horizon=horizon,
            idle_seconds=self._idle_seconds,
            on_change=self._announce,
        )

    def _start(self, sitting: Sitting) -> None:
        game = sitting.game

        def report(task: "asyncio.Task[None]") -> None:
            error = None if task.cancelled() else task.exception()
            if error is not None:  # a fault of ours: the person is told, and the others play on
                logger.error("an episode could not be played", exc_info=error)
                sitting.over_at = time.monotonic()
                game.ended(None, episode_id=None, problem=f"{type(error).__name__}: {error}")

        sitting.playing = asyncio.create_task(self._play(sitting, game))
        sitting.playing.add_done_callback(report)

    async def _play(self, sitting: Sitting, game: Game) -> None:
        outcome = await game.play()
        episode_id, problem = None, ""
        if outcome is not None:
            game.keeping(LONGEST_AWAY_SECONDS)
            try:
                episode_id = await self._keep(sitting, game, outcome)
            except StoreError as error:
                problem = str(error)
        sitting.over_at = time.monotonic()
        game.ended(outcome, episode_id=episode_id, problem=problem)

    async def _keep(self, sitting: Sitting, game: Game, outcome: EpisodeOutcome) -> str:
        """Write an episode with its run, in one transaction; its id in the store.

        Raises:
            StoreError: See `_keep_trying`.
        """
        branch = sitting.branch
        record = EpisodeRecord(
            run_id=sitting.run_id,
            attempt=0,
            phase=_kind_of(branch),
            training_step=0,
            group_index=game.number,
            retry=0,
            outcome=outcome,
            group_size=1,
            branched_from=branch and branch.episode_id,
            branched_at_step=branch and branch.step_index,
        )
        ended = RunEnded(
            run_id=sitting.run_id, attempt=0, status="finished", message="", ended_at=time.time()
        )
        async with self._writing:
            await self._keep_trying([self._run(sitting), record, ended])
            await asyncio.to_thread(self._index)
        return record.episode_id

    async def _keep_trying(self, records: "list[RunStarted | EpisodeRecord | RunEnded]") -> None:
        """Write, over and over while the store is held or away: twice is as good as once.

        Raises:
            StoreError: The store refused, has been away for `LONGEST_AWAY_SECONDS`, or was away
                when the table had closed.
        """
        began, pause = time.monotonic(), FIRST_PAUSE_SECONDS
        while True:
            closing = self._end.is_set()
            try:
                await asyncio.to_thread(self._write, records)
            except StoreError as error:
                away = time.monotonic() - began
                if closing or away > LONGEST_AWAY_SECONDS or not is_temporary(error):
                    raise
                logger.warning("no episode was taken for %.0f s, trying again: %s", away, error)
            else:
                return
            with suppress(TimeoutError):
                await asyncio.wait_for(self._end.wait(), pause)
            pause = min(2 * pause, LONGEST_PAUSE_SECONDS)

    def _write(self, records: "list[RunStarted | EpisodeRecord | RunEnded]") -> None:
        if self._writer is None:
            self._writer = StoreWriter(self._store)
        self._writer.write(records)
        self._writer.flush()

    def _index(self) -> None:
        """Make the episode's words findable: no run goes on that would."""
        try:
            if self._engine is None:
                self._engine = open_store(self._store, create=False)
            index_text(self._engine, most_steps=MOST_INDEXED)
        except StoreError as error:
            logger.warning("the words of an episode wait to be findable: %s", error)

    def _run(self, sitting: Sitting) -> RunStarted:
        choice, kind = sitting.choice, _kind_of(sitting.branch)
        config = {
            "name": kind,
            "agent": {"kind": PERSON},
            "model": {"path": PERSON},
            "environment": {
                "id": choice.environment_id,
                "options": dict(choice.options),
                "server": choice.server,
                "import_modules": choice.import_modules,
            },
            "memory": {"kind": MEMORY, "size": MEMORY_SIZE},
            "actions": {"format": FORMAT.value},
            "rollout": {"horizon": sitting.horizon},
        }
        return RunStarted(
            run_id=sitting.run_id,
            name=kind,
            kind=kind,
            attempt=0,
            config_json=json.dumps(config),
            provenance_json=json.dumps({"played_by": self._account}),
            started_at=sitting.began_at,
            host=socket.gethostname(),
            pid=os.getpid(),
        )

    async def _reap(self) -> None:
        """Forget sittings that ended long ago, until the table is closed."""
        while not self._end.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(self._end.wait(), min(60.0, self._idle_seconds / 4))
            for sitting in list(self._sittings.values()):
                if not sitting.turn.locked():
                    async with sitting.turn:
                        if self._is_left(sitting):
                            await self._forget(sitting)

    def _is_left(self, sitting: Sitting) -> bool:
        over_at = sitting.over_at
        return over_at is not None and time.monotonic() - over_at > self._idle_seconds

    async def _end_games(self, sittings: Sequence[Sitting]) -> None:
        """Give up what is open there; what does not answer for `CLOSE_SECONDS` is stopped."""
        playing = {each.playing: each.game for each in sittings if each.playing is not None}
        if not playing:
            return
        for game in playing.values():
            game.leave()
        _, silent = await asyncio.wait(playing, timeout=CLOSE_SECONDS)
        for task in silent:
            playing[task].stop(
                "the person left, and the environment had not answered its last action after "
                f"{CLOSE_SECONDS:g} s more"
            )
        await asyncio.wait(playing)

    async def _forget(self, sitting: Sitting) -> None:
        self._sittings.pop(sitting.id, None)
        if isinstance(sitting.source, PooledSource):
            await sitting.source.close()

    async def _close(self) -> None:
        sittings = list(self._sittings.values())
        await self._end_games(sittings)
        for sitting in sittings:
            await self._forget(sitting)
        if self._writer is not None:
            await asyncio.to_thread(self._writer.close)
        if self._engine is not None:
            self._engine.dispose()

    def _announce(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def _call(self, work: Coroutine[None, None, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


def _kind_of(branch: Branch | None) -> Literal["play", "branch"]:
    """Of a sitting's run, and the phase of its episodes."""
    return "play" if branch is None else "branch"


def _place_of(branch: Branch | None) -> tuple[str, int] | None:
    return branch and (branch.episode_id, branch.step_index)


async def _done(work: Callable[[], T]) -> T:
    return work()
