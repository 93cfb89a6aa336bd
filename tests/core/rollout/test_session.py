"""The record of an episode, whoever plays it."""

import asyncio
from collections.abc import Coroutine, Sequence
from dataclasses import replace
from typing import TypeVar

import pytest

from fakes import ByteRenderer, FailingPolicy, ReplyingPolicy, ScriptedPolicy, make_task
from longhaul_core.errors import (
    EnvironmentFailure,
    HorizonReached,
    PolicyFailure,
    TokensSpent,
)
from longhaul_core.policy import Completion, Policy, Prompt, Sampling
from longhaul_core.rollout import (
    EpisodeLimits,
    EpisodeSession,
    EpisodeSpec,
    Responder,
    call_seed,
    step_seed,
)
from longhaul_core.types import (
    Call,
    CreditedBy,
    FailureCause,
    FinishReason,
    Message,
    Observation,
    Picture,
    StopReason,
    ToolCall,
    Trajectory,
)

SPEC = EpisodeSpec(task=make_task(3), seed=11, sample_index=2)


def session_of(
    policy: Policy | None = None, *, renderer: ByteRenderer | None = None, **limits: int
) -> EpisodeSession:
    """A session whose policy has replies of at most 8 tokens, and a horizon of 5 steps."""
    return EpisodeSession(
        SPEC,
        limits=replace(EpisodeLimits(horizon=5, max_prompt_tokens=1000), **limits),
        responder=Responder(
            policy=policy or ScriptedPolicy(),
            renderer=renderer or ByteRenderer(),
            max_reply_tokens=8,
        ),
    )


def user(text: str) -> tuple[Message, ...]:
    return (Message(role="user", content=text),)


T = TypeVar("T")
LATER = CreditedBy.NEXT_STEP


def run(playing: Coroutine[None, None, T]) -> T:
    return asyncio.run(playing)


# As a gateway drives it: a program of two agents calls when it likes, and is paid at the end.


def test_a_program_that_calls_when_it_likes_leaves_its_steps_with_their_calls() -> None:
    policy = ScriptedPolicy(["search", "good?", "answer"])
    session = session_of(policy)

    async def program() -> Trajectory:
        asked = user("Who wrote it?")
        session.observe(Observation(text="Who wrote it?"))
        first = await session.complete(asked, agent="searcher")
        session.acted(first.reply, valid=True)
        # A judge looks at the step that is over; its verdict is neither trained nor an action.
        await session.complete(user("Is that good?"), purpose="judge", agent="judge", trained=False)
        session.observe(Observation(text="Found: Ibsen."))  # what came since, and no more
        told = (*asked, Message(role="assistant", content="search"), *user("Found: Ibsen."))
        second = await session.complete(told, agent="writer", credit_share=0.5, credited_by=LATER)
        session.acted(second.reply, valid=True)
        session.reward(1.0)  # by the program's grader, when all is over
        session.reward(-0.25, step_index=0)
        return session.end(StopReason.TASK_SOLVED, success=True)

    trajectory = run(program())

    assert [
        [(call.agent, call.purpose, call.trained, call.reply) for call in step.calls]
        for step in trajectory.steps
    ] == [
        [("searcher", "act", True, "search"), ("judge", "judge", False, "good?")],
        [("writer", "act", True, "answer")],
    ]
    assert [step.observation.text for step in trajectory.steps] == [
        "Who wrote it?",
        "Found: Ibsen.",
    ]
    assert [(step.action, step.action_valid) for step in trajectory.steps] == [
        ("search", True),
        ("answer", True),
    ]
    assert [step.reward for step in trajectory.steps] == [-0.25, 1.0]
    said = [(c.credit_share, c.credited_by) for step in trajectory.steps for c in step.calls]
    assert said == [(1.0, CreditedBy.STEP), (1.0, CreditedBy.STEP), (0.5, LATER)]
    assert trajectory.final_observation == Observation(text="")  # it saw nothing after its answer
    assert (trajectory.sample_index, trajectory.seed, trajectory.horizon) == (2, 11, 5)
    assert trajectory.success


def test_calls_that_overlap_are_recorded_in_the_order_in_which_they_were_asked_for() -> None:
    class FirstIsSlow(ScriptedPolicy):
        async def act(self, prompt: Prompt, sampling: Sampling, *, episode_id: str) -> Completion:
            if prompt.messages == user("slow"):
                await asyncio.sleep(0.05)
            return await super().act(prompt, sampling, episode_id=episode_id)

    policy = FirstIsSlow()
    session = session_of(policy)

    async def program() -> Trajectory:
        session.observe(Observation(text="both"))
        slow = asyncio.create_task(session.complete(user("slow"), agent="a"))
        await asyncio.sleep(0)
        await session.complete(user("quick"), agent="b")
        await slow
        session.acted("go", valid=True)
        return session.end(StopReason.TASK_FAILED, success=False)

    (step,) = run(program()).steps

    assert [call.agent for call in step.calls] == ["a", "b"]
    first = step_seed(11, step_index=0)
    asked = zip(policy.prompts, policy.samplings, strict=True)
    seeds = {prompt.messages: sampling.seed for prompt, sampling in asked}
    assert seeds == {user("slow"): first, user("quick"): call_seed(first, call_index=1)}


def test_a_call_of_another_model_is_kept_without_tokens() -> None:
    session = session_of()
    hosted = Call(
        messages=user("Is it good?"),
        reply="Yes.",
        sampled=None,
        trained=False,
        purpose="judge",
        model="hosted",
    )

    async def program() -> Trajectory:
        session.observe(Observation(text="room"))
        call = await session.complete(user("room"))
        session.acted(call.reply, valid=True)
        session.record(hosted)
        return session.end(StopReason.TASK_SOLVED, success=True)

    (step,) = run(program()).steps
    assert step.calls[1] == hosted
    assert step.act is not None
    assert step.act.reply == "go"


# As a person drives it: no call at all.


def test_a_person_acts_without_a_call() -> None:
    session = EpisodeSession(SPEC, limits=EpisodeLimits(horizon=5, max_prompt_tokens=1))
    view = Observation(text="room", pictures=(Picture.of(b"view"),))
    session.observe(view)
    session.acted("left", valid=True, environment_seconds=0.5)
    session.reward(0.5)
    session.observe(Observation(text="hall"))
    session.acted("fly", valid=False)
    session.observe(Observation(text="still the hall"))

    trajectory = session.end(StopReason.TASK_FAILED, success=False)

    assert [(step.action, step.action_valid, step.reward) for step in trajectory.steps] == [
        ("left", True, 0.5),
        ("fly", False, 0.0),
    ]
    assert [step.calls for step in trajectory.steps] == [(), ()]
    assert trajectory.steps[0].observation == view
    assert trajectory.steps[0].environment_seconds == 0.5
    assert trajectory.final_observation.text == "still the hall"


def test_nobody_replies_in_a_session_without_a_responder() -> None:
    session = EpisodeSession(SPEC, limits=EpisodeLimits(horizon=5, max_prompt_tokens=1))
    session.observe(Observation(text="room"))
    with pytest.raises(RuntimeError, match="nobody who replies"):
        run(session.complete(user("room")))


# What a prompt goes on from


def test_a_prompt_may_go_on_from_calls_of_its_agent_and_purpose_alone() -> None:
    given: list[tuple[str, ...]] = []

    class Telling(ByteRenderer):
        def render(
            self,
            messages: Sequence[Message],
            *,
            earlier: Sequence[Call] = (),
            begins_reply: bool = True,
        ) -> tuple[int, ...]:
            given.append(tuple(call.messages[0].text for call in earlier))
            return super().render(messages)

    session = session_of(renderer=Telling())

    async def program() -> None:
        session.observe(Observation(text="room"))
        for agent, purpose, text in (
            ("a", "act", "1"),
            ("b", "act", "2"),
            ("a", "plan", "3"),
            ("a", "act", "4"),
            ("b", "act", "5"),
            ("a", "act", "6"),
        ):
            await session.complete(user(text), agent=agent, purpose=purpose)

    run(program())
    assert given == [(), (), (), ("1",), ("2",), ("1", "4")]


def test_only_an_action_begins_with_the_reply_prefix() -> None:
    begun: dict[str, bool] = {}

    class Telling(ByteRenderer):
        def render(
            self,
            messages: Sequence[Message],
            *,
            earlier: Sequence[Call] = (),
            begins_reply: bool = True,
        ) -> tuple[int, ...]:
            begun[messages[0].text] = begins_reply
            return super().render(messages)

    session = session_of(renderer=Telling())

    async def program() -> None:
        session.observe(Observation(text="room"))
        for purpose in ("plan", "act", "remember"):
            await session.complete(user(purpose), purpose=purpose)

    run(program())
    assert begun == {"plan": False, "act": True, "remember": False}


# Limits


def test_the_token_budget_counts_every_call_of_the_episode() -> None:
    # "user: room" is 10 tokens, "go" 2, a longest reply 8: three calls need 12 + 12 + 10 + 8.
    async def calls(budget: int) -> None:
        session = session_of(max_episode_tokens=budget)
        session.observe(Observation(text="room"))
        for purpose in ("plan", "act", "judge"):
            await session.complete(user("room"), purpose=purpose)

    run(calls(42))
    for budget, spent in ((17, 0), (29, 12), (41, 24)):
        with pytest.raises(
            TokensSpent, match=rf"after {spent} of .* max_episode_tokens = {budget}"
        ):
            run(calls(budget))


def test_calls_that_overlap_do_not_spend_the_same_tokens() -> None:
    async def both(budget: int) -> list[type[object]]:
        session = session_of(ScriptedPolicy(delay_seconds=0.01), max_episode_tokens=budget)
        session.observe(Observation(text="room"))
        results = await asyncio.gather(
            *(session.complete(user("room"), agent=agent) for agent in "ab"),
            return_exceptions=True,
        )
        return [type(result) for result in results]

    assert run(both(36)) == [Call, Call]
    assert sorted(one.__name__ for one in run(both(35))) == ["Call", "TokensSpent"]


def test_a_call_that_failed_or_was_given_up_spends_no_tokens() -> None:
    async def again_after(failing: Policy, seconds: float) -> Call:
        session = session_of(max_episode_tokens=18)
        session.observe(Observation(text="room"))
        broken = Responder(policy=failing, renderer=ByteRenderer(), max_reply_tokens=8)
        with pytest.raises((PolicyFailure, TimeoutError)):
            async with asyncio.timeout(seconds):
                await session.complete(user("room"), responder=broken)
        return await session.complete(user("room"))

    assert run(again_after(FailingPolicy(turn=0), 60)).reply == "go"
    assert run(again_after(ScriptedPolicy(delay_seconds=60), 0.1)).reply == "go"


def test_a_prompt_that_is_too_long_is_refused_with_both_numbers() -> None:
    session = session_of(max_prompt_tokens=9)
    session.observe(Observation(text="room"))
    with pytest.raises(TokensSpent, match="prompt of 10 tokens exceeds max_prompt_tokens = 9"):
        run(session.complete(user("room")))


def test_no_step_is_begun_beyond_the_horizon() -> None:
    session = session_of(horizon=1)
    session.observe(Observation(text="room"))
    session.acted("go", valid=True)
    session.observe(Observation(text="hall"))
    with pytest.raises(HorizonReached, match="its 1 steps"):
        session.acted("go", valid=True)
    with pytest.raises(HorizonReached) as reached:
        run(session.complete(user("hall")))
    trajectory = session.end(reached.value.stop_reason, success=False)
    assert trajectory.stop_reason is StopReason.HORIZON_REACHED
    assert trajectory.final_observation.text == "hall"


def test_a_call_has_a_limit_of_its_own_within_that_of_replies() -> None:
    policy = ScriptedPolicy()
    session = session_of(policy)
    session.observe(Observation(text="room"))
    run(session.complete(user("room"), max_reply_tokens=3))
    assert policy.samplings[0].max_tokens == 3
    for value in (0, 9):
        with pytest.raises(ValueError, match=rf"must lie in \[1, 8\], got {value}"):
            run(session.complete(user("room"), max_reply_tokens=value))


def test_one_call_may_be_answered_by_somebody_else() -> None:
    judge = ScriptedPolicy(["fine"])
    session = session_of()
    session.observe(Observation(text="room"))
    calm = Responder(policy=judge, renderer=ByteRenderer(), temperature=0.0, max_reply_tokens=20)
    call = run(session.complete(user("room"), purpose="judge", responder=calm, trained=False))
    assert call.reply == "fine"
    assert (judge.samplings[0].temperature, judge.samplings[0].max_tokens) == (0.0, 20)


def test_an_observation_that_is_too_long_is_refused() -> None:
    with pytest.raises(EnvironmentFailure, match=r"101 characters.*= 100"):
        session_of(max_observation_characters=100).observe(Observation(text="x" * 101))


# Replies


def completion(**changes: object) -> Completion:
    base = Completion(
        text="go", action_tokens=(1, 2), behavior_logprobs=(-0.5, -0.5), policy_version=4
    )
    return replace(base, **changes)  # pyright: ignore[reportArgumentType] any field


def test_why_a_reply_ended_and_what_it_asks_for_are_kept() -> None:
    asks = ToolCall(id="1", name="look", arguments="{}")
    policy = ReplyingPolicy(
        completion(finish_reason=FinishReason.TOOL_CALLS, tool_calls=(asks,), queue_seconds=0.1)
    )
    session = session_of(policy)
    session.observe(Observation(text="room"))
    call = run(session.complete(user("room")))
    assert (call.finish_reason, call.tool_calls) == (FinishReason.TOOL_CALLS, (asks,))
    assert (call.queue_seconds, call.generate_seconds) == (0.1, 0.0)
    assert call.sampled is not None
    assert call.sampled.policy_version == 4


def test_an_aborted_reply_is_the_policys_failure() -> None:
    session = session_of(ReplyingPolicy(completion(finish_reason=FinishReason.ABORTED)))
    session.observe(Observation(text="room"))
    with pytest.raises(PolicyFailure, match="the reply was aborted"):
        run(session.complete(user("room")))


def test_a_call_that_failed_may_be_asked_for_again_in_its_step() -> None:
    session = session_of(FailingPolicy(turn=0))
    session.observe(Observation(text="room"))
    with pytest.raises(PolicyFailure, match="engine gone"):
        run(session.complete(user("room")))
    assert session.awaits_action
    session.record(Call(messages=user("room"), reply="go", sampled=None, trained=False))
    session.acted("go", valid=True)
    assert not session.awaits_action
    assert len(session.end(StopReason.TASK_SOLVED, success=True).steps[0].calls) == 1


# What is refused


def test_what_comes_at_the_wrong_time_is_refused() -> None:
    session = session_of()
    for too_early in (
        lambda: session.observation,
        lambda: session.acted("go", valid=True),
        lambda: run(session.complete(user("room"))),
    ):
        with pytest.raises(RuntimeError, match="nothing was observed yet"):
            too_early()
    with pytest.raises(RuntimeError, match="before its first action"):
        session.end(StopReason.TASK_FAILED, success=False)
    session.observe(Observation(text="room"))
    with pytest.raises(RuntimeError, match="0 steps were acted in"):
        session.reward(1.0)
    with pytest.raises(RuntimeError, match="step 0 has no action yet"):
        session.observe(Observation(text="hall"))
    session.acted("go", valid=True)
    with pytest.raises(RuntimeError, match="step 0 has its action already: 'go'"):
        session.acted("stay", valid=True)
    with pytest.raises(RuntimeError, match="step 1 cannot be paid: 1 steps"):
        session.reward(1.0, step_index=1)
    with pytest.raises(ValueError, match="finite, got nan"):
        session.reward(float("nan"))


def test_a_failure_keeps_the_steps_that_were_acted_in() -> None:
    session = session_of()

    async def program() -> None:
        session.observe(Observation(text="room"))
        call = await session.complete(user("room"))
        session.acted(call.reply, valid=True)
        session.observe(Observation(text="hall"))
        await session.complete(user("hall"))

    run(program())
    failure = session.failed(PolicyFailure("engine gone"))

    assert (failure.cause, failure.message) == (FailureCause.POLICY_ERROR, "engine gone")
    assert [step.action for step in failure.steps] == ["go"]
    assert failure.sample_index == 2
