"""A stored episode, taken up again at one of its steps.

`LONGHAUL_BRANCHES=1000 uv run pytest tests/core/rollout/test_branch.py -k every --all -s` shares a
thousand branches out among the exact environments that are there.
"""

import asyncio
import os
from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest

from fakes import (
    ScriptedEnvironment,
    ScriptedPolicy,
    make_agent,
    make_task,
)
from listed_environments import INSTALLED, skip_if_missing, source_of
from longhaul_core.actions import ActionFormat, ActionParser
from longhaul_core.environment import (
    Determinism,
    Environment,
    EnvironmentDescription,
    EnvironmentFactory,
    EnvironmentPrompt,
    StepResult,
)
from longhaul_core.errors import ConfigError
from longhaul_core.memory import (
    FullHistory,
    KeyEventsMemory,
    Memory,
    PromptTemplate,
    RecallMemory,
    WindowMemory,
)
from longhaul_core.memory.base import MemoryContext
from longhaul_core.memory.summary import SummaryMemory
from longhaul_core.policy import Shortenable
from longhaul_core.rollout import (
    Agent,
    Branch,
    ChanceActing,
    EpisodeLimits,
    EpisodeOutcome,
    EpisodeSession,
    EpisodeSpec,
    ExpertActing,
    require_branchable,
    run_episode,
    without_memory_calls,
)
from longhaul_core.rollout.expert import reply_for
from longhaul_core.types import (
    Call,
    FailedEpisode,
    FailureCause,
    Message,
    Observation,
    Split,
    Step,
    StopReason,
    Task,
    Trajectory,
)

LIMITS = EpisodeLimits(horizon=5, max_prompt_tokens=4000)
PLAIN = ActionParser(format=ActionFormat.PLAIN)
TAGS = ActionParser()
REWARDS = (0.0, 0.25, 0.0, 1.0)
REPLIES = ("left", "right", "up", "down")
SLOW = {
    "longhaul/ALFWorld-v0",
    "longhaul/MiniWoB-v0",
    "longhaul/SQL-v0",
    "longhaul/ScienceWorld-v0",
    "longhaul/Search-v0",
    "longhaul/TextArena-v0",
    "longhaul/TextWorld-v0",
}
"""They start a program, read data, or ask for what an installation may lack."""
NUM_BRANCHES = int(os.environ.get("LONGHAUL_BRANCHES", "46"))
"""Over all environments, which get equal shares; a slow one gets half of a share."""
STEPS_OF_AN_EPISODE = 8
"""At which one is taken up, at most."""


# A small case, worked by hand


def played(
    spec: EpisodeSpec | None = None,
    *,
    agent: Agent | None = None,
    environment: Environment | None = None,
    limits: EpisodeLimits = LIMITS,
) -> EpisodeOutcome:
    world = environment or ScriptedEnvironment(REWARDS)
    return asyncio.run(
        run_episode(
            spec or EpisodeSpec(task=make_task(3), seed=11),
            agent=agent or make_agent(ScriptedPolicy(REPLIES)),
            make_environment=lambda task: world,
            limits=limits,
        )
    )


def trajectory(outcome: EpisodeOutcome) -> Trajectory:
    assert isinstance(outcome, Trajectory), outcome.message
    return outcome


def failure(outcome: EpisodeOutcome) -> FailedEpisode:
    assert isinstance(outcome, FailedEpisode), outcome
    return outcome


def continued(
    recorded: Trajectory,
    step_index: int,
    *,
    action: str | None = None,
    agent: Agent | None = None,
    environment: Environment | None = None,
    limits: EpisodeLimits = LIMITS,
) -> EpisodeOutcome:
    branch = Branch(episode_id="run/0", recorded=recorded, step_index=step_index, action=action)
    return played(
        EpisodeSpec(task=recorded.task, seed=99, sample_index=2, branch=branch),
        agent=agent,
        environment=environment,
        limits=limits,
    )


def seen(steps: tuple[Step, ...]) -> list[tuple[str, str, float, bool]]:
    return [(one.observation.text, one.action, one.reward, one.action_valid) for one in steps]


def test_a_continuation_repeats_what_was_played_and_goes_on_by_another_policy() -> None:
    recorded = trajectory(played())
    world = ScriptedEnvironment(REWARDS)
    policy = ScriptedPolicy(["jump", "fly"])

    found = trajectory(continued(recorded, 2, agent=make_agent(policy), environment=world))

    assert seen(found.steps) == [
        ("start 3", "left", 0.0, True),
        ("after 1", "right", 0.25, True),
        ("after 2", "jump", 0.0, True),
        ("after 3", "fly", 1.0, True),
    ]
    assert world.actions == ["left", "right", "jump", "fly"]
    assert world.num_closed == 1
    assert (found.stop_reason, found.success) == (StopReason.TASK_SOLVED, True)
    assert (found.seed, found.sample_index, found.horizon) == (99, 2, 5)


def test_what_is_replayed_is_neither_sampled_nor_trained_and_the_rest_is() -> None:
    recorded = trajectory(played())

    found = trajectory(continued(recorded, 2))

    calls = [call for step in found.steps for call in step.calls]
    assert [call.reply for call in calls[:2]] == ["left", "right"]
    assert [call.messages for call in calls[:2]] == [
        call.messages for step in recorded.steps[:2] for call in step.calls
    ]
    assert [(call.sampled is None, call.trained) for call in calls] == [
        (True, False),
        (True, False),
        (False, True),
        (False, True),
    ]


def test_the_first_step_is_taken_up_without_a_replay() -> None:
    recorded = trajectory(played())

    found = trajectory(continued(recorded, 0, agent=make_agent(ScriptedPolicy(["jump"] * 4))))

    assert [step.action for step in found.steps] == ["jump"] * 4


@pytest.mark.parametrize("action", ["jump", "up"])
def test_the_action_that_is_given_is_played_at_the_step(action: str) -> None:
    recorded = trajectory(played())
    policy = ScriptedPolicy(["fly"])

    found = trajectory(continued(recorded, 2, action=action, agent=make_agent(policy)))

    assert [step.action for step in found.steps] == ["left", "right", action, "fly"]
    assert found.steps[2].action_valid
    stored_calls = found.steps[2].calls
    assert [call.reply for call in stored_calls] == (["up"] if action == "up" else [])
    assert not any(call.trained for call in stored_calls)


def test_an_action_that_ends_the_episode_leaves_nothing_to_whoever_goes_on() -> None:
    recorded = trajectory(played())

    found = trajectory(continued(recorded, 3, action="jump", agent=make_agent(ScriptedPolicy([]))))

    assert [step.action for step in found.steps] == ["left", "right", "up", "jump"]
    assert found.stop_reason is StopReason.TASK_SOLVED


def test_a_continuation_has_the_horizon_of_the_stored_episode() -> None:
    recorded = trajectory(played(limits=replace(LIMITS, horizon=3)))

    found = trajectory(
        continued(recorded, 1, limits=replace(LIMITS, horizon=50), agent=make_agent())
    )

    assert (len(found.steps), found.horizon) == (3, 3)
    assert found.stop_reason is StopReason.HORIZON_REACHED


def test_a_continuation_can_be_taken_up_again() -> None:
    first = trajectory(continued(trajectory(played()), 1))

    second = trajectory(continued(first, 3, action="jump"))

    assert seen(second.steps[:3]) == seen(first.steps[:3])


# The memory


def full() -> Memory:
    return FullHistory(template=PromptTemplate(instruction="Now."))


def summarising() -> Memory:
    return SummaryMemory(size=1, every=1, template=PromptTemplate(instruction="Now."))


class _Numbered(ScriptedPolicy):
    """Replies with the number of the request."""

    def __init__(self, word: str) -> None:
        super().__init__([f"{word}{number}" for number in range(20)])


def key_events() -> Memory:
    return KeyEventsMemory(size=1, max_earlier=1, template=PromptTemplate(instruction="Now."))


def recall() -> Memory:
    return RecallMemory(size=1, max_earlier=1, template=PromptTemplate(instruction="Now."))


@pytest.mark.parametrize("build_memory", [full, summarising, key_events, recall])
def test_the_prompt_of_the_step_is_the_stored_one(build_memory: Callable[[], Memory]) -> None:
    agent = make_agent(_Numbered("stored"), build_memory=build_memory, max_reply_tokens=64)
    recorded = trajectory(played(agent=agent))

    for place in range(len(recorded.steps)):
        other = make_agent(_Numbered("new"), build_memory=build_memory, max_reply_tokens=64)
        found = trajectory(continued(recorded, place, agent=other))

        stored, now = recorded.steps[place].act, found.steps[place].act
        assert stored is not None
        assert now is not None
        assert now.messages == stored.messages
        assert now.reply == "new0"


def test_a_memorys_stored_replies_are_given_to_it_and_no_model_is_asked() -> None:
    agent = make_agent(_Numbered("stored"), build_memory=summarising, max_reply_tokens=64)
    recorded = trajectory(played(agent=agent))
    summaries = [c.reply for s in recorded.steps for c in s.calls if c.purpose == "remember"]
    assert len(summaries) >= 2

    other = make_agent(_Numbered("new"), build_memory=summarising, max_reply_tokens=64)
    found = trajectory(continued(recorded, 3, agent=other))

    calls = [c for s in found.steps[:3] for c in s.calls if c.purpose == "remember"]
    assert [c.reply for c in calls] == summaries[: len(calls)]
    assert calls
    assert not any(c.trained for c in calls)


class Notes(FullHistory):
    """Asks for a note of each exchange, which it forgets; a purpose of its own."""

    async def write(
        self, *, observation: Observation, reply: str, action: str, context: MemoryContext
    ) -> None:
        await super().write(observation=observation, reply=reply, action=action, context=context)
        prompt = [Message(role="user", content=f"Note {action}.")]
        await context.complete(prompt, purpose="note", credit_share=0.5)


def test_a_memorys_calls_for_a_purpose_of_its_own_are_known_by_their_place() -> None:
    def noting() -> Memory:
        return Notes(template=PromptTemplate())

    agent = make_agent(_Numbered("stored"), build_memory=noting, max_reply_tokens=64)
    recorded = trajectory(played(agent=agent))
    purposes = [[(c.purpose, c.credit_share) for c in step.calls] for step in recorded.steps]
    assert purposes[:2] == [[("act", 1.0), ("note", 0.5)]] * 2
    assert [step.num_acting_calls for step in recorded.steps] == [1] * len(recorded.steps)

    without = without_memory_calls(recorded)
    assert [step.calls for step in without.steps] == [step.calls[:1] for step in recorded.steps]

    other = make_agent(_Numbered("new"), build_memory=noting, max_reply_tokens=64)
    found = trajectory(continued(recorded, 2, agent=other))

    replies = [[call.reply for call in step.calls] for step in found.steps]
    assert replies[:2] == [[call.reply for call in step.calls] for step in recorded.steps[:2]]
    assert replies[2] == ["new0", "new1"]


class Acting(Notes):
    """Asks for the agent's own purpose."""

    async def write(
        self, *, observation: Observation, reply: str, action: str, context: MemoryContext
    ) -> None:
        await context.complete([Message(role="user", content="Note.")], purpose="act")


def test_a_memory_may_not_take_the_agents_purpose() -> None:
    def acting() -> Memory:
        return Acting(template=PromptTemplate())

    agent = make_agent(_Numbered("new"), build_memory=acting, max_reply_tokens=64)

    found = failure(played(agent=agent))

    assert found.cause is FailureCause.MEMORY_ERROR
    assert "the purpose 'act' is the agent's" in found.message


def test_a_memory_that_asks_for_another_reply_is_refused_at_its_step() -> None:
    recorded = trajectory(played())  # without a memory, which asked for nothing
    agent = make_agent(_Numbered("new"), build_memory=summarising, max_reply_tokens=64)

    found = failure(continued(recorded, 3, agent=agent))

    assert found.cause is FailureCause.MEMORY_ERROR
    assert "after step 1 of run/0 for a reply that was not stored" in found.message


def test_a_memory_that_asks_something_else_is_refused_at_its_step() -> None:
    agent = make_agent(_Numbered("stored"), build_memory=summarising, max_reply_tokens=64)
    recorded = trajectory(played(agent=agent))
    first = next(s for s in recorded.steps if any(c.purpose == "remember" for c in s.calls))
    asked = tuple(
        replace(c, messages=(Message(role="user", content="Say more."),))
        if c.purpose == "remember"
        else c
        for c in first.calls
    )
    steps = tuple(replace(s, calls=asked) if s is first else s for s in recorded.steps)

    found = failure(continued(replace(recorded, steps=steps), 3, agent=agent))

    assert f"after step {first.index} of run/0 for a reply that was not stored" in found.message


def test_a_memory_that_asks_for_less_is_refused_at_its_step() -> None:
    agent = make_agent(_Numbered("stored"), build_memory=summarising, max_reply_tokens=64)
    recorded = trajectory(played(agent=agent))

    found = failure(continued(recorded, 3, agent=replace(agent, build_memory=full)))

    assert found.cause is FailureCause.MEMORY_ERROR
    assert "of run/0 for fewer replies than were stored" in found.message


def test_a_reply_in_another_form_is_written_in_the_form_of_who_goes_on() -> None:
    recorded = trajectory(played())
    agent = replace(
        make_agent(
            ScriptedPolicy(["<action>jump</action>"] * 2), build_memory=full, max_reply_tokens=64
        ),
        parser=TAGS,
    )

    found = trajectory(continued(recorded, 2, agent=agent))

    assert [step.action for step in found.steps] == ["left", "right", "jump", "jump"]


# What differs


class _Changed(ScriptedEnvironment):
    """The scripted world, in which one thing is another one after an action."""

    def __init__(self, change: Callable[[StepResult], StepResult], *, after: int) -> None:
        super().__init__(REWARDS, admissible_actions=REPLIES)
        self._change = change
        self._after = after

    async def step(self, action: str) -> StepResult:
        result = await super().step(action)
        return self._change(result) if len(self.actions) == self._after + 1 else result


Change = Callable[[StepResult], StepResult]


def _shows(change: Callable[[Observation], Observation]) -> Change:
    return lambda result: replace(result, observation=change(result.observation))


def _half_paid(result: StepResult) -> StepResult:
    return replace(result, reward=0.5)


def _ends(result: StepResult) -> StepResult:
    return replace(result, terminated=True)


def _not_accepted(result: StepResult) -> StepResult:
    return replace(result, action_accepted=False)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            _shows(lambda seen: replace(seen, text="after 2 or so")),
            "text 'after 2', now 'after 2 or so'",
        ),
        (
            _shows(lambda seen: replace(seen, admissible_actions=("left", "right", "up"))),
            "admissible actions 'down', now nothing",
        ),
        (
            _shows(lambda seen: replace(seen, anchor_state="here")),
            "anchor state nothing, now 'here'",
        ),
        (
            _shows(lambda seen: replace(seen, admissible_actions=())),
            "admissible actions ['left', 'right', 'up', 'down'], now []",
        ),
        (
            _shows(lambda seen: replace(seen, admissible_actions=None)),
            "admissible actions ['left', 'right', 'up', 'down'], now unnamed",
        ),
        (_half_paid, "reward 0.25, now 0.5"),
        (_ends, "the episode went on, and now it ends"),
        (
            _not_accepted,
            "the action was accepted, and now it is not",
        ),
    ],
)
def test_a_changed_environment_is_refused_and_the_step_is_named(change: Change, words: str) -> None:
    recorded = trajectory(
        played(environment=ScriptedEnvironment(REWARDS, admissible_actions=REPLIES))
    )
    world = _Changed(change, after=1)

    found = failure(continued(recorded, 3, environment=world))

    assert found.cause is FailureCause.ENVIRONMENT_ERROR
    assert f"after step 1 of run/0 the environment differs from the stored episode: {words}" in (
        found.message
    )
    assert world.actions == ["left", "right"]
    assert world.num_closed == 1


def test_a_change_after_the_step_is_no_difference() -> None:
    recorded = trajectory(
        played(environment=ScriptedEnvironment(REWARDS, admissible_actions=REPLIES))
    )
    world = _Changed(_half_paid, after=2)

    assert trajectory(continued(recorded, 2, environment=world)).steps[2].reward == 0.5


def test_another_beginning_is_refused() -> None:
    recorded = trajectory(played())
    other = replace(recorded, task=replace(recorded.task, seed=recorded.task.seed + 1))

    found = failure(continued(other, 2))

    assert "at the beginning of run/0 the environment differs" in found.message
    assert "text 'start 3', now 'start 4'" in found.message


def test_an_environment_that_breaks_in_the_replay_is_named_with_the_step() -> None:
    recorded = trajectory(played())

    class Broken(ScriptedEnvironment):
        async def step(self, action: str) -> StepResult:
            if len(self.actions) == 1:
                raise ConnectionError("server gone")
            return await super().step(action)

    found = failure(continued(recorded, 3, environment=Broken(REWARDS)))

    assert found.cause is FailureCause.ENVIRONMENT_ERROR
    assert "step 1 of run/0 could not be played again" in found.message
    assert "server gone" in found.message


def test_an_observation_that_the_store_cannot_hold_equals_what_it_holds() -> None:
    class Odd(ScriptedEnvironment):
        def _observe(self, text: str) -> Observation:
            return Observation(text=f"\x00{text}", admissible_actions=("a\x00",))

    as_stored = trajectory(
        played(environment=Odd(REWARDS), agent=make_agent(ScriptedPolicy(["a␀"] * 4)))
    )
    stored = replace(
        as_stored,
        steps=tuple(
            replace(
                step,
                observation=Observation(
                    text=step.observation.text.replace("\x00", "␀"),
                    admissible_actions=("a␀",),
                ),
            )
            for step in as_stored.steps
        ),
    )

    trajectory(
        continued(stored, 2, environment=Odd(REWARDS), agent=make_agent(ScriptedPolicy(["b"] * 2)))
    )


# Refused before anything is played


def description(
    determinism: Determinism = Determinism.EXACT, *, version: str | None = None
) -> EnvironmentDescription:
    task = make_task(3)
    return EnvironmentDescription(
        id=task.environment,
        version=task.version if version is None else version,
        summary="A fake.",
        prompt=EnvironmentPrompt(system="", instruction=""),
        determinism=determinism,
    )


def branch_at(step_index: int, action: str | None = None, *, listed: bool = False) -> Branch:
    world = ScriptedEnvironment(REWARDS, admissible_actions=REPLIES if listed else None)
    recorded = trajectory(played(environment=world))
    return Branch(episode_id="run/0", recorded=recorded, step_index=step_index, action=action)


@pytest.mark.parametrize("step_index", [-1, 4, 100])
def test_a_step_that_the_episode_lacks_is_refused(step_index: int) -> None:
    with pytest.raises(ConfigError, match=rf"step {step_index} of run/0 .* 4 steps, .* 0 to 3"):
        branch_at(step_index)


@pytest.mark.parametrize("determinism", [Determinism.FIRST_OBSERVATION, Determinism.NONE])
def test_an_environment_that_is_not_exact_is_refused(determinism: Determinism) -> None:
    with pytest.raises(ConfigError, match=rf'determinism = "{determinism.value}"'):
        require_branchable(branch_at(1), description=description(determinism), parser=PLAIN)


def test_another_version_of_the_environment_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"version '.*' of .*, and 'next' is here"):
        require_branchable(branch_at(1), description=description(version="next"), parser=PLAIN)


@pytest.mark.parametrize(
    ("action", "parser", "words"),
    [
        ("jump", PLAIN, "not one of the 4 admissible actions"),
        ("left</action>", TAGS, "cannot be written"),
    ],
)
def test_an_action_that_the_form_refuses_is_refused(
    action: str, parser: ActionParser, words: str
) -> None:
    with pytest.raises(ConfigError, match=f"step 1 of run/0 .*{words}"):
        require_branchable(
            branch_at(1, action, listed=True), description=description(), parser=parser
        )


@pytest.mark.parametrize("action", [None, "right", "left"])
def test_what_can_be_taken_up_is_not_refused(action: str | None) -> None:
    require_branchable(branch_at(1, action, listed=True), description=description(), parser=PLAIN)


# Every exact environment


def window() -> Memory:
    return WindowMemory(size=2, template=PromptTemplate(instruction="Now."))


class Words:
    """Writes words that no environment knows: who plays where nobody else can."""

    async def act(self, session: EpisodeSession, prompt: Shortenable) -> Call:
        words = f"[{Random(session.num_steps).choice(('look', 'guess 5', 'crane'))}]"
        reply = reply_for(words, TAGS)
        messages = prompt.compose(0)
        return session.record(Call(messages=messages, reply=reply, sampled=None, trained=False))


async def played_by(
    who: str, spec: EpisodeSpec, make_environment: EnvironmentFactory
) -> EpisodeOutcome:
    limits = EpisodeLimits(horizon=12, max_prompt_tokens=100_000)
    expert = ExpertActing(
        make_environment=make_environment, parser=TAGS, seconds=limits.step_deadline_seconds
    )
    acting = {"chance": ChanceActing(parser=TAGS, seed=spec.seed), "expert": expert}
    agent = replace(make_agent(build_memory=window), acting=acting.get(who, Words()), parser=TAGS)
    return await run_episode(
        spec, agent=agent, make_environment=expert.make_environment, limits=limits
    )


async def recorded_by(
    task: Task, make_environment: EnvironmentFactory, *, seed: int
) -> tuple[str, Trajectory]:
    """An episode, and the first that can play it: chance, an expert, words."""
    for who in ("chance", "expert", "words"):
        outcome = await played_by(who, EpisodeSpec(task=task, seed=seed), make_environment)
        if isinstance(outcome, Trajectory):
            return who, outcome
        refuses = ("names no admissible", "has no expert", "defines no expert", "sees no way")
        assert any(word in outcome.message for word in refuses), outcome.message
    raise AssertionError(f"nobody could play {task.task_id}")


async def verified_branches(environment_id: str, wanted: int) -> int:
    """Take episodes up at several steps, and compare; returns how many branches there were."""
    source = source_of(environment_id)
    described, tasks = source.describe(), source.tasks(Split.TRAIN)
    random, done = Random(environment_id), 0
    while done < wanted:
        task, seed = random.choice(tasks), random.getrandbits(32)
        who, recorded = await recorded_by(task, source.make, seed=seed)
        num_steps = len(recorded.steps)
        places = random.sample(range(num_steps), min(num_steps, STEPS_OF_AN_EPISODE))
        for place in places[: wanted - done]:
            listed = recorded.steps[place].observation.admissible_actions
            action = random.choice([None, *(listed or ())[:3]])
            branch = Branch(
                episode_id=task.task_id, recorded=recorded, step_index=place, action=action
            )
            require_branchable(branch, description=described, parser=TAGS)
            spec = EpisodeSpec(task=task, seed=seed + 1, branch=branch)
            found = await played_by(who, spec, source.make)
            assert isinstance(found, Trajectory), found.message
            require_continues(branch, found)
            done += 1
    return done


def require_continues(branch: Branch, found: Trajectory) -> None:
    place = branch.step_index
    assert seen(found.steps[:place]) == seen(branch.recorded.steps[:place])
    step, stored = found.steps[place], branch.stored
    assert step.observation == stored.observation
    if branch.action is not None:
        assert step.action == branch.action
    for before, now in zip(branch.recorded.steps[: place + 1], found.steps, strict=False):
        if before.act is not None and now.act is not None:
            assert now.act.messages == before.act.messages


@pytest.mark.parametrize(
    "environment_id",
    [pytest.param(name, marks=pytest.mark.slow if name in SLOW else ()) for name in INSTALLED],
)
def test_every_exact_environment_comes_to_the_stored_step_again(environment_id: str) -> None:
    skip_if_missing(environment_id)
    assert source_of(environment_id).describe().determinism is Determinism.EXACT
    share = -(-NUM_BRANCHES // len(INSTALLED))
    wanted = -(-share // 2) if environment_id in SLOW else share

    assert asyncio.run(verified_branches(environment_id, wanted)) == wanted
