"""Tests for `longhaul_trainer.verl.cpu.preload`."""

from pathlib import Path

import pytest

from longhaul_trainer.config import RunConfig
from longhaul_trainer.run.device import Device
from longhaul_trainer.verl.cpu.preload import SHARED_ZYGOTE, preloaded_python

ON_A_CLUSTER = {"ray_address": "10.0.0.1:6379"}


def run_with(**resources: object) -> RunConfig:
    return RunConfig.model_validate(
        {"num_training_steps": 1, "tasks_per_training_step": 1, "resources": resources}
    )


@pytest.mark.parametrize("resources", [{}, ON_A_CLUSTER], ids=["here", "on a cluster"])
def test_a_run_uses_the_zygote_that_is_there_and_starts_none(
    resources: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = tmp_path / "elsewhere" / "python"
    monkeypatch.setenv(SHARED_ZYGOTE, str(shared))

    run, scratch = run_with(**resources), tmp_path / "scratch"
    with preloaded_python(run, device="cpu", folder=scratch) as python:
        assert python == shared
    assert not scratch.exists()


@pytest.mark.parametrize(
    ("device", "resources", "is_shared"),
    [("gpu", {}, True), ("cpu", ON_A_CLUSTER, False)],
    ids=["on GPUs", "on a cluster"],
)
def test_the_plain_interpreter_starts_the_workers(
    device: Device,
    resources: dict[str, str],
    is_shared: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(SHARED_ZYGOTE, raising=False)
    if is_shared:
        monkeypatch.setenv(SHARED_ZYGOTE, str(tmp_path / "python"))

    with preloaded_python(run_with(**resources), device=device, folder=tmp_path) as python:
        assert python is None
