"""Episodes on AgentGym's servers: each dialect, and each defect that users met."""

import asyncio
from dataclasses import dataclass, field

import pytest
from starlette.types import Receive, Scope, Send

from agentgym_servers import SERVERS, Recorded, slow
from longhaul_core.environment import EnvironmentSource
from longhaul_core.errors import EnvironmentFailure, EnvironmentTimeout
from longhaul_core.types import Split, Task
from longhaul_envs.agentgym.dialects import DIALECTS
from longhaul_envs.agentgym.tasks import source
from longhaul_envs.check import check_environment
from running_servers import played, running


def on(url: str, task: str, **options: object) -> EnvironmentSource:
    return source({"url": url, "task": task, **options})


def item(task: str, number: int) -> Task:
    return Task(
        environment="longhaul/AgentGym-v0",
        version=f"1+task={task}",
        data_hash="",
        task_id=f"{task}_{number}",
        seed=number,
        split=Split.TRAIN,
    )


@dataclass(frozen=True, kw_only=True)
class Script:
    """What is done in an episode of item 5, and what must come of it."""

    actions: list[str]
    rewards: list[float]
    accepted: list[bool]
    first: str
    """Begins the first observation."""
    success: bool = True
    admissible: tuple[str, ...] | None = None
    asked: list[str] = field(default_factory=list[str])
    """Routes, in order."""


TOOL = Script(
    actions=["get_tasks", 'get_tasks with Action Input: {"x": 1}', "finish with Action Input: {}"],
    rewards=[0.0, 0.5, -0.5],
    accepted=[False, True, True],
    first="Now new trial starts.",
    success=False,
    asked=["/create", "/reset", "/observation", "/step", "/step", "/step", "/close"],
)
SCRIPTS = {
    "textcraft": Script(
        actions=["get 1 log!", "sing", "craft 1 item 5 using 1 log"],
        rewards=[0.0, 0.0, 1.0],
        accepted=[True, False, True],
        first="Crafting commands:\ncraft 1 item using 1 log\n\nGoal: craft item 5.",
        asked=["/create", "/reset", "/step", "/step", "/step", "/close"],
    ),
    "babyai": Script(
        actions=["turn left", "turn right", "dance", "go to red ball 1"],
        rewards=[0.0, 0.25, 0.25, 0.75],  # what the score gains: 0, 0.25, 0.5, 1.25
        accepted=[True, True, False, True],
        first="Your goal: go to the red ball of item 5\nIn front of you in this room",
        admissible=("turn left", "turn right", "go to red ball 1"),
        asked=["/create", "/reset", "/step", "/step", "/step", "/step", "/close"],
    ),
    "sciworld": Script(
        actions=["open door to kitchen", "focus on water", "wait"],
        rewards=[8.0, 50.0, 42.0],
        accepted=[True, True, True],
        first="Task Description:\nBoil substance 5.\nThis room is called the kitchen.",
        asked=["/create", "/reset", "/step", "/step", "/step", "/close"],
    ),
    "alfworld": Script(
        actions=["go to desk 1", "go to desk 1", "put mug 1 in/on desk 1"],
        rewards=[0.0, 0.0, 1.0],
        accepted=[True, False, True],
        first="You are in the middle of a room.",
        admissible=("go to desk 1", "look"),
        asked=["/create", "/reset", "/step", "/step", "/step", "/close"],
    ),
    "webshop": Script(
        actions=["search[shoe]", "click[buy now]"],
        rewards=[0.0, 0.5],
        accepted=[True, True],
        first="WebShop [SEP] Instruction: [SEP] Find shoe 5",
        success=False,  # half of what was asked for
        asked=["/create", "/reset", "/observation", "/step", "/step", "/close"],
    ),
    "searchqa": Script(
        actions=[
            "<search>book</search>",
            "<answer>Bob</answer>",
            "hm",
            "<answer>Ann</answer>",
        ],
        rewards=[0.0, 0.125, -0.125, 1.0],
        accepted=[True, True, False, True],
        first="Question: who wrote book 5?",
        asked=["/create", "/reset", "/observation", *["/step"] * 4, "/close"],
    ),
    "webarena": Script(
        actions=["click [1]", "stop [done]"],
        rewards=[0.0, 1.0],
        accepted=[True, True],
        first="OBSERVATION:\n[1] RootWebArea 'Shop'\nOBJECTIVE: buy thing 5",
        asked=["/create", "/reset", "/observation", "/step", "/step", "/close"],
    ),
    "maze": Script(
        actions=["up", "move down"],
        rewards=[0.0, 1.0],
        accepted=[True, True],
        first="The goal is at position 8, 6. You are at 1, 5.",
        admissible=("move up", "move down", "move left", "move right"),
        asked=["/maze/create", "/maze/reset", "/maze/step", "/maze/step", "/maze/close"],
    ),
    "wordle": Script(
        actions=["crane", "s h i r t", "shire"],
        rewards=[0.0, 0.0, 1.0],
        accepted=[True, False, True],
        first="Words: c r a n e s h i r e\nLet's start Wordle!",
        asked=[
            "/wordle/create",
            "/wordle/filtered_vocab",
            "/wordle/reset",
            *["/wordle/step"] * 3,
            "/wordle/close",
        ],
    ),
    "sqlgym": Script(
        actions=["I count them.\n```sql\nSELECT COUNT(*) FROM schools\n```"],
        rewards=[1.0],
        accepted=[True],
        first="How many schools are in county 5?",
        asked=["/create", "/reset", "/observation", "/step", "/close"],
    ),
    **dict.fromkeys(("weather", "movie", "academia", "todo", "sheet"), TOOL),
}


@pytest.mark.parametrize("task", DIALECTS)
def test_an_episode_is_played_as_its_server_speaks(task: str) -> None:
    script, app = SCRIPTS[task], SERVERS[task]()

    with running(app) as url:
        first, results = asyncio.run(played(on(url, task), item(task, 5), script.actions))

    assert first.text.startswith(script.first)
    assert first.admissible_actions == script.admissible
    assert [result.reward for result in results] == script.rewards
    assert [result.action_accepted for result in results] == script.accepted
    assert [result.terminated for result in results] == [False] * (len(results) - 1) + [True]
    assert results[-1].success is script.success
    assert not any(result.success for result in results[:-1])
    assert [path for _, path in app.asked] == script.asked


def test_every_dialect_of_the_authors_client_is_there() -> None:
    names = "webshop alfworld babyai sciworld textcraft webarena sqlgym maze wordle weather todo"

    assert set(DIALECTS) == {*names.split(), "movie", "sheet", "academia", "searchqa"}


def test_the_return_is_the_score_that_the_authors_take() -> None:
    """The last one, also where it falls: a todo whose account ends in a wrong state scores 0."""
    with running(SERVERS["todo"]()) as url:
        calls = ["get with Action Input: {}", 'finish with Action Input: {"answer": "right"}']
        _, right = asyncio.run(played(on(url, "todo"), item("todo", 1), calls))
        _, wrong = asyncio.run(
            played(on(url, "todo"), item("todo", 1), [calls[0], "finish with Action Input: {}"])
        )

    assert (sum(result.reward for result in right), right[-1].success) == (1.0, True)
    assert (sum(result.reward for result in wrong), wrong[-1].success) == (0.0, False)


def test_a_failed_experiment_ends_without_success() -> None:
    with running(SERVERS["sciworld"]()) as url:
        _, results = asyncio.run(
            played(on(url, "sciworld"), item("sciworld", 1), ["wait1", "eat water"])
        )

    assert (results[-1].terminated, results[-1].success) == (True, False)
    assert sum(result.reward for result in results) == -100.0
    assert not results[0].action_accepted


def test_an_error_that_comes_as_status_200_fails_the_episode_with_its_text() -> None:
    with running(SERVERS["alfworld"]()) as url:
        with pytest.raises(EnvironmentFailure, match=rf"/reset of {url} .*index out of range"):
            asyncio.run(played(on(url, "alfworld"), item("alfworld", 3827), []))
    with running(SERVERS["maze"]()) as url:
        with pytest.raises(EnvironmentFailure, match=r"/step of .* an error: .* in step 2"):
            asyncio.run(played(on(url, "maze"), item("maze", 1), ["move up", "jump"]))


def test_a_crash_of_the_server_fails_the_episode_with_its_status() -> None:
    app = SERVERS["sqlgym"]()
    with running(app) as url:
        with pytest.raises(EnvironmentFailure, match=r"/reset of .* answered status 500"):
            asyncio.run(played(on(url, "sqlgym"), item("sqlgym", 10_962), []))

    assert [path for _, path in app.asked] == ["/create", "/reset", "/close"]


def test_a_browser_that_did_not_start_fails_the_episode() -> None:
    with running(SERVERS["webarena"]()) as url:
        with pytest.raises(EnvironmentFailure, match=r"/reset of .* failed: .*TimeoutError"):
            asyncio.run(played(on(url, "webarena"), item("webarena", 811), []))


def test_webarena_may_truncate_an_episode() -> None:
    with running(SERVERS["webarena"]()) as url:
        _, results = asyncio.run(
            played(on(url, "webarena"), item("webarena", 1), ["```close_tab```"])
        )

    assert (results[0].truncated, results[0].terminated, results[0].reward) == (True, False, 0.0)


def test_a_server_without_close_is_asked_once_to_close(caplog: pytest.LogCaptureFixture) -> None:
    app = SERVERS["webshop"]()
    with running(app) as url:
        shop = on(url, "webshop")
        for _ in range(2):
            asyncio.run(played(shop, item("webshop", 1), []))

    assert [path for _, path in app.asked].count("/close") == 1
    assert "has no /close: each episode leaves an environment behind" in caplog.text


def test_an_episode_that_broke_is_closed_on_the_server_too() -> None:
    app = SERVERS["babyai"]()
    with running(app) as url:
        with pytest.raises(EnvironmentFailure, match="has finished"):
            finish = ["go to red ball 1", "turn left"]
            asyncio.run(played(on(url, "babyai"), item("babyai", 1), finish))

    assert app.games == {}


class ForgetsItsIds(Recorded):
    """Hands out the same environment again and again."""

    def __init__(self) -> None:
        super().__init__()

        @self.post("/create")
        async def create() -> dict[str, int]:
            return {"id": 3}

        @self.post("/reset")
        async def reset() -> dict[str, object]:
            return {"observation": "You see a ball.", "score": 0, "done": False}

        @self.post("/close")
        async def close() -> bool:
            return True


def test_an_environment_that_another_episode_plays_in_is_not_taken() -> None:
    async def both(environments: EnvironmentSource) -> None:
        task = item("babyai", 1)
        one, other = environments.make(task), environments.make(task)
        try:
            await one.open()
            await one.reset(task)
            await other.open()
            with pytest.raises(EnvironmentFailure, match="id 3, in which an episode is going on"):
                await other.reset(task)
            await other.close()
            await one.close()
            again = environments.make(task)
            await again.open()
            await again.reset(task)  # nobody plays in it any more
            await again.close()
        finally:
            await one.close()
            await other.close()

    with running(ForgetsItsIds()) as url:
        asyncio.run(both(on(url, "babyai")))


def test_no_more_episodes_are_played_at_once_than_the_server_keeps_apart() -> None:
    async def twelve(environments: EnvironmentSource) -> int:
        most = 0
        playing = 0
        is_full = asyncio.Event()
        beginning = asyncio.Lock()
        ended: list[asyncio.Event] = []

        async def one(number: int) -> str:
            """The server hands its environments out in turn, so they end in turn, too."""
            nonlocal most, playing
            task = item("sqlgym", number)
            environment = environments.make(task)
            before: list[asyncio.Event] = []
            mine = asyncio.Event()
            try:
                await environment.open()
                playing += 1
                most = max(most, playing)
                if most == 8:
                    is_full.set()
                await asyncio.wait_for(is_full.wait(), timeout=60)
                async with beginning:
                    first = await environment.reset(task)
                    before = ended[-1:]
                    ended.append(mine)
                await environment.step("SELECT 1")
                return first.text
            finally:
                for event in before:
                    await event.wait()
                playing -= 1
                await environment.close()
                mine.set()

        texts = await asyncio.gather(*(one(number) for number in range(12)))
        assert texts == [f"How many schools are in county {number}?" for number in range(12)]
        return most

    with running(SERVERS["sqlgym"]()) as url:
        environments = on(url, "sqlgym")
        assert asyncio.run(twelve(environments)) == 8
        assert asyncio.run(twelve(environments)) == 8  # in another event loop


def test_a_server_that_does_not_answer_in_time_fails_the_episode_by_its_address() -> None:
    with running(slow()) as url:
        with pytest.raises(
            EnvironmentTimeout, match=rf"/reset of {url} did not answer within 0\.3 s"
        ):
            asyncio.run(played(on(url, "babyai", timeout_seconds=0.3), item("babyai", 1), []))


def test_a_server_that_is_not_there_fails_the_episode_by_its_address() -> None:
    with running(SERVERS["babyai"]()) as url:
        pass
    with pytest.raises(EnvironmentFailure, match=rf"POST /create of {url} failed: Client"):
        asyncio.run(played(on(url, "babyai"), item("babyai", 1), []))


def test_a_server_of_another_kind_fails_the_episode_by_what_it_answers() -> None:
    with running(SERVERS["webshop"]()) as url:
        with pytest.raises(EnvironmentFailure, match=r"/create of .* answered no id: \d+"):
            asyncio.run(played(on(url, "babyai"), item("babyai", 1), []))
    with running(SERVERS["textcraft"]()) as url:
        with pytest.raises(EnvironmentFailure, match=r"answered no text as task_description"):
            asyncio.run(played(on(url, "sciworld"), item("sciworld", 1), []))


def test_a_step_is_sent_once_even_if_its_answer_is_lost() -> None:
    """AgentGym numbers no steps: one that is sent again may act twice."""
    acted: list[str] = []

    async def hangs_up(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] != "/step":
            await ForgetsItsIds()(scope, receive, send)
            return
        acted.append("once")
        headers = [(b"content-length", b"1000")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})

    with running(hangs_up) as url:
        with pytest.raises(EnvironmentFailure, match=rf"POST /step of {url} failed: Client"):
            asyncio.run(played(on(url, "babyai"), item("babyai", 1), ["turn left"]))

    assert acted == ["once"]


@pytest.mark.parametrize("task", ["alfworld", "babyai", "searchqa"])
def test_the_contract_holds_on_a_server(task: str) -> None:
    with running(SERVERS[task]()) as url:
        found = check_environment(
            "longhaul/AgentGym-v0",
            options={"url": url, "task": task, "num_items": 40},
            num_tasks=2,
            num_starts=4,
            horizon=8,
        )

    assert found == []


NONSENSE = ["", "a" * 100_000, "\u0000\u0007", "漢字 ä", "<action>look</action>", "\ud83d"]


@pytest.mark.parametrize("task", ["textcraft", "babyai", "alfworld", "webarena", "weather"])
def test_nonsense_reaches_the_server_and_its_answer_comes_back(task: str) -> None:
    with running(SERVERS[task]()) as url:
        _, results = asyncio.run(played(on(url, task), item(task, 1), NONSENSE))

    assert all(result.observation.text for result in results)
    assert not any(result.success for result in results)
    if task != "webarena":  # which answers anything in backticks
        assert not any(result.action_accepted for result in results)
