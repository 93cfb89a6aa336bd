"""Agents and memories that call the model more than once a step."""

import asyncio
from dataclasses import replace

import pytest

from fakes import ScriptedEnvironment, ScriptedPolicy, make_agent, make_task
from longhaul_core.errors import ConfigError
from longhaul_core.memory import (
    FullHistory,
    Memory,
    MemoryContext,
    NoMemory,
    PromptTemplate,
    SummaryMemory,
)
from longhaul_core.policy import Shortenable
from longhaul_core.rollout import (
    ACTINGS,
    Agent,
    EpisodeLimits,
    EpisodeOutcome,
    EpisodeSession,
    EpisodeSpec,
    PlanThenAct,
    SingleCall,
    build_acting,
    call_seed,
    run_episode,
    step_seed,
)
from longhaul_core.types import (
    Call,
    FailedEpisode,
    FailureCause,
    Observation,
    Picture,
    Step,
    StopReason,
    Task,
    Trajectory,
)

TEMPLATE = PromptTemplate(summary_request="Sum up.")


def play(
    agent: Agent,
    *,
    num_steps: int = 4,
    terminates: bool = True,
    with_final_prompt: bool = False,
    environment: ScriptedEnvironment | None = None,
    **limits: int,
) -> EpisodeOutcome:
    return asyncio.run(
        run_episode(
            EpisodeSpec(task=make_task(3), seed=11),
            agent=agent,
            make_environment=lambda task: (
                environment or ScriptedEnvironment([0.0] * num_steps, truncated=not terminates)
            ),
            limits=replace(EpisodeLimits(horizon=9, max_prompt_tokens=1000), **limits),
            with_final_prompt=with_final_prompt,
        )
    )


def steps_of(outcome: EpisodeOutcome) -> tuple[Step, ...]:
    assert isinstance(outcome, Trajectory), outcome
    return outcome.steps


def planning(policy: ScriptedPolicy, memory: Memory | None = None) -> Agent:
    agent = make_agent(policy, build_memory=None if memory is None else lambda: memory)
    return replace(agent, acting=PlanThenAct(request="Plan."))


def summarising(policy: ScriptedPolicy, *, trained: bool = False, every: int = 2) -> Agent:
    return make_agent(
        policy,
        build_memory=lambda: SummaryMemory(
            size=1, every=every, template=TEMPLATE, max_summary_tokens=6, trained=trained
        ),
    )


def purposes(steps: tuple[Step, ...]) -> list[list[str]]:
    return [[call.purpose for call in step.calls] for step in steps]


def test_a_plan_is_a_call_of_its_own_and_in_sight_when_the_action_is_chosen() -> None:
    policy = ScriptedPolicy(["<think>hm</think> go on", "left", "stop there", "right"])
    environment = ScriptedEnvironment([0.0, 1.0])

    first, second = steps_of(play(planning(policy), environment=environment))

    plan, act = first.calls
    assert (plan.purpose, plan.agent, plan.trained) == ("plan", "planner", True)
    assert (act.purpose, act.agent, act.trained) == ("act", "", True)
    assert plan.messages[-1].text == "start 3\nPlan."
    assert act.messages[-1].text == "start 3\nPlan: go on"
    assert first.act is act
    assert second.calls[1].messages[-1].text == "after 1\nPlan: stop there"
    assert environment.actions == ["left", "right"]


def test_further_calls_of_a_step_have_seeds_of_their_own() -> None:
    policy = ScriptedPolicy()
    play(planning(policy), num_steps=2)
    seeds = [sampling.seed for sampling in policy.samplings]
    assert seeds == [
        call_seed(step_seed(11, step_index=index), call_index=place)
        for index in range(2)
        for place in range(2)
    ]
    assert seeds[::2] == [step_seed(11, step_index=index) for index in range(2)]
    assert len(set(seeds)) == 4


@pytest.mark.parametrize(("longest", "of_memory"), [(60, 1000), (1000, 60)])
def test_a_plan_is_shortened_like_the_action_and_pictures_stay_below_the_text(
    longest: int, of_memory: int
) -> None:
    picture = Picture.of(b"view")

    class Seen(ScriptedEnvironment):
        def _observe(self, text: str) -> Observation:
            return Observation(text=text, pictures=(picture,))

    memory = FullHistory(template=PromptTemplate())
    outcome = play(
        planning(ScriptedPolicy(), memory),
        environment=Seen([0.0] * 9),
        horizon=4,
        max_prompt_tokens=longest,
        max_memory_tokens=of_memory,
    )
    steps = steps_of(outcome)

    assert [[call.dropped_exchanges for call in step.calls] for step in steps] == [
        [0, 0],
        [0, 0],
        [1, 1],
        [2, 2],
    ]
    assert all(call.messages[-1].pictures == (picture,) for step in steps for call in step.calls)
    assert steps[0].calls[1].messages[-1].content == ("start 3\nPlan: go", picture)


def test_an_episode_whose_tokens_suffice_for_a_plan_alone_ends_before_the_step() -> None:
    # A plan reads "user: start 3\nPlan." (19) and writes "go" (2); an action reads
    # "user: start 3\nPlan: go" (22): a step is 45 tokens, and its action may need 8.
    assert len(steps_of(play(planning(ScriptedPolicy()), max_episode_tokens=45 + 21 + 29))) == 1
    outcome = play(planning(ScriptedPolicy()), max_episode_tokens=45 + 21 + 30)
    assert len(steps_of(outcome)) == 2
    assert isinstance(outcome, Trajectory)
    assert outcome.stop_reason is StopReason.TOKEN_BUDGET_SPENT
    assert outcome.final_observation.text == "after 2"


def test_tokens_for_a_plan_alone_fail_the_first_step() -> None:
    outcome = play(planning(ScriptedPolicy()), max_episode_tokens=21 + 29)
    assert isinstance(outcome, FailedEpisode)
    assert outcome.cause is FailureCause.MEMORY_ERROR
    assert "prompt of 22 and reply of up to 8 tokens, after 21 of" in outcome.message


def test_an_agent_that_raises_fails_its_episode() -> None:
    class Broken:
        async def act(self, session: object, prompt: object) -> Call:
            raise LookupError("no plan")

    outcome = play(replace(make_agent(), acting=Broken()))
    assert isinstance(outcome, FailedEpisode)
    assert outcome.cause is FailureCause.POLICY_ERROR
    assert "agent.act: LookupError: no plan" in outcome.message


def test_an_agent_that_returns_another_call_than_the_one_that_acts_fails_its_episode() -> None:
    class Planner:
        async def act(self, session: EpisodeSession, prompt: Shortenable) -> Call:
            return await session.complete(prompt, purpose="plan")

    outcome = play(replace(make_agent(), acting=Planner()))
    assert isinstance(outcome, FailedEpisode)
    assert outcome.cause is FailureCause.POLICY_ERROR
    assert "it returned a call for the purpose 'plan'" in outcome.message


def test_ways_of_acting_have_names() -> None:
    assert isinstance(build_acting("single_call"), SingleCall)
    assert isinstance(build_acting("plan_then_act"), PlanThenAct)
    with pytest.raises(
        ConfigError, match=f"'plan': must be one of {', '.join(ACTINGS)}, or package"
    ):
        build_acting("plan")


@pytest.mark.parametrize("trained", [False, True])
def test_a_summary_is_a_call_of_the_step_that_was_just_played(trained: bool) -> None:
    policy = ScriptedPolicy(["0", "1", "2", "long ago", "3", "4"])

    steps = steps_of(play(summarising(policy, trained=trained), num_steps=5))

    assert purposes(steps) == [["act"], ["act"], ["act", "remember"], ["act"], ["act"]]
    summary = steps[2].calls[1]
    assert (summary.reply, summary.trained) == ("long ago", trained)
    assert summary.messages[-1].text == "Past:\nstart 3\n> 0\nafter 1\n> 1\nSum up."
    assert [step.action for step in steps] == ["0", "1", "2", "3", "4"]
    shown = steps[3].calls[0].messages[-1].text
    assert shown == "Summary:\nlong ago\nPast:\nafter 2\n> 2\nNow:\nafter 3"


def test_a_summary_has_its_own_limit_and_seed_and_no_action_has_another_for_it() -> None:
    policy = ScriptedPolicy()
    play(summarising(policy), num_steps=4)
    assert [sampling.max_tokens for sampling in policy.samplings] == [8, 8, 8, 6, 8]
    first = [step_seed(11, step_index=index) for index in range(4)]
    assert [sampling.seed for sampling in policy.samplings] == [
        *first[:3],
        call_seed(first[2], call_index=1),
        first[3],
    ]


def test_the_token_budget_counts_summaries() -> None:
    def budget_for(num_steps: int, agent: Agent) -> int:
        steps = steps_of(play(agent, horizon=num_steps))
        sampled = [call.sampled for step in steps for call in step.calls]
        return sum(len(s.prompt_tokens) + len(s.action_tokens) for s in sampled if s is not None)

    agent = summarising(ScriptedPolicy())
    spent = budget_for(4, agent)
    assert len(steps_of(play(agent, num_steps=9, max_episode_tokens=spent + 6))) == 4
    assert len(steps_of(play(agent, num_steps=9, max_episode_tokens=spent - 1))) == 3


def test_an_episode_without_tokens_for_a_summary_is_truncated_with_its_last_observation() -> None:
    # Three steps read 13, 37 and 50 tokens and write 2 each; the summary reads 45 and may write 6.
    outcome = play(summarising(ScriptedPolicy()), num_steps=9, max_episode_tokens=106 + 50)
    assert isinstance(outcome, Trajectory)
    assert outcome.stop_reason is StopReason.TOKEN_BUDGET_SPENT
    assert purposes(outcome.steps) == [["act"], ["act"], ["act"]]
    assert outcome.final_observation.text == "after 3"


@pytest.mark.parametrize(
    ("terminates", "with_final_prompt", "remembers"),
    [(True, True, False), (False, False, False), (False, True, True)],
)
def test_nothing_is_remembered_that_no_prompt_will_show(
    terminates: bool, with_final_prompt: bool, remembers: bool
) -> None:
    outcome = play(
        summarising(ScriptedPolicy()),
        num_steps=3,
        terminates=terminates,
        with_final_prompt=with_final_prompt,
    )
    assert purposes(steps_of(outcome))[-1] == ["act", *(["remember"] if remembers else [])]
    at_horizon = play(
        summarising(ScriptedPolicy()), num_steps=9, horizon=3, with_final_prompt=with_final_prompt
    )
    assert purposes(steps_of(at_horizon))[-1] == (
        ["act", "remember"] if with_final_prompt else ["act"]
    )


def test_an_environments_own_limit_is_the_reason_although_no_summary_fits_after_it() -> None:
    outcome = play(
        summarising(ScriptedPolicy()),
        num_steps=3,
        terminates=False,
        with_final_prompt=True,
        max_episode_tokens=106 + 50,
    )
    assert isinstance(outcome, Trajectory)
    assert outcome.stop_reason is StopReason.ENVIRONMENT_LIMIT
    assert purposes(outcome.steps) == [["act"]] * 3
    assert outcome.final_prompt_tokens is not None


class Waiting(NoMemory):
    """Does something else than remember."""

    def __init__(self, *, raises: BaseException | None = None) -> None:
        super().__init__(template=PromptTemplate())
        self._raises = raises
        self.tasks: list[Task] = []

    async def write(
        self, *, observation: Observation, reply: str, action: str, context: MemoryContext
    ) -> None:
        await asyncio.sleep(0)
        self.tasks.append(context.task)
        if self._raises is not None:
            raise self._raises


def test_a_memory_knows_the_task_and_fails_its_episode_alone() -> None:
    memory = Waiting()
    play(make_agent(build_memory=lambda: memory), num_steps=3)
    assert memory.tasks == [make_task(3)] * 2

    for error in (LookupError("lost"), asyncio.CancelledError("of its own")):
        broken = Waiting(raises=error)
        outcome = play(make_agent(build_memory=lambda: broken))  # noqa: B023 called in this turn
        assert isinstance(outcome, FailedEpisode)
        assert outcome.cause is FailureCause.MEMORY_ERROR
        assert f"memory.write: {type(error).__name__}" in outcome.message
        assert [step.action for step in outcome.steps] == ["go"]  # the step that it failed after
