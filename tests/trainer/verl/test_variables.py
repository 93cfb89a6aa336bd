"""Tests for `longhaul_trainer.verl.variables`, in processes of their own: it changes its own."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

REPORT = """
import json, os, sys
from pathlib import Path
from longhaul_trainer.verl.variables import prepare_environment
before = dict(os.environ)
prepare_environment(sys.argv[1], scratch=Path(sys.argv[2]))
changed = {name: value for name, value in os.environ.items() if before.get(name) != value}
import importlib.metadata
try:
    found = importlib.metadata.version("vllm")
except importlib.metadata.PackageNotFoundError:
    found = None
heavy = [name for name in ("ray", "verl", "vllm", "torch") if name in sys.modules]
print(json.dumps({"changed": changed, "vllm": found, "heavy": heavy}))
"""
CHILD = "import importlib.metadata; print(importlib.metadata.version('vllm'))"


def report(device: str, scratch: Path, **variables: str) -> dict[str, Any]:
    """What `prepare_environment` changes in a fresh process that has these variables."""
    clean = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    output = subprocess.run(
        [sys.executable, "-c", REPORT, device, str(scratch)],
        env=clean | variables,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    ).stdout
    return json.loads(output)


def test_a_run_asks_no_network_and_reports_to_nobody(tmp_path: Path) -> None:
    for device in ("cpu", "gpu"):
        changed = report(device, tmp_path)["changed"]

        assert changed["HF_HUB_OFFLINE"] == changed["TRANSFORMERS_OFFLINE"] == "1"
        assert changed["RAY_USAGE_STATS_ENABLED"] == "0"
        assert changed["VLLM_NO_USAGE_STATS"] == changed["DO_NOT_TRACK"] == "1"


def test_only_the_cpu_is_made_a_platform_of_verl(tmp_path: Path) -> None:
    assert report("cpu", tmp_path)["changed"]["VERL_PLATFORM"] == "cpu"
    gpu = report("gpu", tmp_path)["changed"]

    assert not {name for name in gpu if name.startswith("VERL_") or "CPU" in name}
    assert "PYTHONPATH" not in gpu


def test_what_the_user_has_set_stays(tmp_path: Path) -> None:
    changed = report("gpu", tmp_path, VLLM_LOGGING_LEVEL="DEBUG")["changed"]

    assert "VLLM_LOGGING_LEVEL" not in changed
    assert "TRANSFER_QUEUE_ENABLE" in changed


def test_nothing_heavy_is_imported(tmp_path: Path) -> None:
    assert report("cpu", tmp_path)["heavy"] == []


def test_the_cpu_build_answers_to_the_name_of_vllm_in_every_process(tmp_path: Path) -> None:
    found = report("cpu", tmp_path, PYTHONPATH="/somewhere/else")

    assert found["vllm"].startswith("0.24.0")
    assert "cpu" in found["vllm"]
    paths = found["changed"]["PYTHONPATH"]
    assert paths.endswith(os.pathsep + "/somewhere/else")
    inherited = subprocess.run(
        [sys.executable, "-c", CHILD],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    ).stdout
    assert inherited.strip() == found["vllm"]


def test_workers_of_a_cluster_are_given_what_a_run_has_set_and_no_more(tmp_path: Path) -> None:
    given = """
import json, os, sys
from pathlib import Path
from longhaul_trainer.verl.variables import prepare_environment, worker_variables
before = dict(os.environ)
prepare_environment(sys.argv[1], scratch=Path(sys.argv[2]))
changed = {name for name, value in os.environ.items() if before.get(name) != value}
print(json.dumps([sorted(changed), worker_variables(sys.argv[1])]))
"""
    clean = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    for device in ("cpu", "gpu"):
        output = subprocess.run(
            [sys.executable, "-c", given, device, str(tmp_path)],
            env=clean | {"PGPASSWORD": "secret", "VLLM_LOGGING_LEVEL": "DEBUG"},
            capture_output=True,
            text=True,
            check=True,
            timeout=120,
        ).stdout
        changed, variables = json.loads(output)

        assert set(variables) == {*changed, "VLLM_LOGGING_LEVEL"}
        assert variables["VLLM_LOGGING_LEVEL"] == "DEBUG"
