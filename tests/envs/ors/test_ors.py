"""Episodes on a server made with the package `openreward`, in a process of its own."""

import asyncio
import json
import os
from collections.abc import Generator
from pathlib import Path

import pytest
from starlette.types import Receive, Scope, Send

from longhaul_core.actions import called
from longhaul_core.environment import EnvironmentDescription, EnvironmentSource, StepResult
from longhaul_core.errors import ConfigError, EnvironmentFailure
from longhaul_core.types import Split, Task
from longhaul_envs.check import check_environment
from longhaul_envs.ors.tasks import source
from running_servers import Cable, played, running, running_program

pytestmark = pytest.mark.slow  # the package takes seconds to import

PROGRAM = Path(__file__).parents[2] / "ors_server.py"


@pytest.fixture(scope="module")
def server() -> Generator[str]:
    with running_program(PROGRAM) as program:
        yield program.url


def listed(environments: EnvironmentSource, split: Split) -> dict[str, Task]:
    return {task.task_id: task for task in environments.tasks(split)}


def call(name: str, **given: object) -> str:
    return json.dumps({"name": name, "input": given})


def test_a_task_is_solved_by_calls(server: str) -> None:
    environments = source({"url": server})
    task = listed(environments, Split.TEST)["test/3"]

    first, results = asyncio.run(
        played(environments, task, [call("hint"), called("answer", '{"value": 5}')])
    )

    assert first.text == "What is 3 + 2?"
    assert first.pictures[0].media_type == "image/png"
    assert results[0].observation.text == "It is at least\n4\n" + "x" * 20_000  # in chunks
    assert [result.reward for result in results] == [-0.25, 1.0]
    assert [result.terminated for result in results] == [False, True]
    assert [result.success for result in results] == [False, True]


def test_a_wrong_answer_ends_the_task_without_success(server: str) -> None:
    environments = source({"url": server})
    task = listed(environments, Split.TEST)["test/3"]

    _, results = asyncio.run(played(environments, task, [call("answer", value=6)]))

    assert (results[0].terminated, results[0].success, results[0].reward) == (True, False, 0.0)


def test_tasks_and_tools_are_those_that_the_server_lists(server: str) -> None:
    environments = source({"url": server})
    train, validation, test = (listed(environments, split) for split in Split)

    assert list(test) == [f"test/{index}" for index in range(5)]
    assert sorted([*train, *validation]) == sorted(f"train/{index}" for index in range(20))
    description = environments.describe()
    assert description.prompt is not None
    assert '- answer: Answer with a number. Input: {"value": ' in description.prompt.calls
    assert "secret" not in description.prompt.calls
    answer = next(tool for tool in description.tools if tool.name == "answer")
    assert answer.description == "Answer with a number."
    assert json.loads(answer.parameters)["properties"]["value"]
    assert "secret" not in {tool.name for tool in description.tools}
    assert EnvironmentDescription.from_json(description.to_json()) == description


def test_what_is_no_call_changes_nothing(server: str) -> None:
    environments = source({"url": server})
    task = listed(environments, Split.TEST)["test/1"]
    nonsense = [
        "",
        "answer 3",
        '{"name": "answer"}',
        call("fly"),
        call("answer", value="three"),
        call("answer"),
        "[" * 100_000,
        call("answer", value="\ud83d"),
    ]

    first, results = asyncio.run(played(environments, task, [*nonsense, call("answer", value=3)]))

    refused = results[:-1]
    assert not any(result.action_accepted for result in refused)
    assert all(result.observation.text.endswith(first.text) for result in refused)
    assert "An action must be `{" in results[0].observation.text
    assert "fly" in results[3].observation.text
    assert results[-1].success


def test_a_terminal_tool_takes_plain_text_and_a_slow_start_is_waited_for(server: str) -> None:
    environments = source({"url": server, "environment": "Essays", "success_above": 0.3})
    tasks = environments.tasks(Split.TRAIN)

    _, good = asyncio.run(played(environments, tasks[0], ["one two three four"]))
    _, short = asyncio.run(played(environments, tasks[0], ["one"]))

    assert (good[0].terminated, good[0].success, good[0].reward) == (True, True, 0.4)
    assert (short[0].terminated, short[0].success, short[0].reward) == (True, False, 0.1)
    assert "or else text" in environments.describe().actions


def test_a_tool_that_raises_fails_the_episode_with_its_text(server: str) -> None:
    environments = source({"url": server})
    task = listed(environments, Split.TEST)["test/1"]

    with pytest.raises(
        EnvironmentFailure, match=rf"call of break_down on {server}: .*abacus fell over"
    ):
        asyncio.run(played(environments, task, [call("break_down")]))


def test_a_call_whose_connection_breaks_is_made_once_and_its_result_comes(
    server: str, tmp_path: Path
) -> None:
    log, go = tmp_path / "log", tmp_path / "go"
    for pipe in (log, go):
        os.mkfifo(pipe)

    async def cut_off() -> StepResult:
        async with Cable(server).laid() as cable:
            environments = source({"url": cable.url})
            task = (await asyncio.to_thread(environments.tasks, Split.TEST))[0]
            environment = await asyncio.to_thread(environments.make, task)
            try:
                await environment.open()
                await environment.reset(task)
                waiting = call("wait_for", log=str(log), go=str(go))
                named = cable.awaiting(b"event: task_id")
                step = asyncio.create_task(environment.step(waiting))
                await named.wait()
                await asyncio.to_thread(log.read_text)  # blocks until the call is made
                await asyncio.sleep(0.1)  # what has come through the cable is read
                cable.cut()
                await asyncio.to_thread(go.write_text, "go")
                return await step
            finally:
                await environment.close()

    result = asyncio.run(cut_off())

    assert result.reward == 0.5
    assert result.observation.text == "Done, call 1."


def test_a_call_that_the_server_did_not_name_is_not_made_again() -> None:
    calls: list[str] = []
    answers: dict[str, object] = {
        "/list_environments": ["sums"],
        "/sums/splits": [{"name": "train", "type": "train"}],
        "/sums/num_tasks": {"num_tasks": 9},
        "/sums/tools": {"tools": []},
        "/sums/task_tools": {"tools": []},
        "/sums/prompt": [{"text": "What?", "type": "text"}],
    }

    async def hangs_up(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        body = json.dumps(answers.get(scope["path"], {})).encode()
        length = len(body)
        if scope["path"] == "/create_session":
            body, length = b"event: task_id\ndata: 7\n\n", 24
        if scope["path"] == "/sums/call":
            calls.append("once")
            body, length = b"", 1000
        headers = [(b"content-length", str(length).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body, "more_body": length != len(body)})

    with running(hangs_up) as url:
        environments = source({"url": url})
        task = environments.tasks(Split.TRAIN)[0]
        with pytest.raises(EnvironmentFailure, match=rf"/sums/call on {url}: the connection broke"):
            asyncio.run(played(environments, task, [call("answer", value=1)]))

    assert calls == ["once"]


def test_the_contract_holds_on_a_server(server: str) -> None:
    found = check_environment(
        "longhaul/ORS-v0",
        options={"url": server, "determinism": "exact"},
        num_tasks=2,
        num_starts=4,
        horizon=8,
    )

    assert found == []


def test_what_the_server_cannot_be_is_refused(server: str) -> None:
    with pytest.raises(ConfigError, match="has no environment 'Chess'; it has sums, essays"):
        source({"url": server, "environment": "Chess"}).describe()
    with pytest.raises(ConfigError, match=r"http://127\.0\.0\.1:9/list_environments cannot be"):
        source({"url": "http://127.0.0.1:9"}).describe()
    with pytest.raises(ConfigError, match="timeout_seconds must be above 0"):
        source({"url": server, "timeout_seconds": -1})
