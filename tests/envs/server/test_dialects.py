"""The server as AgentGym's, OpenEnv's and Open Reward's, played by their own clients."""

import asyncio
from collections.abc import Generator
from typing import Any

import httpx
import pytest
from websockets import Origin
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from environment_server import RunningServer, num_open_sessions, running_server
from local_workers import until
from longhaul_core.environment import StepResult
from longhaul_core.errors import ConfigError
from longhaul_core.gym import GymSource
from longhaul_core.types import Split
from longhaul_envs.agentgym.tasks import source as agentgym_source
from longhaul_envs.play import Episode, expert_policy, play
from longhaul_envs.server.serve import serve
from longhaul_envs.server.served import EnvironmentToServe
from longhaul_envs.server.settings import ServerSettings
from longhaul_envs.textcraft.tasks import source as textcraft_source
from ports import free_port
from slow_clients import HALF_A_HEADER, last_words

SOURCE: GymSource = textcraft_source({"depth": 2})
TASK = SOURCE.tasks(Split.TEST)[0]


@pytest.fixture(scope="module")
def ports() -> dict[str, int]:
    return {name: free_port() for name in ("agentgym", "openenv", "ors")}


@pytest.fixture(scope="module")
def server(
    tmp_path_factory: pytest.TempPathFactory, ports: dict[str, int]
) -> Generator[RunningServer]:
    textcraft: dict[str, object] = {
        "id": "longhaul/TextCraft-v0",
        "options": {"depth": 2},
        "import_modules": [],
        "limits": {"num_workers": 1},
    }
    with running_server(
        textcraft,
        folder=tmp_path_factory.mktemp("dialects"),
        settings={"dialects": ports, "header_seconds": 2.0},
    ) as running:
        yield running


@pytest.mark.parametrize("door", ["its own", "agentgym", "openenv", "ors"])
def test_a_client_that_sends_no_whole_header_is_closed(
    server: RunningServer, ports: dict[str, int], door: str
) -> None:
    address = f"http://127.0.0.1:{ports[door]}" if door in ports else server.address
    assert last_words(address, sent=HALF_A_HEADER).startswith(b"HTTP/1.1 408 ")


@pytest.fixture(scope="module")
def known() -> Episode:
    """The expert's episode of the task, played here."""
    environment = SOURCE.spec.make()
    episode = play(environment, TASK, expert_policy, horizon=30)
    environment.close()
    assert episode.success
    assert len(episode.actions) > 1
    return episode


def test_openenv_s_client_plays_the_episode_that_is_played_here(
    server: RunningServer, ports: dict[str, int], known: Episode
) -> None:
    async def played() -> list[tuple[str, float | None, bool]]:
        from openenv.core.generic_client import GenericEnvClient  # imports gradio, for 6 s

        client: Any = GenericEnvClient(base_url=f"http://127.0.0.1:{ports['openenv']}")
        async with client:
            first = await client.reset(split="test", index=0)
            seen = [(first.observation["text"], first.reward, first.done)]
            for action in known.actions:
                result = await client.step({"message": action})
                seen.append((result.observation["text"], result.reward, result.done))
                assert result.observation["success"] == result.done
            assert (await client.state())["step_count"] == len(known.actions)
        return seen

    found = asyncio.run(played())

    assert found[0][0] == known.first_observation.text
    assert found[1:] == [
        (one.observation.text, one.reward, one.terminated) for one in known.results
    ]
    assert {done for _, _, done in found} == {True, False}


def test_openenv_s_task_api_lists_the_tasks(server: RunningServer, ports: dict[str, int]) -> None:
    with httpx.Client(base_url=f"http://127.0.0.1:{ports['openenv']}", timeout=60) as client:
        names = client.get("/list_environments").json()
        (name,) = names
        splits = client.get(f"/{name}/splits").json()
        listed = client.post(f"/{name}/task", json={"split": "test", "index": 0}).json()

    assert [split["name"] for split in splits] == ["train", "validation", "test"]
    assert TASK.task_id in str(listed)


def test_open_reward_s_client_plays_the_episode_that_is_played_here(
    server: RunningServer, ports: dict[str, int], known: Episode
) -> None:
    from openreward import OpenReward

    reward: Any = OpenReward(api_key="none")
    environment = reward.environments.get("textcraft", base_url=f"http://127.0.0.1:{ports['ors']}")
    tasks = environment.list_tasks("test")
    assert [task.task_spec["id"] for task in tasks] == [
        task.task_id for task in SOURCE.tasks(Split.TEST)
    ]
    with environment.session(task=tasks[0]) as session:
        (prompt,) = session.get_prompt()
        assert known.first_observation.text in prompt.text
        results = [session.call_tool("act", {"action": action}) for action in known.actions]

    assert [one.reward for one in results] == [one.reward for one in known.results]
    assert [one.finished for one in results] == [one.terminated for one in known.results]
    for there, here in zip(results, known.results, strict=True):
        assert there.blocks[0].text.startswith(here.observation.text)


def test_requests_in_agentgym_s_form_play_the_episode_that_is_played_here(
    server: RunningServer, ports: dict[str, int], known: Episode
) -> None:
    address = f"http://127.0.0.1:{ports['agentgym']}"
    place = sum(len(SOURCE.tasks(split)) for split in (Split.TRAIN, Split.VALIDATION))
    with httpx.Client(base_url=address, timeout=60) as client:
        begun = client.post("/create").json()
        number = begun["id"]
        assert (begun["done"], begun["reward"]) == (False, 0.0)
        assert SOURCE.tasks(Split.TRAIN)[int(number)].goal in begun["observation"]
        first = client.post("/reset", json={"id": number, "data_idx": place}).json()
        assert first["observation"] == known.first_observation.text
        assert (first["done"], first["reward"]) == (False, 0.0)
        for action, here in zip(known.actions, known.results, strict=True):
            there = client.post("/step", json={"id": number, "action": action}).json()
            assert there["observation"] == here.observation.text
            assert (there["reward"], there["done"]) == (here.reward, here.terminated)
            shown = client.get("/observation", params={"id": number}).json()
            assert shown == here.observation.text
        assert client.post("/close", json={"id": number}).json() is True


def test_our_client_of_agentgym_plays_there(
    server: RunningServer, ports: dict[str, int], known: Episode
) -> None:
    source = agentgym_source(
        {
            "env_addr": f"http://127.0.0.1:{ports['agentgym']}",
            "task_name": "textcraft",
            "num_items": sum(len(SOURCE.tasks(split)) for split in Split),
        }
    )
    place = sum(len(SOURCE.tasks(split)) for split in (Split.TRAIN, Split.VALIDATION))
    task = next(task for split in Split for task in source.tasks(split) if task.seed == place)

    async def played() -> list[StepResult]:
        environment = source.make(task)
        await environment.open()
        try:
            first = await environment.reset(task)
            assert first.text == known.first_observation.text
            return [await environment.step(action) for action in known.actions]
        finally:
            await environment.close()

    results = asyncio.run(played())
    assert [one.reward for one in results] == [one.reward for one in known.results]
    assert results[-1].success
    assert num_open_sessions(server) == 0


@pytest.mark.parametrize(
    ("path", "body", "problem"),
    [
        ("/step", {"id": 10**6, "action": "x"}, "no environment has id = 1000000"),
        ("/step", {"id": None, "action": "x"}, "no environment has id = None"),
        ("/step", {}, "action must be text"),
        ("/reset", {"data_idx": 10**9}, "data_idx must be from 0 to"),
        ("/reset", {"data_idx": "one"}, "data_idx must be from 0 to"),
    ],
)
def test_what_agentgym_s_client_asks_wrongly_is_answered_as_its_servers_do(
    server: RunningServer, ports: dict[str, int], path: str, body: dict[str, Any], problem: str
) -> None:
    with httpx.Client(base_url=f"http://127.0.0.1:{ports['agentgym']}", timeout=60) as client:
        number = client.post("/create").json()["id"]
        answer = client.post(path, json={"id": number} | body)
        client.post("/close", json={"id": number})

    assert answer.status_code == 200
    assert problem in answer.json()["error"]


@pytest.mark.parametrize("dialect", ["agentgym", "openenv", "ors"])
def test_a_dialect_answers_to_no_other_host_name(
    server: RunningServer, ports: dict[str, int], dialect: str
) -> None:
    address = f"http://127.0.0.1:{ports[dialect]}/health"
    assert httpx.get(address, headers={"Host": "evil.example"}, timeout=60).status_code == 400


@pytest.mark.parametrize("dialect", ["agentgym", "openenv", "ors"])
def test_a_dialect_answers_no_web_page(
    server: RunningServer, ports: dict[str, int], dialect: str
) -> None:
    address = f"http://127.0.0.1:{ports[dialect]}/create"
    page = {"Origin": "https://evil.example", "Content-Type": "text/plain"}
    assert httpx.post(address, headers=page, content="{}", timeout=60).status_code == 403


def test_a_web_page_opens_no_socket(server: RunningServer, ports: dict[str, int]) -> None:
    async def opened() -> None:
        async with connect(
            f"ws://127.0.0.1:{ports['openenv']}/ws", origin=Origin("https://evil.x")
        ):
            raise AssertionError("the socket is open")

    with pytest.raises(InvalidStatus, match="403"):
        asyncio.run(opened())


@pytest.mark.parametrize(
    ("dialects", "problem"),
    [
        ({"agentgym": 36001, "ors": 36002}, "on port 36002, which is taken by another"),
        ({"openenv": 65535}, "on port 65536, which there is not"),
    ],
)
def test_ports_that_cannot_be_had_are_refused_before_anything_starts(
    dialects: dict[str, int], problem: str
) -> None:
    environments = [EnvironmentToServe(id=f"longhaul/{name}-v0") for name in ("TextCraft", "Maze")]
    settings = ServerSettings(port=0, dialects=dialects)
    with pytest.raises(ConfigError, match=problem):
        asyncio.run(serve(environments, settings))


def test_pictures_are_not_served_by_a_protocol_of_text() -> None:
    shown = EnvironmentToServe(id="longhaul/Sokoban-v0", options={"observation": "image"})
    settings = ServerSettings(port=0, dialects={"agentgym": free_port()})
    with pytest.raises(ConfigError, match=r"Sokoban-v0 shows pictures, and AgentGym's protocol"):
        asyncio.run(serve([shown], settings))


def test_a_connection_that_is_cut_leaves_no_session(
    server: RunningServer, ports: dict[str, int]
) -> None:
    async def cut() -> None:
        async with connect(f"ws://127.0.0.1:{ports['openenv']}/ws") as connection:
            await connection.send('{"type": "reset", "data": {"split": "test", "index": 0}}')
            assert TASK.goal in str(await connection.recv())
            assert num_open_sessions(server) == 1
            connection.transport.close()  # without a farewell

    asyncio.run(until(lambda: num_open_sessions(server) == 0))  # those of other tests
    asyncio.run(cut())
    asyncio.run(until(lambda: num_open_sessions(server) == 0))


def test_an_unknown_dialect_or_port_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"no dialect 'gopher'; there are agentgym, openenv, ors"):
        ServerSettings(dialects={"gopher": 70})
    with pytest.raises(ConfigError, match="port of ors must lie in"):
        ServerSettings(dialects={"ors": 0})
