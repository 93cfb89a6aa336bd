"""An environment's own expert in the place of a policy."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from fakes import ScriptedEnvironment, make_agent, make_task
from longhaul_core.actions import ActionFormat, ActionParser, ParsedAction
from longhaul_core.environment import Environment
from longhaul_core.errors import PolicyFailure
from longhaul_core.gym import GymEnvironmentSpec, ProcessPool, thread_environments
from longhaul_core.memory import PromptTemplate, WindowMemory
from longhaul_core.rollout import (
    ChanceActing,
    EpisodeLimits,
    EpisodeOutcome,
    EpisodeSpec,
    ExpertActing,
    NoisyExpert,
    run_episode,
)
from longhaul_core.rollout.chance import CHANCE
from longhaul_core.rollout.expert import EXPERT, reply_for
from longhaul_core.types import FailedEpisode, FailureCause, Split, Trajectory
from longhaul_envs.sources import environment_source

NUMBER_LINE = GymEnvironmentSpec(
    environment_id="longhaul/NumberLine-v0", import_modules=("longhaul_envs.registry",)
)
TAGS = ActionParser()


async def demonstrated(
    pool: ProcessPool | None = None,
    *,
    horizon: int = 20,
    seconds: float = 30.0,
    noise: float = 0.0,
) -> EpisodeOutcome:
    task = environment_source(NUMBER_LINE).tasks(Split.TRAIN)[3]
    expert = ExpertActing(
        make_environment=pool or thread_environments(NUMBER_LINE), parser=TAGS, seconds=seconds
    )
    agent = replace(
        make_agent(
            build_memory=lambda: WindowMemory(size=1, template=PromptTemplate(instruction="Now."))
        ),
        acting=NoisyExpert(
            expert=expert, chance=ChanceActing(parser=TAGS, seed=1), noise=noise, seed=1
        ),
        parser=TAGS,
    )
    return await run_episode(
        EpisodeSpec(task=task, seed=1),
        agent=agent,
        make_environment=expert.make_environment,
        limits=EpisodeLimits(horizon=horizon, max_prompt_tokens=1000),
    )


def test_an_expert_plays_with_the_prompts_of_the_runs_memory() -> None:
    outcome = asyncio.run(demonstrated())

    assert isinstance(outcome, Trajectory)
    assert outcome.success
    assert len(outcome.steps) > 1
    for step in outcome.steps:
        (call,) = step.calls
        assert call.reply == f"<action>{step.action}</action>"
        assert (call.model, call.sampled, call.trained) == (EXPERT, None, False)
        assert step.action_valid
        assert step.observation.text in call.messages[-1].text
        assert "Now." in call.messages[-1].text
    first, second = (step.calls[0].messages[-1].text for step in outcome.steps[:2])
    assert outcome.steps[0].observation.text in second  # the window shows the step before
    assert first != second


@pytest.mark.parametrize("noise", [0.5, 1.0])
def test_chance_acts_in_a_share_of_the_steps_and_the_expert_goes_on_from_there(
    noise: float,
) -> None:
    outcome = asyncio.run(demonstrated(horizon=40, noise=noise))

    assert isinstance(outcome, Trajectory)
    models = [step.calls[0].model for step in outcome.steps]
    assert set(models) == ({EXPERT, CHANCE} if noise < 1 else {CHANCE})
    assert all(step.action_valid for step in outcome.steps)
    again = asyncio.run(demonstrated(horizon=40, noise=noise))
    assert isinstance(again, Trajectory)
    assert [step.action for step in again.steps] == [step.action for step in outcome.steps]
    if noise < 1:
        assert outcome.success
        assert len({step.action for step in outcome.steps}) > 1


def test_an_expert_in_a_worker_process_plays_the_same_episode() -> None:
    async def both() -> tuple[EpisodeOutcome, EpisodeOutcome]:
        async with ProcessPool(NUMBER_LINE, num_workers=1) as pool:
            return await demonstrated(), await demonstrated(pool)

    in_thread, in_process = asyncio.run(both())
    assert isinstance(in_thread, Trajectory)
    assert isinstance(in_process, Trajectory)
    assert [step.action for step in in_process.steps] == [step.action for step in in_thread.steps]


class _Lost(ScriptedEnvironment):
    async def expert_action(self) -> str | None:
        return None


class _Slow(ScriptedEnvironment):
    async def expert_action(self) -> str | None:
        await asyncio.Event().wait()
        return None


@pytest.mark.parametrize(
    ("environment", "cause", "words"),
    [
        (ScriptedEnvironment([1.0]), FailureCause.ENVIRONMENT_ERROR, "has no expert"),
        (_Lost([1.0]), FailureCause.ENVIRONMENT_ERROR, "sees no way to success after 0 steps"),
        (_Slow([1.0]), FailureCause.ENVIRONMENT_TIMEOUT, "no answer within 0.01 s"),
    ],
)
def test_an_expert_that_is_not_there_gives_up_or_hangs_fails_its_episode(
    environment: Environment, cause: FailureCause, words: str
) -> None:
    expert = ExpertActing(make_environment=lambda task: environment, parser=TAGS, seconds=0.01)
    outcome = asyncio.run(
        run_episode(
            EpisodeSpec(task=make_task(), seed=1),
            agent=replace(make_agent(), acting=expert, parser=TAGS),
            make_environment=expert.make_environment,
            limits=EpisodeLimits(horizon=5, max_prompt_tokens=1000),
        )
    )

    assert isinstance(outcome, FailedEpisode)
    assert outcome.cause is cause
    assert words in outcome.message


@pytest.mark.parametrize(
    ("parser", "reply"),
    [
        (ActionParser(), "<action>go north</action>"),
        (ActionParser(reply_prefix="<action>"), "go north</action>"),
        (ActionParser(format=ActionFormat.JSON), '{"action": "go north"}'),
        (ActionParser(format=ActionFormat.REACT), "Action:\ngo north"),
        (ActionParser(format=ActionFormat.PLAIN), "go north"),
        (ActionParser(format=ActionFormat.PLAIN, reply_prefix="The next action is"), " go north"),
        (ActionParser(reply_prefix="<think>"), "\n</think>\n\n<action>go north</action>"),
    ],
)
def test_a_reply_is_written_behind_what_the_prompt_has_of_it(
    parser: ActionParser, reply: str
) -> None:
    assert reply_for("go north", parser, admissible=("go north", "wait")) == reply


class _OwnParser:
    instruction = "Say it."

    def parse(self, reply: str, admissible: Sequence[str] | None = None) -> ParsedAction:
        return ParsedAction(text=reply, valid=True)


def test_a_parser_of_ones_own_writes_nothing() -> None:
    with pytest.raises(PolicyFailure, match="reads actions and writes none"):
        reply_for("go north", _OwnParser())


@pytest.mark.parametrize(
    ("action", "parser", "words"),
    [
        ("a</action>b", ActionParser(), "reads as 'a'"),
        ("jump", ActionParser(), "not one of the 2 admissible actions"),
        ("wait", ActionParser(require_thinking=True), "no <think>"),
    ],
)
def test_an_action_that_no_reply_could_ask_for_is_refused(
    action: str, parser: ActionParser, words: str
) -> None:
    admissible = None if "<" in action else ("go north", "wait")
    with pytest.raises(PolicyFailure, match=words):
        reply_for(action, parser, admissible=admissible)
