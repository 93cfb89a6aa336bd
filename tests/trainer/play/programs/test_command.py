"""What a command is started with, and what is refused before a run."""

import asyncio
import json
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from fakes import make_task
from longhaul_core.errors import ConfigError, ProgramFailure, ProgramTimeout
from longhaul_core.open_files import USERS_SOFT_LIMIT
from longhaul_core.types import Task
from longhaul_trainer.play.programs.command import CommandProgram, passed_on
from longhaul_trainer.play.programs.program import Endpoint, Leavings

ENDPOINT = Endpoint(
    environ={
        "LONGHAUL_KEY": "k",
        "LONGHAUL_URL": "http://there:8400/longhaul",
        "OPENAI_BASE_URL": "http://there:8400/v1",
        "OPENAI_MODEL": "auto",
    },
    report=lambda credit: None,
    report_reward=lambda reward, success: None,
)
SHOW = (
    "import json, os, sys; print(json.dumps({'environ': dict(os.environ), 'folder': os.getcwd(),"
    " 'task': json.load(sys.stdin), 'file': json.load(open(os.environ['LONGHAUL_TASK_FILE'])),"
    " 'arguments': sys.argv[1:]}))"
)


def ran(program: CommandProgram, task: Task | None = None) -> Leavings:
    async def run() -> Leavings:
        try:
            async with program.run(task or make_task(), endpoint=ENDPOINT) as leavings:
                return leavings
        finally:
            await program.close()

    return asyncio.run(run())


def python(*arguments: str) -> list[str]:
    return [sys.executable, "-I", "-S", "-c", *arguments]


def test_a_command_gets_its_task_and_addresses_and_none_of_the_trainers_secrets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HF_TOKEN", "WANDB_API_KEY", "PGPASSWORD", "OPENAI_API_KEY", "AWS_SECRET_KEY"):
        monkeypatch.setenv(name, "secret")
    monkeypatch.setenv("SEARCH_KEY", "given")
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.txt").write_text("", encoding="utf-8")
    task = replace(make_task(), data='{"question": "h\\u00e4?"}')

    shown = json.loads(
        ran(
            CommandProgram(
                python(SHOW, "mine.txt", "-v"),
                environ={"MODE": "fast"},
                pass_environ=["SEARCH_KEY"],
            ),
            task,
        ).printed
    )

    assert shown["task"] == shown["file"] == {"question": "hä?"}
    assert shown["arguments"] == [str(tmp_path / "mine.txt"), "-v"]
    assert "secret" not in shown["environ"].values()
    own = {*ENDPOINT.environ, "LONGHAUL_TASK_FILE", "TMPDIR", "MODE", "SEARCH_KEY"}
    assert set(shown["environ"]) == {*passed_on(os.environ), *own, "PYTHONUNBUFFERED"}
    assert shown["environ"]["LC_ALL"] == "C.UTF-8"
    assert shown["folder"] != str(tmp_path)


def test_a_variable_is_filled_from_the_task_and_may_name_another_model() -> None:
    task = replace(
        make_task(), data='{"question": "h\u00e4?", "n": [1, {"a": true}], "set": {"x": "{n}"}}'
    )
    environ = {
        "QUESTION": "{question}",
        "BOTH": "{question} {n}",
        "WITHIN": "{n.1.a}{set.x}",
        "JSON": '{"question": {}}',
        "TEMPLATE": "{{question}}",
        "OPENAI_MODEL": "gpt-4o",
    }

    shown = json.loads(ran(CommandProgram(python(SHOW), environ=environ), task).printed)["environ"]

    assert shown["QUESTION"] == "hä?"
    assert shown["BOTH"] == 'hä? [1, {"a": true}]'
    assert shown["WITHIN"] == "true{n}", "the task's own braces stay"
    assert shown["JSON"] == '{"question": {}}'
    assert shown["TEMPLATE"] == "{question}"
    assert shown["OPENAI_MODEL"] == "gpt-4o"


@pytest.mark.parametrize("key", ["answer", "n.2", "n.x", "question.0"])
def test_a_task_without_what_a_variable_names_fails_with_its_name(key: str) -> None:
    task = replace(make_task(), data='{"question": "h", "n": [1, 2]}')
    program = CommandProgram(python(SHOW), environ={"ANSWER": f"{{{key}}}"})

    with pytest.raises(ProgramFailure, match=rf"agent.environ.ANSWER = .*no '{key}'.*'question'"):
        ran(program, task)


def test_a_command_has_the_users_own_limit_of_open_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(USERS_SOFT_LIMIT, "77")
    show = "import resource; print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])"

    assert ran(CommandProgram(python(show))).printed == "77\n"


@pytest.mark.parametrize("given", ["passed on", "set"])
def test_a_command_with_a_proxy_asks_its_gateway_directly(
    monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://proxy.example:3128")
    monkeypatch.setenv("NO_PROXY", "a.example")
    named = {"HTTP_PROXY": "http://proxy.example:3128", "NO_PROXY": "a.example"}
    program = (
        CommandProgram(python(SHOW), pass_environ=list(named))
        if given == "passed on"
        else CommandProgram(python(SHOW), environ=named)
    )

    environ = json.loads(ran(program).printed)["environ"]

    assert environ["NO_PROXY"] == "a.example,localhost,127.0.0.1,::1,there"
    assert environ["no_proxy"] == environ["NO_PROXY"]
    assert environ["HTTP_PROXY"] == "http://proxy.example:3128"


def test_a_working_folder_of_the_runs_own_is_there_afterwards(tmp_path: Path) -> None:
    program = CommandProgram(python("open('left', 'w')"), working_directory=tmp_path)

    assert ran(program).folder == tmp_path
    assert (tmp_path / "left").exists()


def test_of_what_a_command_prints_the_end_is_kept() -> None:
    left = ran(CommandProgram(python("import sys; print('x' * 10**7); sys.stderr.write('end')")))

    assert left.printed == "x" * 65_535 + "\n"
    assert left.output == "x" * (4_096 - 4) + "\nend"


def test_a_command_that_is_to_end_may_do_so_by_itself_first() -> None:
    waits = (
        "import signal, sys\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit('cleaned up'))\n"
        "print('waiting', flush=True)\n"
        "while True: signal.pause()\n"
    )

    with pytest.raises(ProgramTimeout, match=r"within 3 s; .*\nwaiting\ncleaned up"):
        ran(CommandProgram(python(waits), deadline_seconds=3))


@pytest.fixture
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "agent.py").write_text("print(1)", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: CommandProgram(["no-such-program"]), "no program 'no-such-program'"),
        (lambda: CommandProgram(["./agent.py"]), r"agent\.py' is not executable; chmod"),
        (lambda: CommandProgram(["sh"], working_directory=Path("no")), "no' is no folder"),
        (lambda: CommandProgram([]), "must name a program"),
        (lambda: CommandProgram(["sh"], deadline_seconds=0), "deadline_seconds must be finite"),
        (lambda: CommandProgram(["sh"], max_processes=0), "max_processes must be at least 1"),
        (lambda: CommandProgram(["sh"], environ={"OPENAI_API_KEY": "x"}), "sets OPENAI_API_KEY"),
        (lambda: CommandProgram(["sh"], environ={"LONGHAUL_URL": "x"}), "sets LONGHAUL_URL"),
        (lambda: CommandProgram(["sh"], pass_environ=["NOT_SET"]), "names NOT_SET, which is not"),
    ],
)
def test_a_command_that_cannot_be_started_is_refused_before_the_run(
    make: Callable[[], CommandProgram], said: str, in_folder: Path
) -> None:
    with pytest.raises(ConfigError, match=said):
        make().check()


def test_a_command_that_can_be_started_is_not_refused(in_folder: Path) -> None:
    CommandProgram([sys.executable, "agent.py"], working_directory=in_folder).check()


def test_a_command_that_is_gone_when_it_is_started_fails_its_episode(in_folder: Path) -> None:
    agent = in_folder / "agent.py"
    agent.chmod(0o755)
    program = CommandProgram([str(agent)])  # no `#!` line
    program.check()

    with pytest.raises(ProgramFailure, match="Exec format error"):
        ran(program)


def test_a_task_that_no_message_carries_fails_its_episode() -> None:
    task = replace(make_task(), data=json.dumps({"long": "x" * 17_000_000}))

    with pytest.raises(ProgramFailure, match="exceeds the limit"):
        ran(CommandProgram(python("pass")), task)
