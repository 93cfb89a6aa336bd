"""Episodes on servers made with the package `openenv`, in processes of their own."""

import asyncio
from collections.abc import Generator
from pathlib import Path

import pytest

from longhaul_core.environment import Determinism, EnvironmentSource
from longhaul_core.errors import ConfigError, EnvironmentFailure
from longhaul_core.types import Split, Task
from longhaul_envs.check import check_environment
from longhaul_envs.openenv.tasks import source
from running_servers import Cable, played, running_program

pytestmark = pytest.mark.slow  # the package takes seconds to import

PROGRAM = Path(__file__).parents[2] / "openenv_server.py"


@pytest.fixture(scope="module")
def servers() -> Generator[str]:
    with running_program(PROGRAM) as program:
        yield program.url


@pytest.fixture
def words(servers: str) -> str:
    return f"{servers}/words"


@pytest.fixture
def line(servers: str) -> str:
    return f"{servers}/line"


def listed(environments: EnvironmentSource, split: Split) -> dict[str, Task]:
    return {task.task_id: task for task in environments.tasks(split)}


def test_an_action_of_one_field_is_text(words: str) -> None:
    environments = source({"url": words})
    task = listed(environments, Split.TEST)["test/3"]

    first, results = asyncio.run(played(environments, task, ["word 2", '{"word": 3}', "word 3"]))

    assert first.text == "Guess word 3 of test, seed None."
    assert [result.observation.text for result in results] == [
        "Wrong: 6 letters.",
        "Wrong: 11 letters.",
        "Right, in 3.",
    ]
    assert [result.reward for result in results] == [0.0, 0.0, 1.0]
    assert [result.terminated for result in results] == [False, False, True]
    assert [result.success for result in results] == [False, False, True]
    assert environments.describe().actions == "text, the server's `word`"


def test_an_end_without_reward_is_no_success(words: str) -> None:
    environments = source({"url": words})
    task = listed(environments, Split.TEST)["test/0"]

    _, results = asyncio.run(played(environments, task, ["give up"]))

    assert (results[0].terminated, results[0].success) == (True, False)


def test_tasks_are_those_that_the_server_lists(words: str) -> None:
    environments = source({"url": words})
    train, validation, test = (listed(environments, split) for split in Split)

    assert list(test) == [f"test/{index}" for index in range(5)]
    assert sorted([*train, *validation]) == sorted(f"train/{index}" for index in range(20))
    assert len(validation) == 3


def test_an_action_of_several_fields_is_a_json_object(line: str) -> None:
    environments = source({"url": line})
    task = environments.tasks(Split.TRAIN)[0]

    actions = ['{"direction": "right", "steps": 2}'] * 4
    first, results = asyncio.run(played(environments, task, actions))

    assert first.text.startswith('{"x": ')
    assert first.text.endswith('"facing": "right"}')
    assert any(result.success for result in results)
    assert environments.describe().actions.startswith('a JSON object `{"direction": …')


def test_one_field_of_several_can_be_chosen(line: str) -> None:
    environments = source({"url": line, "action_field": "direction", "observation_field": "facing"})
    task = environments.tasks(Split.TRAIN)[0]

    first, results = asyncio.run(played(environments, task, ["left"]))

    assert first.text == "right"
    assert results[0].observation.text == "left"


def test_an_action_that_is_no_action_changes_nothing(line: str) -> None:
    environments = source({"url": line})
    task = environments.tasks(Split.TRAIN)[0]
    nonsense = [
        "",
        "go right",
        "[1]",
        "{" * 5000,
        '{"steps": 1}',
        '{"direction": "up", "x": "\\ud83d"}',
    ]

    first, results = asyncio.run(played(environments, task, nonsense))

    assert not any(result.action_accepted for result in results)
    assert all(result.observation.text.endswith(first.text) for result in results)
    assert "must be a JSON object" in results[0].observation.text
    assert "direction: Field required" in results[4].observation.text


def test_a_server_without_tasks_is_played_by_seeds(line: str) -> None:
    environments = source({"url": line})

    assert [len(environments.tasks(split)) for split in Split] == [1024, 256, 256]
    every = [task for split in Split for task in environments.tasks(split)]
    assert len({task.seed for task in every}) == len(every)
    task = next(task for task in every if task.seed == 2)
    first, _ = asyncio.run(played(environments, task, []))
    assert first.text == '{"x": 3, "facing": "right"}'


def test_an_error_of_the_environment_fails_the_episode_with_its_text(words: str) -> None:
    environments = source({"url": words})
    task = listed(environments, Split.TEST)["test/0"]

    with pytest.raises(EnvironmentFailure, match=rf"step on {words}: .*machine is on fire"):
        asyncio.run(played(environments, task, ["crash"]))


def test_no_more_sessions_are_opened_than_may_be(words: str) -> None:
    async def many(environments: EnvironmentSource) -> list[bool]:
        tasks = environments.tasks(Split.TRAIN)[:6]
        answers = [task.task_id.replace("train/", "word ") for task in tasks]
        episodes = await asyncio.gather(
            *(
                played(environments, task, ["wrong", answer])
                for task, answer in zip(tasks, answers, strict=True)
            )
        )
        return [results[-1].success for _, results in episodes]

    assert asyncio.run(many(source({"url": words, "max_episodes": 2}))) == [True] * 6
    with pytest.raises(EnvironmentFailure, match=r"CAPACITY_REACHED.*than max_episodes = 6"):
        asyncio.run(many(source({"url": words, "max_episodes": 6})))


def test_a_dropped_socket_fails_the_episode_and_makes_no_fresh_environment(words: str) -> None:
    async def cut_off() -> None:
        async with Cable(words).laid() as cable:
            environments = source({"url": cable.url})
            task = await asyncio.to_thread(lambda: listed(environments, Split.TEST)["test/1"])
            environment = await asyncio.to_thread(environments.make, task)
            await environment.open()
            await environment.reset(task)
            await environment.step("wrong")
            before = cable.num_connections
            cable.cut()
            for _ in range(2):  # on a fresh environment, either would be answered
                with pytest.raises(EnvironmentFailure, match=rf"step on {cable.url}: .*closed"):
                    await environment.step("word 1")
            await environment.close()
            assert cable.num_connections == before

    asyncio.run(cut_off())


def test_a_server_that_is_not_there_is_refused_before_a_run() -> None:
    with pytest.raises(ConfigError, match=r"http://127\.0\.0\.1:9/schema cannot be asked"):
        source({"url": "http://127.0.0.1:9"}).describe()


def test_the_contract_holds_on_a_server(words: str) -> None:
    found = check_environment(
        "longhaul/OpenEnv-v0",
        options={"url": words, "determinism": "exact"},
        num_tasks=2,
        num_starts=4,
        horizon=8,
    )

    assert found == []


def test_what_the_server_cannot_be_is_refused(line: str) -> None:
    with pytest.raises(ConfigError, match="no field of text 'colour'; it has direction, steps"):
        source({"url": line, "action_field": "colour"}).describe()
    with pytest.raises(ConfigError, match="no field of text 'steps'"):
        source({"url": line, "action_field": "steps"}).describe()
    with pytest.raises(ConfigError, match="max_episodes must be at least 1"):
        source({"url": line, "max_episodes": 0})
    with pytest.raises(ConfigError, match="determinism must be one of"):
        source({"url": line, "determinism": "perhaps"})
    with pytest.raises(ConfigError, match=r"variable 'NO_SUCH_TOKEN'.* is not set"):
        source({"url": line, "token_variable": "NO_SUCH_TOKEN"}).describe()


def test_what_the_user_knows_of_its_determinism_is_declared(line: str) -> None:
    assert source({"url": line}).describe().determinism is Determinism.NONE
    declared = source({"url": line, "determinism": "exact"}).describe()
    assert declared.determinism is Determinism.EXACT
