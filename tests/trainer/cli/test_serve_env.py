"""Tests for `trainer serve-env`, and for runs whose environments are on a server."""

import asyncio
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner

from environment_server import TOKEN
from longhaul_core.errors import ConfigError
from longhaul_core.types import Split
from longhaul_envs.server.fleet import FleetLimits
from longhaul_trainer.cli.main import app
from longhaul_trainer.cli.serve_env import MIB, ServerFile
from longhaul_trainer.config import RunConfig, load_default_config
from longhaul_trainer.play.environments import RunEnvironments, source_of
from longhaul_trainer.preflight.description_check import problems_of

PROGRAM = "from longhaul_trainer.cli.main import main; main()"


@dataclass
class Served:
    process: "subprocess.Popen[str]"
    address: str
    shown: str
    """What it wrote until it was ready."""


@pytest.fixture(scope="module")
def served(quick_python: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    file = tmp_path_factory.mktemp("served") / "server.toml"
    file.write_text(
        'port = 0\n[[environments]]\nid = "sokoban"\noptions = { size = 5, min_pushes = 1 }\n',
        encoding="utf-8",
    )
    options = ["--file", str(file), "--workers", "1", "--option", "textcraft.depth=2"]
    process = subprocess.Popen(
        [
            *[quick_python, "-c", PROGRAM, "serve-env", "textcraft", *options],
            *["--allowed-host", "envs.example"],
        ],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "LONGHAUL_ENV_TOKEN": TOKEN, "COLUMNS": "200"},
    )
    assert process.stderr is not None
    shown = ""
    while "ready" not in shown:
        line = process.stderr.readline()
        assert line, shown
        shown += line
    (address,) = re.findall(r"http://\S+", shown)
    try:
        yield Served(process, address, shown)
    finally:
        process.send_signal(signal.SIGTERM)
        rest = process.stderr.read()
        process.stderr.close()
        assert process.wait(60) == 0, rest
        assert rest.endswith("stopped\n")


def run_on(address: str | None, depth: int = 2) -> RunConfig:
    default = load_default_config()
    environment = default.environment.model_copy(
        update={
            "id": "longhaul/TextCraft-v0",
            "server": address,
            "options": {"depth": depth},
            "num_workers": 3,
        }
    )
    return default.model_copy(update={"environment": environment})


def test_what_is_served_is_shown_before_it_starts(served: Served) -> None:
    assert re.search(r"longhaul/TextCraft-v0 +1 +depth = 2 +1 +16", served.shown)
    assert re.search(r"longhaul/Sokoban-v0 +\S+ +size = 5, min_pushes = 1 +1 +16", served.shown)


def test_a_further_name_is_allowed(served: Served) -> None:
    statuses = [
        httpx.get(f"{served.address}/health", headers={"Host": host}, timeout=60).status_code
        for host in ("envs.example", "other.example")
    ]
    assert statuses == [200, 400]


def test_a_run_plays_on_the_server_that_it_names(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LONGHAUL_ENV_TOKEN", TOKEN)
    run, here = run_on(served.address), run_on(None)
    assert problems_of(run, deeply=True) == problems_of(here, deeply=True) == []
    tasks = source_of(run.environment).tasks(Split.TRAIN)
    assert tasks == tuple(source_of(here.environment).tasks(Split.TRAIN))

    async def first_observations(run: RunConfig) -> list[object]:
        environments, shown = RunEnvironments(run), list[object]()
        for task in tasks[:2]:
            environment = environments(task)
            await environment.open()
            shown.append(await environment.reset(task))
            await environment.close()
        await environments.close()
        return shown

    assert asyncio.run(first_observations(run)) == asyncio.run(first_observations(here))


def test_other_options_and_a_server_that_is_not_there_are_met_before_a_run_starts(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LONGHAUL_ENV_TOKEN", TOKEN)
    (other,) = problems_of(run_on(served.address, depth=3))
    (nowhere,) = problems_of(run_on("http://127.0.0.1:9"))

    assert other.startswith("environment.server: ")
    assert "{'depth': 2}, and the run has {'depth': 3}" in other
    assert "http://127.0.0.1:9 cannot be reached" in nowhere


def test_a_limit_on_sessions_is_the_runs_number_of_workers(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LONGHAUL_ENV_TOKEN", TOKEN)
    run = run_on(served.address)
    task = source_of(run.environment).tasks(Split.TRAIN)[0]

    async def opened() -> list[bool]:
        make = RunEnvironments(run)
        environments = [make(task) for _ in range(4)]
        opening = [asyncio.create_task(one.open()) for one in environments]
        await asyncio.wait(opening[:3])
        await asyncio.sleep(0.2)
        done = [one.done() for one in opening]
        await environments[0].close()
        await opening[3]
        for one in environments:
            await one.close()
        return done

    assert asyncio.run(opened()) == [True, True, True, False]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "name an environment"),
        (["nethack"], "no environment 'nethack': there is none; installed are longhaul/"),
        (["textcraft", "--option", "colour=3"], "has no option 'colour'; there are depth"),
        (["textcraft", "--option", "depth=9"], "depth must be from 1 to 4, got 9"),
        (["textcraft", "--option", "depth"], "write KEY=VALUE"),
        (["textcraft", "sokoban", "--option", "size=5"], "write textcraft.size=…"),
        (["textcraft", "--option", "sokoban.size=5"], "no environment is called 'sokoban' here"),
        (["textcraft", "textcraft"], "each id once"),
        (["textcraft", "--host", "0.0.0.0"], "can be reached from other machines"),
        (["textcraft", "--port", "99999"], "less than or equal to 65535, got 99999"),
        (["--file", "nowhere.toml"], "nowhere.toml cannot be read"),
        (["--file", "wrong.toml"], "prot: Extra inputs are not permitted"),
        (["--file", "tokens.toml"], "needs 16 characters or more, has 5"),
    ],
)
def test_what_cannot_be_served_is_refused_before_anything_starts(
    arguments: list[str], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LONGHAUL_ENV_TOKEN", raising=False)
    Path("wrong.toml").write_text("prot = 1\n", encoding="utf-8")
    Path("secrets.toml").write_text('mine = "short"\n', encoding="utf-8")
    Path("tokens.toml").write_text(
        'tokens_file = "secrets.toml"\n[[environments]]\nid = "textcraft"\n', encoding="utf-8"
    )

    done = CliRunner().invoke(app, ["serve-env", *arguments])

    assert isinstance(done.exception, ConfigError), done.output
    assert words in str(done.exception)


@pytest.mark.parametrize(
    "address",
    ["127.0.0.1:8300", "http://host", "http://u:p@host:1", "http://host:1/v1", "http://host:x"],
)
def test_an_address_that_is_none_is_refused(address: str) -> None:
    with pytest.raises(ValueError, match="a scheme, a host and a port alone"):
        RunConfig.model_validate(
            {"name": "a", "num_training_steps": 1, "tasks_per_training_step": 1}
            | {"environment": {"server": address}}
        )


def test_modules_are_imported_where_the_server_is_started() -> None:
    with pytest.raises(ValueError, match="import them where the server is started"):
        RunConfig.model_validate(
            {"name": "a", "num_training_steps": 1, "tasks_per_training_step": 1}
            | {"environment": {"server": "http://host:1", "import_modules": ["mine"]}}
        )


@pytest.mark.slow
def test_a_worker_may_hold_4096_mib_where_a_file_names_no_limit() -> None:
    file = ServerFile.model_validate({"environments": [{"id": "textcraft"}]})

    assert file.environments[0].memory_mib == 4096
    assert FleetLimits().memory_bytes == 4096 * MIB


def test_ray_uses_the_environment_that_each_node_has() -> None:
    """Below `uv run`, Ray would copy the working folder and install an environment for it."""
    program = (
        "import os\n"
        "os.environ.pop('RAY_ENABLE_UV_RUN_RUNTIME_ENV')\n"
        "from longhaul_trainer.cli.main import main\n"
        "try:\n"
        "    main()\n"
        "finally:\n"
        "    from ray._private.ray_constants import RAY_ENABLE_UV_RUN_RUNTIME_ENV as copies\n"
        "    print('copies:', copies)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, "serve-env", "textcraft", "--ray", "nowhere"],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"LONGHAUL_ENV_TOKEN": TOKEN},
    )

    assert done.returncode == 3, done.stderr
    assert "no Ray cluster at 'nowhere' can be joined" in done.stderr
    assert done.stdout.endswith("copies: False\n")
