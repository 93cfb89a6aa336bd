"""Tests for `longhaul_trainer.run.device`, with drivers of our own on the path."""

import importlib.util
import runpy
import sys
from pathlib import Path

import pytest

from longhaul_core.errors import MachineError
from longhaul_trainer.config import RunConfig
from longhaul_trainer.run.device import (
    choose_device,
    least_driver,
    torch_cuda_version,
    usable_gpus,
    visible_gpus,
    wanted_device,
)
from longhaul_trainer.run.provenance import Gpu, driver_version


def run_on(device: str, *, num_workers: int = 1, ray_address: str | None = None) -> RunConfig:
    return RunConfig.model_validate(
        {
            "num_training_steps": 1,
            "tasks_per_training_step": 1,
            "resources": {
                "device": device,
                "num_workers": num_workers,
                "ray_address": ray_address,
            },
        }
    )


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A driver that knows two GPUs, and no other on the path."""
    program = tmp_path / "nvidia-smi"
    program.write_text(
        "#!/bin/sh\necho 'H200, 143771, 143000'\necho 'H200, 143771, 143000'\n",
        encoding="utf-8",
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return program


@pytest.fixture
def no_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


@pytest.mark.usefixtures("driver")
@pytest.mark.parametrize(
    ("visible", "found"), [("", 0), ("-1", 0), ("1", 1), ("0,1", 2), ("0,1,2,3", 2)]
)
def test_gpus_are_those_that_the_process_may_see(
    visible: str, found: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert len(usable_gpus()) == 2
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)

    assert len(usable_gpus()) == found


def test_only_gpus_that_the_environment_lets_see_count() -> None:
    one, other = (Gpu(name=name, memory_gib=1.0, free_gib=1.0) for name in "AB")

    assert visible_gpus((one, other), None) == (one, other)
    assert visible_gpus((one, other), "") == ()
    assert visible_gpus((one, other), "1") == (other,)
    assert visible_gpus((one, other), "0,7") == (one,)
    assert visible_gpus((one, other), "GPU-5f,GPU-6a") == (one, other)


def test_a_driver_that_fails_shows_no_gpu(driver: Path) -> None:
    broken = "#!/bin/sh\necho 'NVML: Driver/library version mismatch'\nexit 18\n"
    driver.write_text(broken, encoding="utf-8")

    assert usable_gpus() == ()


@pytest.mark.usefixtures("no_driver")
def test_without_a_driver_a_run_trains_on_the_cpu() -> None:
    assert usable_gpus() == ()
    assert choose_device(run_on("auto")) == "cpu"


@pytest.mark.usefixtures("no_driver")
def test_a_gpu_that_is_not_there_is_refused_with_the_way_out() -> None:
    with pytest.raises(MachineError, match="num_workers = 1 needs as many GPUs, this machine sh"):
        choose_device(run_on("gpu"), cuda_engine=True)


@pytest.mark.usefixtures("driver")
def test_auto_takes_the_gpus_that_are_there() -> None:
    assert choose_device(run_on("auto", num_workers=2), cuda_engine=True) == "gpu"
    assert choose_device(run_on("gpu", num_workers=1), cuda_engine=True) == "gpu"


@pytest.mark.usefixtures("driver")
def test_more_workers_than_gpus_are_refused_not_moved_to_the_cpu() -> None:
    with pytest.raises(MachineError, match=r"needs as many GPUs, this machine shows 2"):
        choose_device(run_on("auto", num_workers=4), cuda_engine=True)


@pytest.mark.usefixtures("driver")
def test_the_cpu_is_taken_where_it_is_asked_for() -> None:
    assert choose_device(run_on("cpu")) == "cpu"


@pytest.mark.usefixtures("no_driver")
def test_the_gpus_of_a_cluster_need_not_be_here() -> None:
    assert choose_device(run_on("auto", ray_address="10.0.0.1:6379"), cuda_engine=True) == "gpu"


@pytest.mark.usefixtures("driver")
def test_gpus_without_the_cuda_build_are_left_alone_or_refused() -> None:
    assert choose_device(run_on("auto"), cuda_engine=False) == "cpu"
    with pytest.raises(MachineError, match="make gpu"):
        choose_device(run_on("gpu"), cuda_engine=False)


def test_auto_means_gpus_where_this_machine_or_the_cluster_may_have_them() -> None:
    assert wanted_device(run_on("auto"), num_gpus=0, cuda_engine=True) == "cpu"
    assert wanted_device(run_on("auto"), num_gpus=1, cuda_engine=False) == "cpu"
    on_cluster = run_on("auto", ray_address="10.0.0.1:6379")
    assert wanted_device(on_cluster, num_gpus=0, cuda_engine=True) == "gpu"


def test_the_driver_s_version_is_asked_of_it(driver: Path) -> None:
    driver.write_text(
        "#!/bin/sh\n"
        'case "$1" in *driver_version*) echo 580.65.06; echo 580.65.06;; *) exit 1;; esac\n',
        encoding="utf-8",
    )

    assert driver_version() == "580.65.06"


@pytest.mark.usefixtures("no_driver")
def test_without_a_driver_it_has_no_version() -> None:
    assert driver_version() is None


def test_the_cuda_of_torch_is_read_without_importing_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = tmp_path / "torch"
    torch.mkdir()
    (torch / "__init__.py").write_text("raise RuntimeError('imported')\n", encoding="utf-8")
    version = torch / "version.py"
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delitem(sys.modules, "torch", raising=False)

    def written(lines: str) -> str | None:
        version.write_text(f"__version__ = '2.11.0'\n{lines}\nhip = None\n", encoding="utf-8")
        return torch_cuda_version()

    assert written("cuda: Optional[str] = '13.0'") == "13.0"
    assert written('cuda = "12.8"') == "12.8"
    assert written("cuda: Optional[str] = None") is None


def test_the_installed_torch_is_read_as_its_file_says() -> None:
    found = importlib.util.find_spec("torch")
    assert found is not None
    assert found.origin is not None

    version = runpy.run_path(str(Path(found.origin).with_name("version.py")))

    assert torch_cuda_version() == version["cuda"]


def test_each_cuda_has_its_oldest_driver() -> None:
    assert [least_driver(cuda) for cuda in ("13.0", "12.8", "11.8", "10.2")] == [
        580,
        525,
        450,
        None,
    ]
