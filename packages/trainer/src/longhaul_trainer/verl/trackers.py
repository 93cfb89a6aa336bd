"""Trackers of a run: TensorBoard, MLflow and Weights & Biases, through verl's own `Tracking`.

They get what the store gets of each training step, before its checkpoint is written, so they know
every training step that a checkpoint stands for. A resumed run goes on in the same TensorBoard
folder, MLflow run and W&B run. Training steps beyond the checkpoint are done again: TensorBoard
drops what it had of them; MLflow and W&B cannot delete logged values, so they keep theirs and get
no second ones. Every tracker thus shows each training step once; the store has both.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from longhaul_core.errors import MachineError
from longhaul_trainer.config import RunConfig
from longhaul_trainer.run.directory import write_atomically

if TYPE_CHECKING:
    from verl.utils.tracking import Tracking

PROJECT = "longhaul"
"""What W&B calls a project and MLflow an experiment, unless `[verl] trainer.project_name` says."""

RUN_TAG = "longhaul.run_id"
"""Tag by which the MLflow run of a run is found again."""

LAST_STEP = "last_training_step"
"""File that holds the last training step that was handed over in any attempt."""

MLFLOW_STATUS = {"finished": "FINISHED", "cancelled": "KILLED", "failed": "FAILED"}


class Trackers:
    """The trackers of one attempt at a run."""

    def __init__(
        self, run: RunConfig, *, run_id: str, folder: Path, resumes_after: int | None = None
    ) -> None:
        """Start them; without any, nothing is imported or written.

        Args:
            run: Names them, and is kept by MLflow and W&B as the run's parameters.
            run_id: What they call the run.
            folder: For their files, unless `TENSORBOARD_DIR`, `MLFLOW_TRACKING_URI` or
                `WANDB_DIR` is set.
            resumes_after: The training step of the checkpoint that a resume goes on from, -1
                without one; None for a run's first attempt.

        Raises:
            MachineError: If one cannot be started.
        """
        self._trackers: dict[str, Tracking] = {}
        self._last_step = -1
        self._last_step_file = folder / LAST_STEP
        if not run.trackers:
            return
        folder.mkdir(parents=True, exist_ok=True)
        if self._last_step_file.exists():
            self._last_step = int(self._last_step_file.read_text(encoding="utf-8"))
        project = str(run.verl.get("trainer.project_name", PROJECT))
        config = run.model_dump(mode="json")
        with _variables(run_id, folder):
            if "tensorboard" in run.trackers and resumes_after is not None:
                _forget_beyond(Path(os.environ["TENSORBOARD_DIR"]), resumes_after)
            is_known = resumes_after is not None
            if "mlflow" in run.trackers and "MLFLOW_RUN_ID" not in os.environ:
                os.environ["MLFLOW_RUN_ID"], is_known = _mlflow_run(project, run_id, folder)
            for name in dict.fromkeys(run.trackers):
                # MLflow refuses parameters that have changed, as an edit of the run's file may do.
                parameters = None if name == "mlflow" and is_known else config
                self._trackers[name] = _started(name, project, run_id, parameters)

    def log(self, training_step: int, values: Mapping[str, float]) -> None:
        """Hand over what was measured in a training step, finite numbers; each step is sent once.

        Args:
            training_step: Later than all before it in this attempt; 0 is before training.
            values: By name.
        """
        is_new = training_step > self._last_step
        if self._trackers and is_new:
            # First, so that a kill in between loses a training step and repeats none.
            write_atomically(self._last_step_file, str(training_step))
            self._last_step = training_step
        for name, tracking in self._trackers.items():
            if name == "tensorboard":
                tracking.log(dict(values), training_step)
                tracking.logger[name].writer.flush()
            elif is_new:
                tracking.log(dict(values), training_step)
                if name == "wandb":  # would keep the row back until the next training step
                    tracking.logger[name].log({}, step=training_step, commit=True)

    def finish(self, status: Literal["finished", "cancelled", "failed"]) -> None:
        """Say how the attempt ended, and wait until their files are written."""
        for name, tracking in self._trackers.items():
            if name == "mlflow":
                import mlflow

                mlflow.end_run(MLFLOW_STATUS[status])
            tracking.finish(exit_code=0 if status == "finished" else 1)


@contextmanager
def _variables(run_id: str, folder: Path) -> Generator[None]:
    """What trackers read while they are started; a variable that the user has set stays."""
    base = os.environ.get("TENSORBOARD_DIR")
    ours = {
        # A folder of the user's own has one for each run, since steps of runs would mix in it.
        "TENSORBOARD_DIR": str(folder / "tensorboard" if base is None else Path(base) / run_id),
        "MLFLOW_TRACKING_URI": f"sqlite:///{folder}/mlflow.db",
        "WANDB_DIR": str(folder),
        "WANDB_RUN_ID": run_id,
        "WANDB_RESUME": "allow",
        "WANDB_CONSOLE": "off",
    }
    before = dict(os.environ)
    kept = {name: before[name] for name in ours if name in before and name != "TENSORBOARD_DIR"}
    os.environ.update(ours | kept)
    try:
        yield
    finally:
        for name in (*ours, "MLFLOW_RUN_ID"):
            os.environ.pop(name, None)
            if name in before:
                os.environ[name] = before[name]


def _started(name: str, project: str, run_id: str, config: Mapping[str, object] | None) -> Tracking:
    import wandb
    from verl.utils.tracking import Tracking

    try:
        tracking = Tracking(project, run_id, [name], config=config)
    except wandb.Error as error:
        raise MachineError(f"the tracker {name!r} cannot be started: {error}") from error
    if name not in tracking.logger:  # verl goes on without an MLflow that does not answer
        raise MachineError(
            f"the tracker {name!r} cannot be started: why stands in the run's log; check its "
            "address, or leave it out of trackers"
        )
    return tracking


def _forget_beyond(folder: Path, training_step: int) -> None:
    """Let TensorBoard drop what earlier attempts wrote of later training steps."""
    from torch.utils.tensorboard import SummaryWriter

    SummaryWriter(str(folder), purge_step=training_step + 1).close()


def _mlflow_run(project: str, run_id: str, folder: Path) -> tuple[str, bool]:
    """MLflow's id of the run's own MLflow run, and whether it was there before."""
    from mlflow import MlflowClient
    from mlflow.exceptions import MlflowException

    address = os.environ["MLFLOW_TRACKING_URI"]
    try:
        client = MlflowClient(address)
        experiment = client.get_experiment_by_name(project)
        if experiment is None:
            # A server has a place of its own for files; ours would be ./mlruns.
            place = str(folder / "mlflow") if address.startswith("sqlite:") else None
            experiment_id = client.create_experiment(project, artifact_location=place)
        else:
            experiment_id = experiment.experiment_id
        found = client.search_runs([experiment_id], f"tags.`{RUN_TAG}` = '{run_id}'")
        if found:
            return found[0].info.run_id, True
        run = client.create_run(experiment_id, run_name=run_id, tags={RUN_TAG: run_id})
    except MlflowException as error:
        raise MachineError(
            f"the tracker 'mlflow' cannot be started at {address}: {error}; check the address, or "
            "leave it out of trackers"
        ) from error
    return run.info.run_id, False
