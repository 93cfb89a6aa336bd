"""The command `longhaul`, by the standard library alone: what it hands over, and to whom."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import longhaul
from longhaul.command import PROGRAMS, TRAINER

ROOT = Path(__file__).parents[2]


def called(folder: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    """`longhaul WORDS` where the packages of `folder` alone are installed."""
    paths = [str(folder), str(Path(longhaul.__file__).parents[1])]
    code = f"import sys; sys.path[:0] = {paths}; from longhaul.command import main; main()"
    command = [sys.executable, "-I", "-S", "-c", code, *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def installed(folder: Path, package: str, script: str) -> None:
    """A package whose script prints its command line and ends with code 7."""
    module = f"made_of_{script.replace('-', '_')}"
    (folder / f"{module}.py").write_text("import sys\ndef main():\n    print(sys.argv); return 7\n")
    information = folder / f"{package.replace('-', '_')}-1.dist-info"
    information.mkdir()
    (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1\n")
    (information / "entry_points.txt").write_text(f"[console_scripts]\n{script} = {module}:main\n")


@pytest.mark.parametrize(
    ("words", "package", "handed"),
    [
        (["view", "--demo"], "longhaul-viewer", ["viewer", "--demo"]),
        (["api", "--port", "1"], "longhaul-api", ["longhaul-api", "--port", "1"]),
        (["train", "@smoke"], "longhaul-trainer", ["trainer", "train", "@smoke"]),
        (["serve-env", "sokoban"], "longhaul-trainer", ["trainer", "serve-env", "sokoban"]),
    ],
)
def test_a_word_goes_to_the_package_that_has_it_or_names_what_to_install(
    tmp_path: Path, words: list[str], package: str, handed: list[str]
) -> None:
    missing = called(tmp_path, *words)
    installed(tmp_path, package, handed[0])
    done = called(tmp_path, *words)

    assert missing.returncode == 3
    assert f"the package {package} is not installed: pip install --find-links " in missing.stderr
    assert missing.stderr.endswith(f" {package}\n")
    assert (done.returncode, done.stdout) == (7, f"{handed}\n"), done.stderr


def test_every_package_has_the_script_that_is_handed_to() -> None:
    files = [*ROOT.glob("packages/*/pyproject.toml"), *ROOT.glob("apps/*/pyproject.toml")]
    projects = [tomllib.loads(file.read_text(encoding="utf-8"))["project"] for file in files]
    scripts = {project["name"]: project.get("scripts", {}) for project in projects}

    for package, script in [*PROGRAMS.values(), TRAINER]:
        assert script in scripts[package]
    assert scripts["longhaul"] == {"longhaul": "longhaul.command:main"}
