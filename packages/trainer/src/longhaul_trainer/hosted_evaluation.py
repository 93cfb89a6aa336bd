"""A panel played by a hosted model: by our loop or by a run's program, in this process.

No learner, no engine and no Ray: the environments play in their own worker processes, and the
model is another server's.
"""

from __future__ import annotations

import asyncio
import json
import signal
import time
from collections.abc import Awaitable, Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from longhaul_core.errors import AllFailedError, ConfigError
from longhaul_core.policy import NoTokens
from longhaul_core.rollout import (
    EpisodeOutcome,
    EpisodeResult,
    EpisodeRunner,
    EpisodeSpec,
    Responder,
    episode_seed,
)
from longhaul_core.store.records import EpisodeRecord, Evaluation, PanelTasks
from longhaul_core.tasks import Panel
from longhaul_core.types import Message, Split, Trajectory
from longhaul_trainer.agent_loops import AgentLoop
from longhaul_trainer.config import RunConfig
from longhaul_trainer.ending_signals import ending_signals
from longhaul_trainer.environments import descriptions_of, task_panel
from longhaul_trainer.gateway.exchange import ApiError, ChatRequest
from longhaul_trainer.gateway.hosted import Endpoint, HostedModel
from longhaul_trainer.gateway.hosted.policy import UpstreamPolicy
from longhaul_trainer.players import EnvironmentPlayer, Player, limits_of
from longhaul_trainer.programs.player import ProgramPlayer
from longhaul_trainer.run_directory import PanelScore, RunDirectory, RunOutcome
from longhaul_trainer.stored_run import StoredRun
from longhaul_trainer.training.newest_failure import with_newest_failure

__all__ = ["Spent", "for_hosted", "require_answer", "run_hosted_evaluation"]

PROBE_TOKENS = 16
"""Longest reply to the request that tries an endpoint; vendors refuse fewer."""


@dataclass(slots=True)
class Spent:
    """What the calls of an evaluation came to."""

    num_calls: int = 0
    num_priced: int = 0
    cost_usd: float = 0.0
    """Of the priced ones."""

    def add(self, outcome: EpisodeOutcome) -> None:
        """Count the calls of an episode."""
        for step in outcome.steps:
            for call in step.calls:
                self.num_calls += 1
                if call.cost_usd is not None:
                    self.num_priced += 1
                    self.cost_usd += call.cost_usd

    def in_words(self) -> str:
        """The calls, and their cost where it is known."""
        calls = f"{self.num_calls:,} calls"
        if not self.num_priced:
            return f"{calls}; cost unknown, give --price-prompt and --price-reply"
        of = "" if self.num_priced == self.num_calls else f" for {self.num_priced:,} of them"
        return f"${self.cost_usd:,.4f}{of}; {calls}"


def for_hosted(config: RunConfig, *, name: str) -> tuple[RunConfig, bool]:
    """The run as a hosted model plays it.

    A hosted chat cannot be made to begin its reply with a prefix, so prompts ask for the action's
    format in its place.

    Args:
        config: The run.
        name: Of the model, which stands where a run has its weights.

    Returns:
        The run, and whether it had such a prefix.
    """
    plain = {"reply_prefix": ""}
    had = any(entry.prompt.reply_prefix for entry in config.played_environments)
    entries = tuple(
        entry.model_copy(update={"prompt": entry.prompt.model_copy(update=plain)})
        for entry in config.environments
    )
    changed = {
        "model": config.model.model_copy(update={"path": name}),
        "prompt": config.prompt.model_copy(update=plain),
        "environments": entries,
    }
    # What is left out stays so: a section that was not given is one that nobody chose.
    if "prompt" not in config.model_fields_set:
        del changed["prompt"]
    return config.model_copy(update=changed), had


async def require_answer(endpoint: Endpoint, *, temperature: float | None) -> None:
    """Send one small request, drawn as the vendor does where `temperature` is None.

    Raises:
        ConfigError: It got no reply: the address, the model or the key is wrong, or the endpoint
            is down.
    """
    model = HostedModel(replace(endpoint, max_retries=min(endpoint.max_retries, 2)))
    request = ChatRequest(
        model=endpoint.model,
        messages=(Message(role="user", content="Reply with the word yes."),),
        max_tokens=PROBE_TOKENS,
        temperature=temperature,
    )
    try:
        await model.answer(request, on_delta=None)
    except ApiError as error:
        raise ConfigError(
            f"the endpoint did not answer a first, small request: {error.message}\nCheck "
            "--endpoint, --model, --api and --key-variable"
        ) from error
    finally:
        await model.close()


def run_hosted_evaluation(
    config: RunConfig,
    run: RunDirectory,
    *,
    split: Split,
    endpoint: Endpoint,
    max_reply_tokens: int | None,
    spent: Spent,
    console: Console,
) -> RunOutcome:
    """Play the panel of a split, and store the episodes.

    Args:
        config: With absolute paths, made by `for_hosted`.
        run: The run's folder, locked by the caller.
        split: Which panel.
        endpoint: The model.
        max_reply_tokens: Longest reply in an environment; None is the run's.
        spent: Counts the calls and what they cost.
        console: For the progress.

    Returns:
        How it ended: finished, or cancelled by Ctrl-C, SIGTERM, SIGHUP or from another terminal,
        with what was played until then.

    Raises:
        ConfigError: The panel cannot be had as the run describes it.
        AllFailedError: Every episode failed.
        StoreError: The store refused.
    """
    evaluation = _Evaluation(config, run, split=split, endpoint=endpoint, spent=spent)
    return asyncio.run(evaluation.play(console, max_reply_tokens=max_reply_tokens))


_Result = tuple[int, str, float, bool]
"""Of an episode that ended: place of its task, environment, return, success."""


class _Evaluation:
    def __init__(
        self,
        config: RunConfig,
        run: RunDirectory,
        *,
        split: Split,
        endpoint: Endpoint,
        spent: Spent,
    ) -> None:
        self._config = config
        self._run = run
        self._split: Split = split
        self._endpoint = endpoint
        self._spent = spent
        self._panel: Panel = task_panel(config, split)
        self._entries = {entry.id: entry for entry in config.played_environments}
        self._results: list[_Result] = []
        self._num_steps = 0
        self._num_ended = 0
        self._num_failed = 0
        """Tries."""
        self._num_lost = 0
        """Episodes whose every try failed."""
        self._stop = asyncio.Event()
        self._cancelled_by = ""

    async def play(self, console: Console, *, max_reply_tokens: int | None) -> RunOutcome:
        began = time.time()
        store = StoredRun(self._config.store, run_id=self._run.run_id)
        model = HostedModel(self._endpoint)
        player: Player | None = None
        try:
            async with store.recording_failure():
                with self._stopped_by_signal():
                    await self._begin(store)
                    player = await asyncio.to_thread(self._player, model, max_reply_tokens)
                    await self._episodes(player, store, console)
                    cancelled = self._stop.is_set()
                    if self._results:
                        await store.write(self._scores())
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
            await model.close()
            store.close()
        return RunOutcome(
            run_id=self._run.run_id,
            status=status,
            num_training_steps=0,
            num_episodes=self._num_ended,
            num_steps=self._num_steps,
            num_failed_episodes=self._num_failed,
            duration_seconds=time.time() - began,
            after=self._score(self._panel, self._results) if self._results else None,
            message=self._cancelled_by and f"cancelled by {self._cancelled_by}",
        )

    async def _begin(self, store: StoredRun) -> None:
        provenance = self._run.path / "provenance.json"
        await store.start(
            name=self._config.name,
            config_json=json.dumps(self._config.model_dump(mode="json")),
            provenance_json=provenance.read_text(encoding="utf-8")
            if provenance.is_file()
            else "{}",
        )
        panels = {self._panel.split.value: self._panel} | self._panel.parts
        await store.write(
            [
                PanelTasks(run_id=store.run_id, name=name, split=panel.split, tasks=panel.tasks)
                for name, panel in panels.items()
            ]
        )

    def _player(self, model: HostedModel, max_reply_tokens: int | None) -> Player:
        run, name = self._config, self._endpoint.model
        if run.agent.is_program:
            return ProgramPlayer(run, responder=model, name=name)
        responder = Responder(
            policy=UpstreamPolicy(model, name=name),
            renderer=NoTokens(),
            max_reply_tokens=max_reply_tokens or run.rollout.max_reply_tokens,
        )
        return EnvironmentPlayer(
            run,
            responders={"": responder},
            descriptions=descriptions_of(run),
            agent_loop=AgentLoop(),
        )

    async def _episodes(self, player: Player, store: StoredRun, console: Console) -> None:
        """Play all of them, each stored when it ends; what raises ends the others."""
        specs = list(self._specs())
        rollout = self._config.rollout
        runner = EpisodeRunner(
            concurrency=rollout.concurrent_episodes,
            max_retries=rollout.max_retries if rollout.on_failure == "retry" else 0,
        )
        watching = asyncio.create_task(self._watch(store))
        with _progress(console) as progress:
            bar = progress.add_task("", total=len(specs), said="")

            async def play(spec: EpisodeSpec) -> None:
                with _unless_stopped():
                    result = await runner.play(
                        spec, lambda one: self._once(player, one), on_try=self._stored_in(store)
                    )
                    self._count(result)
                    progress.update(bar, advance=1, said=self._so_far())

            playing = [asyncio.create_task(play(spec)) for spec in specs]
            try:
                await asyncio.gather(*playing, _until(playing, watching))
            finally:
                for task in (*playing, watching):
                    task.cancel()
                await asyncio.gather(*playing, watching, return_exceptions=True)

    def _specs(self) -> Iterator[EpisodeSpec]:
        for place, task in enumerate(self._panel.tasks):
            for sample in range(self._config.validation.samples_per_task):
                yield EpisodeSpec(
                    task=task,
                    seed=episode_seed(
                        self._config.seed,
                        training_step=0,
                        group_index=place,
                        sample_index=sample,
                        phase=self._split.value,
                    ),
                    group_index=place,
                    sample_index=sample,
                )

    async def _once(self, player: Player, spec: EpisodeSpec) -> EpisodeOutcome:
        if self._stop.is_set():
            raise _NotBegun
        run, environment = self._config, self._entries[spec.task.environment]
        horizon = run.horizon_of(environment.id, scheduled=run.rollout.horizon)
        return await player.play(
            spec,
            phase="test" if self._split is Split.TEST else "validation",
            training_step=0,
            limits=limits_of(run, environment, horizon=horizon),
            with_final_prompt=False,
            stop=self._stop,
        )

    def _stored_in(self, store: StoredRun) -> Callable[[EpisodeResult], Awaitable[None]]:
        async def write(result: EpisodeResult) -> None:
            self._spent.add(result.outcome)
            if isinstance(result.outcome, Trajectory):
                self._num_ended += 1
                self._num_steps += len(result.outcome.steps)
            else:
                self._num_failed += 1
            record = EpisodeRecord(
                run_id=store.run_id,
                attempt=0,
                phase="test" if self._split is Split.TEST else "validation",
                training_step=0,
                group_index=result.spec.group_index,
                retry=result.spec.retry,
                outcome=result.outcome,
                group_size=self._config.validation.samples_per_task,
            )
            await store.write([record])

        return write

    def _count(self, result: EpisodeResult) -> None:
        outcome, spec = result.outcome, result.spec
        if isinstance(outcome, Trajectory):
            self._results.append(
                (spec.group_index, spec.task.environment, outcome.episode_return, outcome.success)
            )
        else:
            self._num_lost += 1

    def _so_far(self) -> str:
        won = sum(success for *_, success in self._results)
        rate = f"success {won / len(self._results):.0%}" if self._results else "no success yet"
        if self._num_lost:
            rate += f"  {self._num_lost} failed"
        return f"{rate}  ${self._spent.cost_usd:.4f}" if self._spent.num_priced else rate

    def _scores(self) -> list[Evaluation]:
        """Of the panel, and of each environment where it has several."""
        scores = [self._evaluation(self._panel.split.value, self._panel, self._results)]
        for name, part in self._panel.parts.items():
            environment = part.tasks[0].environment
            if played := [one for one in self._results if one[1] == environment]:
                scores.append(self._evaluation(name, part, played))
        return scores

    def _score(self, panel: Panel, results: Sequence[_Result]) -> PanelScore:
        return PanelScore.of(
            ((place, value, won) for place, _, value, won in results),
            num_planned=len(panel.tasks) * self._config.validation.samples_per_task,
        )

    def _evaluation(self, name: str, panel: Panel, results: Sequence[_Result]) -> Evaluation:
        score = self._score(panel, results)
        return Evaluation(
            run_id=self._run.run_id,
            attempt=0,
            training_step=0,
            panel=name,
            split=self._split,
            num_episodes=score.num_episodes,
            mean_return=score.mean_return,
            success_rate=score.success_rate,
        )

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
    """The evaluation was stopped before this episode's turn came."""


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
