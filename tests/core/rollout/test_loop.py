"""One episode: what it records, what truncates it, what fails it."""

import asyncio
import re
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes import (
    ByteRenderer,
    FailingEnvironment,
    FailingPolicy,
    HangingEnvironment,
    HangingPolicy,
    ReplyingPolicy,
    ScriptedEnvironment,
    ScriptedPolicy,
    Unprintable,
    make_agent,
    make_task,
)
from longhaul_core.environment import Environment, StepResult
from longhaul_core.errors import MAX_MESSAGE_CHARACTERS, TokensSpent
from longhaul_core.memory import (
    FullHistory,
    Memory,
    NoMemory,
    PromptTemplate,
    RecallMemory,
    WindowMemory,
)
from longhaul_core.policy import Completion, Policy, Prompt, Sampling, Shortenable
from longhaul_core.rollout import (
    Agent,
    EpisodeLimits,
    EpisodeOutcome,
    EpisodeSession,
    EpisodeSpec,
    run_episode,
    step_seed,
)
from longhaul_core.types import (
    Call,
    FailedEpisode,
    FailureCause,
    Message,
    Observation,
    Picture,
    StopReason,
    Task,
    Trajectory,
    pictures_of,
)
from steps import sampled_of


def limits(**overrides: float) -> EpisodeLimits:
    return replace(EpisodeLimits(horizon=5, max_prompt_tokens=1000), **overrides)


def play(
    environment: Environment,
    agent: Agent | None = None,
    *,
    with_final_prompt: bool = False,
    **overrides: float,
) -> EpisodeOutcome:
    return asyncio.run(
        run_episode(
            EpisodeSpec(task=make_task(3), seed=11, sample_index=2),
            agent=agent or make_agent(),
            make_environment=lambda task: environment,
            limits=limits(**overrides),
            with_final_prompt=with_final_prompt,
        )
    )


def trajectory_of(outcome: EpisodeOutcome) -> Trajectory:
    assert isinstance(outcome, Trajectory), outcome
    return outcome


def prompt_lengths(trajectory: Trajectory) -> list[int]:
    return [len(sampled_of(step).prompt_tokens) for step in trajectory.steps]


def failure_of(outcome: EpisodeOutcome) -> FailedEpisode:
    assert isinstance(outcome, FailedEpisode), outcome
    return outcome


def test_an_episode_leaves_what_was_read_written_and_paid_at_each_step() -> None:
    environment = ScriptedEnvironment(rewards=[0.25, 1.0])
    agent = make_agent(ScriptedPolicy(["left", "right"]))

    trajectory = trajectory_of(play(environment, agent))

    first, last = trajectory.steps
    assert first.observation.text == "start 3"
    (call,), sampled = first.calls, sampled_of(first)
    assert call.messages == (Message(role="user", content="start 3"),)
    assert bytes(sampled.prompt_tokens) == b"user: start 3"
    assert (call.reply, first.action, bytes(sampled.action_tokens)) == ("left", "left", b"left")
    assert sampled.behavior_logprobs == (-0.5, -0.625, -0.75, -0.875)
    assert last.observation.text == "after 1"
    assert [step.reward for step in trajectory.steps] == [0.25, 1.0]
    assert trajectory.final_observation.text == "after 2"
    assert trajectory.stop_reason is StopReason.TASK_SOLVED
    assert trajectory.success
    assert (trajectory.sample_index, trajectory.seed, trajectory.horizon) == (2, 11, 5)
    assert environment.actions == ["left", "right"]
    assert environment.num_closed == 1


@pytest.mark.parametrize(
    ("truncated", "success", "expected"),
    [
        (False, True, StopReason.TASK_SOLVED),
        (False, False, StopReason.TASK_FAILED),
        (True, False, StopReason.ENVIRONMENT_LIMIT),
    ],
)
def test_the_environment_tells_terminated_from_truncated(
    truncated: bool, success: bool, expected: StopReason
) -> None:
    outcome = play(ScriptedEnvironment(truncated=truncated, success=success))
    assert trajectory_of(outcome).stop_reason is expected


def test_the_horizon_truncates_and_keeps_exactly_that_many_steps() -> None:
    trajectory = trajectory_of(play(ScriptedEnvironment(rewards=[0.5] * 9), horizon=4))
    assert len(trajectory.steps) == 4
    assert trajectory.stop_reason is StopReason.HORIZON_REACHED
    assert not trajectory.success


def test_an_end_at_the_last_step_of_the_horizon_is_the_environments() -> None:
    trajectory = trajectory_of(play(ScriptedEnvironment(rewards=[0.0, 1.0]), horizon=2))
    assert trajectory.stop_reason is StopReason.TASK_SOLVED


def test_the_token_budget_truncates_before_a_step_that_might_not_fit() -> None:
    # "user: start 3" is 13 tokens and "user: after N" too; a reply "go" is 2, at most 8.
    # Two steps read and write 30; a third may need 13 + 8 more, 51 in all.
    environment = ScriptedEnvironment(rewards=[0.0] * 9)
    assert len(trajectory_of(play(environment, max_episode_tokens=51)).steps) == 3
    environment = ScriptedEnvironment(rewards=[0.0] * 9)
    trajectory = trajectory_of(play(environment, max_episode_tokens=50))
    assert len(trajectory.steps) == 2
    assert trajectory.stop_reason is StopReason.TOKEN_BUDGET_SPENT
    assert trajectory.stop_reason.truncated


def final_prompt(environment: Environment, **overrides: float) -> bytes | None:
    trajectory = trajectory_of(play(environment, None, with_final_prompt=True, **overrides))
    tokens = trajectory.final_prompt_tokens
    return None if tokens is None else bytes(tokens)


class Showing(ScriptedEnvironment):
    """With a picture beside each text."""

    def _observe(self, text: str) -> Observation:
        return replace(super()._observe(text), pictures=(Picture.of(text.encode()),))


def test_the_final_prompt_is_what_the_next_step_would_have_read() -> None:
    remembering = make_agent(build_memory=lambda: FullHistory(template=PromptTemplate()))
    longer = trajectory_of(play(Showing(rewards=[0.0] * 9), remembering, horizon=3))
    cut = trajectory_of(
        play(Showing(rewards=[0.0] * 9), remembering, with_final_prompt=True, horizon=2)
    )

    (call,) = longer.steps[2].calls
    assert cut.final_prompt_tokens == sampled_of(longer.steps[2]).prompt_tokens
    assert cut.final_prompt_pictures == pictures_of(call.messages)
    assert len(cut.final_prompt_pictures) == 3
    assert longer.final_prompt_tokens is None  # nobody asked


def test_only_what_a_limit_cut_short_has_a_final_prompt() -> None:
    assert final_prompt(ScriptedEnvironment(rewards=[0.0, 1.0])) is None
    assert final_prompt(ScriptedEnvironment(rewards=[0.0, 1.0], truncated=True)) is not None
    assert final_prompt(ScriptedEnvironment(rewards=[0.0] * 9), max_episode_tokens=50) is not None


def test_a_final_prompt_that_nothing_shortens_keeps_its_end() -> None:
    class Growing(ScriptedEnvironment):
        async def reset(self, task: Task) -> Observation:
            return Observation(text="x")

    # "user: after 1" does not fit into 7 bytes
    assert final_prompt(Growing(rewards=[0.0] * 9), max_prompt_tokens=7) == b"after 1"


def test_a_token_budget_below_one_step_fails_and_names_the_numbers() -> None:
    failure = failure_of(play(ScriptedEnvironment(), max_episode_tokens=20))
    assert failure.cause is FailureCause.MEMORY_ERROR
    assert "13" in failure.message
    assert "20" in failure.message


def test_a_long_prompt_loses_its_oldest_exchanges_and_the_step_counts_them() -> None:
    agent = make_agent(build_memory=lambda: FullHistory(template=PromptTemplate()))
    # The prompt of step t has 13 + 28 t bytes: "user: after 1" is 13, "\nassistant: go" and
    # "\nuser: after 1" are 14 each.
    trajectory = trajectory_of(
        play(ScriptedEnvironment(rewards=[0.0] * 9), agent, horizon=5, max_prompt_tokens=69)
    )
    calls = [call for step in trajectory.steps for call in step.calls]
    assert prompt_lengths(trajectory) == [13, 41, 69, 69, 69]
    assert [call.dropped_exchanges for call in calls] == [0, 0, 0, 1, 2]
    assert calls[4].messages[0].content == "after 2"


@pytest.mark.parametrize(
    ("wanted", "limit", "lengths", "dropped"),
    [
        # As above; the wish is for a prompt with one exchange, of 41 bytes, or up to 68.
        (41, 1000, [13, 41, 41, 41, 41], [0, 0, 1, 2, 3]),
        (68, 1000, [13, 41, 41, 41, 41], [0, 0, 1, 2, 3]),
        (69, 1000, [13, 41, 69, 69, 69], [0, 0, 0, 1, 2]),
        # Nothing is that short: the observation stands alone.
        (12, 1000, [13, 13, 13, 13, 13], [0, 1, 2, 3, 4]),
        # The model's limit is the shorter one.
        (69, 41, [13, 41, 41, 41, 41], [0, 0, 1, 2, 3]),
    ],
)
def test_a_memory_that_has_a_number_of_tokens_shows_what_fits_and_ends_no_episode(
    wanted: int, limit: int, lengths: list[int], dropped: list[int]
) -> None:
    agent = make_agent(build_memory=lambda: FullHistory(template=PromptTemplate()))
    world = ScriptedEnvironment(rewards=[0.0] * 9)

    trajectory = trajectory_of(
        play(world, agent, horizon=5, max_prompt_tokens=limit, max_memory_tokens=wanted)
    )

    assert prompt_lengths(trajectory) == lengths
    calls = [call for step in trajectory.steps for call in step.calls]
    assert [call.dropped_exchanges for call in calls] == dropped
    assert trajectory.stop_reason is StopReason.HORIZON_REACHED


@given(
    rooms=st.lists(st.integers(0, 9), max_size=8),
    here=st.integers(1, 9),
    limit=st.integers(1, 50),
    wanted=st.integers(1, 50) | st.none(),
)
def test_a_prompt_is_shortened_as_its_definition_says(
    rooms: list[int], here: int, limit: int, wanted: int | None
) -> None:
    def without(drop: int) -> tuple[Message, ...]:
        return (Message(role="user", content="x" * (sum(rooms[drop:]) + here)),)

    prompt = Shortenable(compose=without, num_droppable=lambda: len(rooms), max_tokens=wanted)
    session = EpisodeSession(
        EpisodeSpec(task=make_task(), seed=0),
        limits=limits(max_prompt_tokens=limit),
        responder=make_agent(),
    )
    session.observe(Observation(text="here"))

    render = ByteRenderer().render
    lengths = [len(render(without(drop))) for drop in range(len(rooms) + 1)]
    best = [length for length in lengths if length <= min(limit, wanted or limit)]
    call = None
    with suppress(TokensSpent):
        call = asyncio.run(session.complete(prompt))

    shortest = lengths[-1] if lengths[-1] <= limit else None
    expected = best[0] if best else shortest
    assert (call and call.sampled and len(call.sampled.prompt_tokens)) == expected


@pytest.mark.parametrize(
    ("longest", "recalled"),
    [
        # Of "start 3", "after 1" …, what says "after" scores highest, and of those the newer.
        (1000, [(), (), (0,), (0, 1), (1, 2)]),
        # "user: Earlier:\nafter 2\n> go\nPast:\nafter 3\n> go\nNow:\nafter 4" has 59 bytes.
        (59, [(), (), (0,), (1,), (2,)]),
        (58, [(), (), (), (), ()]),
    ],
)
def test_a_call_names_the_steps_that_its_memory_recalled(
    longest: int, recalled: list[tuple[int, ...]]
) -> None:
    agent = make_agent(
        build_memory=lambda: RecallMemory(size=1, max_earlier=2, template=PromptTemplate())
    )
    world = ScriptedEnvironment(rewards=[0.0] * 9)

    trajectory = trajectory_of(play(world, agent, max_memory_tokens=longest))

    calls = [call for step in trajectory.steps for call in step.calls]
    assert [call.recalled_steps for call in calls] == recalled
    for call in calls:
        shown = call.messages[-1].text.partition("Past:")[0]
        texts = [trajectory.steps[index].observation.text for index in call.recalled_steps]
        assert shown.count("> go") == len(texts)
        assert all(text in shown for text in texts)


def test_a_prompt_that_nothing_shortens_truncates_after_the_first_step() -> None:
    class Growing(ScriptedEnvironment):
        async def reset(self, task: Task) -> Observation:
            return Observation(text="x")

    trajectory = trajectory_of(play(Growing(rewards=[0.0] * 9), max_prompt_tokens=len(b"user: x")))
    assert len(trajectory.steps) == 1
    assert trajectory.stop_reason is StopReason.TOKEN_BUDGET_SPENT


def test_a_first_prompt_that_nothing_shortens_fails_and_names_both_numbers() -> None:
    failure = failure_of(play(ScriptedEnvironment(), max_prompt_tokens=12))
    assert failure.cause is FailureCause.MEMORY_ERROR
    assert "13" in failure.message
    assert "12" in failure.message


@pytest.mark.parametrize("where", ["open", "reset", "step"])
def test_an_environment_that_raises_fails_its_episode_and_is_closed(where: str) -> None:
    environment = FailingEnvironment(where=where)
    failure = failure_of(play(environment))
    assert failure.cause is FailureCause.ENVIRONMENT_ERROR
    assert failure.message == f"environment.{where}: ConnectionError: server gone"
    assert environment.num_closed == 1


def test_steps_before_a_failure_are_kept() -> None:
    failure = failure_of(play(FailingEnvironment(where="step", turn=2)))
    assert [step.index for step in failure.steps] == [0, 1]


@pytest.mark.parametrize("where", ["reset", "step"])
def test_an_environment_that_never_returns_fails_at_its_deadline(where: str) -> None:
    environment = HangingEnvironment(where=where)
    failure = failure_of(play(environment, reset_deadline_seconds=0.02, step_deadline_seconds=0.02))
    assert failure.cause is FailureCause.ENVIRONMENT_TIMEOUT
    assert failure.message == f"environment.{where}: no answer within 0.02 s"
    assert environment.num_closed == 1


def test_a_timeout_error_of_the_environments_own_is_an_error_not_a_missed_deadline() -> None:
    class Socket(ScriptedEnvironment):
        async def reset(self, task: Task) -> Observation:
            raise TimeoutError("socket")

    assert failure_of(play(Socket())).cause is FailureCause.ENVIRONMENT_ERROR


def test_an_environment_that_cannot_be_made_fails_the_episode() -> None:
    def refuse(task: Task) -> Environment:
        raise LookupError(f"no environment {task.environment!r}")

    outcome = asyncio.run(
        run_episode(
            EpisodeSpec(task=make_task(), seed=1),
            agent=make_agent(),
            make_environment=refuse,
            limits=limits(),
        )
    )
    assert failure_of(outcome).cause is FailureCause.ENVIRONMENT_ERROR


@pytest.mark.parametrize("where", ["close"])
def test_a_close_that_raises_or_hangs_changes_no_record(where: str) -> None:
    for environment in (FailingEnvironment(where=where), HangingEnvironment(where=where)):
        trajectory_of(play(environment, horizon=2, close_deadline_seconds=0.02))
        assert environment.num_closed == 1


def test_waiting_for_a_turn_is_under_no_deadline() -> None:
    class Queueing(ScriptedEnvironment):
        async def open(self) -> None:
            await asyncio.sleep(0.1)

    began = time.monotonic()
    trajectory = trajectory_of(play(Queueing(), reset_deadline_seconds=0.05))
    assert trajectory.duration_seconds < time.monotonic() - began - 0.09


def test_an_engine_that_raises_fails_the_episode() -> None:
    failure = failure_of(play(ScriptedEnvironment(), make_agent(FailingPolicy(turn=1))))
    assert failure.cause is FailureCause.POLICY_ERROR
    assert "engine gone" in failure.message
    assert len(failure.steps) == 1


def test_an_engine_that_never_answers_fails_at_its_deadline() -> None:
    agent = make_agent(HangingPolicy())
    failure = failure_of(play(ScriptedEnvironment(), agent, policy_deadline_seconds=0.02))
    assert failure.cause is FailureCause.POLICY_TIMEOUT


@pytest.mark.parametrize(
    ("tokens", "logprobs", "message"),
    [
        ((), (), "no tokens"),
        ((1, 2), (-0.5,), "2 tokens but 1 logprobs"),
        ((1,), (float("nan"),), "not finite"),
    ],
)
def test_a_reply_that_cannot_be_trained_on_is_the_policys_failure(
    tokens: tuple[int, ...], logprobs: tuple[float, ...], message: str
) -> None:
    policy: Policy = ReplyingPolicy(
        Completion(text="go", action_tokens=tokens, behavior_logprobs=logprobs, policy_version=0)
    )
    failure = failure_of(play(ScriptedEnvironment(), make_agent(policy)))
    assert failure.cause is FailureCause.POLICY_ERROR
    assert message in failure.message


@pytest.mark.parametrize(
    ("reward", "message"),
    [
        (float("nan"), "must be finite, got nan"),
        (-1.8e300, r"at most 1e\+30 in size, got -1.8e\+300"),
    ],
)
def test_a_reward_that_cannot_be_learned_from_is_the_environments_failure(
    reward: float, message: str
) -> None:
    failure = failure_of(play(ScriptedEnvironment(rewards=[reward, 1.0])))
    assert failure.cause is FailureCause.ENVIRONMENT_ERROR
    assert re.search(message, failure.message)


def test_a_memory_that_raises_fails_the_episode() -> None:
    class Broken(NoMemory):
        def compose(self, observation: Observation, *, drop: int = 0) -> tuple[Message, ...]:
            raise RuntimeError("lost")

    agent = make_agent(build_memory=lambda: Broken(template=PromptTemplate()))
    assert failure_of(play(ScriptedEnvironment(), agent)).cause is FailureCause.MEMORY_ERROR


def test_messages_that_no_template_renders_fail_the_episode() -> None:
    class Refusing(ByteRenderer):
        def render(
            self,
            messages: Sequence[Message],
            *,
            earlier: Sequence[Call] = (),
            begins_reply: bool = True,
        ) -> tuple[int, ...]:
            raise ValueError("no such role")

    base = make_agent()
    agent = Agent(
        policy=base.policy,
        renderer=Refusing(),
        parser=base.parser,
        build_memory=base.build_memory,
    )
    assert failure_of(play(ScriptedEnvironment(), agent)).cause is FailureCause.RENDERER_ERROR


def test_a_renderer_is_given_the_calls_that_a_prompt_may_go_on_from() -> None:
    given: list[Sequence[Call]] = []

    class Telling(ByteRenderer):
        def render(
            self,
            messages: Sequence[Message],
            *,
            earlier: Sequence[Call] = (),
            begins_reply: bool = True,
        ) -> tuple[int, ...]:
            given.append(earlier)
            return super().render(messages, earlier=earlier, begins_reply=begins_reply)

    base = make_agent()
    agent = Agent(
        policy=base.policy,
        renderer=Telling(),
        parser=base.parser,
        build_memory=base.build_memory,
    )
    trajectory = trajectory_of(play(ScriptedEnvironment(rewards=[0.0, 0.0, 1.0]), agent))

    calls = [call for step in trajectory.steps for call in step.calls]
    assert [list(one) for one in given] == [[], calls[:1], calls[:2]]


def test_cancellation_passes_and_the_environment_is_closed() -> None:
    environment = HangingEnvironment(where="step")

    async def cancel_in_mid_episode() -> None:
        episode = asyncio.create_task(
            run_episode(
                EpisodeSpec(task=make_task(), seed=1),
                agent=make_agent(),
                make_environment=lambda task: environment,
                limits=limits(),
            )
        )
        await asyncio.sleep(0.02)
        episode.cancel()
        with pytest.raises(asyncio.CancelledError):
            await episode

    asyncio.run(cancel_in_mid_episode())
    assert environment.num_closed == 1


class CancelledInside(ScriptedPolicy):
    """Awaits something of its own that is cancelled, as a lost connection's reader is."""

    async def act(self, prompt: Prompt, sampling: Sampling, *, episode_id: str) -> Completion:
        inner = asyncio.create_task(asyncio.Event().wait())
        inner.cancel()
        await inner
        raise AssertionError("unreachable")


def test_a_policy_that_is_cancelled_by_itself_fails_its_episode_and_no_other() -> None:
    failing, environment = make_agent(CancelledInside()), ScriptedEnvironment()

    async def play_two(stop: asyncio.Event | None) -> tuple[EpisodeOutcome, EpisodeOutcome]:
        first, second = (
            run_episode(
                EpisodeSpec(task=make_task(), seed=1),
                agent=agent,
                make_environment=lambda task: environment,
                limits=limits(),
                stop=stop,
            )
            for agent in (failing, make_agent())
        )
        return await first, await second

    for stop in (None, asyncio.Event()):
        outcome, next_outcome = asyncio.run(play_two(stop))
        failure = failure_of(outcome)
        assert failure.cause is FailureCause.POLICY_ERROR
        assert failure.message == "policy.act: CancelledError: it cancelled itself"
        trajectory_of(next_outcome)
        environment = ScriptedEnvironment()


@pytest.mark.parametrize("where", ["open", "reset", "step", "close"])
def test_an_environment_that_is_cancelled_by_itself_fails_its_episode(where: str) -> None:
    class CancelledEnvironment(HangingEnvironment):
        async def _perhaps_hang(self, where: str) -> None:
            if where == self._where:
                raise asyncio.CancelledError

    outcome = play(CancelledEnvironment(where=where))
    if where == "close":
        trajectory_of(outcome)
    else:
        assert failure_of(outcome).cause is FailureCause.ENVIRONMENT_ERROR
        assert failure_of(outcome).message.startswith(f"environment.{where}: CancelledError")


def test_a_cancellation_while_an_environment_cancels_itself_passes() -> None:
    class Slow(HangingEnvironment):
        async def step(self, action: str) -> StepResult:
            try:
                return await super().step(action)
            except asyncio.CancelledError:
                raise asyncio.CancelledError("another one") from None

    async def cancel_in_mid_episode() -> None:
        episode = asyncio.create_task(
            run_episode(
                EpisodeSpec(task=make_task(), seed=1),
                agent=make_agent(),
                make_environment=lambda task: Slow(where="step"),
                limits=limits(),
            )
        )
        await asyncio.sleep(0.02)
        episode.cancel()
        with pytest.raises(asyncio.CancelledError):
            await episode

    asyncio.run(cancel_in_mid_episode())


@pytest.mark.parametrize(
    "error", [Unprintable(), ValueError("\ud83d"), ValueError("x" * 20_000_000)]
)
def test_a_failure_that_cannot_be_printed_or_is_endless_is_told_by_its_type(
    error: Exception,
) -> None:
    class Raising(ScriptedEnvironment):
        async def step(self, action: str) -> StepResult:
            raise error

    message = failure_of(play(Raising())).message
    assert message.startswith(f"environment.step: {type(error).__name__}: ")
    assert len(message.encode()) < 2 * MAX_MESSAGE_CHARACTERS


def test_half_of_a_surrogate_pair_in_a_reply_is_no_failure_of_others() -> None:
    reply = Completion(
        text="wave \ud83d", action_tokens=(1,), behavior_logprobs=(-0.5,), policy_version=0
    )
    agent = make_agent(
        ReplyingPolicy(reply), build_memory=lambda: FullHistory(template=PromptTemplate())
    )
    environment = ScriptedEnvironment(rewards=[0.0] * 3)
    trajectory = trajectory_of(play(environment, agent, horizon=3))
    assert [call.reply for step in trajectory.steps for call in step.calls] == ["wave \ufffd"] * 3
    assert environment.actions == ["wave \ufffd"] * 3


@pytest.mark.parametrize(
    "observation",
    [
        Observation(text="x" * 101),
        Observation(text="x", admissible_actions=("y" * 50,) * 2),
        Observation(text="x", anchor_state="z" * 100),
    ],
)
@pytest.mark.parametrize("where", ["reset", "step"])
def test_an_observation_that_is_too_long_fails_its_episode_and_names_both_numbers(
    where: str, observation: Observation
) -> None:
    class Wordy(ScriptedEnvironment):
        async def reset(self, task: Task) -> Observation:
            return observation if where == "reset" else await super().reset(task)

        async def step(self, action: str) -> StepResult:
            return StepResult(observation=observation, reward=0.0)

    failure = failure_of(play(Wordy(), max_observation_characters=100))
    assert failure.cause is FailureCause.ENVIRONMENT_ERROR
    assert "observation of 101 characters" in failure.message
    assert "max_observation_characters = 100" in failure.message


def test_rendering_one_episodes_prompt_costs_no_other_episode_its_time() -> None:
    others_have_ended = threading.Event()

    class SlowForOne(ByteRenderer):
        def render(
            self,
            messages: Sequence[Message],
            *,
            earlier: Sequence[Call] = (),
            begins_reply: bool = True,
        ) -> tuple[int, ...]:
            if "start 0" in messages[-1].text:
                assert others_have_ended.wait(timeout=60), "rendering kept the others waiting"
            return super().render(messages, earlier=earlier, begins_reply=begins_reply)

    base = make_agent()
    agent = Agent(
        policy=base.policy,
        renderer=SlowForOne(),
        parser=base.parser,
        build_memory=base.build_memory,
    )

    async def play_beside_each_other() -> list[EpisodeOutcome]:
        def episode(number: int) -> Coroutine[None, None, EpisodeOutcome]:
            return run_episode(
                EpisodeSpec(task=make_task(number), seed=1),
                agent=agent,
                make_environment=lambda task: ScriptedEnvironment(),
                limits=limits(reset_deadline_seconds=20.0, step_deadline_seconds=20.0),
            )

        slow = asyncio.create_task(episode(0))
        others = await asyncio.gather(*(episode(number) for number in range(1, 9)))
        others_have_ended.set()
        return [await slow, *others]

    for outcome in asyncio.run(play_beside_each_other()):
        assert trajectory_of(outcome).stop_reason is StopReason.TASK_SOLVED


def test_each_step_is_sampled_with_its_own_seed_out_of_the_episodes() -> None:
    policy = ScriptedPolicy()
    play(ScriptedEnvironment(rewards=[0.0] * 3), make_agent(policy))
    seeds = [sampling.seed for sampling in policy.samplings]
    assert seeds == [step_seed(11, step_index=index) for index in range(3)]
    assert len(set(seeds)) == 3


def test_an_action_is_valid_only_if_form_list_and_environment_agree() -> None:
    environment = ScriptedEnvironment(rewards=[0.0, 0.0], admissible_actions=("go", "stay"))
    trajectory = trajectory_of(play(environment, make_agent(ScriptedPolicy(["GO ", "fly"]))))
    assert [step.action_valid for step in trajectory.steps] == [True, False]
    assert environment.actions == ["go", "fly"]


def test_prompts_of_a_window_stop_growing_while_full_history_does_not() -> None:
    def lengths(build_memory: Callable[[], Memory]) -> list[int]:
        agent = make_agent(build_memory=build_memory)
        environment = ScriptedEnvironment(rewards=[0.0] * 9)
        return prompt_lengths(trajectory_of(play(environment, agent, horizon=9)))

    template = PromptTemplate()
    assert len(set(lengths(lambda: NoMemory(template=template)))) == 1
    assert len(set(lengths(lambda: WindowMemory(size=3, template=template))[3:])) == 1
    full = lengths(lambda: FullHistory(template=template))
    assert full == sorted(set(full))


class WaitingPolicy:
    """Answers until its `turn`-th call, and never from then on; says when it waits."""

    def __init__(self, *, turn: int) -> None:
        self._turn = turn
        self._inner = ScriptedPolicy()
        self.waits = asyncio.Event()
        self.abandoned = False

    async def act(self, prompt: Prompt, sampling: Sampling, *, episode_id: str) -> Completion:
        if len(self._inner.prompts) == self._turn:
            self.waits.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                self.abandoned = True
                raise
        return await self._inner.act(prompt, sampling, episode_id=episode_id)


def test_an_episode_that_is_told_to_stop_gives_up_its_request_and_its_environment() -> None:
    environment = ScriptedEnvironment(rewards=[0.5] * 5)

    async def stop_in_mid_episode() -> tuple[EpisodeOutcome, bool]:
        policy, stop = WaitingPolicy(turn=2), asyncio.Event()
        episode = asyncio.create_task(
            run_episode(
                EpisodeSpec(task=make_task(), seed=1),
                agent=make_agent(policy),
                make_environment=lambda task: environment,
                limits=limits(),
                stop=stop,
            )
        )
        await policy.waits.wait()
        stop.set()
        return await episode, policy.abandoned

    outcome, abandoned = asyncio.run(stop_in_mid_episode())

    failure = failure_of(outcome)
    assert failure.cause is FailureCause.STOPPED_EARLY
    assert "training step" not in failure.message, "an evaluation may be stopped too"
    assert [step.reward for step in failure.steps] == [0.5, 0.5]
    assert abandoned
    assert environment.num_closed == 1


def test_an_episode_that_ended_before_it_was_told_to_stop_has_ended() -> None:
    async def play_beside(stop: asyncio.Event) -> EpisodeOutcome:
        return await run_episode(
            EpisodeSpec(task=make_task(), seed=1),
            agent=make_agent(),
            make_environment=lambda task: ScriptedEnvironment(rewards=[1.0]),
            limits=limits(),
            stop=stop,
        )

    async def play_to_the_end() -> EpisodeOutcome:
        return await play_beside(asyncio.Event())

    assert trajectory_of(asyncio.run(play_to_the_end())).episode_return == 1.0


def test_cancellation_passes_through_an_episode_that_may_be_stopped() -> None:
    environment = ScriptedEnvironment(rewards=[0.0] * 5)

    async def cancel_in_mid_episode() -> None:
        policy = WaitingPolicy(turn=1)
        episode = asyncio.create_task(
            run_episode(
                EpisodeSpec(task=make_task(), seed=1),
                agent=make_agent(policy),
                make_environment=lambda task: environment,
                limits=limits(),
                stop=asyncio.Event(),
            )
        )
        await policy.waits.wait()
        episode.cancel()
        with pytest.raises(asyncio.CancelledError):
            await episode
        assert policy.abandoned

    asyncio.run(cancel_in_mid_episode())
    assert environment.num_closed == 1
