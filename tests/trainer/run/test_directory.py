"""Tests for `longhaul_trainer.run.directory`."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from longhaul_core.errors import ConfigError, MachineError
from longhaul_trainer.config import RunConfig
from longhaul_trainer.run.directory import RunDirectory, write_atomically

HOLD = """
import sys, time
from pathlib import Path
from longhaul_trainer.run.directory import RunDirectory
with RunDirectory(path=Path(sys.argv[1])).locked():
    print("held", flush=True)
    time.sleep(60)
"""


def a_run(folder: Path, name: str = "run") -> RunConfig:
    """A description whose run goes below `folder`."""
    return RunConfig(
        name=name,
        num_training_steps=1,
        tasks_per_training_step=1,
        runs_directory=str(folder / "runs"),
    )


def holding(run: RunDirectory) -> "subprocess.Popen[str]":
    """A process that holds the run's folder."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(run.path)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_a_fresh_folder_holds_the_configuration_and_reads_back_equal(tmp_path: Path) -> None:
    config = a_run(tmp_path, "smoke")

    run = RunDirectory.create(config)

    assert run.load_config() == config
    assert run.logs.is_dir()
    assert run.checkpoints.is_dir()
    assert run.path.parent == tmp_path / "runs"


def test_a_run_of_before_keeps_its_penalty_on_the_return(tmp_path: Path) -> None:
    run = RunDirectory.create(a_run(tmp_path))
    assert run.load_config().algorithm.invalid_action_penalty_on == "action"
    lines = run.config_file.read_text(encoding="utf-8").splitlines(keepends=True)

    run.config_file.write_text(
        "".join(line for line in lines if "invalid_action_penalty_on" not in line),
        encoding="utf-8",
    )

    assert run.load_config().algorithm.invalid_action_penalty_on == "return"


def test_ids_read_as_date_time_name_and_letters_and_a_second_run_loses_nothing(
    tmp_path: Path,
) -> None:
    first = RunDirectory.create(a_run(tmp_path))
    second = RunDirectory.create(a_run(tmp_path))

    date, time, name, letters = first.run_id.split("-")
    assert (len(date), len(time), name, len(letters)) == (8, 6, "run", 4)
    assert first.run_id != second.run_id
    assert {run.run_id for run in RunDirectory.all(tmp_path / "runs")} == {
        first.run_id,
        second.run_id,
    }


def test_a_folder_that_cannot_be_made_is_told_before_anything_starts(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("a file in the way", encoding="utf-8")

    with pytest.raises(MachineError, match=r"cannot be made: .*runs_directory="):
        RunDirectory.create(a_run(tmp_path))


def test_a_run_is_found_by_id_beginning_folder_and_as_the_last(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    for run_id in ("20260101-000000-a-0001", "20260102-000000-b-0002"):
        (runs / run_id).mkdir(parents=True)
        (runs / run_id / "config.toml").touch()

    def find(reference: str) -> str:
        return RunDirectory.find(reference, runs_directory=runs).run_id

    assert find("20260101-000000-a-0001") == "20260101-000000-a-0001"
    assert find("20260102") == "20260102-000000-b-0002"
    assert find(str(runs / "20260101-000000-a-0001")) == "20260101-000000-a-0001"
    assert find("last") == "20260102-000000-b-0002"
    with pytest.raises(ConfigError, match="'2026' begins 2 runs: 20260102-000000-b-0002, 2026"):
        find("2026")
    with pytest.raises(ConfigError, match=r"no run 'x' in .*runs; it holds 20260102"):
        find("x")


def test_an_empty_place_holds_no_run(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="it holds no run"):
        RunDirectory.find("last", runs_directory=tmp_path)


def test_a_second_process_is_refused_with_the_first_ones_id_and_host(tmp_path: Path) -> None:
    run = RunDirectory.create(a_run(tmp_path))
    first = holding(run)
    try:
        with pytest.raises(
            MachineError, match=rf"in use by process {first.pid} on {os.uname()[1]}"
        ):
            with run.locked():
                pass
    finally:
        first.kill()
        first.communicate()


def test_a_killed_process_holds_nothing(tmp_path: Path) -> None:
    run = RunDirectory.create(a_run(tmp_path))
    first = holding(run)
    first.send_signal(signal.SIGKILL)
    first.communicate()

    with run.locked():
        assert str(os.getpid()) in run.lock_file.read_text(encoding="utf-8")


def test_each_start_keeps_its_own_provenance(tmp_path: Path) -> None:
    run = RunDirectory.create(a_run(tmp_path))

    names = [run.write_provenance(f'{{"start": {n}}}').name for n in range(3)]

    assert names == ["provenance.json", "provenance-2.json", "provenance-3.json"]
    assert (run.path / "provenance.json").read_text(encoding="utf-8") == '{"start": 0}'


def test_an_atomic_write_leaves_one_whole_file(tmp_path: Path) -> None:
    file = tmp_path / "a.toml"
    write_atomically(file, "old")

    write_atomically(file, "new")

    assert file.read_text(encoding="utf-8") == "new"
    assert list(tmp_path.iterdir()) == [file]
