"""verl's trainer, ours: the horizon and the tasks of each training step, through checkpoints.

No episode is played: the trainer is asked for its batches and told how they came out.
"""

import functools
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from omegaconf import DictConfig, OmegaConf

from longhaul_core.types import Split, Task
from longhaul_trainer.config import RunConfig, TasksConfig, TrainerConfig
from longhaul_trainer.play.environments import task_panel, task_stream
from longhaul_trainer.training.checkpoints import CheckpointFolder
from longhaul_trainer.training.stages import StageClock
from longhaul_trainer.training.step_metadata import GroupName
from longhaul_trainer.training.training_step import TrainingStep
from longhaul_trainer.verl.trackers import Trackers
from row_metadata import rows_of
from verl_process import IMPORTS_VERL

if TYPE_CHECKING:
    from longhaul_trainer.verl.run_recorder import RunRecorder

pytestmark = IMPORTS_VERL

NUM_TRAINING_STEPS = 7
SCHEDULES: dict[str, dict[str, object]] = {
    "stepwise": {"kind": "stepwise", "stages": [2, 4, 6], "training_steps_per_stage": 2},
    "linear": {"kind": "linear", "start": 2, "end_training_step": 6},
    "success_gated": {
        "kind": "success_gated",
        "stages": [2, 4, 6],
        "success_threshold": 0.5,
        "success_window": 2,
    },
}
EXPECTED = {
    "stepwise": [2, 2, 4, 4, 6, 6, 6],
    "linear": [2, 2, 3, 4, 5, 6, 6],  # 2 + 4 (k - 1) / 5: 2, 2.8, 3.6, 4.4, 5.2, 6, 6
    # Solved per step as `outcomes_of` has it, 1/3 of the episodes in odd steps and all in even
    # ones: the window of steps 1 and 2 has 2/3, and so has that of 3 and 4.
    "success_gated": [2, 2, 4, 4, 6, 6, 6],
}


class Workers:
    """The learner's processes, which have no weights to keep here."""

    def save_checkpoint(self, path: str, remote_path: object, training_step: int) -> None:
        Path(path).mkdir()

    def load_checkpoint(self, path: str) -> None:
        assert Path(path).is_dir()


class Silent:
    """A recorder with nothing to write."""

    def flush(self) -> None:
        """Done."""


def described(schedule: dict[str, object]) -> RunConfig:
    return RunConfig.model_validate(
        {
            "num_training_steps": NUM_TRAINING_STEPS,
            "tasks_per_training_step": 3,
            "environment": {"id": "longhaul/TextCraft-v0", "options": {"depth": 1}},
            "validation": {"num_tasks": 2, "test_num_tasks": 2},
            "rollout": {"horizon": 6},
            "tasks": {"order": "difficulty"},
            "horizon_schedule": schedule,
        }
    )


@functools.cache
def settings_of_verl() -> DictConfig:
    """The same for every run here, and slow to make."""
    from longhaul_trainer.verl.settings import Paths, verl_settings

    nowhere = Path("/run")
    paths = Paths(model=nowhere, checkpoints=nowhere, agent_loops=nowhere)
    return verl_settings(described(SCHEDULES["linear"]), paths=paths, device="cpu")


def step_of(run: RunConfig, tasks: list[Task], *, horizon: int, training_step: int) -> TrainingStep:
    """A training step whose groups of eight all succeed or, in odd ones but the first, all fail."""
    episodes = [
        replace(row.episode, environment=task.environment, task_id=task.task_id)
        for place, task in enumerate(tasks)
        for sample_index in range(8)
        for row in rows_of(
            GroupName(training_step, place),
            sample_index,
            [{"reward": 0.0}],
            horizon=horizon,
            success=training_step % 2 == 0 or place == 0,
        ).values()
        if row.episode is not None
    ]
    step = TrainingStep.of(
        {}, number=training_step, algorithm=run.algorithm, num_optimizer_steps=1, groups=[]
    )
    return step.with_reported(episodes)


def attempt(
    run: RunConfig, folder: Path, *, until: int = NUM_TRAINING_STEPS
) -> list[tuple[int, list[str]]]:
    """Horizon and task ids of each training step, from the last checkpoint to `until`."""
    from longhaul_trainer.run.context import RunContext
    from longhaul_trainer.verl.trainer import LonghaulTrainer, TrainingContext

    class Driven(LonghaulTrainer):
        def begin(self) -> int:
            self.actor_rollout_wg = Workers()
            self._load_checkpoint()
            return self.global_steps

        def train(self, training_step: int) -> tuple[int, list[str]]:
            self.global_steps = training_step
            batch = self._next_train_batch()
            (horizon,) = {int(one) for one in batch["horizon"]}
            tasks = [cast("Task", one) for one in batch["task"]]
            self._step = step_of(run, tasks, horizon=horizon, training_step=training_step)
            self._learn_from_outcomes()
            self._settle(list(self._waiting))
            self._write_checkpoint()
            return horizon, [task.task_id for task in tasks]

    checkpoints = CheckpointFolder(folder)
    latest = checkpoints.latest()
    trainer = Driven(
        settings_of_verl(),
        TrainingContext(
            run_context=RunContext(
                run_id="one", attempt=0, recorder_name="none", config=run, descriptions={}
            ),
            stream=task_stream(run, state=None if latest is None else latest.state()["stream"]),
            panel=task_panel(run, Split.VALIDATION),
            checkpoints=checkpoints,
            recorder=cast("RunRecorder", Silent()),
            stages=StageClock(),
            trackers=Trackers(run, run_id="one", folder=folder),
        ),
    )
    done = trainer.begin()
    return [trainer.train(training_step) for training_step in range(done + 1, until + 1)]


@pytest.mark.parametrize("kind", SCHEDULES)
def test_a_run_killed_after_every_training_step_plays_what_it_would_have_played(
    kind: str, tmp_path: Path
) -> None:
    run = described(SCHEDULES[kind])
    undisturbed = attempt(run, tmp_path / "undisturbed")
    killed = [
        step
        for end in range(1, NUM_TRAINING_STEPS + 1)
        for step in attempt(run, tmp_path / "killed", until=end)
    ]

    assert [horizon for horizon, _ in undisturbed] == EXPECTED[kind]
    assert killed == undisturbed

    latest = CheckpointFolder(tmp_path / "killed").latest()
    assert latest is not None
    met = {task_id for _, tasks in undisturbed for task_id in tasks}
    assert {task_id for _, task_id, _ in latest.state()["stream"]["success_rates"]} == met


def test_tasks_that_wait_at_a_checkpoint_are_played_again_first(tmp_path: Path) -> None:
    from longhaul_trainer.run.context import RunContext
    from longhaul_trainer.verl.modes import ColocateAsyncTrainer
    from longhaul_trainer.verl.settings import Paths, verl_settings
    from longhaul_trainer.verl.trainer import TrainingContext

    run = described(SCHEDULES["linear"]).model_copy(
        update={
            "trainer": TrainerConfig(mode="colocate_async", prefetch_batches=1, max_staleness=1),
            "tasks": TasksConfig(),
        }
    )
    paths = Paths(model=tmp_path, checkpoints=tmp_path, agent_loops=tmp_path)
    settings = verl_settings(run, paths=paths, device="cpu")
    checkpoints = CheckpointFolder(tmp_path / "checkpoints")

    def start(attempt: int) -> ColocateAsyncTrainer:
        latest = checkpoints.latest()
        trainer = ColocateAsyncTrainer(
            settings,
            TrainingContext(
                run_context=RunContext(
                    run_id="one",
                    attempt=attempt,
                    recorder_name="none",
                    config=run,
                    descriptions={},
                ),
                stream=task_stream(run, state=None if latest is None else latest.state()["stream"]),
                panel=task_panel(run, Split.VALIDATION),
                checkpoints=checkpoints,
                recorder=cast("RunRecorder", Silent()),
                stages=StageClock(),
                trackers=Trackers(run, run_id="one", folder=tmp_path),
            ),
        )
        trainer.actor_rollout_wg = Workers()
        trainer._load_checkpoint()
        trainer.global_steps += 1
        return trainer

    def asked(trainer: ColocateAsyncTrainer, number: int) -> list[tuple[str, str]]:
        batch = trainer._next_train_batch(number)
        tasks = [cast("Task", one) for one in batch["task"]]
        return list(
            zip([str(uid) for uid in batch["uid"]], [t.task_id for t in tasks], strict=True)
        )

    first = start(0)
    played = asked(first, 3) + asked(first, 3)  # the batch ahead, and that of training step 1
    assert [uid for uid, _ in played] == [f"train-1-{place}" for place in range(6)]
    # Training step 1 took the second, third and fifth group.
    first._settle([GroupName(1, 1), GroupName(1, 2), GroupName(1, 4)])
    first._write_checkpoint()
    lost = asked(first, 2)

    again = start(1)
    replayed = asked(again, 2) + asked(again, 3)

    assert [uid for uid, _ in replayed] == [f"train-2-{place}" for place in range(5)]
    waited = [played[place][1] for place in (0, 3, 5)]
    assert [task for _, task in replayed] == waited + [task for _, task in lost]
    # What was put back and not asked for again waits in the next checkpoint as well.
    third = start(2)
    asked(third, 1)
    third._write_checkpoint()
    state = checkpoints.latest()
    assert state is not None
    assert [task["task_id"] for task in state.state()["waiting"]] == waited


class Engines:
    """The engines that share a card with the learner."""

    def __init__(self) -> None:
        self.told: list[object] = []

    def sleep_replicas(self) -> None:
        self.told.append("sleep")

    def update_weights(self, training_step: int) -> None:
        self.told.append(training_step)

    def abort_replicas(self) -> None:
        self.told.append("pause")

    def resume_generation_replicas(self) -> None:
        self.told.append("go on")


@pytest.mark.parametrize(("shared", "told"), [(True, ["sleep", "save", 3]), (False, ["save"])])
def test_engines_on_a_shared_card_sleep_while_a_checkpoint_is_written(
    shared: bool,
    told: list[object],
) -> None:
    from longhaul_trainer.verl.trainer import LonghaulTrainer

    engines = Engines()
    trainer = SimpleNamespace(
        _engines_sleep=shared,
        checkpoint_manager=engines,
        global_steps=3,
    )
    with LonghaulTrainer._learner_has_the_card(cast("LonghaulTrainer", trainer)):
        engines.told.append("save")

    assert engines.told == told


@pytest.mark.parametrize(
    ("shared", "told"), [(True, ["pause", "sleep", "save", 3, "go on"]), (False, ["save"])]
)
def test_replies_pause_before_engines_on_a_shared_card_sleep(
    shared: bool,
    told: list[object],
) -> None:
    from longhaul_trainer.verl.modes import ColocateAsyncTrainer

    engines = Engines()
    trainer = ColocateAsyncTrainer.__new__(ColocateAsyncTrainer)  # without a run
    rollout = {"free_cache_engine": shared}
    trainer.config = OmegaConf.create({"actor_rollout_ref": {"rollout": rollout}})
    trainer.checkpoint_manager = cast("Any", engines)
    trainer.global_steps = 3
    with trainer._learner_has_the_card():
        engines.told.append("save")

    assert engines.told == told


@pytest.mark.parametrize(
    ("stage", "kept", "told"),
    [
        pytest.param("episodes", 2, ["pause", "sleep", "save"], id="engines write replies"),
        pytest.param("validation", 2, ["pause", "sleep", "save"], id="after the weight sync"),
        pytest.param("log-probabilities", 2, ["save"], id="engines sleep already"),
        pytest.param("update", None, [], id="weights change"),
    ],
)
def test_who_ends_a_run_loses_no_training_step_that_is_over_while_its_weights_stand(
    stage: str, kept: int | None, told: list[object], tmp_path: Path
) -> None:
    from longhaul_trainer.verl.modes import SyncTrainer

    engines, stages = Engines(), StageClock()

    def save_checkpoint(*given: object) -> None:
        engines.told.append("save")

    trainer = SyncTrainer.__new__(SyncTrainer)  # without a run
    trainer._run = described(SCHEDULES["linear"])
    trainer._context = cast(
        "Any",
        SimpleNamespace(
            stages=stages, checkpoints=CheckpointFolder(tmp_path), recorder=Silent(), stream=None
        ),
    )
    trainer.config = OmegaConf.create({"actor_rollout_ref": {"rollout": {"free_cache_engine": 1}}})
    trainer.checkpoint_manager = cast("Any", engines)
    trainer.actor_rollout_wg = SimpleNamespace(save_checkpoint=save_checkpoint)
    trainer.use_critic = False
    trainer._over = None
    assert trainer.keep_last_step() is None, "nothing is over"

    trainer._over = {"training_step": 2, "scores": {}}
    if stage == "update":
        stages.begin_update(3)
    else:
        stages.enter(stage, training_step=3)

    assert trainer.keep_last_step() == kept
    assert engines.told == told
    assert [one.training_step for one in CheckpointFolder(tmp_path).complete()] == (
        [] if kept is None else [kept]
    )
    assert trainer.keep_last_step() is None, "it is a checkpoint already"
    assert engines.told == told
