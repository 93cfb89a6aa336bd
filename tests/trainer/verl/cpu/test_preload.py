"""Tests for `longhaul_trainer.verl.cpu.preload`."""

from pathlib import Path

import pytest

from longhaul_trainer.config import RunConfig
from longhaul_trainer.verl.cpu.preload import SHARED_ZYGOTE, preloaded_python
from longhaul_trainer.device import Device


def run_with(**resources: object) -> RunConfig:
    return RunConfig.model_validate(
        {"num_training_steps": 1, "tasks_per_training_step": 1, "resources": resources}
    )


def test_a_run_uses_the_zygote_that_is_there_and_starts_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = tmp_path / "elsewhere" / "python"
    monkeypatch.setenv(SHARED_ZYGOTE, str(shared))

    with preloaded_python(run_with(), device="cpu", folder=tmp_path / "scratch") as python:
        assert python == shared
    assert not (tmp_path / "scratch").exists()


@pytest.mark.parametrize(
    ("device", "resources"),
    [("gpu", {}), ("cpu", {"ray_address": "10.0.0.1:6379"})],
    ids=["on GPUs", "on a cluster"],
)
def test_the_plain_interpreter_starts_the_workers(
    device: Device, resources: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SHARED_ZYGOTE, str(tmp_path / "python"))

    with preloaded_python(run_with(**resources), device=device, folder=tmp_path) as python:
        assert python is None
