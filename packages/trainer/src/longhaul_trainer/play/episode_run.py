"""A run that plays some episodes in this process and trains nothing: no engine, no learner, no Ray.

Environments play in their own worker processes. Whoever replies is a hosted model, an
environment's own expert, or chance.
"""

from __future__ import annotations

import asyncio
import json
import signal
import time
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from longhaul_core.errors import AllFailedError
from longhaul_core.rollout import EpisodeOutcome, EpisodeResult, EpisodeRunner, EpisodeSpec
from longhaul_core.store.records import EpisodeRecord, Phase, Record, RunKind
from longhaul_core.types import Trajectory
from longhaul_trainer.config import RunConfig
from longhaul_trainer.play.players import Player, limits_of
from longhaul_trainer.run.directory import RunDirectory, RunOutcome
from longhaul_trainer.run.ending_signals import ending_signals
from longhaul_trainer.run.newest_failure import with_newest_failure
from longhaul_trainer.run.stored_run import StoredRun

__all__ = ["EpisodeRun", "Plan", "Played"]


class Played(NamedTuple):
    """An episode that ended."""

    place: int
    """Of its task."""
    environment: str
    episode_return: float
    success: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is played, and how it is stored."""

    kind: RunKind
    phase: Phase
    specs: Sequence[EpisodeSpec]
    group_size: int | None
    """Episodes of each task; None where that is not known before."""
    max_retries: int
    """Of an episode that failed."""
    further: Callable[[], Sequence[EpisodeSpec]] = tuple
    """Asked when all have been played and stored: what is played then, until it is nothing."""

    def rounds(self) -> Generator[Sequence[EpisodeSpec]]:
        """What is played side by side, one round after the other."""
        specs = self.specs
        while specs:
            yield specs
            specs = self.further()

    def record_of(self, result: EpisodeResult, *, run_id: str) -> EpisodeRecord:
        """What the store has of a try."""
        branch = result.spec.branch
        return EpisodeRecord(
            run_id=run_id,
            attempt=0,
            phase=self.phase,
            training_step=0,
            group_index=result.spec.group_index,
            retry=result.spec.retry,
            outcome=result.outcome,
            group_size=self.group_size,
            branched_from=None if branch is None else branch.episode_id,
            branched_at_step=None if branch is None else branch.step_index,
            branched_action=None if branch is None else branch.action,
        )


class EpisodeRun:
    """Plays the episodes of a plan once, and stores each when it ends."""

    def __init__(
        self,
        config: RunConfig,
        run: RunDirectory,
        plan: Plan,
        *,
        heard: Callable[[EpisodeOutcome], str] = lambda _: "",
    ) -> None:
        """Nothing is played yet.

        Args:
            config: With absolute paths.
            run: The run's folder, locked by the caller.
            plan: What is played.
            heard: Gets each try, and returns what is shown beside the progress.
        """
        self._config = config
        self._run = run
        self._plan = plan
        self._heard = heard
        self._said = ""
        self._entries = {entry.id: entry for entry in config.played_environments}
        self.results: list[Played] = []
        self._num_steps = 0
        self._num_ended = 0
        self._num_failed = 0
        """Tries."""
        self._num_lost = 0
        """Episodes whose every try failed."""
        self._stop = asyncio.Event()
        self._cancelled_by = ""

    async def play(
        self,
        make_player: Callable[[], Player],
        console: Console,
        *,
        before: Sequence[Record] = (),
        after: Callable[[], Sequence[Record]] = tuple,
    ) -> RunOutcome:
        """Play all of them.

        Args:
            make_player: Called in a thread, when the run stands in the store.
            console: For the progress.
            before: Records that precede the episodes.
            after: Gives those that follow, if an episode ended.

        Returns:
            How it ended: finished, or cancelled by Ctrl-C, SIGTERM, SIGHUP or from another
            terminal, with what was played until then.

        Raises:
            AllFailedError: Every episode failed.
            StoreError: The store refused.
        """
        began = time.time()
        store = StoredRun(self._config.store, run_id=self._run.run_id)
        player: Player | None = None
        try:
            async with store.recording_failure():
                with self._stopped_by_signal():
                    await self._begin(store, before)
                    player = await asyncio.to_thread(make_player)
                    await self._episodes(player, store, console)
                    cancelled = self._stop.is_set()
                    if self.results:
                        await store.write(after())
                    elif not cancelled:
                        every = (
                            "every episode failed; see the failures of run "
                            f"{self._run.run_id} in the store"
                        )
                        raise with_newest_failure(
                            AllFailedError(every), store=self._config.store, run_id=self._run.run_id
                        )
                    status = "cancelled" if cancelled else "finished"
                    await store.end(status, message=self._cancelled_by)
        finally:
            if player is not None:
                await player.close()
            store.close()
        return RunOutcome(
            run_id=self._run.run_id,
            status=status,
            num_training_steps=0,
            num_episodes=self._num_ended,
            num_steps=self._num_steps,
            num_failed_episodes=self._num_failed,
            duration_seconds=time.time() - began,
            message=self._cancelled_by and f"cancelled by {self._cancelled_by}",
        )

    async def _begin(self, store: StoredRun, before: Sequence[Record]) -> None:
        provenance = self._run.path / "provenance.json"
        await store.start(
            name=self._config.name,
            kind=self._plan.kind,
            config_json=json.dumps(self._config.model_dump(mode="json")),
            provenance_json=provenance.read_text(encoding="utf-8")
            if provenance.is_file()
            else "{}",
        )
        await store.write(before)

    async def _episodes(self, player: Player, store: StoredRun, console: Console) -> None:
        """Play all of them, each stored when it ends; what raises ends the others."""
        runner = EpisodeRunner(
            concurrency=self._config.rollout.concurrent_episodes,
            max_retries=self._plan.max_retries,
        )
        watching = asyncio.create_task(self._watch(store))
        with _progress(console) as progress:
            bar = progress.add_task("", total=0, said="")

            async def play(spec: EpisodeSpec) -> None:
                with _unless_stopped():
                    result = await runner.play(
                        spec, lambda one: self._once(player, one), on_try=self._stored_in(store)
                    )
                    self._count(result)
                    progress.update(bar, advance=1, said=self._so_far())

            num_begun = 0
            playing: list[asyncio.Task[None]] = []
            try:
                for specs in self._plan.rounds():
                    num_begun += len(specs)
                    progress.update(bar, total=num_begun)
                    playing = [asyncio.create_task(play(spec)) for spec in specs]
                    await asyncio.gather(*playing, _until(playing, watching))
                    if self._stop.is_set():
                        break
            finally:
                for task in (*playing, watching):
                    task.cancel()
                await asyncio.gather(*playing, watching, return_exceptions=True)

    async def _once(self, player: Player, spec: EpisodeSpec) -> EpisodeOutcome:
        if self._stop.is_set():
            raise _NotBegun
        run, environment = self._config, self._entries[spec.task.environment]
        horizon = run.horizon_of(environment.id, scheduled=run.rollout.horizon)
        return await player.play(
            spec,
            phase=self._plan.phase,
            training_step=0,
            limits=limits_of(run, environment, horizon=horizon),
            with_final_prompt=False,
            stop=self._stop,
        )

    def _stored_in(self, store: StoredRun) -> Callable[[EpisodeResult], Awaitable[None]]:
        async def write(result: EpisodeResult) -> None:
            self._said = self._heard(result.outcome)
            if isinstance(result.outcome, Trajectory):
                self._num_ended += 1
                self._num_steps += len(result.outcome.steps)
            else:
                self._num_failed += 1
            await store.write([self._plan.record_of(result, run_id=store.run_id)])

        return write

    def _count(self, result: EpisodeResult) -> None:
        outcome, spec = result.outcome, result.spec
        if isinstance(outcome, Trajectory):
            self.results.append(
                Played(
                    spec.group_index,
                    spec.task.environment,
                    outcome.episode_return,
                    outcome.success,
                )
            )
        else:
            self._num_lost += 1

    def _so_far(self) -> str:
        won = sum(each.success for each in self.results)
        rate = f"success {won / len(self.results):.0%}" if self.results else "no success yet"
        if self._num_lost:
            rate += f"  {self._num_lost} failed"
        return f"{rate}  {self._said}" if self._said else rate

    async def _watch(self, store: StoredRun) -> None:
        await store.until_cancelled()
        self._cancel("trainer runs cancel")

    def _cancel(self, who: str) -> None:
        self._cancelled_by = self._cancelled_by or who
        self._stop.set()

    @contextmanager
    def _stopped_by_signal(self) -> Generator[None]:
        """Ctrl-C, SIGTERM and SIGHUP let what was played be stored.

        A second Ctrl-C ends the process as usual; a second SIGTERM, such as GNU `timeout` sends,
        changes nothing.
        """
        loop = asyncio.get_running_loop()

        def interrupted() -> None:
            loop.remove_signal_handler(signal.SIGINT)
            self._cancel("Ctrl-C")

        loop.add_signal_handler(signal.SIGINT, interrupted)
        others = ending_signals()
        for number in others:
            loop.add_signal_handler(number, self._cancel, number.name)
        try:
            yield
        finally:
            for number in (signal.SIGINT, *others):
                loop.remove_signal_handler(number)


class _NotBegun(Exception):
    """The run was stopped before this episode's turn came."""


@contextmanager
def _unless_stopped() -> Generator[None]:
    try:
        yield
    except _NotBegun:
        return


async def _until(playing: list[asyncio.Task[None]], watching: asyncio.Task[None]) -> None:
    """Return when all have played; raises what the watch raises before."""
    waiting = asyncio.gather(*playing)
    await asyncio.wait([waiting, watching], return_when=asyncio.FIRST_COMPLETED)
    if watching.done():
        watching.result()
    await waiting


def _progress(console: Console) -> Progress:
    return Progress(
        TextColumn("[bold]episodes"),
        BarColumn(bar_width=30),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[said]}"),
        console=console,
    )
