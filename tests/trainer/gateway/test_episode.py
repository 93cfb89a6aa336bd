"""What an episode of the gateway answers and records, over HTTP and with the vendors' clients."""

import asyncio
import base64
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace

import anthropic
import httpx2
import openai
import pytest
from openai.types.chat import ChatCompletionUserMessageParam

from fakes import ByteChatRenderer, ByteReplyReader, HangingPolicy, StreamingScriptedPolicy
from gateways import (
    Played,
    Stage,
    TextChatRenderer,
    client_of,
    messages,
    open_episode,
    responder_of,
    said,
)
from longhaul_core.errors import HorizonReached, PolicyFailure, TokensSpent
from longhaul_core.policy import Completion, Prompt
from longhaul_core.rollout import EpisodeSession, Responder
from longhaul_core.rollout.conversations import ChatPrompt
from longhaul_core.types import Call, Continuation, Message, Sampling, Tool, Trajectory
from longhaul_trainer.gateway.app import OVERRIDDEN_HEADER
from longhaul_trainer.gateway.episode import CallRules
from longhaul_trainer.gateway.exchange import (
    ApiError,
    ChatReply,
    ChatRequest,
    Choice,
    CreditReport,
    Delta,
    Usage,
)
from longhaul_trainer.gateway.upstream import UpstreamAnswer
from running_servers import Cable

PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n and what it shows").decode()


def user(text: str) -> list[ChatCompletionUserMessageParam]:
    return [{"role": "user", "content": text}]


def calls_of(record: Trajectory) -> list[Call]:
    return [call for step in record.steps for call in step.calls]


def openai_client(
    one: Played, *, max_retries: int = 0, transport: httpx2.AsyncBaseTransport | None = None
) -> openai.AsyncOpenAI:
    environ = one.episode.environ()
    return openai.AsyncOpenAI(
        base_url=environ["OPENAI_BASE_URL"],
        api_key=environ["OPENAI_API_KEY"],
        max_retries=max_retries,
        timeout=120.0,
        http_client=openai.DefaultAsyncHttpxClient(transport=transport) if transport else None,
    )


class Impatient(httpx2.AsyncHTTPTransport):
    """Gives the request up that is on its way when it is told to, as it would after some time."""

    def __init__(self) -> None:
        super().__init__(verify=False)
        self.enough = asyncio.Event()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        asked = asyncio.ensure_future(super().handle_async_request(request))
        enough = asyncio.ensure_future(self.enough.wait())
        await asyncio.wait({asked, enough}, return_when=asyncio.FIRST_COMPLETED)
        enough.cancel()
        if asked.done():
            return asked.result()
        self.enough.clear()
        asked.cancel()
        await asyncio.wait({asked})
        raise httpx2.ReadTimeout("it was told to give up", request=request)


class Judge:
    """An upstream that says `good`, and charges for it."""

    def __init__(self) -> None:
        self.requests: list[ChatRequest] = []

    async def answer(
        self, request: ChatRequest, *, on_delta: Callable[[Delta], None] | None
    ) -> UpstreamAnswer:
        self.requests.append(request)
        if request.messages[-1].text == "fail":
            raise ApiError("upstream", "the judge's server is down")
        usage = Usage(prompt_tokens=3, reply_tokens=1)
        reply = ChatReply(
            id="theirs", created=0, model="gpt", choices=(Choice(text="good"),), usage=usage
        )
        return UpstreamAnswer(reply=reply, cost_usd=0.25)


class ReadingRenderer(TextChatRenderer):
    """Notes which tools a reply is read with, for its program and to go on from it."""

    def __init__(self) -> None:
        super().__init__()
        self.read: list[list[str]] = []
        self.went_on: list[list[str]] = []

    def reader(
        self, *, tools: Sequence[Tool] = (), salt: str = "", after_result: bool = False
    ) -> ByteReplyReader:
        self.read.append([tool.name for tool in tools])
        return super().reader(tools=tools, salt=salt, after_result=after_result)

    def added(
        self, call: Call, messages: Sequence[Message], *, tools: Sequence[Tool] = ()
    ) -> tuple[int, ...] | None:
        self.went_on.append([tool.name for tool in tools])
        return super().added(call, messages, tools=tools)


class LetPolicy(StreamingScriptedPolicy):
    """Writes its first token, and the rest when it is let."""

    def __init__(self, reply: str = "go") -> None:
        super().__init__([reply])
        self.let = asyncio.Event()
        self.begun = asyncio.Semaphore(0)

    async def act(self, prompt: Prompt, sampling: Sampling, *, episode_id: str) -> Completion:
        return await self.stream(
            prompt, sampling, episode_id=episode_id, on_tokens=lambda tokens: None
        )

    async def stream(
        self,
        prompt: Prompt,
        sampling: Sampling,
        *,
        episode_id: str,
        on_tokens: Callable[[Sequence[int]], None],
    ) -> Completion:
        completion = await super().act(prompt, sampling, episode_id=episode_id)
        on_tokens(completion.action_tokens[:1])
        self.begun.release()
        try:
            await self.let.wait()
        except asyncio.CancelledError:
            self.num_cancelled += 1
            raise
        on_tokens(completion.action_tokens[1:])
        return completion


class OnceFailingPolicy(StreamingScriptedPolicy):
    """Fails at its first call."""

    def __init__(self) -> None:
        super().__init__()
        self._has_failed = False

    async def act(self, prompt: Prompt, sampling: Sampling, *, episode_id: str) -> Completion:
        if not self._has_failed:
            self._has_failed = True
            raise ConnectionError("engine gone")
        return await super().act(prompt, sampling, episode_id=episode_id)


class Lossy(Cable):
    """A way to the gateway on which the first answers break off before they arrive."""

    def __init__(self, url: str, *, num_lost: int) -> None:
        super().__init__(url)
        self._num_lost = num_lost

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, back: bool = False
    ) -> None:
        if back and self._num_lost:
            await reader.read(1)  # the answer is on its way
            self._num_lost -= 1
            writer.transport.abort()
            return
        await super()._pump(reader, writer, back=back)


# Several models


def test_a_model_is_the_policy_by_its_name_and_auto_and_an_unknown_one_names_what_there_is(
    stage: Stage,
) -> None:
    policy = responder_of()

    async def program(one: Played) -> None:
        for name in ("auto", "tiny", "gpt-4o"):
            assert (await one.chat("hi", model=name)).json()["model"] == name
        unknown = await one.chat("hi", model="o9")

        assert unknown.status_code == 404
        assert "'auto', 'tiny', 'gpt-4o'" in unknown.json()["error"]["message"]
        assert [call.model for call in calls_of(one.end())] == ["", "", ""]
        assert all(call.trained for call in calls_of(one.end()))

    stage.played(program, models={"tiny": policy, "gpt-4o": policy})


def test_frozen_weights_answer_untrained_under_their_name_and_as_their_caller_draws(
    stage: Stage,
) -> None:
    frozen = StreamingScriptedPolicy(["better"])

    async def program(one: Played) -> None:
        await one.chat("act")
        assert said(await one.chat("which?", model="reference", temperature=0)) == "better"
        (step,) = one.end().steps
        own, other = step.calls

        assert (own.model, own.trained) == ("", True)
        assert (other.model, other.trained) == ("reference", False)
        assert frozen.samplings[0].temperature == 0

    stage.played(program, models={"policy": responder_of(), "reference": responder_of(frozen)})


def test_an_upstreams_call_is_recorded_in_the_step_with_its_cost_and_without_tokens(
    stage: Stage,
) -> None:
    judge = Judge()

    async def program(one: Played) -> None:
        await one.chat("act")
        verdict = await one.chat("good?", model="judge", temperature=0.5, top_k=3)
        (step,) = one.end().steps
        own, other = step.calls

        assert said(verdict) == "good"
        assert verdict.json()["model"] == "judge"
        assert verdict.json()["usage"]["prompt_tokens"] == 3
        assert (other.model, other.reply, other.trained) == ("judge", "good", False)
        assert (other.sampled, other.cost_usd) == (None, 0.25)
        assert own.trained
        assert judge.requests[0].altered == {"top_k": 3}
        assert judge.requests[0].temperature == 0.5

    stage.played(program, models={"policy": responder_of(), "judge": judge})


def test_an_upstream_that_fails_leaves_nothing_and_a_failure_of_its_own(stage: Stage) -> None:
    async def program(one: Played) -> None:
        failed = await one.chat("fail", model="judge")
        await one.chat("act")

        assert failed.status_code == 502
        assert one.episode.failure is None, "the policy has no part in it"
        assert len(calls_of(one.end())) == 1
        assert one.episode.num_calls == 1

    stage.played(program, models={"policy": responder_of(), "judge": Judge()}, horizon=1)


def test_an_upstream_may_be_the_policy_and_then_its_calls_are_steps(stage: Stage) -> None:
    async def program(one: Played) -> None:
        await one.chat("a")
        await one.chat("b")
        assert [step.action for step in one.end().steps] == ["good", "good"]

    stage.played(program, models={"hosted": Judge()}, rules=CallRules(trains=False))


def test_a_call_that_is_not_the_agents_own_belongs_to_its_step_and_is_not_trained(
    stage: Stage,
) -> None:
    async def program(one: Played) -> None:
        await one.chat("act")
        await one.chat("sum up", longhaul={"train": False, "purpose": "title"})
        (step,) = one.end().steps

        assert [call.trained for call in step.calls] == [True, False]
        assert step.calls[1].purpose == "title"

    stage.played(program)


# Sampling


@pytest.mark.parametrize("stream", [False, True])
def test_the_runs_temperature_is_in_force_and_the_reply_says_so(stage: Stage, stream: bool) -> None:
    policy = StreamingScriptedPolicy()

    async def program(one: Played) -> None:
        answer = await one.chat("hi", temperature=0.25, top_p=0.5, stream=stream)
        same = await one.chat("ho", temperature=1, stream=stream)

        assert answer.headers[OVERRIDDEN_HEADER] == "temperature=1, top_p=1"
        assert OVERRIDDEN_HEADER not in same.headers
        assert (policy.samplings[0].temperature, policy.samplings[0].top_p) == (1.0, 1.0)
        assert calls_of(one.end())[0].sampling is None, "it was drawn as the run says"

    stage.played(program, policy)


def test_a_longest_reply_beyond_the_runs_is_the_runs_and_the_reply_says_so(stage: Stage) -> None:
    policy = StreamingScriptedPolicy()

    async def program(one: Played) -> None:
        longer = await one.chat("hi", max_tokens=100_000)
        shorter = await one.chat("ho", max_tokens=1)

        longest = policy.samplings[0].max_tokens
        assert longer.headers[OVERRIDDEN_HEADER] == f"max_tokens={longest}"
        assert OVERRIDDEN_HEADER not in shorter.headers
        assert longest < 100_000

    stage.played(program, policy)


def test_a_tool_that_is_demanded_is_offered_and_the_reply_says_so(stage: Stage) -> None:
    tool = {"type": "function", "function": {"name": "move", "parameters": {"type": "object"}}}
    policy = StreamingScriptedPolicy()

    async def program(one: Played) -> None:
        demands = {"tool_choice": "required", "parallel_tool_calls": False}
        answer = await one.chat("hi", headers=None, tools=[tool], **demands)

        assert answer.status_code == 200, answer.text
        said = set(answer.headers[OVERRIDDEN_HEADER].split(", "))
        assert said == {"parallel_tool_calls=true", "tool_choice=auto"}
        assert policy.samplings[0].altered == ()
        (call,) = calls_of(one.end())
        assert (call.trained, call.sampling, len(call.tools)) == (True, None, 1)
        assert set(call.overridden) == {"parallel_tool_calls", "tool_choice"}

    stage.played(program, policy)


def test_what_nobody_serves_is_left_out_and_the_answer_says_so(stage: Stage) -> None:
    async def program(one: Played) -> None:
        metadata, tools = {"a": "b"}, [{"type": "web_search"}]
        whole = await one.chat("hi", client_metadata=metadata, tools=tools)
        streamed = await one.chat("hi", client_metadata=metadata, tools=tools, stream=True)

        for answer in (whole, streamed):
            assert answer.status_code == 200, answer.text
            assert answer.headers[OVERRIDDEN_HEADER] == "client_metadata=off, tools.web_search=off"
        assert [call.tools for call in calls_of(one.end())] == [(), ()]

    stage.played(program)


def test_a_pattern_is_a_name_of_the_policy(stage: Stage) -> None:
    async def program(one: Played) -> None:
        named = await one.chat("hi", model="claude-sonnet-9")
        other = await one.chat("hi", model="gpt-9")
        listed = await one.http.get("/v1/models/claude-opus-7")

        assert (named.status_code, other.status_code, listed.status_code) == (200, 404, 200)
        assert named.json()["model"] == "claude-sonnet-9"
        (call,) = calls_of(one.end())
        assert (call.model, call.trained) == ("", True)

    policy = responder_of()
    stage.played(program, models={"tiny": policy, "claude-*": policy})


def test_a_run_may_let_its_programs_choose_and_what_was_in_force_is_recorded(stage: Stage) -> None:
    async def program(one: Played) -> None:
        answer = await one.chat("hi", temperature=0.25)
        drawn = calls_of(one.end())[0].sampling

        assert OVERRIDDEN_HEADER not in answer.headers
        assert drawn is not None
        assert (drawn.temperature, drawn.top_p) == (0.25, 1.0)

    stage.played(program, rules=CallRules(trains=True, allows_sampling=True))


def test_the_shorter_of_two_longest_replies_counts(stage: Stage) -> None:
    policy = StreamingScriptedPolicy()

    async def program(one: Played) -> None:
        for longest in (5, 10_000):
            await one.chat("hi", max_tokens=longest)
        await one.chat("hi")
        assert [drawn.max_tokens for drawn in policy.samplings] == [5, 64, 64]

    stage.played(program, policy)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("top_k", 5),
        ("frequency_penalty", 0.5),
        ("logit_bias", {"5": 1.0}),
        ("response_format", {"type": "json_object"}),
    ],
)
@pytest.mark.parametrize("trains", [True, False])
def test_what_makes_logprobs_wrong_is_left_out_and_the_answer_says_so(
    stage: Stage, field: str, value: object, trains: bool
) -> None:
    policy = StreamingScriptedPolicy()

    async def program(one: Played) -> None:
        answer = await one.chat("hi", headers=None, **{field: value})
        judged = {"longhaul": {"train": False}, field: value}
        judge = await one.chat("hi", headers=None, **judged)

        assert answer.status_code == 200, answer.text
        name = "structured_outputs" if field == "response_format" else field
        assert answer.headers[OVERRIDDEN_HEADER] == f"{name}=off"
        assert OVERRIDDEN_HEADER not in judge.headers
        own, of_judge = policy.samplings
        assert own.altered == ()
        assert [name for name, _ in of_judge.altered] == [name]
        assert calls_of(one.end())[0].sampling is None

    stage.played(program, policy, rules=CallRules(trains=trains))


@pytest.mark.parametrize(
    ("field", "value"), [("top_k", 5), ("response_format", {"type": "json_object"})]
)
def test_what_makes_logprobs_wrong_is_refused_in_training_where_the_run_says_so(
    stage: Stage, field: str, value: object
) -> None:
    async def program(one: Played) -> None:
        refused = await one.chat("hi", headers=None, **{field: value})
        judged = {"longhaul": {"train": False}, field: value}
        untrained = await one.chat("hi", headers=None, **judged)

        assert refused.status_code == 400
        assert 'agent.altered = "ignore"' in refused.json()["error"]["message"]
        assert untrained.status_code == 200

    stage.played(program, rules=CallRules(trains=True, altered="refuse"))


@pytest.mark.parametrize("trains", [True, False])
def test_a_model_of_text_refuses_pictures(stage: Stage, trains: bool) -> None:
    picture = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}}
    content = [{"type": "text", "text": "What is it?"}, picture]

    async def program(one: Played) -> None:
        body = {"model": "auto", "messages": [{"role": "user", "content": content}]}
        refused = await one.http.post("/v1/chat/completions", json=body)
        said(await one.chat("It is a cat."))

        assert refused.status_code == 400
        assert "pictures (1), and model 'policy' reads text alone" in refused.text
        (call,) = calls_of(one.end())
        assert call.messages[-1].text == "It is a cat."

    stage.played(program, rules=CallRules(trains=trains))


@pytest.mark.parametrize(
    "rules", [CallRules(trains=True, altered="allow"), CallRules(trains=False, altered="refuse")]
)
def test_what_makes_logprobs_wrong_is_recorded_where_it_is_allowed(
    stage: Stage, rules: CallRules
) -> None:
    async def program(one: Played) -> None:
        assert (await one.chat("hi", top_k=5, min_p=0.5)).status_code == 200
        drawn = calls_of(one.end())[0].sampling
        assert drawn is not None
        assert drawn.altered == (("min_p", "0.5"), ("top_k", "5"))

    stage.played(program, rules=rules)


def test_two_replies_of_the_same_words_ask_for_tools_by_ids_of_their_own(stage: Stage) -> None:
    tool = {"type": "function", "function": {"name": "move", "parameters": {"type": "object"}}}
    asks = '<call>{"name": "move", "arguments": {}}</call>'

    async def program(one: Played) -> list[str]:
        first, second = [
            (await one.chat("Where to?", tools=[tool], n=2)).json()["choices"] for _ in range(2)
        ]
        return [choice["message"]["tool_calls"][0]["id"] for choice in (*first, *second)]

    ids = stage.played(program, StreamingScriptedPolicy([asks] * 4))

    assert len(set(ids)) == 4


def test_several_choices_are_calls_of_one_step_with_tokens_of_their_own(stage: Stage) -> None:
    policy = StreamingScriptedPolicy(["one", "two", "three"])

    async def program(one: Played) -> None:
        answer = await one.chat("hi", n=3, logprobs=True)
        (step,) = one.end().steps
        choices = answer.json()["choices"]

        assert [choice["message"]["content"] for choice in choices] == ["one", "two", "three"]
        assert [call.reply for call in step.calls] == ["one", "two", "three"]
        assert len({drawn.seed for drawn in policy.samplings}) == 3
        assert step.action == "one"
        tokens = choices[1]["logprobs"]["content"]
        assert [(one["token"], one["bytes"]) for one in tokens] == [
            ("t", [116]), ("w", [119]), ("o", [111])
        ]  # fmt: skip
        assert tokens[0]["logprob"] == -0.5
        assert answer.json()["usage"]["completion_tokens"] == 3 + 3 + 5

    stage.played(program, policy)


@pytest.mark.parametrize("stream", [False, True])
def test_a_stop_word_ends_the_text_wherever_tokens_were_cut(stage: Stage, stream: bool) -> None:
    async def program(one: Played) -> None:
        async with openai_client(one) as client:
            if not stream:
                whole = await client.chat.completions.create(
                    model="auto", messages=user("hi"), stop=["\nObs"]
                )
                assert whole.choices[0].message.content == "act: look\nOb: "
                return
            events = await client.chat.completions.create(
                model="auto", messages=user("hi"), stop=["\nObs"], stream=True
            )
            written = [event.choices[0].delta.content or "" async for event in events]
            assert "".join(written) == "act: look\nOb: "
            assert len(written) > 5, "token by token"

    stage.played(program, StreamingScriptedPolicy(["act: look\nOb: \nObserved"]))


@pytest.mark.parametrize("stream", [False, True])
def test_a_turn_after_a_stop_word_goes_on_from_the_reply_as_it_was_sampled(
    stage: Stage, stream: bool
) -> None:
    async def program(one: Played) -> None:
        written = await one.chat("hi", stop=["Obs"], stream=stream)
        assert written.status_code == 200
        await one.chat("hi", "act: look ", "a access", stop=["Obs"])

        first, second = calls_of(one.end())
        assert first.sampled is not None
        assert second.sampled is not None
        known = (*first.sampled.prompt_tokens, *first.sampled.action_tokens)
        assert second.sampled.prompt_tokens[: len(known)] == known
        assert (second.conversation, second.messages[-1].text) == (0, "a access")
        assert one.end().steps[1].observation.text == "a access"

    stage.played(program, StreamingScriptedPolicy(["act: look Observed"]))


# Raw prompts


def test_a_prompt_of_tokens_is_read_as_it_is(stage: Stage) -> None:
    class Replacing(ByteChatRenderer):
        def decode(self, tokens: Sequence[int]) -> str:
            return bytes(tokens).decode(errors="replace")

    policy = StreamingScriptedPolicy(["über"])
    reader = Responder(policy=policy, renderer=Replacing())

    async def program(one: Played) -> None:
        async with openai_client(one) as client:
            events = await client.completions.create(
                model="auto", prompt=list(b"ab"), stream=True, logprobs=0
            )
            written = [event.choices[0].text async for event in events]
        (step,) = one.end().steps

        assert "".join(written) == "über"
        assert written[0] == "ü", "a character waits for its bytes"
        assert policy.prompts[0].tokens == (97, 98)
        assert step.observation.text == "ab"

    stage.played(program, models={"policy": reader})


def test_a_long_prompt_of_text_is_made_into_tokens_beside_the_event_loop(stage: Stage) -> None:
    threads: list[int] = []

    class Watched(TextChatRenderer):
        def tokenize(self, text: str) -> tuple[int, ...]:
            threads.append(threading.get_ident())
            return super().tokenize(text)

    async def program(one: Played) -> None:
        for length in (10, 50_000):
            body = {"model": "auto", "prompt": "x" * length}
            assert (await one.http.post("/v1/completions", json=body)).status_code == 200
        assert threads[0] == threading.get_ident() != threads[1]

    policy = Responder(policy=StreamingScriptedPolicy(), renderer=Watched(), max_reply_tokens=64)
    stage.played(program, models={"policy": policy})


def test_a_reply_that_is_kept_for_a_retry_has_its_prompts_tokens_only_if_they_were_asked_for(
    stage: Stage,
) -> None:
    async def program(one: Played) -> None:
        request = ChatRequest(model="auto", messages=(Message(role="user", content="hi"),))
        without = await one.episode.answer(request, None)
        having = await one.episode.answer(replace(request, returns_token_ids=True), None)

        assert without.prompt_tokens == ()
        assert len(having.prompt_tokens) == without.usage.prompt_tokens > 0

    stage.played(program)


def test_a_prompt_of_text_needs_a_renderer_that_reads_it(stage: Stage) -> None:
    async def program(one: Played) -> None:
        body = {"model": "auto", "prompt": "ab"}
        read = await one.http.post("/v1/completions", json=body)
        refused = await one.http.post("/v1/completions", json={**body, "model": "other"})

        assert read.json()["usage"]["prompt_tokens"] == 2
        assert refused.status_code == 400
        assert "token ids" in refused.json()["error"]["message"]

    other = Responder(policy=StreamingScriptedPolicy(), renderer=ByteChatRenderer())
    stage.played(program, models={"policy": responder_of(), "other": other})


def test_tokens_of_a_prompt_are_counted_without_a_call(stage: Stage) -> None:
    async def program(one: Played) -> None:
        environ = one.episode.environ()
        async with anthropic.AsyncAnthropic(
            base_url=environ["ANTHROPIC_BASE_URL"], api_key=environ["ANTHROPIC_API_KEY"]
        ) as client:
            counted = await client.messages.count_tokens(
                model="auto", messages=[{"role": "user", "content": "hi"}]
            )
        assert counted.input_tokens == len("\x02user: hi\x03\x02assistant: ")
        assert one.episode.num_calls == 0

    stage.played(program)


# Limits


def test_one_call_more_than_allowed_is_a_400_and_truncates(stage: Stage) -> None:
    async def program(one: Played) -> None:
        await one.chat("a")
        await one.chat("b")
        assert one.episode.limit is None
        async with openai_client(one, max_retries=3) as client:
            with pytest.raises(openai.BadRequestError, match=r"2 calls \(max_calls\)"):
                await client.chat.completions.create(
                    model="auto", messages=user("c"), extra_headers={"Longhaul-Reward": "1"}
                )
        assert isinstance(one.episode.limit, HorizonReached)
        await asyncio.wait_for(one.episode.wait_done(), timeout=60)
        assert one.episode.failure is None
        assert one.episode.num_calls == 2
        assert [step.reward for step in one.end().steps] == [0.0, 1.0], "reported with the refused"

    stage.played(program, rules=CallRules(trains=True, max_calls=2))


def test_one_step_more_than_the_horizon_is_a_400_and_truncates(stage: Stage) -> None:
    async def program(one: Played) -> None:
        await one.chat("a")
        refused = await one.chat("b")
        assert refused.status_code == 400
        error = refused.json()["error"]
        assert "1 steps" in error["message"]
        assert error["code"] == "episode_limit_reached", "a shorter history would not help"
        assert isinstance(one.episode.limit, HorizonReached)

    stage.played(program, horizon=1)


def test_a_prompt_that_is_too_long_truncates_unless_the_program_shortens_it(stage: Stage) -> None:
    async def program(one: Played) -> None:
        refused = await one.chat("x" * 200)
        assert refused.status_code == 400
        assert refused.json()["error"]["code"] == "context_length_exceeded"
        assert "send a shorter one, or the episode ends" in refused.json()["error"]["message"]
        assert isinstance(one.episode.limit, TokensSpent)
        body = {"model": "auto", "max_tokens": 9, "messages": messages("x" * 200)}
        other = await one.http.post("/v1/messages", json=body)
        assert other.json()["error"]["message"].startswith("prompt is too long: ")

        assert (await one.chat("short")).status_code == 200
        assert one.episode.limit is None

    stage.played(program, max_prompt_tokens=100)


def test_more_messages_than_tokens_are_refused_before_they_are_looked_through(stage: Stage) -> None:
    async def program(one: Played) -> None:
        refused = await one.chat(*(["x"] * 101))
        assert refused.status_code == 400
        assert refused.json()["error"]["code"] == "context_length_exceeded"
        assert "prompt of 101 messages, " in refused.json()["error"]["message"]
        assert isinstance(one.episode.limit, TokensSpent)

        assert (await one.chat("short")).status_code == 200
        assert len(one.end().steps) == 1

    stage.played(program, max_prompt_tokens=100)


def test_messages_that_are_too_long_to_be_kept_are_a_limit_as_well(stage: Stage) -> None:
    async def program(one: Played) -> None:
        refused = await one.chat("x" * 51)
        assert refused.status_code == 400
        assert refused.json()["error"]["code"] == "context_length_exceeded"
        assert "51 characters" in refused.json()["error"]["message"]
        assert isinstance(one.episode.limit, TokensSpent)

        assert (await one.chat("x" * 50)).status_code == 200
        assert one.episode.limit is None
        assert len(one.end().steps) == 1

    stage.played(program, max_observation_characters=50)


def test_a_token_that_the_model_does_not_have_is_a_400(stage: Stage) -> None:
    class Bytes(TextChatRenderer):
        @property
        def vocabulary_size(self) -> int:
            return 256

    async def program(one: Played) -> None:
        answers = [
            await one.http.post("/v1/completions", json={"model": "auto", "prompt": [65, token]})
            for token in (90, 256)
        ]
        assert [answer.status_code for answer in answers] == [200, 400]
        error = answers[1].json()["error"]
        assert (error["param"], "[0, 255]" in error["message"]) == ("prompt", True)
        assert one.episode.failure is None

    stage.played(program, models={"policy": replace(responder_of(), renderer=Bytes())})


def test_the_start_weights_are_asked_for_in_vain_unless_a_server_has_them(stage: Stage) -> None:
    async def program(one: Played) -> None:
        refused = await one.http.post(
            "/v1/chat/completions", json={"model": "reference", "messages": messages("a")}
        )
        assert refused.status_code == 404
        assert "[agent.upstreams.reference]" in refused.json()["error"]["message"]

    stage.played(program)


def test_a_further_name_of_the_policy_is_the_policy(stage: Stage) -> None:
    async def program(one: Played) -> None:
        for name in ("auto", "policy", "gpt-4o-mini"):
            await one.chat(name, model=name)
        calls = [call for step in one.end().steps for call in step.calls]
        assert [(call.model, call.trained) for call in calls] == [("", True)] * 3

    policy = responder_of()
    stage.played(program, models={"policy": policy, "gpt-4o-mini": policy})


def test_a_limit_that_later_calls_meet_stays_when_earlier_ones_are_answered(stage: Stage) -> None:
    async def program(one: Played) -> None:
        policy.let, policy.begun = asyncio.Event(), asyncio.Semaphore(0)
        earlier = asyncio.create_task(one.chat("a"))
        await policy.begun.acquire()
        assert (await one.chat("x" * 200)).status_code == 400
        policy.let.set()
        assert (await earlier).status_code == 200
        assert isinstance(one.episode.limit, TokensSpent)
        assert (await one.chat("b")).status_code == 200
        assert one.episode.limit is None

    policy = LetPolicy()
    stage.played(program, policy, max_prompt_tokens=100)


def test_an_episode_is_over_when_the_calls_within_its_limit_are_answered(stage: Stage) -> None:
    async def program(one: Played) -> None:
        policy.let, policy.begun = asyncio.Event(), asyncio.Semaphore(0)
        asked = [asyncio.create_task(one.chat(text)) for text in "ab"]
        for _ in asked:
            await policy.begun.acquire()
        refused = await one.chat("c")
        assert refused.status_code == 400
        over = asyncio.create_task(one.episode.wait_done())
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.shield(over), 0.05)
        policy.let.set()
        await over
        assert [(await answer).status_code for answer in asked] == [200, 200]
        assert isinstance(one.episode.limit, HorizonReached)

    policy = LetPolicy()
    stage.played(program, policy, horizon=2)


def test_what_is_reported_with_a_refused_call_counts_once_when_it_is_sent_again_shorter(
    stage: Stage,
) -> None:
    async def program(one: Played) -> None:
        await one.chat("a")
        await one.http.post("/longhaul/step", json={"anchor_state": "access"})
        assert (await one.chat("x" * 200, longhaul={"reward": 0.1})).status_code == 400
        assert (await one.chat("short", longhaul={"reward": 0.1})).status_code == 200
        assert (await one.chat("y" * 200, longhaul={"reward": 0.7})).status_code == 400
        await one.episode.close()
        first, second = one.end().steps

        assert first.reward == 0.1
        assert second.observation.anchor_state == "access"
        assert second.reward == 0.7, "a refused call's, where nothing was sent again"
        assert one.episode.reported.num_step_rewards == 2

    stage.played(program, max_prompt_tokens=100)


def test_what_a_function_reports_after_the_end_changes_nothing(stage: Stage) -> None:
    """One that was left behind goes on while a grader works."""

    async def program(one: Played) -> None:
        await one.chat("a")
        one.episode.report(CreditReport(reward=0.5))
        one.episode.report_reward(1.0)
        await one.episode.close()
        with pytest.raises(ApiError, match="the episode is over: it has ended"):
            one.episode.report(CreditReport(reward=5.0))
        with pytest.raises(ApiError, match="the episode is over: it has ended"):
            one.episode.report_reward(7.0)

        (step,) = one.end().steps
        assert step.reward == 0.5
        assert one.episode.reported.reward == 1.0

    stage.played(program)


def test_a_reward_of_a_refused_call_counts_once_while_its_prompt_is_being_kept(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def program(one: Played) -> None:
        begun, let = asyncio.Event(), asyncio.Event()

        async def slow(*_: object, **__: object) -> None:
            begun.set()
            await let.wait()

        monkeypatch.setattr(EpisodeSession, "keep_final_prompt", slow)
        await one.chat("a")
        await one.http.post("/longhaul/step", json={"anchor_state": "access"})
        refused = asyncio.create_task(one.chat("x" * 200, longhaul={"reward": 0.1}))
        await asyncio.wait_for(begun.wait(), 60)
        assert (await one.chat("short", longhaul={"reward": 0.1})).status_code == 200
        let.set()
        assert (await refused).status_code == 400
        await one.episode.close()
        first, second = one.end().steps

        assert first.reward == 0.1
        assert second.observation.anchor_state == "access"

    rules = CallRules(trains=True, keeps_final_prompt=True)
    stage.played(program, rules=rules, max_prompt_tokens=100)


def test_a_prompt_is_kept_only_of_the_call_that_a_limit_refused(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def program(one: Played) -> None:
        kept: list[str] = []

        async def keep(_: EpisodeSession, prompt: ChatPrompt, **__: object) -> None:
            kept.append(prompt.messages[-1].text)

        monkeypatch.setattr(EpisodeSession, "keep_final_prompt", keep)
        policy.let, policy.begun = asyncio.Event(), asyncio.Semaphore(0)
        fails = asyncio.create_task(one.chat("fails"))
        await policy.begun.acquire()
        assert (await one.chat("x" * 200)).status_code == 400
        await one.episode.close()
        await fails

        assert kept == ["x" * 200]

    policy = LetPolicy()
    rules = CallRules(trains=True, keeps_final_prompt=True)
    stage.played(program, policy, rules=rules, max_prompt_tokens=100)


def test_a_call_beside_a_refused_one_belongs_to_the_step_before(stage: Stage) -> None:
    async def program(one: Played) -> None:
        await one.chat("a")
        assert (await one.chat("x" * 200)).status_code == 400
        await one.chat("summarise", longhaul={"train": False})
        assert (await one.chat("b")).status_code == 200

        calls = [[call.messages[-1].text for call in step.calls] for step in one.end().steps]
        assert calls == [["a", "summarise"], ["b"]]

    stage.played(program, max_prompt_tokens=100, horizon=2)


# Failures of the engine


def test_a_failed_engine_is_a_502_and_the_episodes_failure_until_a_retry_makes_it_good(
    stage: Stage,
) -> None:
    async def program(one: Played) -> None:
        async with openai_client(one, max_retries=1) as client:
            made_good = await client.chat.completions.create(model="auto", messages=user("a"))
        assert made_good.choices[0].message.content == "go"
        assert one.episode.failure is None
        assert len(calls_of(one.end())) == 1

    stage.played(program, OnceFailingPolicy())


def test_a_failure_that_nothing_made_good_stays(stage: Stage) -> None:
    async def program(one: Played) -> None:
        failed = await one.chat("a")
        await one.chat("b")
        assert failed.status_code == 502
        assert isinstance(one.episode.failure, PolicyFailure)
        assert "engine gone" in str(one.episode.failure)
        assert one.episode.num_calls == 1

    stage.played(program, OnceFailingPolicy())


# Repetitions, with the vendors' own clients


@pytest.mark.parametrize("num_retries", [1, 2])
def test_a_reply_lost_on_the_way_is_sent_again_and_not_sampled_again(
    stage: Stage, num_retries: int
) -> None:
    policy = StreamingScriptedPolicy(["first", "second"])

    async def program(one: Played) -> None:
        async with Lossy(one.gateway.address, num_lost=num_retries).laid() as cable:
            client = openai.AsyncOpenAI(
                base_url=one.episode.environ()["OPENAI_BASE_URL"].replace(
                    one.gateway.address, cable.url
                ),
                api_key=one.episode.access.key,
                max_retries=num_retries,
            )
            async with client:
                answer = await client.chat.completions.create(model="auto", messages=user("a"))
        assert answer.choices[0].message.content == "first"
        assert cable.num_connections == 1 + num_retries
        assert len(policy.prompts) == 1
        assert len(calls_of(one.end())) == 1

    stage.played(program, policy)


def test_equal_prompts_of_two_turns_and_of_parallel_calls_are_calls_of_their_own(
    stage: Stage,
) -> None:
    async def program(one: Played) -> None:
        async with openai_client(one) as client:
            asked = [
                client.chat.completions.create(model="auto", messages=user("a")) for _ in range(3)
            ]
            answers = await asyncio.gather(*asked)
            again = await client.chat.completions.create(model="auto", messages=user("a"))

        said = {answer.choices[0].message.content for answer in (*answers, again)}
        assert said == {"one", "two", "three", "four"}
        assert len(one.end().steps) == 4

    stage.played(program, StreamingScriptedPolicy(["one", "two", "three", "four"]))


def test_five_votes_at_once_are_five_calls_where_clients_say_nothing_of_retries(
    stage: Stage,
) -> None:
    async def program(one: Played) -> None:
        policy.let, policy.begun = asyncio.Event(), asyncio.Semaphore(0)
        asked = [asyncio.create_task(one.chat("a", headers={})) for _ in range(5)]
        for _ in range(5):
            await asyncio.wait_for(policy.begun.acquire(), 60)
        policy.let.set()
        await asyncio.wait(asked)
        assert len(calls_of(one.end())) == 5

    policy = LetPolicy()
    stage.played(program, policy)


def test_a_client_that_gives_up_cancels_its_request_and_its_retry_is_sampled_anew(
    stage: Stage,
) -> None:
    async def program(one: Played) -> None:
        policy.let, policy.begun = asyncio.Event(), asyncio.Semaphore(0)
        transport = Impatient()
        async with openai_client(one, max_retries=1, transport=transport) as client:
            asked = asyncio.create_task(
                client.chat.completions.create(
                    model="auto", messages=user("a"), extra_headers={"Longhaul-Reward": "0"}
                )
            )
            await policy.begun.acquire()
            transport.enough.set()
            await policy.begun.acquire()  # its retry
            assert policy.num_cancelled == 1
            policy.let.set()
            assert (await asked).choices[0].message.content == "go"
        assert len(calls_of(one.end())) == 1
        assert one.episode.num_calls == 1

    policy = LetPolicy()
    stage.played(program, policy)


def test_a_reward_sent_with_a_call_that_was_given_up_counts_once(stage: Stage) -> None:
    async def program(one: Played) -> None:
        policy.let, policy.begun = asyncio.Event(), asyncio.Semaphore(0)
        policy.let.set()
        await one.chat("first")
        policy.let.clear()
        transport = Impatient()
        async with openai_client(one, max_retries=1, transport=transport) as client:
            asked = asyncio.create_task(
                client.chat.completions.create(
                    model="auto", messages=user("a"), extra_headers={"Longhaul-Reward": "0.5"}
                )
            )
            for _ in range(2):
                await policy.begun.acquire()
            transport.enough.set()
            await policy.begun.acquire()  # its retry
            policy.let.set()
            await asked
        assert [step.reward for step in one.end().steps] == [0.5, 0.0]

    policy = LetPolicy()
    stage.played(program, policy)


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_goes_away_in_the_midst_cancels_its_request(
    stage: Stage, stream: bool
) -> None:
    async def program(one: Played) -> None:
        policy.let, policy.begun = asyncio.Event(), asyncio.Semaphore(0)
        async with client_of(one.episode) as http:
            body = {"model": "auto", "messages": messages("a"), "stream": stream}
            asked = asyncio.create_task(http.post("/v1/chat/completions", json=body))
            await policy.begun.acquire()
            asked.cancel()
            await asyncio.wait({asked})
        async with asyncio.timeout(60):
            while not policy.num_cancelled:  # noqa: ASYNC110  it has no event
                await asyncio.sleep(0.01)
        assert policy.num_cancelled == 1
        assert one.episode.num_calls == 0

    policy = LetPolicy()
    stage.played(program, policy)


def test_a_repeated_stream_begins_anew_with_the_same_reply(stage: Stage) -> None:
    async def program(one: Played) -> None:
        policy.let, policy.begun = asyncio.Event(), asyncio.Semaphore(0)
        body = {"model": "auto", "messages": messages("a"), "stream": True}
        key = {"Idempotency-Key": "k"}

        async def streamed() -> str:
            return (await one.http.post("/v1/chat/completions", json=body, headers=key)).text

        first = asyncio.create_task(streamed())
        await policy.begun.acquire()
        second = asyncio.create_task(streamed())
        await one.http.get("/v1/models")
        policy.let.set()
        third = [await first, await second, await streamed()]

        assert len(policy.prompts) == 1
        assert len({text.split('"id":"')[1][:40] for text in third}) == 1
        for text in third:
            assert "".join(_contents(text)) == "hello"

    policy = LetPolicy("hello")
    stage.played(program, policy)


def _contents(events: str) -> list[str]:
    found = [line.split('"content":"')[1] for line in events.split("\n") if '"content":"' in line]
    return [piece.split('"')[0] for piece in found]


# Ends


def test_closing_ends_what_is_in_flight_with_410_and_leaves_nothing(stage: Stage) -> None:
    async def program(one: Played) -> None:
        asked = [asyncio.create_task(one.chat(f"{n}")) for n in range(5)]
        while one.episode.num_calls < 5:
            await one.http.get("/v1/models")
        await asyncio.wait_for(one.episode.close(cause="its deadline passed"), timeout=60)
        answers = await asyncio.gather(*asked)

        assert {answer.status_code for answer in answers} == {410}
        assert "its deadline passed" in answers[0].json()["error"]["message"]
        assert one.session.num_steps == 0

    stage.played(program, HangingPolicy())


def test_512_calls_in_flight_of_32_episodes_all_get_their_own_reply(stage: Stage) -> None:
    async def program(one: Played) -> None:
        policy = StreamingScriptedPolicy([f"reply {n}" for n in range(16)])
        opened = [open_episode(one.gateway, policy, seed=n, horizon=100) for n in range(100, 132)]
        clients = [client_of(episode) for _, episode in opened]

        async def asked(place: int, number: int) -> str:
            body = {"model": "auto", "messages": messages(f"{number}")}
            return said(await clients[place].post("/v1/chat/completions", json=body))

        answers = await asyncio.gather(
            *(asked(place, number) for place in range(32) for number in range(16))
        )
        for client, (session, episode) in zip(clients, opened, strict=True):
            await client.aclose()
            await episode.close()
            assert session.num_steps == 16
        assert sorted(answers) == sorted([f"reply {n}" for n in range(16)] * 32)

    stage.played(program)


def test_a_tool_that_a_result_tells_of_is_called_in_the_same_row(stage: Stage) -> None:
    """Claude Code's client searches its deferred tools."""
    schema = {"input_schema": {"type": "object"}}
    offered = {"name": "search", **schema}
    deferred = [{"name": name, "defer_loading": True, **schema} for name in ("clock", "map")]
    call = '<call>{"name": "%s", "arguments": {}}</call>'
    policy = StreamingScriptedPolicy([call % "search", call % "clock", "Noon."])
    renderer, judge = ReadingRenderer(), Judge()
    responder = replace(responder_of(policy, max_reply_tokens=200), renderer=renderer)

    async def program(one: Played) -> None:
        sent: list[object] = [{"role": "user", "content": "When?"}]
        body = {"model": "auto", "max_tokens": 200, "messages": sent}
        result = [{"type": "tool_reference", "tool_name": "clock"}]
        for tools, content in (([], result), (deferred[:1], "12:00"), (deferred, None)):
            answer = await one.http.post("/v1/messages", json={**body, "tools": [offered, *tools]})
            assert answer.status_code == 200, answer.text
            said = answer.json()["content"]
            sent.append({"role": "assistant", "content": said})
            block = {"type": "tool_result", "tool_use_id": said[0].get("id"), "content": content}
            sent.append({"role": "user", "content": [block]})
        del sent[-2:]
        hosted = {**body, "model": "judge", "tools": [offered, *deferred]}
        assert (await one.http.post("/v1/messages", json=hosted)).status_code == 200

        calls = calls_of(one.end())[:3]
        assert [call.continuation for call in calls] == [Continuation.START] + 2 * [
            Continuation.EXACT
        ]
        assert [[tool.name for tool in call.tools] for call in calls] == [["search"]] * 3
        assert [call.tool_calls[0].name for call in calls[:2]] == ["search", "clock"]

    stage.played(program, models={"policy": responder, "judge": judge})
    assert {tuple(names) for names in renderer.read[-2:]} == {("search", "clock")}
    assert renderer.went_on == [["search", "clock"]] * 2
    assert [tool.name for tool in judge.requests[0].tools] == ["search", "clock"]


def test_a_tool_that_codex_has_found_is_called_in_the_same_row(stage: Stage) -> None:
    clock = {"type": "function", "name": "clock", "defer_loading": True}
    found = {"type": "namespace", "name": "mcp__time", "tools": [clock]}
    search = {"type": "tool_search", "execution": "client"}
    call = '<call>{"name": "%s", "arguments": {"query": "time"}}</call>'
    policy = StreamingScriptedPolicy([call % "tool_search", call % "mcp__time__clock", "Noon."])

    async def program(one: Played) -> None:
        sent: list[object] = [{"role": "user", "content": "When?"}]
        results: list[dict[str, object]] = [
            {"type": "tool_search_output", "execution": "client", "tools": [found]},
            {"type": "function_call_output", "output": "12:00"},
            {},
        ]
        for result in results:
            body = {"model": "auto", "input": sent, "tools": [search]}
            answer = await one.http.post("/v1/responses", json=body)
            assert answer.status_code == 200, answer.text
            assert OVERRIDDEN_HEADER not in answer.headers
            said = answer.json()["output"]
            sent += [*said, {**result, "call_id": said[0].get("call_id")}]

        calls = calls_of(one.end())
        assert [call.continuation for call in calls] == [Continuation.START] + 2 * [
            Continuation.EXACT
        ]
        assert [[tool.name for tool in call.tools] for call in calls] == [["tool_search"]] * 3
        assert [call.tool_calls[0].name for call in calls[:2]] == [
            "tool_search",
            "mcp__time__clock",
        ]

    stage.played(program, policy)
