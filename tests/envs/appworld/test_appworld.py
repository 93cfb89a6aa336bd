"""AppWorld's adapter: against a package of its shape, and against the real one where it is."""

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from gymnasium.error import ResetNeeded

from appworld_stand_in import make_python, write_data
from longhaul_core.errors import ConfigError, EnvironmentFailure, EnvironmentTimeout
from longhaul_core.types import Split
from longhaul_envs.appworld import environment as appworld_environment
from longhaul_envs.appworld.environment import AppWorld
from longhaul_envs.play import act, start

REAL = os.environ.get("LONGHAUL_APPWORLD_PYTHON", "")
FENCED = (
    shutil.which("unshare") is not None
    and subprocess.run(["unshare", "--net", "true"], capture_output=True, check=False).returncode
    == 0
)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("appworld")
    return {
        "python": make_python(folder / "venv"),
        "root": write_data(folder / "root"),
        "network": not FENCED,
    }


@pytest.fixture
def environment(world: dict[str, Any]) -> Iterator[AppWorld]:
    made = AppWorld(**world, seconds_per_step=2)
    start(made, made.tasks(Split.TEST)[0])
    yield made
    made.close()


def outputs(world: dict[str, Any]) -> list[str]:
    folder = Path(world["root"]) / "experiments" / "outputs"
    return [path.name for path in folder.iterdir()] if folder.is_dir() else []


def test_splits_are_the_authors_and_the_goal_is_the_instruction(world: dict[str, Any]) -> None:
    listed = {split: AppWorld(**world).tasks(split) for split in Split}
    assert [task.task_id for task in listed[Split.TRAIN]] == ["aaaaaaa_1", "aaaaaaa_2"]
    assert [task.task_id for task in listed[Split.TEST]] == ["ccccccc_1", "ddddddd_1"]
    assert listed[Split.VALIDATION][0].goal == "Pay 3 dollars to Charles (bbbbbbb_1)."
    challenge = AppWorld(**world, test_set="test_challenge").tasks(Split.TEST)
    assert [task.task_id for task in challenge] == ["eeeeeee_1"]


def test_a_scenario_in_two_splits_is_refused(world: dict[str, Any], tmp_path: Path) -> None:
    root = Path(shutil.copytree(world["root"], tmp_path / "root"))
    (root / "data" / "datasets" / "dev.txt").write_text("aaaaaaa_3\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="scenario of 'aaaaaaa_3' is in train and in validation"):
        AppWorld(**{**world, "root": str(root)}).tasks(Split.VALIDATION)


def test_an_episode_runs_code_in_one_session_and_ends_with_complete_task(
    world: dict[str, Any],
) -> None:
    environment = AppWorld(**world)
    first = start(environment, environment.tasks(Split.TEST)[0])
    assert first.text == (
        "Task: Pay 3 dollars to Charles.\n"
        "For: Ada Lovelace, ada@example.com, 1815\n"
        "Date: 2023-05-18T12:00:00"
    )
    assert "hidden" not in first.text
    act(environment, "amount = 1 + 2")
    result = act(environment, "```python\napis.pay(amount)\nprint('paid', amount)\n```")
    assert result.observation.text.endswith("Output:\npaid 3\n")
    assert not result.terminated
    result = act(environment, "apis.supervisor.complete_task()")
    assert (result.reward, result.terminated, result.success) == (1.0, True, True)
    with pytest.raises(ResetNeeded):
        environment.step("print(1)")
    environment.close()
    assert outputs(world) == []


def test_a_share_of_the_tests_may_be_paid(world: dict[str, Any]) -> None:
    environment = AppWorld(**world, reward="share")
    start(environment, environment.tasks(Split.TEST)[0])
    result = act(environment, "apis.pay(4); apis.supervisor.complete_task()")
    assert (result.reward, result.success) == (0.5, False)
    environment.close()


def test_the_next_episode_begins_anew_in_the_same_process(environment: AppWorld) -> None:
    act(environment, "left_over = 1")
    start(environment, environment.tasks(Split.TEST)[1])
    result = act(environment, "print(left_over)")
    assert "NameError" in result.observation.text
    assert not result.action_accepted


@pytest.mark.parametrize("action", ["", "  ", "```python\n```", "x" * 50_001])
def test_no_code_or_too_much_is_not_run(environment: AppWorld, action: str) -> None:
    result = act(environment, action)
    assert "1 to 50,000 characters of Python" in result.observation.text
    assert not result.action_accepted


def test_code_that_takes_too_long_is_an_output(environment: AppWorld) -> None:
    result = act(environment, "while True: pass")
    assert "timed out after 2 seconds" in result.observation.text
    assert not result.action_accepted
    assert act(environment, "print(1)").action_accepted


def test_what_the_package_cannot_stop_is_killed_at_the_deadline(
    environment: AppWorld, world: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(appworld_environment, "_GRACE_SECONDS", 0)
    with pytest.raises(EnvironmentTimeout, match="did not answer execute within 2 s"):
        environment.step("import signal; signal.alarm(0)\nwhile True: pass")
    start(environment, environment.tasks(Split.TEST)[0])
    assert act(environment, "print(1)").action_accepted
    environment.close()
    assert outputs(world) == []


def test_a_process_that_dies_fails_the_episode_with_what_it_wrote(environment: AppWorld) -> None:
    with pytest.raises(
        EnvironmentFailure, match=r"(?s)ended with exit code .* in execute: .*farewell"
    ):
        environment.step("import os, sys; print('farewell', file=sys.stderr); os._exit(3)")


def test_memory_is_limited(world: dict[str, Any]) -> None:
    environment = AppWorld(**world, memory_gib=1)
    start(environment, environment.tasks(Split.TEST)[0])
    assert "MemoryError" in act(environment, "held = bytearray(1 << 31)").observation.text
    environment.close()


def test_a_long_output_is_cut_with_its_length(world: dict[str, Any]) -> None:
    environment = AppWorld(**world, max_output_characters=100)
    start(environment, environment.tasks(Split.TEST)[0])
    text = act(environment, "print('x' * 5000)").observation.text
    assert "x" * 100 + "\u2026 (5,001 characters in all)" in text
    environment.close()


def test_code_has_neither_our_variables_nor_the_driver_s_pipes(
    world: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LONGHAUL_ENV_TOKEN", "secret")
    environment = AppWorld(**world)
    start(environment, environment.tasks(Split.TEST)[0])
    assert "secret" not in act(environment, "import os; print(dict(os.environ))").observation.text
    assert act(environment, "print(input())").observation.text.endswith(
        "EOFError: EOF when reading a line\n"
    )
    act(environment, "import os; os.write(1, b'{}\\n')")  # no reply of the driver's
    assert act(environment, "print('next')").observation.text.endswith("next\n")
    environment.close()


@pytest.mark.skipif(not FENCED, reason="`unshare` is not allowed: no right to mount namespaces")
def test_code_reaches_no_network_and_its_processes_end_with_it(world: dict[str, Any]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        environment = AppWorld(**world)
        start(environment, environment.tasks(Split.TEST)[0])
        connect = f"import socket; socket.create_connection(('127.0.0.1', {port}), 5)"
        assert "Network is unreachable" in act(environment, connect).observation.text
        left = act(
            environment,
            "import subprocess, sys\n"
            "code = 'import time; time.sleep(987654)'\n"
            "subprocess.Popen([sys.executable, '-c', code], start_new_session=True)",
        )
        assert left.action_accepted
        deadline = time.monotonic() + 60
        while not sleeping():  # it has begun, and may have another's command line still
            assert time.monotonic() < deadline
            time.sleep(0.02)
        environment.close()
        assert not sleeping()


def sleeping() -> list[str]:
    """Processes that wait as the one that was left behind."""
    found: list[str] = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if "time.sleep(987654)" in entry.read_text("utf-8"):
                found.append(entry.parent.name)
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


def test_close_is_safe_twice_and_leaves_no_file_open(world: dict[str, Any]) -> None:
    before = len(os.listdir("/proc/self/fd"))
    environment = AppWorld(**world)
    start(environment, environment.tasks(Split.TEST)[0])
    for _ in range(2):
        environment.close()
    assert len(os.listdir("/proc/self/fd")) == before


def test_what_is_missing_is_named_with_how_to_get_it(world: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="appworld download data --root ROOT"):
        AppWorld(root=str(tmp_path)).tasks(Split.TRAIN)
    with pytest.raises(ConfigError, match="no interpreter at '' for AppWorld"):
        start_first({**world, "python": ""})
    with pytest.raises(ConfigError, match="its interpreter has no appworld"):
        start_first({**world, "python": shutil.which("python3") or ""})


def start_first(options: dict[str, Any]) -> None:
    environment = AppWorld(**options)
    try:
        start(environment, environment.tasks(Split.TEST)[0])
    finally:
        environment.close()


@pytest.mark.parametrize("task_id", ["", "../../etc", "/etc", "aaaaaaa_1/.."])
def test_a_task_id_is_no_path(world: dict[str, Any], task_id: str) -> None:
    with pytest.raises(ValueError, match="no AppWorld task is called"):
        AppWorld(**world).reset(options={"task_id": task_id})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"test_set": "dev"}, "test_set must be test_normal or test_challenge, got 'dev'"),
        ({"reward": "score"}, "reward must be success or share, got 'score'"),
        ({"memory_gib": 0}, "memory_gib must be from 1 to 64, got 0"),
        ({"seconds_per_step": 601}, "seconds_per_step must be from 1 to 600, got 601"),
        ({"network": "no"}, "network must be true or false, got 'no'"),
    ],
)
def test_an_option_out_of_range_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        AppWorld(**options)


@pytest.mark.skipif(
    not REAL, reason="LONGHAUL_TEST_DATA: LONGHAUL_APPWORLD_PYTHON names no interpreter of AppWorld"
)
def test_the_real_package_starts_and_names_the_data_that_it_lacks(world: dict[str, Any]) -> None:
    """Of the real package without its data: it is imported, and asked for a task."""
    environment = AppWorld(**{**world, "python": REAL})
    with pytest.raises(EnvironmentFailure, match=r"(?s)task directory .*|specs|dbs"):
        start(environment, environment.tasks(Split.TEST)[0])
    environment.close()
