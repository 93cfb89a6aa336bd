"""Runs a training from its configuration to its outcome. The only way into this folder.

The trainer lives in this process, not in a Ray actor: one process less imports verl, and
Ctrl-C, progress and errors need no detour.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shutil
import socket
import time
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from sqlalchemy.orm import Session

from longhaul_core.errors import (
    AllFailedError,
    ConfigError,
    LonghaulError,
    MachineError,
    StoreError,
)
from longhaul_core.store.queries import get_run, newest_attempt
from longhaul_core.store.records import PanelTasks, RunEnded, RunKind, RunStarted
from longhaul_core.store.session import open_store, read_only_engine
from longhaul_core.tasks import Panel, TaskStream
from longhaul_core.types import Split
from longhaul_trainer.config import RunConfig
from longhaul_trainer.config.trainer import SERVING
from longhaul_trainer.models import prepare_model
from longhaul_trainer.play.environments import (
    demonstration_stream,
    descriptions_of,
    task_panel,
    task_stream,
)
from longhaul_trainer.run.context import RunContext
from longhaul_trainer.run.demonstrations import Demonstrations
from longhaul_trainer.run.device import Device, choose_device
from longhaul_trainer.run.directory import RunDirectory, RunOutcome
from longhaul_trainer.run.full_disk import as_full_disk
from longhaul_trainer.run.newest_failure import with_newest_failure
from longhaul_trainer.training.checkpoints import Checkpoint, CheckpointFolder
from longhaul_trainer.training.stages import StageClock
from longhaul_trainer.verl.progress import RunProgress
from longhaul_trainer.verl.trackers import Trackers
from longhaul_trainer.verl.variables import prepare_environment

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from longhaul_trainer.verl.run_recorder import RunRecorder
    from longhaul_trainer.verl.serving import Serve
    from longhaul_trainer.verl.trainer import LonghaulTrainer, TrainingContext

    TrainerFactory = Callable[[DictConfig, TrainingContext], LonghaulTrainer]

logger = logging.getLogger(__name__)

Ending = Literal["finished", "cancelled", "failed"]


def run_training(
    config: RunConfig,
    run: RunDirectory,
    *,
    resume: bool,
    make_trainer: TrainerFactory | None = None,
) -> RunOutcome:
    """Train by `config`, from the start or from the run's last checkpoint.

    Args:
        config: With absolute paths.
        run: The run's folder, locked by the caller.
        resume: Continue from the newest complete checkpoint, if there is one.
        make_trainer: Replaces the trainer, for tests that plant a fault.

    Returns:
        How it ended: finished, or cancelled by Ctrl-C, SIGTERM, SIGHUP or from another terminal.

    Raises:
        ConfigError: If the run's checkpoints are no place to go on from. A run that wrote no
            optimizer then has its weights as models in its folder.
        LonghaulError: What went wrong, and what to do. The run's status in the store is then
            `failed`.
    """
    checkpoints = CheckpointFolder(run.checkpoints)
    checkpoint = checkpoints.latest()
    if checkpoint is not None and not resume:
        raise ConfigError(
            f"run {run.run_id} has checkpoints already; go on with `trainer resume {run.run_id}`"
        )
    if checkpoint is not None and not config.checkpoint.optimizer:
        keep_models(config, run, checkpoints)
        if checkpoint.training_step >= config.num_training_steps:
            raise ConfigError(
                f"run {run.run_id} has nothing to go on with: its {config.num_training_steps} "
                f"training steps are done, and its weights are in {run.model}"
            )
        raise ConfigError(
            f"run {run.run_id} cannot go on: checkpoint.optimizer = false left AdamW's moments and "
            "the learning rate's place out of its checkpoints, and what it would learn now were "
            f"not what it would have learnt. Its weights after training step "
            f"{checkpoint.training_step} are in {run.model}; `trainer train` with "
            f"model.path={run.model} begins another run from them"
        )
    return _launch(config, run, checkpoint=checkpoint, make_trainer=make_trainer)


def run_evaluation(config: RunConfig, run: RunDirectory, *, split: Split) -> RunOutcome:
    """Play the panel of `split` with the model of `config`, and train nothing.

    Args:
        config: With absolute paths; its model is what is evaluated.
        run: A folder of its own, locked by the caller.
        split: `test` reads tasks that neither training nor the choice of weights has seen.

    Raises:
        LonghaulError: What went wrong, and what to do.
    """
    return _launch(config, run, evaluates=split)


def run_served(
    config: RunConfig, run: RunDirectory, *, serve: Serve, kind: RunKind = "evaluate"
) -> RunOutcome:
    """Serve the model of `config` for as long as `serve` runs, and train nothing.

    Args:
        config: With absolute paths; its model is what is served.
        run: A folder of its own, locked by the caller.
        serve: What is done with the model; its episodes are those of the run.
        kind: Of the run.

    Raises:
        LonghaulError: What went wrong, and what to do.
    """
    return _launch(config, run, evaluates=Split.TEST, serve=serve, kind=kind)


def _launch(
    config: RunConfig,
    run: RunDirectory,
    *,
    checkpoint: Checkpoint | None = None,
    evaluates: Split | None = None,
    serve: Serve | None = None,
    kind: RunKind | None = None,
    make_trainer: TrainerFactory | None = None,
) -> RunOutcome:
    launch = _Launch(
        config=config,
        run=run,
        checkpoints=CheckpointFolder(run.checkpoints),
        checkpoint=checkpoint,
        evaluates=evaluates,
        serve=serve,
        kind=kind or ("evaluate" if evaluates else "train"),
        device=choose_device(config),
        stages=StageClock(),
        started_at=time.time(),
    )
    with RunProgress(launch.stages, config=config, log_folder=run.logs) as progress:
        try:
            return launch.go(progress, make_trainer)
        except KeyboardInterrupt:
            if progress.deadline_missed:
                raise MachineError(progress.deadline_missed) from None
            raise


class RunEnding(NamedTuple):
    """How an attempt ended."""

    status: Ending
    message: str
    failure: BaseException | None
    """What is raised of it."""


@contextmanager
def _exit_as_interrupt() -> Generator[None]:
    """While Ray starts, SIGTERM exits by a handler of Ray's; take it for what ours raises.

    Raises:
        KeyboardInterrupt: Instead of SystemExit.
    """
    try:
        yield
    except SystemExit as error:
        raise KeyboardInterrupt from error


@contextmanager
def _as_sigterm(progress: RunProgress) -> Generator[None]:
    """Take whatever fails after a SIGTERM, which Ray's processes may have had too, for its end.

    Raises:
        KeyboardInterrupt: Something failed after it.
    """
    try:
        yield
    except BaseException as error:
        if progress.terminated and not isinstance(error, KeyboardInterrupt):
            logger.warning("ended by SIGTERM, and by what followed", exc_info=True)
            raise KeyboardInterrupt from error
        raise


@dataclass(frozen=True, slots=True, kw_only=True)
class _Launch:
    """One attempt at a run."""

    config: RunConfig
    run: RunDirectory
    checkpoints: CheckpointFolder
    checkpoint: Checkpoint | None
    evaluates: Split | None
    """The panel that is played, and nothing trained; None for a training."""
    serve: Serve | None = None
    """What is done with the model in place of playing the panel."""
    kind: RunKind
    device: Device
    stages: StageClock
    started_at: float

    @property
    def first_step(self) -> int:
        """Training steps that are done already."""
        return 0 if self.checkpoint is None else self.checkpoint.training_step

    def go(self, progress: RunProgress, make_trainer: TrainerFactory | None) -> RunOutcome:
        """Bring everything up, train, and take everything down."""
        self.stages.enter("preparing the model", training_step=self.first_step)
        model = prepare_model(self.config.model.path)
        scratch = self.run.path / "scratch"
        scratch.mkdir(parents=True, exist_ok=True)
        demonstrations = self._demonstrations()
        tasks = self._tasks(demonstrations)
        self.stages.enter("starting Ray", training_step=self.first_step)
        prepare_environment(
            self.device, scratch=scratch, num_workers=self.config.resources.num_workers
        )
        from longhaul_trainer.verl.cpu.preload import import_ahead, preloaded_python

        preloaded = preloaded_python(self.config, device=self.device, folder=scratch)
        with preloaded as python, ExitStack() as stack:
            from longhaul_trainer.verl.cluster import connected
            from longhaul_trainer.verl.locked_queue import row_queue
            from longhaul_trainer.verl.run_recorder import RunRecorder

            import_ahead()
            joining = connected(
                self.config,
                device=self.device,
                python=python,
                files=self._files_of_nodes(model),
            )
            with _exit_as_interrupt():
                stack.enter_context(joining)
                progress.hear_signals()  # Ray has a handler of its own
            run_context = self._run_context(demonstrations)
            context_file = run_context.write(scratch)  # the attempt's number is taken from here on
            recorder = RunRecorder.start(
                self.config.store,
                name=run_context.recorder_name,
                run_id=run_context.run_id,
                attempt=run_context.attempt,
                sampled_groups=self.config.retention.sampled_groups,
            )
            panels = self._panel_records(tasks[1])
            recorder.put([self._run_started(run_context), *panels])
            progress.watch(recorder)
            status: Ending = "failed"
            message, trainer = "", None
            trackers: Trackers | None = None
            failure: BaseException | None = None
            playing = ExitStack()
            try:
                with _as_sigterm(progress):
                    trackers = self._start_trackers(run_context)
                    trainer = self._make_trainer(
                        make_trainer,
                        (run_context, context_file),
                        model,
                        tasks,
                        (recorder, trackers),
                    )
                    # It ends after the run's end is stored: without Ray that takes its time.
                    stack.enter_context(row_queue(trainer.config.transfer_queue))
                    # An episode that outlives a cancelled run's Ray would start another one by its
                    # next call.
                    stack.enter_context(playing)
                    self.stages.enter("loading the model", training_step=self.first_step)
                    trainer.init()
                    if self.serve is not None:
                        self._serve(self.serve, trainer, run_context, recorder, progress)
                    else:
                        self._train(trainer, playing)
                    status = "finished"
            except KeyboardInterrupt:
                if progress.deadline_missed:
                    message = progress.deadline_missed
                    failure = MachineError(message)
                    raise failure from None
                status, message = "cancelled", progress.cancelled_by or "Ctrl-C"
                self._keep_last_step(trainer, progress)
            except BaseException as error:
                failure = self._explained(error, recorder)
                message = f"{type(failure).__name__}: {failure}"
                if failure is not error:
                    raise failure from error
                raise
            finally:
                progress.look_away()
                if trainer is not None:
                    trainer.leave_audit()
                try:
                    if not progress.terminated:
                        playing.close()  # what was played until now is recorded
                finally:
                    ending = RunEnding(status, message, failure)
                    self._wind_up(
                        recorder, run_context, trackers, ending, hurry=progress.terminated
                    )
        keep_models(self.config, self.run, self.checkpoints)
        return self._outcome(trainer, status, message)

    def _keep_last_step(self, trainer: LonghaulTrainer | None, progress: RunProgress) -> None:
        """Lose no training step that is over to whoever ends the run; a second Ctrl-C may."""
        if trainer is None:
            return
        from ray.exceptions import RayError

        progress.hold_signals()
        try:
            kept = trainer.keep_last_step()
        except (RayError, RuntimeError, LonghaulError, OSError, KeyboardInterrupt) as error:
            # Ray's processes may have had the signal too.
            logger.warning("the last training step could not be kept", exc_info=True)
            self.checkpoints.drop_unfinished()
            why = str(error).partition("\n")[0] or type(error).__name__
            progress.say(f"the last training step could not be kept: {why}")
            return
        if kept is not None:
            progress.say(f"training step {kept} is kept as a checkpoint")

    def _start_trackers(self, run_context: RunContext) -> Trackers:
        self.stages.enter("starting the trackers", training_step=self.first_step)
        return Trackers(
            self.config,
            run_id=run_context.run_id,
            folder=self.run.trackers,
            resumes_after=self._resumes_after() if run_context.attempt else None,
        )

    def _files_of_nodes(self, model: Path) -> tuple[Path, ...]:
        """What every node must see under the same path."""
        critic = self._critic()
        models = (model,) if critic is None else (model, critic)
        files = [self.run.config_file, *(folder / "config.json" for folder in models)]
        if self.config.imitation.sources and "://" not in self.config.store:
            files.append(Path(self.config.store))  # each agent loop reads the demonstrations
        return tuple(files)

    def _tasks(self, demonstrations: Demonstrations | None) -> tuple[TaskStream, Panel | None]:
        state = self.checkpoint.state()["stream"] if self.checkpoint is not None else None
        if demonstrations is not None and self.config.imitation.imitates:
            stream: TaskStream = demonstration_stream(
                self.config, demonstrations.tasks, state=state
            )
        else:
            stream = task_stream(self.config, state=state)
        plays_panel = self.evaluates is not None or self.config.validation.num_tasks
        if self.serve is not None or not plays_panel:
            return stream, None
        return stream, task_panel(self.config, self.evaluates or Split.VALIDATION)

    def _demonstrations(self) -> Demonstrations | None:
        """What was chosen to be imitated before the run began."""
        if self.evaluates is not None or not self.config.imitation.sources:
            return None
        return Demonstrations.read(self.run.path)

    def _run_context(self, demonstrations: Demonstrations | None) -> RunContext:
        return RunContext(
            run_id=self.run.run_id,
            attempt=next_attempt(self.run, store=self.config.store),
            recorder_name=f"longhaul-store-{self.run.run_id}",
            config=self.config,
            descriptions=descriptions_of(self.config),
            demonstrations=demonstrations,
        )

    def _run_started(self, run_context: RunContext) -> RunStarted:
        provenance = sorted(self.run.path.glob("provenance*.json"), key=lambda p: p.stat().st_mtime)
        return RunStarted(
            run_id=run_context.run_id,
            name=self.config.name,
            kind=self.kind,
            attempt=run_context.attempt,
            config_json=json.dumps(self.config.model_dump(mode="json")),
            provenance_json=provenance[-1].read_text(encoding="utf-8") if provenance else "{}",
            started_at=self.started_at,
            num_training_steps=None if self.evaluates else self.config.num_training_steps,
            resumes_after_training_step=self._resumes_after() if run_context.attempt else None,
            host=socket.gethostname(),
            pid=os.getpid(),
        )

    def _resumes_after(self) -> int:
        """The last training step of earlier attempts that stands; -1 takes back all of them."""
        return -1 if self.checkpoint is None else self.checkpoint.training_step

    def _panel_records(self, panel: Panel | None) -> list[PanelTasks]:
        """The panel, and its part of each environment where it has several."""
        if panel is None:
            return []
        return [
            PanelTasks(run_id=self.run.run_id, name=name, split=panel.split, tasks=named.tasks)
            for name, named in ({panel.split.value: panel} | panel.parts).items()
        ]

    def _make_trainer(
        self,
        make_trainer: TrainerFactory | None,
        tickets: tuple[RunContext, Path],
        model: Path,
        tasks: tuple[TaskStream, Panel | None],
        recorders: tuple[RunRecorder, Trackers],
    ) -> LonghaulTrainer:
        self.stages.enter("importing verl", training_step=self.first_step)
        from longhaul_trainer.verl.plugin import check_platform
        from longhaul_trainer.verl.settings import Paths, agent_loop_file, verl_settings

        check_platform(self.device)

        run_context, context_file = tickets
        settings = verl_settings(
            self.config,
            paths=Paths(
                model=model,
                checkpoints=self.run.checkpoints,
                agent_loops=agent_loop_file(context_file),
                critic=self._critic(),
            ),
            device=self.device,
            only_validate=self.evaluates is not None,
        )
        if self.checkpoint is not None:
            # verl would validate the checkpoint's weights again, beside the first result.
            settings.trainer.val_before_train = False
        from longhaul_trainer.verl.modes import TRAINERS
        from longhaul_trainer.verl.trainer import TrainingContext

        context = TrainingContext(
            run_context=run_context,
            stream=tasks[0],
            panel=tasks[1],
            checkpoints=self.checkpoints,
            recorder=recorders[0],
            trackers=recorders[1],
            stages=self.stages,
        )
        return (make_trainer or TRAINERS[self.config.trainer.mode])(settings, context)

    def _critic(self) -> Path | None:
        """The folder that the critic's weights start from, if the run trains one."""
        if self.evaluates is not None or not self.config.algorithm.uses_critic:
            return None
        if self.config.critic.path is None:
            return prepare_model(self.config.model.path)
        return prepare_model(self.config.critic.path, setting="critic.path")

    def _train(self, trainer: LonghaulTrainer, playing: ExitStack) -> None:
        from longhaul_trainer.verl.manager import create_agent_loops

        self.stages.enter("starting the agent loops", training_step=self.first_step)
        agent_loops = create_agent_loops(trainer, self.config, device=self.device)
        playing.callback(agent_loops.stop)
        if self.evaluates or self.first_step < self.config.num_training_steps:
            trainer.fit(agent_loops)
            if self.config.trainer.mode != "sync":
                playing.close()
            trainer.wait_for_audit()
            trainer.remove_older_text()

    def _serve(
        self,
        serve: Serve,
        trainer: LonghaulTrainer,
        run_context: RunContext,
        recorder: RunRecorder,
        progress: RunProgress,
    ) -> None:
        from longhaul_trainer.verl.serving import serve_model

        self.stages.enter(SERVING, training_step=0)
        try:
            asyncio.run(serve_model(serve, trainer, run_context, recorder, progress.say))
        finally:
            progress.hear_signals()  # a gateway has handlers of its own
        if progress.cancelled_by:  # a gateway takes the signal for Ctrl-C, which finishes it
            raise KeyboardInterrupt

    def _explained(self, error: BaseException, recorder: RunRecorder) -> BaseException:
        """The error, or what to do about it where a disk is full or all episodes failed."""
        if isinstance(error, AllFailedError):
            try:
                recorder.flush()
            except StoreError:  # whoever ends the recorder gets it again, and adds it to this error
                return error
            return with_newest_failure(error, store=self.config.store, run_id=self.run.run_id)
        explained = as_full_disk(
            error, run=self.run, config=self.config, doing=self.stages.stage.name
        )
        if explained is None:
            return error
        self.checkpoints.drop_unfinished()  # makes room for the store to record it
        return explained

    def _wind_up(
        self,
        recorder: RunRecorder,
        run_context: RunContext,
        trackers: Trackers | None,
        ending: RunEnding,
        *,
        hurry: bool,
    ) -> None:
        """Tell store and trackers how it ended; what hinders that hides no earlier failure."""
        ended = RunEnded(
            run_id=run_context.run_id,
            attempt=run_context.attempt,
            status=ending.status,
            message=ending.message,
            ended_at=time.time(),
        )
        try:
            recorder.end(ended, store=self.config.store, hurry=hurry)
            if trackers is not None:
                trackers.finish(ending.status)
        except (StoreError, OSError) as error:
            if ending.failure is None:
                raise
            ending.failure.add_note(f"What was then lost: {error}")

    def _outcome(self, trainer: LonghaulTrainer | None, status: Ending, message: str) -> RunOutcome:
        with Session(read_only_engine(self.config.store)) as session:
            stored = get_run(session, run_id=self.run.run_id).summary
        scores = trainer.scores if trainer is not None else {}
        before = scores.get(0)
        after = scores[max(scores)] if scores and max(scores) > 0 else None
        if self.evaluates:
            before, after = None, before
        return RunOutcome(
            run_id=self.run.run_id,
            status=status,
            num_training_steps=stored.num_training_steps_done,
            num_episodes=stored.num_episodes,
            num_steps=stored.num_steps,
            num_failed_episodes=stored.num_failed_episodes,
            duration_seconds=time.time() - self.started_at,
            before=before,
            after=after,
            message=message,
        )


def next_attempt(run: RunDirectory, *, store: str) -> int:
    """The number of a run's next attempt: above all that left a run_context or are in the store.

    Creates the store if there is none.

    Raises:
        StoreError: If the store cannot be opened for writing.
    """
    tickets = run.path.glob("scratch/run_context-*.json")
    earlier = [int(path.stem.removeprefix("run_context-")) for path in tickets]
    engine = open_store(store)
    with Session(engine) as session:
        stored = newest_attempt(session, run_id=run.run_id)
    engine.dispose()
    return max([*earlier, -1 if stored is None else stored], default=-1) + 1


def keep_models(config: RunConfig, run: RunDirectory, checkpoints: CheckpointFolder) -> None:
    """The last and the best weights as Hugging Face folders, under plain names.

    A folder gets its name when all of it is written: a kill leaves none that looks whole.
    """
    written: dict[Path, Path] = {}
    for checkpoint, folder in (
        (checkpoints.latest(), run.model),
        (checkpoints.best(), run.best_model),
    ):
        if checkpoint is None:
            continue
        writing = folder.with_name(f".{folder.name}.writing")
        for earlier in (folder, writing):
            shutil.rmtree(earlier, ignore_errors=True)
        actor = checkpoint.folder / "actor"
        if actor in written:
            shutil.copytree(written[actor], writing, copy_function=_link_or_copy)
        else:
            _write_model(config, actor, writing)
        writing.rename(folder)
        written[actor] = folder


def _write_model(config: RunConfig, actor: Path, folder: Path) -> None:
    """A checkpoint's weights: from its own Hugging Face folder, or from the learner's files."""
    if not config.checkpoint.huggingface:
        from longhaul_trainer.models.shards import write_model  # imports torch

        write_model(actor, folder, start=prepare_model(config.model.path))
        return
    shutil.copytree(actor / "huggingface", folder, copy_function=_link_or_copy)
    if config.model.lora_rank > 0:
        from longhaul_trainer.models.adapter import (  # imports torch
            ADAPTER_META,
            merge_adapter,
            scale_of,
        )

        merge_adapter(folder, scale=scale_of(actor / ADAPTER_META))


def _link_or_copy(source: str, target: str) -> str:
    """A second name for the same file where the disk allows it: weights are large."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
    return target
