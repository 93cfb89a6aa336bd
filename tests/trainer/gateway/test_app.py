"""Who is let in, and what each route answers, over HTTP."""

import asyncio
import json
from dataclasses import fields

import httpx
import openai
import pytest

from fakes import StreamingScriptedPolicy
from gateways import Played, Stage, client_of, messages, open_episode, plain_client, played, said
from longhaul_core.policy import Completion, Prompt, Sampling
from longhaul_core.types import Continuation
from longhaul_trainer.gateway.episode import CallRules
from longhaul_trainer.gateway.exchange import CreditReport
from longhaul_trainer.gateway.operations import OPERATIONS, Operation
from longhaul_trainer.gateway.settings import GatewaySettings

VALUES = {"attempt": "0", "mode": "train", "model": "auto", "method": "generateContent"}


def filled(path: str, episode: str) -> str:
    return path.format(episode=episode, **VALUES)


def test_no_route_of_an_episode_answers_without_its_key(stage: Stage) -> None:
    async def asked(one: Played, operation: Operation, path: str) -> None:
        id, key = one.episode.access.id, one.episode.access.key

        async def answer(id: str, key: str | None) -> httpx.Response:
            url = one.gateway.address + filled(path, id)
            headers = {} if key is None else {"Authorization": f"Bearer {key}"}
            return await http.request(operation.method, url, json={}, headers=headers)

        async with plain_client("") as http:
            none = await answer(id, None)
            wrong = await answer(id, "lh-guessed")
            unknown = await answer("ep_guessed", key)
            right = await answer(id, key)

        assert (none.status_code, wrong.status_code, unknown.status_code) == (401, 401, 401)
        assert none.content == wrong.content == unknown.content, "nothing tells which is wrong"
        assert right.status_code in {200, 400}, path

    async def program(one: Played) -> None:
        for operation in OPERATIONS:
            for path in operation.paths:
                await asked(one, operation, path)

    stage.played(program)


@pytest.mark.parametrize("header", ["Authorization", "x-api-key", "x-goog-api-key"])
def test_each_vendors_header_carries_the_key(stage: Stage, header: str) -> None:
    async def program(one: Played) -> None:
        key = one.episode.access.key
        async with client_of(one.episode, key="") as http:
            value = f"Bearer {key}" if header == "Authorization" else key
            answer = await http.get("/v1/models", headers={header: value})
        assert answer.status_code == 200

    stage.played(program)


def test_two_agents_that_swap_their_keys_are_refused(stage: Stage) -> None:
    async def program(one: Played) -> None:
        _, other = open_episode(one.gateway)
        async with (
            client_of(one.episode, key=other.access.key) as mine,
            client_of(other, key=one.episode.access.key) as theirs,
        ):
            assert (await mine.get("/v1/models")).status_code == 401
            assert (await theirs.get("/v1/models")).status_code == 401
        assert other.access.key != one.episode.access.key
        assert len(other.access.key) >= 43, "32 bytes that nobody guesses"

    stage.played(program)


def test_a_call_after_the_end_gets_410_with_the_cause_and_a_wrong_key_learns_nothing(
    stage: Stage,
) -> None:
    async def program(one: Played) -> None:
        await one.episode.close(cause="its program exited with code 3")
        late = await one.chat("hi")
        async with client_of(one.episode, key="lh-guessed") as stranger:
            guess = await stranger.get("/v1/models")

        assert late.status_code == 410
        assert "its program exited with code 3" in late.json()["error"]["message"]
        assert guess.status_code == 401

    stage.played(program)


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:80", 200),
        ("localhost", 200),
        ("[::1]:8080", 200),
        ("gateway.cluster", 200),
        ("Gateway.Cluster", 200),
        ("evil.example", 400),
        ("evil.example:80", 400),
        ("[broken", 400),
    ],
)
def test_a_host_that_is_no_name_of_the_gateway_is_refused(host: str, status: int) -> None:
    async def program(one: Played) -> None:
        answer = await one.http.get("/v1/models", headers={"Host": host})
        assert answer.status_code == status

    played(program, settings=GatewaySettings(allowed_hosts=("Gateway.cluster",)))


@pytest.mark.parametrize(
    "path", ["/", "/docs", "/metrics", "/sleep", "/wake_up", "/v1/models", "/reset_prefix_cache"]
)
def test_nothing_else_of_the_run_can_be_reached(stage: Stage, path: str) -> None:
    async def program(one: Played) -> None:
        async with plain_client(one.gateway.address, key=one.episode.access.key) as http:
            for method in ("GET", "POST"):
                answer = await http.request(method, path)
                assert answer.status_code == 404
                assert "/v1/chat/completions" in answer.json()["error"]["message"]
            below = await http.get(f"/e/{one.episode.access.id}{path}")
            assert below.status_code == (200 if path == "/v1/models" else 404)

    stage.played(program)


def test_health_needs_no_key_and_names_no_episode() -> None:
    async def program(one: Played) -> None:
        async with plain_client(one.gateway.address) as http:
            answer = await http.get("/health")
        assert answer.json() == {"status": "ready", "episodes": 1}

    played(program)


def test_a_body_beyond_the_limit_is_refused_before_it_is_read_whole() -> None:
    async def program(one: Played) -> None:
        answer = await one.chat("x" * 2000)
        assert answer.status_code == 413
        assert "1,000 bytes" in answer.json()["error"]["message"]
        assert one.episode.num_calls == 0

    played(program, settings=GatewaySettings(max_body_bytes=1000))


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/longhaul/step", "/longhaul/reward"])
@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'"x"', b"\xff", b"[" * 100_000])
def test_nonsense_is_refused_with_a_reason(stage: Stage, path: str, body: bytes) -> None:
    async def program(one: Played) -> None:
        answer = await one.http.post(path, content=body)
        assert answer.status_code == 400
        assert "the body" in answer.json()["error"]["message"]

    stage.played(program)


# What a program says of its steps


def test_a_program_that_says_nothing_leaves_a_step_for_each_call(stage: Stage) -> None:
    async def program(one: Played) -> None:
        assert said(await one.chat("Who wrote it?")) == "search"
        assert said(await one.chat("Who wrote it?", "search", "Nobody knows.")) == "answer"
        first, second = one.end().steps

        assert (first.observation.text, first.action) == ("Who wrote it?", "search")
        assert (second.observation.text, second.action) == ("Nobody knows.", "answer")
        assert (first.action_valid, second.action_valid) == (True, True)
        assert second.calls[0].sampled is not None
        assert first.calls[0].sampled is not None
        known = (*first.calls[0].sampled.prompt_tokens, *first.calls[0].sampled.action_tokens)
        assert second.calls[0].sampled.prompt_tokens[: len(known)] == known

    stage.played(program, StreamingScriptedPolicy(["search", "answer"]))


def test_rewards_and_states_by_headers_belong_to_the_step_before_and_to_this_one(
    stage: Stage,
) -> None:
    async def program(one: Played) -> None:
        await one.chat("a", headers={"Longhaul-Anchor-State": "hall"})
        await one.chat("b", headers={"Longhaul-Reward": "0.25", "Longhaul-Anchor-State": "cellar"})
        await one.chat("c", longhaul={"reward": 0.5})
        steps = one.end().steps

        assert [step.reward for step in steps] == [0.25, 0.5, 0.0]
        assert [step.observation.anchor for step in steps] == ["hall", "cellar", "c"]

    stage.played(program)


def test_reports_apart_from_calls_pay_the_last_step_and_describe_the_next(stage: Stage) -> None:
    async def program(one: Played) -> None:
        await one.chat("a")
        report = {"reward": 0.5, "anchor_state": "cellar"}
        assert (await one.http.post("/longhaul/step", json=report)).json() == {"num_calls": 1}
        await one.chat("b")
        await one.chat("c")
        steps = one.end().steps

        assert [step.reward for step in steps] == [0.5, 0.0, 0.0]
        assert [step.observation.anchor for step in steps] == ["a", "cellar", "c"]
        assert one.episode.reported.num_step_rewards == 1

    stage.played(program)


def test_a_further_reward_between_two_calls_leaves_the_state_that_was_reported(
    stage: Stage,
) -> None:
    async def program(one: Played) -> None:
        await one.chat("a")
        for report in ({"reward": 1, "anchor_state": "access"}, {"reward": 0.5}):
            await one.http.post("/longhaul/step", json=report)
        await one.chat("b")
        first, second = one.end().steps

        assert first.reward == 1.5
        assert second.observation.anchor_state == "access"

    stage.played(program)


def test_a_report_sent_twice_with_one_idempotency_key_counts_once(stage: Stage) -> None:
    async def program(one: Played) -> None:
        await one.chat("a")
        for _ in range(2):
            key = {"Idempotency-Key": "r1"}
            await one.http.post("/longhaul/step", json={"reward": 0.5}, headers=key)
        assert one.end().steps[0].reward == 0.5

    stage.played(program)


def test_agents_are_paid_for_their_own_last_step(stage: Stage) -> None:
    async def program(one: Played) -> None:
        await one.chat("a", headers={"Longhaul-Agent": "planner"})
        await one.chat("b", headers={"Longhaul-Agent": "worker"})
        await one.chat("c", headers={"Longhaul-Agent": "planner", "Longhaul-Reward": "1"})
        steps = one.end().steps

        assert [step.reward for step in steps] == [1.0, 0.0, 0.0]
        assert [step.calls[0].agent for step in steps] == ["planner", "worker", "planner"]

    stage.played(program)


def test_a_reward_that_came_with_a_call_which_failed_at_first_is_not_taken_back(
    stage: Stage,
) -> None:
    class FailingPolicy(StreamingScriptedPolicy):
        """Fails at its second call."""

        num_calls = 0

        async def act(self, prompt: Prompt, sampling: Sampling, *, episode_id: str) -> Completion:
            self.num_calls += 1
            if self.num_calls == 2:
                raise ConnectionError("engine gone")
            return await super().act(prompt, sampling, episode_id=episode_id)

    async def program(one: Played) -> None:
        planner, paid = {"Longhaul-Agent": "planner"}, {"Longhaul-Reward": "1"}
        await one.chat("a", headers=planner)
        failed = await one.chat("b", headers=paid)
        assert failed.status_code == 502
        again = await one.chat("b", headers={**paid, "x-stainless-retry-count": "1"})
        assert again.status_code == 200
        await one.chat("c", headers={**planner, "Longhaul-Reward": "2"})

        assert [step.reward for step in one.end().steps] == [3.0, 0.0, 0.0]

    stage.played(program, FailingPolicy())


@pytest.mark.parametrize("reward", [float("nan"), float("inf")])
def test_a_reward_that_is_no_number_is_refused(stage: Stage, reward: float) -> None:
    async def program(one: Played) -> None:
        await one.chat("a")
        answer = await one.chat("b", headers={"Longhaul-Reward": str(reward)})
        assert answer.status_code == 400
        assert len(one.end().steps) == 1

    stage.played(program)


def test_a_reward_before_the_first_step_is_refused_unless_it_pays_nothing(stage: Stage) -> None:
    async def program(one: Played) -> None:
        refused = await one.chat("a", headers={"Longhaul-Reward": "1"})
        assert refused.status_code == 400
        assert "no call was answered yet" in refused.json()["error"]["message"]
        assert (await one.chat("a", headers={"Longhaul-Reward": "0"})).status_code == 200

    stage.played(program)


def test_the_episodes_reward_is_the_last_one_posted_and_is_paid_by_nobody_here(
    stage: Stage,
) -> None:
    async def program(one: Played) -> None:
        await one.chat("a")
        await one.http.post("/longhaul/reward", json={"value": 0.25})
        again = await one.http.post("/longhaul/reward", json={"value": 1.0, "success": True})

        assert again.json() == {"value": 1.0, "success": True}
        assert (one.episode.reported.reward, one.episode.reported.success) == (1.0, True)
        assert one.end().steps[0].reward == 0.0

    stage.played(program)


def test_a_reward_is_posted_as_a_program_would_print_it(stage: Stage) -> None:
    async def program(one: Played) -> None:
        await one.chat("a")
        said = await one.http.post("/longhaul/reward", json={"reward": 0.5, "success": False})

        assert said.json() == {"value": 0.5, "success": False}
        twice = await one.http.post("/longhaul/reward", json={"reward": 1.0, "value": 0.25})
        assert twice.status_code == 400
        assert "value is 0.25 and reward, another name of it, is 1" in twice.text
        assert one.episode.reported.reward == 0.5

    stage.played(program)


@pytest.mark.parametrize("stream", [False, True])
def test_a_reply_of_a_response_is_named_by_the_ids_of_its_items(stage: Stage, stream: bool) -> None:
    """As Vercel's AI SDK does, which sends no item twice."""

    async def program(one: Played) -> None:
        before: list[dict[str, object]] = [{"role": "user", "content": "One"}]
        for turn in range(70):  # more than the responses that can be gone on from
            said = await one.http.post(
                "/v1/responses", json={"model": "auto", "input": before, "stream": stream}
            )
            assert said.status_code == 200, said.text
            events = [
                json.loads(line.removeprefix("data: "))
                for line in said.text.splitlines()
                if line.startswith("data: ")
            ]
            response = events[-1]["response"] if stream else said.json()
            (item,) = response["output"]
            before.append({"type": "item_reference", "id": item["id"]})
            before.append({"role": "user", "content": f"Turn {turn}"})
        steps = one.end().steps
        assert {step.calls[0].continuation for step in steps[1:]} == {Continuation.EXACT}
        lost = await one.http.post(
            "/v1/responses",
            json={"model": "auto", "input": [{"type": "item_reference", "id": "msg_none_0"}]},
        )
        assert lost.status_code == 404
        assert "no item of that id" in lost.json()["error"]["message"]

    stage.played(program, horizon=80)


def test_a_program_that_reports_its_end_is_done_and_calls_nothing_more(stage: Stage) -> None:
    async def program(one: Played) -> None:
        await one.chat("a")
        await one.http.post("/longhaul/step", json={"reward": 1, "done": True})
        await asyncio.wait_for(one.episode.wait_done(), timeout=60)
        late = await one.chat("b")

        assert late.status_code == 410
        assert one.episode.reported.done
        assert [step.reward for step in one.end().steps] == [1.0]

    stage.played(program)


def test_a_last_call_may_say_that_it_is_the_last(stage: Stage) -> None:
    async def program(one: Played) -> None:
        async def closed() -> None:
            await one.episode.wait_done()
            await one.episode.close()  # while the last reply is on its way

        closing = asyncio.create_task(closed())
        assert (await one.chat("a", headers={"Longhaul-Done": "true"})).status_code == 200
        await asyncio.wait_for(closing, timeout=60)

    stage.played(program)


def test_a_program_asks_for_its_task(stage: Stage) -> None:
    async def program(one: Played) -> None:
        assert (await one.http.get("/longhaul/task")).json() == {"question": "Who wrote it?"}

    stage.played(program)


# agent-lightning's addresses


def test_a_program_of_agent_lightning_runs_with_other_addresses_alone(stage: Stage) -> None:
    async def program(one: Played) -> None:
        environ = one.episode.environ()
        async with plain_client("", key=environ["AGL_KEY"]) as http:
            body = {"model": "auto", "messages": messages("hi")}
            url = f"{environ['AGL_OPENAI_BASE_URL']}/chat/completions"
            answer = await http.post(url, json=body)
            event = {"event_type": "reward", "data": {"value": 0.75, "source": "agent"}}
            posted = await http.post(environ["AGL_EVENT_URL"], json=event)
            other = await http.post(environ["AGL_EVENT_URL"], json={"event_type": "note"})
            older = f"{one.gateway.address}/rollout/{one.episode.access.id}/attempt/at-1/v1"
            second = await http.post(f"{older}/chat/completions", json=body)

        assert said(answer) == "go"
        assert said(second) == "go"
        assert posted.json()["rollout_id"] == one.episode.access.id
        assert posted.json()["attempt_id"] == "0"
        assert posted.json()["data"] == event["data"]
        assert other.status_code == 200
        assert one.episode.reported.reward == 0.75

    stage.played(program)


def test_a_completion_at_agent_lightnings_address_has_its_tokens_whatever_model_it_asks_for(
    stage: Stage,
) -> None:
    async def program(one: Played) -> None:
        environ = one.episode.environ()
        prompt = list(b"hi")
        address, key = environ["AGL_OPENAI_BASE_URL"], environ["AGL_KEY"]
        async with openai.AsyncOpenAI(base_url=address, api_key=key, max_retries=0) as client:
            asked = await client.completions.create(model="Qwen/Qwen2.5", prompt=prompt)
        ours = await one.http.post("/v1/completions", json={"model": "auto", "prompt": prompt})
        (call, _) = [call for step in one.end().steps for call in step.calls]

        extra = asked.choices[0].model_extra
        assert call.sampled is not None
        assert extra is not None
        assert extra["token_ids"] == list(call.sampled.action_tokens)
        assert extra["prompt_token_ids"] == prompt
        assert "token_ids" not in ours.json()["choices"][0]

    stage.played(program)


def test_the_mode_in_agent_lightnings_address_is_the_phases(stage: Stage) -> None:
    async def program(one: Played) -> None:
        assert "/mode/val/" in one.episode.environ()["AGL_OPENAI_BASE_URL"]

    stage.played(program, rules=CallRules(trains=False))


def test_the_document_describes_our_routes_and_names_where_the_vendors_are(stage: Stage) -> None:
    async def program(one: Played) -> None:
        async with plain_client(one.gateway.address) as http:
            document = (await http.get("/openapi.json")).json()
        assert {path.removeprefix("/e/{episode}") for path in document["paths"]} == {
            "/longhaul/step",
            "/longhaul/reward",
            "/longhaul/task",
        }
        assert "OpenAI" in document["info"]["description"]
        report = document["components"]["schemas"]["CreditReport"]
        assert set(report["properties"]) == {one.name for one in fields(CreditReport)}

    stage.played(program)
