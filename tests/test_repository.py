"""Tests over the repository itself: what is in it, and the commands its Makefile offers."""

import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

from repository_hygiene import main, problems_of

ROOT = Path(__file__).parents[1]


def tracked_files() -> list[Path]:
    """Files that git knows."""
    listed = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", "-z"], capture_output=True, check=True
    )
    paths = [ROOT / name.decode() for name in listed.stdout.split(b"\0") if name]
    return [path for path in paths if path.is_file()]


def test_the_repository_holds_no_large_file_no_private_key_and_no_conflict() -> None:
    assert [line for path in tracked_files() for line in problems_of(path)] == []


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"x" * 1_000_001, "1,000,001 bytes"),
        (b"-----BEGIN RSA " + b"PRIVATE KEY-----", "a private key"),
        (b"fine\n<<<<<<" + b"< HEAD\n", "a conflict mark"),
    ],
)
def test_a_file_that_must_not_enter_is_told(tmp_path: Path, content: bytes, what: str) -> None:
    file = tmp_path / "file"
    file.write_bytes(content)

    with pytest.raises(SystemExit, match=what):
        main([str(file)])


def test_one_word_switches_between_the_builds_for_cpu_and_gpu(tmp_path: Path) -> None:
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    file = tmp_path / "pyproject.toml"
    here = default_groups(file)
    commands = {
        target: re.findall(rf"^{target}:.*\n\t(sed .*)$", makefile(), re.MULTILINE)
        for target in ("gpu", "cpu")
    }

    seen: list[list[str]] = []
    for target in ("gpu", "gpu", "cpu"):
        (command,) = commands[target]
        subprocess.run(command, shell=True, cwd=tmp_path, check=True)
        seen.append(default_groups(file))

    assert here in (["dev", "cpu"], ["dev", "gpu"])
    assert seen == [["dev", "gpu"], ["dev", "gpu"], ["dev", "cpu"]]


def test_every_target_of_the_makefile_explains_itself() -> None:
    targets = re.findall(r"^([a-z]+):(.*)$", makefile(), re.MULTILINE)

    assert {name for name, _ in targets} >= {"install", "format", "check", "isolated", "gpu", "cpu"}
    assert [name for name, rest in targets if "##" not in rest] == []


def test_what_the_lock_installs_needs_no_compiler() -> None:
    """A package without a wheel is built on the user's machine; these are of Python alone."""
    lock = tomllib.loads((ROOT / "uv.lock").read_text(encoding="utf-8"))
    packages = [package for package in lock["package"] if "registry" in package["source"]]

    assert len(packages) > 200
    assert {package["name"] for package in packages if not package.get("wheels")} == {
        "antlr4-python3-runtime"
    }


def makefile() -> str:
    """The Makefile's text."""
    return (ROOT / "Makefile").read_text(encoding="utf-8")


def default_groups(pyproject: Path) -> list[str]:
    """What a bare `uv run` installs."""
    table = tomllib.loads(pyproject.read_text(encoding="utf-8"))
    return table["tool"]["uv"]["default-groups"]
