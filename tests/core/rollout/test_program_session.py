"""The record of an episode that a program plays: calls and steps that may overlap."""

import asyncio
import logging
import threading
from collections.abc import Coroutine, Sequence
from dataclasses import replace
from typing import TypeVar

import pytest

from fakes import (
    ByteChatRenderer,
    ByteRenderer,
    ByteReplyReader,
    FailingPolicy,
    ReplyingPolicy,
    ScriptedPolicy,
    StreamingScriptedPolicy,
    make_task,
)
from longhaul_core.errors import (
    EnvironmentFailure,
    HorizonReached,
    PolicyFailure,
    RendererFailure,
    TokensSpent,
)
from longhaul_core.policy import Completion, Policy, Prompt, ReadReply, Sampling
from longhaul_core.rollout import (
    ChatPrompt,
    EpisodeLimits,
    EpisodeSession,
    EpisodeSpec,
    Responder,
    call_seed,
    step_seed,
)
from longhaul_core.types import (
    Call,
    Continuation,
    FailureCause,
    FinishReason,
    Message,
    Observation,
    StopReason,
    Tool,
    Trajectory,
)

SPEC = EpisodeSpec(task=make_task(3), seed=11)
END = ByteChatRenderer.END


def session_of(
    policy: Policy | None = None, *, renderer: ByteRenderer | None = None, **limits: int
) -> EpisodeSession:
    """A session whose policy has replies of at most 80 tokens, and a horizon of 5 steps."""
    return EpisodeSession(
        SPEC,
        limits=replace(EpisodeLimits(horizon=5, max_prompt_tokens=10_000), **limits),
        responder=Responder(
            policy=policy or ScriptedPolicy(),
            renderer=renderer or ByteChatRenderer(),
            temperature=0.7,
            top_p=0.9,
            max_reply_tokens=80,
        ),
    )


T = TypeVar("T")


def run(playing: Coroutine[None, None, T]) -> T:
    return asyncio.run(playing)


def user(text: str) -> Message:
    return Message(role="user", content=text)


def assistant(text: str) -> Message:
    return Message(role="assistant", content=text)


async def call(
    session: EpisodeSession,
    *messages: Message,
    sampling: Sampling | None = None,
    tools: tuple[Tool, ...] = (),
    responder: Responder | None = None,
    **options: bool | float | str,
) -> Call:
    """A call of a program that says nothing of its steps, as the gateway makes it."""
    prompt = ChatPrompt(messages, tools)
    shown = "\n".join(message.text for message in session.new_messages(prompt))
    index = session.open_step(Observation(text=shown))
    made = await session.answer(
        prompt,
        step_index=index,
        sampling=sampling,
        responder=responder,
        **options,  # pyright: ignore[reportArgumentType] any option
    )
    session.acted(made.reply, valid=True, step_index=index)
    return made


def end(session: EpisodeSession) -> Trajectory:
    return session.end(StopReason.TASK_SOLVED, success=True)


def tokens_of(made: Call) -> tuple[tuple[int, ...], tuple[int, ...]]:
    assert made.sampled is not None
    return made.sampled.prompt_tokens, made.sampled.action_tokens


# Prompts


def test_a_prompt_goes_on_from_its_calls_tokens_and_costs_what_is_new() -> None:
    renderer = ByteChatRenderer()
    session = session_of(ScriptedPolicy(["<think>Hm.</think>Where?", "I see."]), renderer=renderer)
    asked = (Message(role="system", content="Help."), user("Find it."))

    async def program() -> Trajectory:
        await call(session, *asked)
        before = renderer.num_written
        await call(session, *asked, assistant("Where?"), user("Here."))
        assert renderer.num_written - before == 1
        return end(session)

    one, two = (step.calls[0] for step in run(program()).steps)
    read, written = tokens_of(one)
    assert one.reply == "<think>Hm.</think>Where?"  # all that was written
    new = b"\x02user: Here.\x03\x02assistant: "
    assert tokens_of(two)[0] == (*read, *written, END, *new)  # the thought as it was
    assert (one.continuation, two.continuation) == (Continuation.START, Continuation.REWRITTEN)
    assert [one.conversation, two.conversation] == [0, 0]
    assert dict(session.rewrites) == {"reasoning": 1}


def test_a_prompt_that_the_template_writes_anew_is_rendered_whole_and_forks() -> None:
    renderer = ByteChatRenderer(forgets_thoughts=True)
    session = session_of(ScriptedPolicy(["<think>Hm.</think>Where?", "I see."]), renderer=renderer)

    async def program() -> Trajectory:
        await call(session, user("Find it."))
        await call(session, user("Find it."), assistant("Where?"), user("Here."))
        return end(session)

    _, forked = (step.calls[0] for step in run(program()).steps)
    assert (forked.continuation, forked.conversation) == (Continuation.FORKED, 1)
    told = (user("Find it."), assistant("Where?"), user("Here."))
    assert tokens_of(forked)[0] == renderer.render_chat(told)


def test_where_a_prompt_parts_from_what_was_recorded_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    session = session_of(ScriptedPolicy(["In the cellar, below the stairs.", "I see."]))

    async def program() -> None:
        await call(session, user("It is 10:00."))
        said = assistant("In the cellar, below the stairs.")
        await call(session, user("It is 10:01."), said, user("Go."))

    with caplog.at_level(logging.INFO, logger="longhaul_core.rollout.session"):
        run(program())

    assert caplog.messages == [
        f"episode {SPEC.episode_id}, step 1: the prompt goes on from no call, because "
        "message 0 (user) was 'It is 10:00.' and is 'It is 10:01.'"
    ]


def test_what_is_new_is_what_the_step_shows() -> None:
    session = session_of(ScriptedPolicy(["Where?", "I see."]))

    async def program() -> Trajectory:
        await call(session, Message(role="system", content="Help."), user("Find it."))
        await call(
            session,
            Message(role="system", content="Help."),
            user("Find it."),
            assistant("Where?"),
            user("Here."),
        )
        return end(session)

    steps = run(program()).steps
    assert [step.observation.text for step in steps] == ["Help.\nFind it.", "Here."]


def test_tools_asked_for_are_read_and_matched_when_they_come_back() -> None:
    asks = '<call>{"name": "look", "arguments": {"x": 1}}</call>'
    session = session_of(ScriptedPolicy([asks, "Dark."]))
    look = (Tool(name="look"),)

    async def program() -> Trajectory:
        first = await call(session, user("Look."), tools=look)
        (asked,) = first.tool_calls
        assert (asked.name, asked.arguments) == ("look", '{"x": 1}')
        assert first.finish_reason is FinishReason.TOOL_CALLS
        back = Message(
            role="assistant", content="", tool_calls=(replace(asked, arguments='{"x":1}'),)
        )
        seen = Message(role="tool", content="Nothing.", tool_call_id=asked.id)
        await call(session, user("Look."), back, seen, tools=look)
        return end(session)

    one, two = (step.calls[0] for step in run(program()).steps)
    assert two.continuation is Continuation.REWRITTEN
    assert two.tools == look
    assert bytes(tokens_of(two)[0]).startswith(bytes((*tokens_of(one)[0], *tokens_of(one)[1])))


def test_a_tool_that_a_message_tells_of_is_one_of_the_replys_and_none_of_the_prompts() -> None:
    shown: dict[str, tuple[str, ...]] = {}

    class Noting(ByteChatRenderer):
        def render_chat(
            self, messages: Sequence[Message], *, tools: Sequence[Tool] = ()
        ) -> tuple[int, ...]:
            shown["prompt"] = tuple(tool.name for tool in tools)
            return super().render_chat(messages, tools=tools)

        def reader(
            self, *, tools: Sequence[Tool] = (), salt: str = "", after_result: bool = False
        ) -> ByteReplyReader:
            shown["reply"] = tuple(tool.name for tool in tools)
            return super().reader(tools=tools, salt=salt, after_result=after_result)

    session = session_of(ScriptedPolicy(["Dark."]), renderer=Noting())
    prompt = ChatPrompt((user("Hi."),), (Tool(name="look"),), loaded_tools=(Tool(name="light"),))
    index = session.open_step(Observation(text="Hi."))

    made = run(session.answer(prompt, step_index=index, sampling=None))

    assert shown == {"prompt": ("look",), "reply": ("look", "light")}
    assert made.tools == prompt.tools


def test_small_prompts_are_rendered_here_and_large_ones_in_a_thread() -> None:
    threads: list[bool] = []

    class Telling(ByteChatRenderer):
        def render_chat(
            self, messages: Sequence[Message], *, tools: Sequence[Tool] = ()
        ) -> tuple[int, ...]:
            threads.append(threading.current_thread() is threading.main_thread())
            return super().render_chat(messages, tools=tools)

        def added(
            self, call: Call, messages: Sequence[Message], *, tools: Sequence[Tool] = ()
        ) -> tuple[int, ...] | None:
            threads.append(threading.current_thread() is threading.main_thread())
            return super().added(call, messages, tools=tools)

    session = session_of(renderer=Telling(), max_prompt_tokens=100_000)
    long = user("x" * 20_000)

    async def program() -> None:
        await call(session, user("short"))
        await call(session, long)
        await call(session, long, assistant("go"), user("short"))
        await call(session, long, assistant("go"), long)

    run(program())
    assert threads == [True, False, True, False]


def test_a_template_that_breaks_is_the_renderers_failure() -> None:
    class Broken(ByteChatRenderer):
        def render_chat(
            self, messages: Sequence[Message], *, tools: Sequence[Tool] = ()
        ) -> tuple[int, ...]:
            raise KeyError("role")

    for text in ("short", "x" * 20_000):
        with pytest.raises(RendererFailure, match="KeyError: 'role'"):
            run(call(session_of(renderer=Broken()), user(text)))
    with pytest.raises(TypeError, match="ByteRenderer renders no conversations"):
        run(call(session_of(renderer=ByteRenderer()), user("hello")))


def test_a_prompt_of_tokens_is_read_as_it_is() -> None:
    session = session_of(ScriptedPolicy(["go"]))

    async def program() -> Trajectory:
        for prompt in ((1, 2), (1, 2, *b"go", 5)):
            index = session.open_step(Observation(text="tokens"))
            await session.answer(prompt, step_index=index, sampling=None)
            session.acted("go", valid=True, step_index=index)
        return end(session)

    one, two = (step.calls[0] for step in run(program()).steps)
    assert (one.messages, tokens_of(one)) == ((), ((1, 2), tuple(b"go")))
    assert (two.continuation, two.conversation) == (Continuation.EXACT, 0)


@pytest.mark.parametrize(
    ("prompt", "message"),
    [((), "at least one token"), ((1, -1), "got -1"), ((2**31, 1), r"\[0, 2147483647\]")],
)
def test_a_prompt_of_tokens_that_no_engine_reads_is_refused(
    prompt: tuple[int, ...], message: str
) -> None:
    session = session_of()
    index = session.open_step(Observation(text="tokens"))
    with pytest.raises(ValueError, match=message):
        run(session.answer(prompt, step_index=index, sampling=None))


# Steps


class Gated(ScriptedPolicy):
    """Replies to each prompt when its last message's text is let through."""

    def __init__(self) -> None:
        super().__init__(["go"])
        self.gates: dict[str, asyncio.Event] = {}

    def gate(self, text: str) -> asyncio.Event:
        return self.gates.setdefault(text, asyncio.Event())

    async def act(self, prompt: Prompt, sampling: Sampling, *, episode_id: str) -> Completion:
        await self.gate(prompt.messages[-1].text).wait()
        return await super().act(prompt, sampling, episode_id=episode_id)


def test_steps_that_overlap_are_numbered_in_the_order_of_their_requests() -> None:
    policy = Gated()
    session = session_of(policy)

    async def program() -> Trajectory:
        calls = [asyncio.create_task(call(session, user(text))) for text in "abc"]
        for number, text in enumerate("cab"):
            policy.gate(text).set()
            await calls["abc".index(text)]
            assert session.num_steps == number + 1
        session.reward(1.0)
        return end(session)

    trajectory = run(program())
    assert [step.reward for step in trajectory.steps] == [0.0, 0.0, 1.0]  # of the newest
    assert [step.observation.text for step in trajectory.steps] == ["a", "b", "c"]
    assert [step.calls[0].conversation for step in trajectory.steps] == [0, 1, 2]
    seeds = {
        prompt.messages[0].text: sampling.seed
        for prompt, sampling in zip(policy.prompts, policy.samplings, strict=True)
    }
    assert seeds == {text: step_seed(11, step_index=i) for i, text in enumerate("abc")}
    assert [step.calls[0].sampling for step in trajectory.steps] == [None] * 3


def test_a_call_that_failed_leaves_no_hole() -> None:
    session = session_of()
    broken = Responder(policy=FailingPolicy(), renderer=ByteChatRenderer(), max_reply_tokens=80)

    async def program() -> Trajectory:
        with pytest.raises(PolicyFailure, match="engine gone"):
            await call(session, user("a"), responder=broken)
        await call(session, user("b"))
        return end(session)

    (step,) = run(program()).steps
    (made,) = step.calls
    assert (step.index, step.observation.text) == (0, "b")
    assert (made.conversation, made.continuation) == (0, Continuation.START)
    # Its place in the record does not tell the seed that it was drawn with.
    assert made.sampling is not None
    assert made.sampling.seed == step_seed(11, step_index=1)


def test_a_call_may_be_made_again_in_the_step_in_which_it_failed() -> None:
    renderer = ByteChatRenderer()
    session = session_of(renderer=renderer)
    broken = Responder(policy=FailingPolicy(), renderer=renderer, max_reply_tokens=80)
    told = ChatPrompt((user("a"), assistant("go"), user("b")))

    async def program() -> Trajectory:
        await call(session, user("a"))
        index = session.open_step(Observation(text="b"))
        with pytest.raises(PolicyFailure):
            await session.answer(told, step_index=index, sampling=None, responder=broken)
        await session.answer(told, step_index=index, sampling=None)
        session.acted("go", valid=True, step_index=index)
        return end(session)

    (made,) = run(program()).steps[1].calls
    assert (made.continuation, made.conversation) == (Continuation.EXACT, 0)


def test_steps_in_flight_count_for_the_horizon_and_failed_ones_do_not() -> None:
    policy = Gated()
    session = session_of(policy, horizon=2)

    async def program() -> Trajectory:
        waiting = [asyncio.create_task(call(session, user(text))) for text in "ab"]
        await asyncio.sleep(0)
        with pytest.raises(HorizonReached, match="its 2 steps"):
            session.open_step(Observation(text="c"))
        waiting[0].cancel()
        await asyncio.wait(waiting[:1])
        policy.gate("b").set()
        policy.gate("c").set()
        await call(session, user("c"))
        await waiting[1]
        with pytest.raises(HorizonReached):  # nor does an old step take a place again
            await session.answer(ChatPrompt((user("b"),)), step_index=0, sampling=None)
        return end(session)

    trajectory = run(program())
    assert [step.observation.text for step in trajectory.steps] == ["b", "c"]


def test_a_step_whose_call_another_server_lost_takes_no_place() -> None:
    session = session_of(horizon=1)
    session.abandon(session.open_step(Observation(text="lost")))
    index = session.open_step(Observation(text="a"))
    session.acted("go", valid=True, step_index=index)
    session.abandon(index)  # something was done there
    with pytest.raises(HorizonReached):
        session.open_step(Observation(text="b"))
    assert [step.observation.text for step in end(session).steps] == ["a"]


def test_a_step_that_has_a_reply_keeps_its_place_until_it_is_acted_in() -> None:
    session = session_of(horizon=1)
    index = session.open_step(Observation(text="a"))
    run(session.answer(ChatPrompt((user("a"),)), step_index=index, sampling=None))
    with pytest.raises(HorizonReached):
        session.open_step(Observation(text="b"))


def test_a_choice_that_fails_leaves_the_step_to_the_other() -> None:
    policy = Gated()
    session = session_of(policy, horizon=1)
    prompt = ChatPrompt((user("a"),))

    async def program() -> None:
        index = session.open_step(Observation(text="a"))
        choices = [
            asyncio.create_task(session.answer(prompt, step_index=index, sampling=None))
            for _ in range(2)
        ]
        await asyncio.sleep(0)
        choices[0].cancel()
        await asyncio.wait(choices[:1])
        with pytest.raises(HorizonReached):
            session.open_step(Observation(text="b"))
        policy.gate("a").set()
        await choices[1]
        session.acted("go", valid=True, step_index=index)

    run(program())
    ((made,),) = (step.calls for step in end(session).steps)
    assert made.sampling is not None  # it was drawn with the seed of the second choice


def test_the_second_call_that_goes_on_from_one_forks() -> None:
    session = session_of()

    async def program() -> Trajectory:
        await call(session, user("a"))
        await call(session, user("a"), assistant("go"), user("b"))
        await call(session, user("a"), assistant("go"), user("c"))
        return end(session)

    forked = run(program()).steps[2].calls[0]
    assert (forked.continuation, forked.conversation) == (Continuation.FORKED, 1)


def test_rewards_and_states_are_of_the_step_that_they_name() -> None:
    session = session_of()

    async def program() -> Trajectory:
        for text in "abc":
            await call(session, user(text))
        session.reward(1.0)
        session.reward(0.5, step_index=0)
        session.describe(1, anchor_state="cellar")
        return end(session)

    steps = run(program()).steps
    assert [step.reward for step in steps] == [0.5, 0.0, 1.0]
    assert [step.observation.anchor for step in steps] == ["a", "cellar", "c"]


def test_a_step_that_is_not_there_or_not_done_is_refused() -> None:
    session = session_of(max_observation_characters=10)
    session.open_step(Observation(text="a"))
    with pytest.raises(RuntimeError, match="step 0 cannot be paid: 0 steps"):
        session.reward(1.0, step_index=0)
    for refused in (
        lambda: session.acted("go", valid=True, step_index=1),
        lambda: session.describe(1, anchor_state="x"),
        lambda: session.abandon(-1),
        lambda: run(session.answer((1,), step_index=7, sampling=None)),
    ):
        with pytest.raises(RuntimeError, match=r"there is no step -?\d: 1 were opened"):
            refused()
    with pytest.raises(EnvironmentFailure, match="11 characters"):
        session.describe(0, anchor_state="x" * 10)
    with pytest.raises(EnvironmentFailure, match="11 characters"):
        session.open_step(Observation(text="x" * 11))


def test_a_failed_episode_keeps_the_steps_that_were_done() -> None:
    policy = Gated()
    session = session_of(policy)
    policy.gate("b").set()

    async def program() -> None:
        waiting = asyncio.create_task(call(session, user("a")))
        await asyncio.sleep(0)
        await call(session, user("b"))
        waiting.cancel()
        await asyncio.wait({waiting})

    run(program())
    failure = session.failed(PolicyFailure("gone"))
    assert failure.cause is FailureCause.POLICY_ERROR
    assert [(step.index, step.observation.text) for step in failure.steps] == [(0, "b")]


# Choices, and calls of others


def test_a_later_prompt_goes_on_from_the_choice_that_was_kept() -> None:
    session = session_of(ScriptedPolicy(["red", "blue", "fine"]))
    prompt = ChatPrompt((user("Which?"),))

    async def program() -> Trajectory:
        index = session.open_step(Observation(text="Which?"))
        red, blue = await asyncio.gather(
            *(session.answer(prompt, step_index=index, sampling=None) for _ in range(2))
        )
        assert (red.reply, blue.reply) == ("red", "blue")
        session.acted("blue", valid=True, step_index=index)
        await call(session, *prompt.messages, assistant("blue"), user("Sure?"))
        return end(session)

    first, second = run(program()).steps
    assert [made.conversation for made in first.calls] == [0, 1]
    assert (second.calls[0].continuation, second.calls[0].conversation) == (Continuation.EXACT, 1)
    assert tokens_of(second.calls[0])[0][: len(tokens_of(first.calls[1])[0]) + 4] == (
        *tokens_of(first.calls[1])[0],
        *b"blue",
    )


def test_the_choices_of_a_step_are_drawn_apart() -> None:
    policy = ScriptedPolicy()
    session = session_of(policy)
    prompt = ChatPrompt((user("Which?"),))

    async def program() -> None:
        index = session.open_step(Observation(text="Which?"))
        for _ in range(2):
            await session.answer(prompt, step_index=index, sampling=None)

    run(program())
    first = step_seed(11, step_index=0)
    assert [one.seed for one in policy.samplings] == [first, call_seed(first, call_index=1)]


def test_a_call_of_another_model_has_its_place_among_the_conversations() -> None:
    session = session_of()
    asked = (user("Is it good?"),)

    def hosted(*messages: Message) -> Call:
        return Call(messages=messages, reply="Yes.", sampled=None, trained=False, model="judge")

    async def program() -> Trajectory:
        await call(session, user("room"))
        for messages in (asked, (*asked, assistant("Yes."), user("Sure?"))):
            index = session.open_step(Observation(text="judge"))
            made = session.record(hosted(*messages), step_index=index)
            session.acted(made.reply, valid=True, step_index=index)
        return end(session)

    calls = [step.calls[0] for step in run(program()).steps]
    assert [made.conversation for made in calls] == [0, 1, 1]
    assert calls[2].continuation is Continuation.EXACT
    assert calls[2].model == "judge"


# How a reply is drawn and read


def test_a_sampling_of_its_own_is_in_force_and_recorded() -> None:
    policy = ScriptedPolicy()
    session = session_of(policy)
    as_the_run = Sampling(seed=0, temperature=0.7, top_p=0.9, max_tokens=80)
    own = replace(as_the_run, temperature=0.0, stop=("!",), altered=(("top_k", "5"),))

    async def program() -> Trajectory:
        await call(session, user("a"), sampling=as_the_run)
        await call(session, user("b"), sampling=own)
        return end(session)

    one, two = (step.calls[0] for step in run(program()).steps)
    assert one.sampling is None
    assert two.sampling == replace(own, seed=step_seed(11, step_index=1))
    assert policy.samplings[1] == two.sampling
    for longest in (0, 81):
        with pytest.raises(ValueError, match=rf"must lie in \[1, 80\], got {longest}"):
            run(call(session, user("c"), sampling=replace(own, max_tokens=longest)))


def test_a_stop_word_is_no_part_of_what_the_program_reads() -> None:
    session = session_of(ScriptedPolicy(["one END of it", "two"]))
    stopping = Sampling(seed=0, temperature=0.7, top_p=0.9, max_tokens=80, stop=("STOP", "END"))

    async def program() -> Trajectory:
        await call(session, user("a"), sampling=stopping)
        await call(session, user("a"), assistant("one"), user("b"))
        return end(session)

    _, then = run(program()).steps
    assert then.calls[0].continuation is Continuation.REWRITTEN


def test_tokens_are_handed_on_as_they_are_written() -> None:
    written: list[tuple[int, ...]] = []
    session = session_of(StreamingScriptedPolicy(["abc"]))
    index = session.open_step(Observation(text="a"))

    def on_tokens(tokens: Sequence[int]) -> None:
        assert session.num_steps == 0
        written.append(tuple(tokens))

    prompt = ChatPrompt((user("a"),))
    made = run(session.answer(prompt, step_index=index, sampling=None, on_tokens=on_tokens))
    assert written == [(97,), (98,), (99,)]
    assert tokens_of(made)[1] == (97, 98, 99)


def test_a_policy_that_does_not_stream_hands_on_all_tokens_at_its_end() -> None:
    written: list[Sequence[int]] = []
    session = session_of(ScriptedPolicy(["abc"]))
    index = session.open_step(Observation(text="a"))
    prompt = ChatPrompt((user("a"),))
    run(session.answer(prompt, step_index=index, sampling=None, on_tokens=written.append))
    assert written == [(97, 98, 99)]


def test_a_reply_that_was_read_while_it_was_written_is_not_read_again() -> None:
    session = session_of(ScriptedPolicy(["abc", "go"]))

    async def program() -> Trajectory:
        index = session.open_step(Observation(text="a"))
        await session.answer(
            ChatPrompt((user("a"),)),
            step_index=index,
            sampling=None,
            read=lambda completion: ReadReply(text=completion.text.upper()),
        )
        session.acted("ABC", valid=True, step_index=index)
        await call(session, user("a"), assistant("ABC"), user("b"))
        return end(session)

    assert run(program()).steps[1].calls[0].continuation is Continuation.EXACT


def test_a_cancelled_call_ends_the_engines_request_and_leaves_nothing() -> None:
    policy = StreamingScriptedPolicy(["a long reply"], seconds_per_token=0.01)
    session = session_of(policy, max_episode_tokens=101)
    asked = ChatPrompt((user("a"),))

    async def program() -> Trajectory:
        index = session.open_step(Observation(text="a"))
        began = asyncio.Event()
        waiting = asyncio.create_task(
            session.answer(asked, step_index=index, sampling=None, on_tokens=lambda _: began.set())
        )
        await began.wait()
        waiting.cancel()
        await asyncio.wait({waiting})
        assert waiting.cancelled()
        assert policy.num_cancelled == 1
        await call(session, user("a"))  # the tokens suffice for one call: none were spent
        return end(session)

    (step,) = run(program()).steps
    assert (step.index, step.calls[0].conversation) == (0, 0)


def test_an_aborted_reply_fails_and_leaves_nothing() -> None:
    aborted = Completion(
        text="ab",
        action_tokens=(1, 2),
        behavior_logprobs=(-1.0, -1.0),
        policy_version=0,
        finish_reason=FinishReason.ABORTED,
    )
    session = session_of(ReplyingPolicy(aborted))
    with pytest.raises(PolicyFailure, match="the reply was aborted"):
        run(call(session, user("a")))
    with pytest.raises(RuntimeError, match="before its first action"):
        end(session)


def test_calls_that_overlap_do_not_spend_the_same_tokens() -> None:
    async def both(budget: int) -> list[type[object]]:
        session = session_of(ScriptedPolicy(delay_seconds=0.01), max_episode_tokens=budget)
        results = await asyncio.gather(
            call(session, user("a")), call(session, user("b")), return_exceptions=True
        )
        return [type(result) for result in results]

    # a prompt is 21 tokens, a longest reply 80
    assert run(both(202)) == [Call, Call]
    assert run(both(201)) == [Call, TokensSpent]
