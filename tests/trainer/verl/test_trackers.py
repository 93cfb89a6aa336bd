"""Tests for `longhaul_trainer.verl.trackers`: the real packages, through verl's own `Tracking`.

The attempts of a run have processes of their own, as they have in life; one is killed.
"""

import json
import os
import sqlite3
import struct
import subprocess
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from longhaul_trainer.config import RunConfig
from longhaul_trainer.verl.trackers import Trackers
from trainer.verl.pythons import Pythons
from trainer.verl.tracked_attempt import RUN_ID

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

ATTEMPT = Path(__file__).with_name("tracked_attempt.py")
ALL = ("tensorboard", "mlflow", "wandb")
NAME = "episodes/mean_return"


def attempt(python: str, folder: Path, **asked: object) -> "subprocess.Popen[bytes]":
    """An attempt of `tracked_attempt`, in a working folder of its own beside `folder`."""
    arguments = {"trackers": ALL, "resumes_after": None, "killed": False, "seed": 0} | asked
    ignored = {"TENSORBOARD_DIR", "MLFLOW_TRACKING_URI", "MLFLOW_RUN_ID", "WANDB_DIR", "WANDB_MODE"}
    (cwd := folder.parent / "cwd").mkdir(exist_ok=True)
    return subprocess.Popen(
        [python, str(ATTEMPT), json.dumps({"folder": str(folder)} | arguments)],
        stdin=subprocess.PIPE,
        cwd=cwd,
        env={name: value for name, value in os.environ.items() if name not in ignored}
        | {"VERL_PLATFORM": "cpu"},
    )


def has_history(folder: Path) -> bool:
    """Whether W&B's own process has written what it was told; it does so after some seconds."""
    return any(_wandb_records(file)[1] for file in folder.glob("wandb/offline-run-*/*.wandb"))


@pytest.fixture(scope="module")
def tracked(pythons: Pythons, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was killed after step 3, with a checkpoint of step 2, and went on to step 5."""
    folder = tmp_path_factory.mktemp("run") / "trackers"
    with attempt(pythons.verl, folder, steps=[0, 1, 2, 3], killed=True) as killed:
        deadline = time.monotonic() + 300
        while not has_history(folder) and killed.poll() is None and time.monotonic() < deadline:
            time.sleep(0.2)
        killed.communicate()  # it kills itself, and leaves W&B's own process as it is
    assert has_history(folder)
    with attempt(pythons.verl, folder, steps=[3, 4, 5], resumes_after=2, seed=1) as resumed:
        assert resumed.wait() == 0
    return folder


FIRST_STAYS = [(0, 0.0), (1, 1.0), (2, 2.0), (3, 3.0), (4, 4.1), (5, 5.1)]
LATER_COUNTS = [(0, 0.0), (1, 1.0), (2, 2.0), (3, 3.1), (4, 4.1), (5, 5.1)]
"""Seeds add a tenth, so that the second attempt's values are known."""


def test_tensorboard_shows_a_step_that_was_done_again_with_what_counts(tracked: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events: Any = EventAccumulator(str(tracked / "tensorboard"))
    events.Reload()

    assert _rounded((each.step, each.value) for each in events.Scalars(NAME)) == LATER_COUNTS
    assert [each.value for each in events.Scalars("rows/count")] == [12.0] * 6


def test_mlflow_goes_on_with_the_same_run_and_repeats_no_step(tracked: Path) -> None:
    connection = sqlite3.connect(tracked / "mlflow.db")
    runs = connection.execute("SELECT run_uuid, name, status, experiment_id FROM runs").fetchall()
    experiments = dict(connection.execute("SELECT experiment_id, name FROM experiments"))
    found = connection.execute(
        "SELECT step, value FROM metrics WHERE key = ? ORDER BY timestamp, step", (NAME,)
    ).fetchall()
    parameters = dict(connection.execute("SELECT key, value FROM params"))
    connection.close()

    ((_, name, status, experiment),) = runs
    assert (name, status, experiments[experiment]) == (RUN_ID, "FINISHED", "longhaul")
    assert _rounded(found) == FIRST_STAYS
    # Those of the first attempt; MLflow would refuse others.
    assert (parameters["seed"], parameters["num_training_steps"]) == ("0", "9")


def test_wandb_goes_on_with_the_same_run_and_its_steps_never_go_backwards(tracked: Path) -> None:
    folders = sorted((tracked / "wandb").glob("offline-run-*"))
    written = [_wandb_records(next(folder.glob("*.wandb"))) for folder in folders]

    assert [run for run, _ in written] == [RUN_ID, RUN_ID]
    assert _rounded(row for _, rows in written for row in rows) == FIRST_STAYS


def test_all_files_lie_in_the_runs_folder(tracked: Path) -> None:
    assert {path.name for path in tracked.iterdir()} == {
        "last_training_step",
        "mlflow.db",
        "tensorboard",
        "wandb",
    }
    assert list((tracked.parent / "cwd").iterdir()) == []


def test_a_run_without_trackers_writes_nothing(tmp_path: Path) -> None:
    run = RunConfig(num_training_steps=1, tasks_per_training_step=1)
    trackers = Trackers(run, run_id="one", folder=tmp_path / "trackers")

    trackers.log(1, {NAME: 1.0})
    trackers.finish("finished")

    assert list(tmp_path.iterdir()) == []


def test_an_mlflow_that_cannot_be_reached_is_told_by_its_address(
    pythons: Pythons, tmp_path: Path
) -> None:
    run = RunConfig(num_training_steps=1, tasks_per_training_step=1, trackers=("mlflow",))
    code = (
        "import json, sys\n"
        "from pathlib import Path\n"
        "from longhaul_core.errors import MachineError\n"
        "from longhaul_trainer.config import parse_config\n"
        "from longhaul_trainer.verl.trackers import Trackers\n"
        "try:\n"
        "    Trackers(parse_config(sys.argv[1]), run_id='one', folder=Path(sys.argv[2]))\n"
        "except MachineError as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run(
        [pythons.verl, "-c", code, run.to_toml(), str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"MLFLOW_TRACKING_URI": "nothing://here"},
    )

    assert "the tracker 'mlflow' cannot be started at nothing://here" in done.stdout, done.stderr


def _rounded(rows: Any) -> list[tuple[int, float]]:  # noqa: ANN401
    return [(int(step), round(float(value), 3)) for step, value in rows]


def _wandb_records(path: Path) -> tuple[str, list[tuple[int, float]]]:
    """Id of the run, and step and value of each row of its history, of an offline file."""
    from wandb.proto import wandb_internal_pb2

    protocol: Any = wandb_internal_pb2
    run_id, rows = "", list[tuple[int, float]]()
    for data in _leveldb_records(path.read_bytes()):
        record: Any = protocol.Record()
        record.ParseFromString(data)
        if record.WhichOneof("record_type") == "run":
            run_id = record.run.run_id
        if record.WhichOneof("record_type") == "history":
            row: dict[str, Any] = {
                item.key or "/".join(item.nested_key): json.loads(item.value_json)
                for item in record.history.item
            }
            rows.append((int(record.history.step.num), float(row[NAME])))
    return run_id, rows


def _leveldb_records(log: bytes, *, first: int = 7, block: int = 32_768) -> Generator[bytes]:
    """Records of a LevelDB log: checksum (4 bytes), length (2), kind (1), and the data."""
    place, record = first, b""
    while place + 7 <= len(log):
        if block - place % block < 7:  # what is left of a block is padding
            place += block - place % block
            continue
        length, kind = struct.unpack_from("<HB", log, place + 4)
        record += log[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):  # whole, or the last of its parts
            yield record
            record = b""
