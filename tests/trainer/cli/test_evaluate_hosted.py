"""Tests for `trainer evaluate --endpoint`: a panel played by a model that another server hosts."""

import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import openai
import pytest
from sqlalchemy.orm import Session
from typer.testing import CliRunner, Result

from fakes import ScriptedPolicy
from hosted_endpoint import Crafter, Hosted, hosted_by_gateway
from longhaul_core.errors import GroupError
from longhaul_core.store.queries import RunSummary, evaluations, list_runs
from longhaul_core.store.session import read_only_engine
from longhaul_trainer.cli.exit_codes import ExitCode
from longhaul_trainer.cli.main import app
from longhaul_trainer.play.programs.program import Endpoint

PROGRAM = "from longhaul_trainer.cli.main import main; main()"
NUM_TASKS = 4
DESCRIPTION = """
num_training_steps = 1
tasks_per_training_step = 2
[environment]
id = "longhaul/TextCraft-v0"
num_workers = 2
[rollout]
horizon = 30
max_reply_tokens = 64
concurrent_episodes = 4
[validation]
num_tasks = 4
test_num_tasks = 4
temperature = 0.25
"""


@pytest.fixture(scope="module")
def crafter() -> Crafter:
    return Crafter(num_tasks=143)


@pytest.fixture(scope="module")
def hosted(crafter: Crafter) -> Iterator[Hosted]:
    with hosted_by_gateway(crafter) as one:
        yield one


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hosted: Hosted) -> Path:
    """A working folder with a run's description, and the key in the environment."""
    (tmp_path / "run.toml").write_text(DESCRIPTION, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CRAFTER_KEY", hosted.key)
    return tmp_path


def arguments(hosted: Hosted, *further: str, api: str = "openai") -> list[str]:
    url = hosted.openai if api == "openai" else hosted.anthropic
    given = ["evaluate", "--config", "run.toml", "--endpoint", url, "--model", "auto"]
    return [*given, "--api", api, "--key-variable", "CRAFTER_KEY", *further]


def evaluated(hosted: Hosted, *further: str, api: str = "openai") -> Result:
    return CliRunner().invoke(app, arguments(hosted, *further, api=api))


def runs_in(folder: Path) -> list[RunSummary]:
    with Session(read_only_engine(folder / "longhaul.db")) as session:
        return list_runs(session)


def calls_in(folder: Path) -> list[tuple[object, ...]]:
    with read_only_engine(folder / "longhaul.db").connect() as connection:
        return [
            tuple(row)
            for row in connection.exec_driver_sql(
                "SELECT purpose, model, cost_usd, trained, generate_seconds FROM calls"
            )
        ]


@pytest.mark.parametrize("api", ["openai", "anthropic"])
def test_a_hosted_model_plays_an_environment_and_its_episodes_are_stored(
    hosted: Hosted, crafter: Crafter, folder: Path, api: str
) -> None:
    done = evaluated(hosted, "--price-prompt", "3", "--price-reply", "15", api=api)

    assert done.exit_code == 0, done.output
    assert "100.0%" in done.output
    (run,) = runs_in(folder)
    assert f"{run.num_episodes} episodes and {run.num_steps} steps stored\n" in done.output
    assert (run.kind, run.status) == ("evaluate", "finished")
    assert run.num_episodes == NUM_TASKS
    calls = calls_in(folder)
    assert calls
    for purpose, model, cost, trained, seconds in calls:
        assert (purpose, model, bool(trained)) == ("act", "auto", False)
        assert isinstance(cost, float)
        assert cost > 0
        assert isinstance(seconds, float)
        assert seconds > 0
    total = sum(call[2] for call in calls if isinstance(call[2], float))
    assert f"${total:,.4f}; {len(calls):,} calls" in done.output
    assert {one.temperature for one in crafter.samplings} == {0.25}
    for file in folder.rglob("*"):
        assert not file.is_file() or hosted.key.encode() not in file.read_bytes(), file


def test_a_second_run_is_a_run_of_its_own(hosted: Hosted, folder: Path) -> None:
    first, second = evaluated(hosted), evaluated(hosted)

    assert (first.exit_code, second.exit_code) == (0, 0), first.output + second.output
    assert "cost unknown" in first.output
    assert len({run.run_id for run in runs_in(folder)}) == 2
    assert len(list((folder / "runs" / "evaluations").iterdir())) == 2


def test_plans_and_summaries_are_asked_of_the_hosted_model_too(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (folder / "run.toml").open("a", encoding="utf-8") as file:
        file.write('[memory]\nkind = "summary"\nsize = 1\nsummarize_every = 1\n')
        file.write('[agent]\nkind = "plan_then_act"\n[prompt]\nreply_prefix = "<action>"\n')

    with hosted_by_gateway(ScriptedPolicy(["<action>sit down</action>"])) as idle:
        monkeypatch.setenv("CRAFTER_KEY", idle.key)
        done = evaluated(idle, "validation.test_num_tasks=1", "rollout.horizon=3")

    assert done.exit_code == 0, done.output
    assert "reply_prefix is left out" in done.output
    assert {call[0] for call in calls_in(folder)} == {"act", "plan", "remember"}
    assert "0.0%" in done.output


async def agent(task: dict[str, object], endpoint: Endpoint) -> float:
    async with openai.AsyncOpenAI(**endpoint.openai, max_retries=0) as client:
        said = await client.chat.completions.create(
            model="auto", messages=[{"role": "user", "content": f"Which way, {task}?"}]
        )
    return float(said.choices[0].message.content is not None)


num_moods = 0


async def moody_agent(task: dict[str, object], endpoint: Endpoint) -> float:
    """Fails the first time."""
    global num_moods
    num_moods += 1
    if num_moods == 1:
        raise RuntimeError("not today")
    return await agent(task, endpoint)


lost: set[str] = set()


async def losing_agent(task: dict[str, object], endpoint: Endpoint) -> float:
    """Fails in every try of one task, the first that it is given."""
    if not lost:
        lost.add(str(task))
    if str(task) in lost:
        raise RuntimeError("never")
    return await agent(task, endpoint)


async def broken_agent(task: dict[str, object], endpoint: Endpoint) -> float:
    raise RuntimeError("never")


def program_tasks(folder: Path, *, function: str) -> None:
    """Three tasks of a function in this module."""
    (folder / "tasks.jsonl").write_text(
        "".join(f'{{"question": "{n}"}}\n' for n in range(60)), encoding="utf-8"
    )
    (folder / "run.toml").write_text(
        "num_training_steps = 1\ntasks_per_training_step = 2\n[tasks]\nsource = 'tasks.jsonl'\n"
        f"[agent]\nkind = 'function'\nfunction = 'trainer.cli.test_evaluate_hosted:{function}'\n"
        "[validation]\nnum_tasks = 3\ntest_num_tasks = 3\n",
        encoding="utf-8",
    )


def test_episodes_that_failed_are_told_beside_those_that_count(
    hosted: Hosted, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules[__name__], "num_moods", 0)
    program_tasks(folder, function="moody_agent")

    done = evaluated(hosted, "rollout.concurrent_episodes=1")

    assert done.exit_code == 0, done.output
    said = " ".join(done.output.split())
    assert "3 episodes and 3 steps stored, and 1 episode that failed" in said
    assert "training step" not in said


def test_a_panel_that_was_not_played_whole_has_no_score_of_a_whole_one(
    hosted: Hosted, folder: Path
) -> None:
    lost.clear()
    program_tasks(folder, function="losing_agent")

    done = evaluated(hosted, "rollout.max_retries=1")

    assert done.exit_code == ExitCode.UNPLAYED, done.output
    said = " ".join(done.output.replace("│", " ").split())
    assert "success 100.0% of 2 of 3 tasks" in said
    assert "if the rest were lost or won 66.7% to 100.0%" in said
    assert "100%  1 failed" in done.output
    with Session(read_only_engine(folder / "longhaul.db")) as session:
        (run,) = list_runs(session)
        (score,) = evaluations(session, run_id=run.run_id)
    assert (score.num_episodes, score.num_unplayed) == (2, 1)


def test_an_evaluation_of_which_every_episode_failed_says_by_what(
    hosted: Hosted, folder: Path
) -> None:
    program_tasks(folder, function="broken_agent")

    done = evaluated(hosted)

    assert isinstance(done.exception, GroupError)
    assert "The newest failure is program_error: " in str(done.exception)
    assert str(done.exception).endswith("RuntimeError: never")


def test_a_hosted_model_answers_a_program(hosted: Hosted, folder: Path) -> None:
    program_tasks(folder, function="agent")

    done = evaluated(hosted, "--price-prompt", "1", "--price-reply", "1")

    assert done.exit_code == 0, done.output
    assert "100.0%" in done.output
    calls = calls_in(folder)
    assert [(call[1], bool(call[3])) for call in calls] == [("auto", False)] * 3
    assert all(call[2] for call in calls)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (["--endpoint", "http://127.0.0.1:9/v1"], "connection failed"),
        (["--model", "other"], "status 404"),
        (["--key-variable", "WRONG_KEY"], "status 401"),
        (["--key-variable", "NO_SUCH_KEY"], "not set"),
        (["--key-variable", "sk-secret-in-plain"], "and not the key itself"),
        (["--endpoint", "127.0.0.1"], "http://"),
        (["actions.format=tool_call"], "longhaul/TextCraft-v0 offers none; set actions.format"),
    ],
    ids=["address", "model", "key", "no-key", "key-in-plain", "no-address", "no-tools"],
)
def test_a_wrong_endpoint_is_named_before_anything_is_played(
    hosted: Hosted, folder: Path, monkeypatch: pytest.MonkeyPatch, changed: list[str], said: str
) -> None:
    monkeypatch.setenv("WRONG_KEY", "sk-of-somebody-else")

    done = evaluated(hosted, *changed)

    assert done.exit_code == 1
    assert type(done.exception).__name__ == "ConfigError"  # exit code 2 by `main`
    assert said in str(done.exception)
    assert "sk-secret-in-plain" not in str(done.exception)
    assert "sk-of-somebody-else" not in str(done.exception)
    assert not (folder / "runs").exists()


def test_options_of_hosted_models_need_an_endpoint() -> None:
    done = CliRunner().invoke(app, ["evaluate", "some-run", "--model", "x"])

    assert "--model is for a hosted model" in str(done.exception)


def test_an_agent_that_runners_play_is_refused_before_the_endpoint_is_asked(
    hosted: Hosted, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LONGHAUL_RUNNER_TOKEN", "a token of some length, as runners have it")
    (folder / "tasks.jsonl").write_text(
        "".join(f'{{"question": "{n}"}}\n' for n in range(60)), encoding="utf-8"
    )
    (folder / "run.toml").write_text(
        "num_training_steps = 1\ntasks_per_training_step = 2\n[tasks]\nsource = 'tasks.jsonl'\n"
        "[agent]\nkind = 'remote'\n[validation]\nnum_tasks = 3\ntest_num_tasks = 3\n",
        encoding="utf-8",
    )

    done = evaluated(hosted, "--endpoint", "http://127.0.0.1:9/v1")

    assert type(done.exception).__name__ == "ConfigError"
    assert 'agent.kind = "remote": runners play it' in str(done.exception)


def wait_for_calls(crafter: Crafter, number: int) -> None:
    """Return when so many more have come, or after a minute."""
    before = len(crafter.prompts)
    for _ in range(600):
        if len(crafter.prompts) > before + number:
            break
        signal.sigtimedwait([], 0.1)


@pytest.mark.slow
def test_a_terminal_that_is_closed_keeps_what_was_played(
    hosted: Hosted, crafter: Crafter, quick_python: str, folder: Path
) -> None:
    crafter.waits = 0.3
    ours, theirs = pty.openpty()
    try:
        process = subprocess.Popen(
            [quick_python, "-c", PROGRAM, *arguments(hosted, "rollout.concurrent_episodes=1")],
            stdout=theirs,
            stderr=theirs,
            env={**os.environ, "CRAFTER_KEY": hosted.key, "TERM": "xterm"},
        )
        os.close(theirs)
        wait_for_calls(crafter, 6)
        os.close(ours)
        process.send_signal(signal.SIGHUP)
        code = process.wait(120)
    finally:
        crafter.waits = 0.0

    (run,) = runs_in(folder)
    assert (run.status, code) == ("cancelled", 130)
    assert calls_in(folder)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("signals", "by"),
    [
        pytest.param([signal.SIGINT], "Ctrl-C", id="Ctrl-C"),
        pytest.param([signal.SIGTERM, signal.SIGTERM], "SIGTERM", id="as timeout sends it"),
    ],
)
def test_a_signal_keeps_what_was_played_and_no_training_stack_was_started(
    hosted: Hosted, crafter: Crafter, folder: Path, signals: list[signal.Signals], by: str
) -> None:
    loads = (
        "import sys\nfrom longhaul_trainer.cli.main import main\ntry:\n    main()\nfinally:\n"
        "    print('LOADED', sorted({'verl', 'vllm', 'ray'} & set(sys.modules)))\n"
    )
    crafter.waits = 0.3
    try:
        process = subprocess.Popen(
            [sys.executable, "-c", loads, *arguments(hosted, "rollout.concurrent_episodes=1")],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "CRAFTER_KEY": hosted.key},
        )
        wait_for_calls(crafter, 6)
        for number in signals:
            process.send_signal(number)
        output, _ = process.communicate(timeout=120)
    finally:
        crafter.waits = 0.0

    assert process.returncode == 130, output
    assert "LOADED []" in output
    assert f"cancelled by {by}" in output
    (run,) = runs_in(folder)
    assert run.status == "cancelled"
    assert calls_in(folder)
