"""The files of `deploy/`: each parses, and what it calls and names is there.

Nothing here asks Docker, Kubernetes or a cloud; shell runs with stand-ins of what it calls.
"""

import os
import re
import shlex
import signal
import subprocess
import sys
import tomllib
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import typer.main
import yaml
from ray.scripts.scripts import cli as ray_program

from longhaul_trainer.cli.main import app
from longhaul_trainer.cli.train import read_description
from longhaul_trainer.config.load import CONFIGS

ROOT = Path(__file__).parents[1]
DEPLOY = ROOT / "deploy"
STAND_IN = f"""#!/usr/bin/env bash
name=${{0##*/}}
echo "$name ${{*@Q}}" >>"$CALLS"
case $name in
  scontrol) [ "$1" = requeue ] || printf 'node1\\nnode2\\n' ;;
  srun)
    while [[ $1 == --* ]]; do shift; done
    exec "$@"
    ;;
  ray) exec sleep 60 ;;
  python) [ "$(grep -c '^ray ' "$CALLS")" = 2 ] ;; # whether both nodes are there
  trainer)
    [ "$1" = train ] || exit 0
    for word; do [[ $word != runs_directory=* ]] || folder=${{word#*=}}/a-run; done
    mkdir -p "$folder" && touch "$folder/config.toml"
    [ -z "${{SLURM_JOB_ID:-}}" ] || exec {sys.executable} -c '
import signal, sys
signal.signal(signal.SIGTERM, lambda *_: sys.exit(130))
print("training", flush=True)
signal.pause()'
    ;;
esac
"""


class House:
    """A folder whose `.venv/bin` has stand-ins, and the calls that they noted."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._calls = folder / "calls"
        programs = folder / ".venv" / "bin"
        programs.mkdir(parents=True)
        for name in ("scontrol", "srun", "ray", "trainer", "python", "pip", "uv", "hf"):
            (programs / name).write_text(STAND_IN, encoding="utf-8")
            (programs / name).chmod(0o755)

    @contextmanager
    def running(self, *command: str, **variables: str) -> Generator["subprocess.Popen[str]"]:
        """The command, beside the stand-ins; killed if it is still there afterwards."""
        path = f"{self.folder}/.venv/bin:{os.environ['PATH']}"
        environment = os.environ | {"CALLS": str(self._calls), "PATH": path} | variables
        with subprocess.Popen(
            command, cwd=self.folder, env=environment, stdout=subprocess.PIPE, text=True
        ) as process:
            try:
                yield process
            finally:
                process.kill()

    def calls(self) -> list[list[str]]:
        """Since the last time; each is resolved."""
        lines = [shlex.split(line) for line in self._calls.read_text("utf-8").splitlines()]
        self._calls.unlink()
        for line in lines:
            resolve(line)
        return lines


def resolve(words: list[str]) -> None:
    """Fail where a command of `trainer`, `ray` or uv, an option or a run's setting is not there."""
    if words[0] == "uv":
        assert words[1] == "sync"
        command = [*words, "--dry-run", "--offline", "--quiet"]
        environment = os.environ | {"UV_PROJECT_ENVIRONMENT": "/nonexistent/venv"}
        subprocess.run(command, cwd=ROOT, env=environment, check=True)
    if words[0] not in ("trainer", "ray"):
        return
    group: Any = ray_program if words[0] == "ray" else typer.main.get_command(app)
    context = group.make_context(words[0], words[1:])
    name, command, arguments = group.resolve_command(context, words[1:])
    given = command.make_context(name, arguments, parent=context).params
    if words[:2] == ["trainer", "train"]:
        read_description(given["file"], given["further"])


def read_yaml(name: str) -> Any:  # noqa: ANN401
    """What the file describes."""
    return yaml.safe_load((DEPLOY / name).read_text("utf-8"))


def test_a_slurm_job_trains_on_all_its_nodes_and_goes_on_after_its_time_limit(
    tmp_path: Path,
) -> None:
    house = House(tmp_path)
    command = ["bash", str(DEPLOY / "longhaul.sbatch"), "@smoke", "checkpoint.every=1"]
    slurm = {"JOB_ID": "42", "JOB_NODELIST": "node[1-2]", "NNODES": "2", "CPUS_ON_NODE": "8"}
    variables = {f"SLURM_{name}": value for name, value in slurm.items()}

    with house.running(*command, **variables) as job:
        assert job.stdout is not None
        assert job.stdout.readline() == "training\n"
        job.send_signal(signal.SIGTERM)
        assert job.wait(60) == 130
    first = house.calls()
    with house.running(*command, **variables) as job:
        assert job.wait(60) == 0
    second = house.calls()

    assert ["ray", "start", "--head", "--port=20042", "--block"] in first
    assert ["ray", "start", "--address=node1:20042", "--block"] in first
    trained = ["trainer", "train", "@smoke", "checkpoint.every=1", "resources.ray_address=auto"]
    assert [*trained, "resources.num_nodes=2", "runs_directory=runs/slurm-42"] in first
    assert first[-1] == ["scontrol", "requeue", "42"]
    assert second[-1] == ["trainer", "resume", "last", "--runs-directory", "runs/slurm-42"]


def test_the_skypilot_task_installs_trains_and_goes_on(tmp_path: Path) -> None:
    house = House(tmp_path)
    task = read_yaml("skypilot.yaml")

    for part in ("setup", "run", "run"):
        with house.running("bash", "-ec", task[part], **task["envs"]) as shell:
            assert shell.wait(60) == 0
    pip, uv, hf, train, resume = house.calls()

    assert [pip[0], uv[0], hf[0]] == ["pip", "uv", "hf"]
    assert [train[1], resume[1]] == ["train", "resume"]
    assert f"model.path={hf[hf.index('--local-dir') + 1]}" in train


def test_the_ray_job_trains_on_the_nodes_that_it_asks_for() -> None:
    job = read_yaml("rayjob.yaml")["spec"]
    entrypoint, cluster = shlex.split(job["entrypoint"]), job["rayClusterSpec"]
    (workers,) = cluster["workerGroupSpecs"]
    pod = cluster["headGroupSpec"]["template"]["spec"]
    (container,) = pod["containers"]
    lock = tomllib.loads((ROOT / "uv.lock").read_text("utf-8"))

    resolve(entrypoint)
    described = read_description(entrypoint[2], entrypoint[3:])
    assert described.resources.num_nodes == 1 + workers["replicas"]
    assert described.resources.num_workers == container["resources"]["limits"]["nvidia.com/gpu"]
    assert [cluster["rayVersion"]] == [
        package["version"] for package in lock["package"] if package["name"] == "ray"
    ]
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert mounts.keys() == {volume["name"] for volume in pod["volumes"]}
    assert described.runs_directory.startswith(mounts["data"])
    assert described.model.path.startswith(mounts["data"])


def test_the_dockerfile_copies_what_is_there_and_installs_a_group_in_each_target() -> None:
    text = (DEPLOY / "Dockerfile").read_text("utf-8")
    commands = [shlex.split(line) for line in re.findall(r"^RUN (uv .*)$", text, re.MULTILINE)]
    sources = [line.split()[:-1] for line in re.findall(r"^COPY (.*)$", text, re.MULTILINE)]

    assert re.findall(r"^FROM \S+ AS (\w+)$", text, re.MULTILINE) == ["base", "gpu", "cpu"]
    assert [command[-1] for command in commands] == ["gpu", "cpu"]
    for command in commands:
        resolve(command)
    assert [name for names in sources for name in names if not (ROOT / name).exists()] == []
    (builder,) = re.findall(r'"uv(\S+)"', text)
    for file in [*ROOT.glob("packages/*/pyproject.toml"), *ROOT.glob("apps/*/pyproject.toml")]:
        project = tomllib.loads(file.read_text("utf-8"))
        assert project["build-system"]["requires"] == [f"uv_build{builder}"]


def test_the_trainers_wheel_holds_every_run_file(tmp_path: Path) -> None:
    package = ROOT / "packages" / "trainer"
    build = ["uv", "build", "--wheel", "--offline", "--quiet", "--out-dir", str(tmp_path)]
    subprocess.run([*build, str(package)], check=True)
    (wheel,) = tmp_path.glob("*.whl")
    with ZipFile(wheel) as files:
        inside = {name for name in files.namelist() if re.match(r".*/configs/.*\.toml", name)}

    there = {str(file.relative_to(package / "src")) for file in CONFIGS.rglob("*.toml")}
    assert inside == there
    assert "longhaul_trainer/configs/recipes/gigpo.toml" in inside


def test_the_overrides_of_an_install_from_wheels_are_those_of_the_lock() -> None:
    workspace = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    lines = (DEPLOY / "overrides.txt").read_text("utf-8").splitlines()

    assert lines == workspace["tool"]["uv"]["override-dependencies"]


def test_what_the_files_and_their_guide_explain_is_there() -> None:
    for file in [*DEPLOY.iterdir(), ROOT / "docs" / "guides" / "deploy.md"]:
        text = file.read_text("utf-8")
        for command in re.findall(r"[`$] ?(trainer (?:train|check|resume) [^`\n]*)", text):
            resolve(shlex.split(command, comments=True))
        named = set(re.findall(r"\bdeploy/[\w.-]*\w", text))
        assert [name for name in named if not (ROOT / name).is_file()] == []
        targets = set(re.findall(r"--target (\w+)", text))
        assert targets <= {"cpu", "gpu"}
