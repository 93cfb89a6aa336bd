"""Tests for `longhaul_trainer.run.full_disk`, on a disk that is really full."""

import shutil
from collections.abc import Callable, Generator
from pathlib import Path
from typing import cast

import pytest
import torch
from ray.exceptions import RayTaskError
from safetensors.torch import save_file  # pyright: ignore[reportUnknownVariableType]

from longhaul_core.errors import MachineError, StoreError
from longhaul_trainer.config import RunConfig
from longhaul_trainer.run.directory import RunDirectory
from longhaul_trainer.run.full_disk import FullDisksExplained, as_full_disk
from small_disk import small_disk

WEIGHTS = {"weight": torch.zeros(1_000_000)}


@pytest.fixture
def run(tmp_path: Path) -> Generator[RunDirectory]:
    """A run on a disk of 2 MB; its checkpoints do not fit."""
    with small_disk(tmp_path / "disk", megabytes=2) as disk:
        run = RunDirectory(path=disk / "run")
        run.checkpoints.mkdir(parents=True)
        yield run


def config_of(folder: Path) -> RunConfig:
    return RunConfig(
        num_training_steps=1, tasks_per_training_step=1, store=str(folder / "longhaul.db")
    )


def by_torch(folder: Path) -> None:
    torch.save(WEIGHTS, folder / "optimizer.pt")


def by_safetensors(folder: Path) -> None:
    save_file(WEIGHTS, folder / "model.safetensors")


def by_copying(folder: Path) -> None:
    (source := folder.parents[2] / "model.bin").write_bytes(bytes(4_000_000))
    shutil.copy2(source, folder / "model.bin")


def in_a_worker(folder: Path) -> None:
    try:
        by_safetensors(folder)
    except Exception as error:  # noqa: BLE001  as Ray does it
        wrapped = RayTaskError("save_checkpoint", "\x1b[36mray::save_checkpoint()\x1b[39m", error)
        raise cast("Exception", wrapped.as_instanceof_cause()) from None


@pytest.mark.parametrize("write", [by_torch, by_safetensors, by_copying, in_a_worker])
def test_a_checkpoint_that_does_not_fit_is_told_by_cause_path_space_and_what_to_do(
    write: Callable[[Path], None], run: RunDirectory, tmp_path: Path
) -> None:
    with pytest.raises(Exception) as raised:  # noqa: PT011  libraries have classes of their own
        write(run.checkpoints)

    told = as_full_disk(raised.value, run=run, config=config_of(tmp_path), doing="checkpoint")

    assert told is not None
    assert str(run.checkpoints) in str(told)
    assert "MiB free of 2" in str(told)
    assert "lower checkpoint.keep_last" in str(told)
    assert "\x1b" not in str(told)
    assert len(str(told).splitlines()) == 1


def test_the_fullest_of_a_runs_places_is_told_where_the_stage_does_not_say(
    run: RunDirectory, tmp_path: Path
) -> None:
    with pytest.raises(MachineError, match=rf"the disk is full: {run.path}.* MiB free of 2"):
        with FullDisksExplained(run, config_of(tmp_path)):
            (run.path / "scratch").write_bytes(bytes(4_000_000))


def test_other_errors_and_errors_of_ours_pass_unchanged(tmp_path: Path) -> None:
    run = RunDirectory(path=tmp_path)

    for error in (ValueError("no such column"), StoreError("database or disk is full")):
        with pytest.raises(type(error), match=str(error)):
            with FullDisksExplained(run, config_of(tmp_path)):
                raise error


def test_a_full_disk_is_found_behind_the_errors_that_were_raised_from_it(tmp_path: Path) -> None:
    import errno

    try:
        try:
            raise OSError(errno.ENOSPC, "No space left on device")
        except OSError as error:
            raise RuntimeError("the writer stopped") from error
    except RuntimeError as error:
        told = as_full_disk(error, run=RunDirectory(path=tmp_path), config=config_of(tmp_path))

    assert told is not None
