"""Kinds of calls that a run treats in their own way (`[[agent.calls]]`), asked as vendors ask."""

import asyncio
import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from fakes import StreamingScriptedPolicy
from gateways import Played, Stage, responder_of, said
from longhaul_core.policy import Completion, Prompt, Sampling
from longhaul_core.types import Call, Trajectory
from longhaul_trainer.config.calls import CallKind
from longhaul_trainer.gateway.app import OVERRIDDEN_HEADER
from longhaul_trainer.gateway.episode import CallRules

GOLDEN = Path(__file__).parents[2] / "golden/agent_requests.json.gz"
RECORDED: dict[str, Any] = json.loads(gzip.decompress(GOLDEN.read_bytes()))
CLAUDE = "claude, as npm chooses it on Node.js 20"
TITLES = CallKind(tools=False, train=False, agent="titles")


def rules(*kinds: CallKind) -> CallRules:
    return CallRules(trains=True, kinds=kinds)


def trained(record: Trajectory) -> list[list[bool]]:
    """Of each step, which of its calls are trained."""
    return [[call.trained for call in step.calls] for step in record.steps]


def calls_of(record: Trajectory) -> list[Call]:
    return [call for step in record.steps for call in step.calls]


@pytest.mark.parametrize("agent", [CLAUDE, "opencode"])
@pytest.mark.parametrize(
    "kind",
    [
        TITLES,
        CallKind(system="Generate a concise, sentence-case title", train=False, agent="titles"),
        CallKind(system="You are a title generator", train=False, agent="titles"),
    ],
    ids=["by its tools", "by Claude Code's words", "by opencode's words"],
)
def test_a_title_is_no_step_and_takes_no_horizon_and_no_reward(
    stage: Stage, agent: str, kind: CallKind
) -> None:
    recorded = RECORDED[agent]
    words = {CLAUDE: "Generate", "opencode": "You are a title"}
    is_title = kind.system is None or kind.system.startswith(words[agent])

    async def program(one: Played) -> None:
        answers = [
            await one.http.post(request["path"], headers=request["headers"], json=request["body"])
            for request in recorded["requests"]
        ]
        if not is_title:
            assert [answer.status_code for answer in answers] == [200, 200, 400]
            return
        assert {answer.status_code for answer in answers} == {200}
        await one.http.post("/longhaul/step", json={"reward": 0.5})
        await one.episode.close()

        record = one.end()
        assert trained(record) == [[False, True], [True]]
        assert [step.reward for step in record.steps] == [0.0, 0.5]
        assert "<call>" not in record.steps[1].action
        assert "echo hello" in record.steps[0].action
        title, first = record.steps[0].calls
        assert (title.agent, title.purpose, title.reply) == ("titles", "aside", "A greeting")
        assert record.steps[0].act is first
        assert title.conversation != first.conversation
        assert "Write hello" in record.steps[0].observation.text

    policy = StreamingScriptedPolicy(recorded["replies"])
    responder = responder_of(policy, max_reply_tokens=4_000)
    models = {"policy": responder, "*": responder}
    stage.played(program, policy, models=models, rules=rules(kind), horizon=2)


def test_a_title_pays_and_is_paid_nothing(stage: Stage) -> None:
    async def program(one: Played) -> None:
        await one.chat("a title, please")
        early = await one.http.post("/longhaul/step", json={"reward": 1.0})
        assert early.status_code == 400, "there is no step yet"

    stage.played(program, rules=rules(TITLES))


@pytest.mark.parametrize(
    ("kind", "fits", "fits_not"),
    [
        (CallKind(model="small-*", train=False), {"model": "small-1"}, {}),
        (CallKind(tools=True, train=False), {"tools": ["move"]}, {}),
        (CallKind(system="Count", train=False), {"system": " Count tokens"}, {"system": "A Count"}),
        (CallKind(header="X-Agent", train=False), {"header": "any"}, {}),
        (
            CallKind(header="x-agent: side*", train=False),
            {"header": "sidekick"},
            {"header": "main"},
        ),
        (
            CallKind(model="small-*", tools=False, train=False),
            {"model": "small-1"},
            {"model": "small-1", "tools": ["move"]},
        ),
    ],
    ids=["model", "tools", "system", "header", "its value", "both"],
)
def test_a_call_is_of_a_kind_whose_conditions_it_all_meets(
    stage: Stage, kind: CallKind, fits: dict[str, Any], fits_not: dict[str, Any]
) -> None:
    async def ask(one: Played, asked: dict[str, Any]) -> None:
        system = [{"role": "system", "content": asked["system"]}] if "system" in asked else []
        tools = [
            {"type": "function", "function": {"name": name}} for name in asked.get("tools", ())
        ]
        answer = await one.http.post(
            "/v1/chat/completions",
            json={
                "model": asked.get("model", "auto"),
                "messages": [*system, {"role": "user", "content": "hi"}],
            }
            | ({"tools": tools} if tools else {}),
            headers={"X-Agent": asked["header"]} if "header" in asked else {},
        )
        assert answer.status_code == 200, answer.text

    async def program(one: Played) -> None:
        await ask(one, fits_not)
        await ask(one, fits)
        assert trained(one.end()) == [[True, False]]

    stage.played(
        program, models=dict.fromkeys(("policy", "small-*"), responder_of()), rules=rules(kind)
    )


def test_the_first_kind_that_fits_names_the_agent_and_bounds_the_reply(stage: Stage) -> None:
    policy = StreamingScriptedPolicy(["ok"])
    kinds = (
        CallKind(header="longhaul-agent: helper", agent="sub", max_reply_tokens=3),
        CallKind(tools=False, agent="other"),
    )

    async def program(one: Played) -> None:
        answer = await one.chat("hi", headers={"Longhaul-Agent": "helper"}, max_tokens=50)
        await one.chat("ho")

        assert answer.headers[OVERRIDDEN_HEADER] == "max_tokens=3"
        first, second = calls_of(one.end())
        assert [sampling.max_tokens for sampling in policy.samplings] == [3, 64]
        assert [(call.agent, call.trained) for call in (first, second)] == [
            ("sub", True),
            ("other", True),
        ]

    stage.played(program, policy, rules=rules(*kinds))


def test_calls_of_a_kind_beyond_their_most_are_refused_and_the_episode_goes_on(
    stage: Stage,
) -> None:
    kind = CallKind(model="small", train=False, max_calls=1)

    async def program(one: Played) -> None:
        first = await one.chat("a", model="small")
        second = await one.chat("b", model="small")
        own = await one.chat("c")

        assert [one.status_code for one in (first, second, own)] == [200, 400, 200]
        assert "agent.calls.max_calls" in second.json()["error"]["message"]
        assert one.episode.limit is None
        assert one.episode.failure is None
        assert one.episode.num_calls == 2

    responder = responder_of()
    stage.played(program, models={"policy": responder, "small": responder}, rules=rules(kind))


def test_a_call_that_is_not_trained_is_drawn_as_its_client_asks(stage: Stage) -> None:
    policy = StreamingScriptedPolicy()

    async def program(one: Played) -> None:
        answer = await one.chat("hi", temperature=0.25, response_format={"type": "json_object"})
        assert OVERRIDDEN_HEADER not in answer.headers
        assert policy.samplings[0].temperature == 0.25
        assert dict(policy.samplings[0].altered) == {"structured_outputs": '{"json_object": true}'}

    stage.played(program, policy, rules=rules(TITLES))


def test_the_agents_first_call_takes_the_step_while_a_title_is_still_made(stage: Stage) -> None:
    async def program(one: Played) -> None:
        title = asyncio.create_task(one.chat("title"))
        body: dict[str, Any] = {"tools": [{"type": "function", "function": {"name": "move"}}]}
        own = asyncio.create_task(one.chat("act", **body))
        said(await own)
        said(await title)
        await one.episode.close()

        (step,) = one.end().steps
        assert sorted(call.trained for call in step.calls) == [False, True]
        assert step.observation.text == "act"

    stage.played(program, rules=rules(TITLES), horizon=1)


def test_a_step_that_a_title_opened_is_there_for_the_next_call_if_the_first_one_is_refused(
    stage: Stage,
) -> None:
    tools = [{"type": "function", "function": {"name": "move"}}]

    async def program(one: Played) -> None:
        said(await one.chat("title"))
        long = await one.chat("x" * 2_000, tools=tools)
        assert long.status_code == 400
        said(await one.chat("act", tools=tools))

        assert trained(one.end()) == [[False, True]]
        assert one.episode.limit is None

    stage.played(program, rules=rules(TITLES), horizon=1, max_prompt_tokens=1_000)


def test_an_episode_whose_program_made_only_such_calls_has_one_step(stage: Stage) -> None:
    async def program(one: Played) -> None:
        said(await one.chat("one"))
        said(await one.chat("two"))
        await one.episode.close()

        assert trained(one.end()) == [[False, False]]

    stage.played(program, rules=rules(TITLES), horizon=1)


class FailingInFlight(StreamingScriptedPolicy):
    """Fails its second call, as soon as it may."""

    def __init__(self) -> None:
        super().__init__()
        self.is_asked, self.may_fail = asyncio.Event(), asyncio.Event()

    async def act(self, prompt: Prompt, sampling: Sampling, *, episode_id: str) -> Completion:
        if len(self.prompts) == 1 and not self.is_asked.is_set():
            self.is_asked.set()
            await self.may_fail.wait()
            raise ConnectionError("engine gone")
        return await super().act(prompt, sampling, episode_id=episode_id)


def test_a_call_after_the_agents_first_one_has_a_step_of_its_own_though_a_title_has_none(
    stage: Stage,
) -> None:
    tools = [{"type": "function", "function": {"name": "move"}}]
    policy = FailingInFlight()

    async def program(one: Played) -> None:
        said(await one.chat("title"))
        failed = asyncio.create_task(one.chat("a", tools=tools))
        await policy.is_asked.wait()
        said(await one.chat("b", tools=tools))
        policy.may_fail.set()
        assert (await failed).status_code >= 500
        await one.http.post("/longhaul/step", json={"reward": 1.0})
        said(await one.chat("c", tools=tools))
        await one.http.post("/longhaul/step", json={"reward": 7.0})
        await one.episode.close()

        paid = [(step.observation.text, step.reward) for step in one.end().steps]
        assert paid == [("b", 1.0), ("c", 7.0)]

    stage.played(program, policy, rules=rules(TITLES), horizon=3)


def test_what_is_announced_of_the_agents_next_call_is_not_a_titles(stage: Stage) -> None:
    tools = [{"type": "function", "function": {"name": "move"}}]

    async def program(one: Played) -> None:
        for state in ("kitchen", "cellar"):
            await one.http.post("/longhaul/step", json={"anchor_state": state})
            said(await one.chat("title"))
            said(await one.chat("act", tools=tools))
        await one.episode.close()

        steps = one.end().steps
        assert [step.observation.anchor_state for step in steps] == ["kitchen", "cellar"]

    stage.played(program, rules=rules(TITLES))


def test_an_agent_is_paid_by_the_programs_name_and_by_that_of_its_kind(stage: Stage) -> None:
    kind = CallKind(header="longhaul-agent: helper", agent="sub")

    async def program(one: Played) -> None:
        said(await one.chat("hi", headers={"Longhaul-Agent": "helper"}))
        for agent, reward in (("helper", 1.0), ("sub", 2.0)):
            report = {"reward": reward, "agent": agent}
            assert (await one.http.post("/longhaul/step", json=report)).status_code == 200

        (step,) = one.end().steps
        assert step.reward == 3.0
        assert [call.agent for call in step.calls] == ["sub"]

    stage.played(program, rules=rules(kind))


def test_a_program_that_says_itself_that_its_calls_are_not_trained_pays_its_steps(
    stage: Stage,
) -> None:
    async def program(one: Played) -> None:
        said(await one.chat("one", headers={"Longhaul-Train": "false"}))
        paid = await one.http.post("/longhaul/step", json={"reward": 1.0})

        assert paid.status_code == 200
        assert [step.reward for step in one.end().steps] == [1.0]

    stage.played(program, rules=rules(CallKind(tools=True, train=False)))
