"""A recorded episode, played again by the loop of a run that imitates it."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

from fakes import ScriptedEnvironment, ScriptedPolicy, make_agent, make_task
from longhaul_core.actions import ActionFormat, ActionParser
from longhaul_core.memory import FullHistory, Memory, NoMemory, PromptTemplate
from longhaul_core.policy import Policy
from longhaul_core.rollout import (
    EpisodeLimits,
    EpisodeOutcome,
    EpisodeSpec,
    PlanThenAct,
    RecordedEnvironment,
    RecordedReplies,
    replies_of,
    run_episode,
)
from longhaul_core.rollout.agent import Acting
from longhaul_core.types import Call, FailedEpisode, FinishReason, StopReason, Trajectory

LIMITS = EpisodeLimits(horizon=5, max_prompt_tokens=1000)
PLAIN = ActionParser(format=ActionFormat.PLAIN)


def recorded_episode(
    *, acting: Acting | None = None, replies: tuple[str, ...] = ("left", "right", "up")
) -> Trajectory:
    outcome = asyncio.run(
        run_episode(
            EpisodeSpec(task=make_task(3), seed=11),
            agent=replace(make_agent(ScriptedPolicy(replies), max_reply_tokens=64), acting=acting),
            make_environment=lambda task: ScriptedEnvironment(rewards=[0.25, 0.0, 1.0]),
            limits=LIMITS,
        )
    )
    assert isinstance(outcome, Trajectory)
    return outcome


def tokens_of(call: Call) -> tuple[int, ...]:
    return (*call.reply.encode(), 3)


def again(
    recorded: Trajectory,
    *,
    memory: Callable[[], Memory] = lambda: NoMemory(template=PromptTemplate()),
    acting: Acting | None = None,
    parser: ActionParser = PLAIN,
    limits: EpisodeLimits = LIMITS,
    purposes: bool = False,
    imported: bool = False,
) -> EpisodeOutcome:
    policy: Policy = RecordedReplies(
        replies_of(recorded, parser, purposes=purposes), tokens_of=tokens_of, policy_version=7
    )
    return asyncio.run(
        run_episode(
            EpisodeSpec(task=recorded.task, seed=5),
            agent=replace(
                make_agent(policy, build_memory=memory, max_reply_tokens=64),
                acting=acting,
                parser=parser,
            ),
            make_environment=lambda task: RecordedEnvironment(
                recorded, actions_are_replies=imported
            ),
            limits=limits,
        )
    )


def test_a_recorded_episode_comes_again_with_tokens_that_nobody_sampled() -> None:
    recorded = recorded_episode()

    outcome = again(recorded)

    assert isinstance(outcome, Trajectory)
    for before, now in zip(recorded.steps, outcome.steps, strict=True):
        assert (now.observation, now.action, now.action_valid, now.reward) == (
            before.observation,
            before.action,
            before.action_valid,
            before.reward,
        )
        (old,), (call,) = before.calls, now.calls
        assert (call.messages, call.reply) == (old.messages, old.reply)
        assert call.trained
        assert call.sampled is not None
        assert call.sampled.action_tokens == tokens_of(old)
        assert call.sampled.behavior_logprobs is None
        assert call.sampled.policy_version == 7
    assert (outcome.success, outcome.stop_reason) == (True, StopReason.TASK_SOLVED)
    assert outcome.final_observation == recorded.final_observation


def test_its_prompts_are_those_of_the_run_that_imitates() -> None:
    recorded = recorded_episode()

    outcome = again(recorded, memory=lambda: FullHistory(template=PromptTemplate()))

    assert isinstance(outcome, Trajectory)
    shown = [len(step.calls[0].messages) for step in outcome.steps]
    assert shown == [1, 3, 5]
    assert [len(step.calls[0].messages) for step in recorded.steps] == [1, 1, 1]


def test_an_episode_longer_than_the_horizon_is_cut_there() -> None:
    outcome = again(recorded_episode(), limits=replace(LIMITS, horizon=2))

    assert isinstance(outcome, Trajectory)
    assert (len(outcome.steps), outcome.stop_reason) == (2, StopReason.HORIZON_REACHED)
    assert not outcome.success


def test_a_truncated_episode_stays_truncated() -> None:
    recorded = replace(recorded_episode(), stop_reason=StopReason.HORIZON_REACHED, success=False)

    outcome = again(recorded)

    assert isinstance(outcome, Trajectory)
    assert outcome.stop_reason.truncated
    assert not outcome.success


def test_what_a_person_did_is_written_as_the_run_asks_for_it() -> None:
    recorded = recorded_episode()
    by_hand = replace(recorded, steps=tuple(replace(step, calls=()) for step in recorded.steps))
    tags = ActionParser()

    outcome = again(by_hand, parser=tags)

    assert isinstance(outcome, Trajectory)
    replies = [step.calls[0].reply for step in outcome.steps]
    assert replies == [f"<action>{action}</action>" for action in ("left", "right", "up")]


def test_plans_are_imitated_where_the_run_plans_too() -> None:
    replies = ("north it is", "left", "now east", "right", "and up", "up")
    recorded = recorded_episode(acting=PlanThenAct(), replies=replies)

    planned = again(recorded, acting=PlanThenAct(), purposes=True)
    acted = again(recorded)

    assert isinstance(planned, Trajectory)
    assert isinstance(acted, Trajectory)
    assert [call.reply for step in planned.steps for call in step.calls] == list(replies)
    assert [call.reply for step in acted.steps for call in step.calls] == ["left", "right", "up"]


def test_a_reply_that_reads_otherwise_here_fails_the_episode() -> None:
    outcome = again(recorded_episode(), parser=ActionParser(format=ActionFormat.JSON))

    assert isinstance(outcome, Trajectory)  # no JSON: the text itself is taken, and is invalid
    assert not any(step.action_valid for step in outcome.steps)
    other = recorded_episode(replies=("<action>left</action>",))
    failed = again(other, parser=ActionParser())
    assert isinstance(failed, FailedEpisode)
    assert "reads as the action 'left' in this run" in failed.message
    assert "set actions.format" in failed.message


def test_an_import_that_has_the_whole_reply_for_its_action_is_imitated() -> None:
    thought = "Thought: the lamp is there.\nAction: left"
    recorded = recorded_episode(replies=(thought, "right", "up"))
    first, *others = recorded.steps
    recorded = replace(recorded, steps=(replace(first, action=thought), *others))

    outcome = again(recorded, parser=ActionParser(format=ActionFormat.REACT), imported=True)

    assert isinstance(outcome, Trajectory)
    assert (outcome.steps[0].action, outcome.steps[0].action_valid) == ("left", True)


def test_a_run_that_asks_more_often_than_the_recorded_one_fails_the_episode() -> None:
    outcome = again(recorded_episode(), acting=PlanThenAct(), purposes=True)

    assert isinstance(outcome, FailedEpisode)


def test_a_reply_longer_than_replies_may_be_fails_the_episode() -> None:
    outcome = again(recorded_episode(replies=("x" * 64, "right", "up")))

    assert isinstance(outcome, FailedEpisode)
    assert "65 tokens; rollout.max_reply_tokens = 64" in outcome.message


def test_a_cut_reply_stays_cut() -> None:
    recorded = recorded_episode()
    first, *others = recorded.steps
    cut = replace(first.calls[0], finish_reason=FinishReason.LENGTH)
    recorded = replace(recorded, steps=(replace(first, calls=(cut,)), *others))

    outcome = again(recorded)

    assert isinstance(outcome, Trajectory)
    assert outcome.steps[0].calls[0].finish_reason is FinishReason.LENGTH
