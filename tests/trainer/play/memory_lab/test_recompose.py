"""The memory lab plays stored episodes again: its prompts are those that a run would compose."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console
from sqlalchemy.orm import Session

from longhaul_core.errors import ConfigError
from longhaul_core.memory import MemoryContext, NoMemory, PromptTemplate
from longhaul_core.policy import Completion, Prompt, Sampling
from longhaul_core.rollout import EpisodeSpec, RecordedEnvironment, run_episode
from longhaul_core.store.queries import EpisodeFilter, GroupId, list_episodes, recorded_episode
from longhaul_core.store.session import read_only_engine
from longhaul_core.types import Message, Observation, Split, Trajectory
from longhaul_trainer.config import RunConfig
from longhaul_trainer.config.episodes import MemoryConfig
from longhaul_trainer.config.load import parse_config
from longhaul_trainer.play.imitation.expert import run_demonstration
from longhaul_trainer.play.imitation.player import unasked_player
from longhaul_trainer.play.memory_lab.recompose import OWN, LabEpisode, MemoryLab
from longhaul_trainer.play.players import limits_of
from longhaul_trainer.run.directory import RunDirectory
from trainer.play.imitation.conftest import NUMBER_LINE, experts

__all__ = ["experts"]  # a fixture

WINDOW_1 = MemoryConfig(kind="window", size=1)
GROUP = GroupId("run", "train", 1, 0, 0)


def stored(config: RunConfig) -> list[LabEpisode]:
    engine = read_only_engine(config.store)
    with Session(engine) as session:
        rows = list_episodes(session, where=EpisodeFilter(phase="train")).rows
        found = [
            LabEpisode(row.episode_id, row.group_id, recorded_episode(session, row.episode_id))
            for row in sorted(rows, key=lambda row: row.episode_id)
        ]
    engine.dispose()
    return found


def lab(
    config: RunConfig, memories: Sequence[MemoryConfig], episodes: Sequence[LabEpisode]
) -> MemoryLab:
    made = MemoryLab(config, memories)

    async def fill() -> None:
        for each in episodes:
            await made.add(each)
        await made.close()

    asyncio.run(fill())
    return made


def numbers(config: RunConfig, *settings: str) -> RunConfig:
    """The same run with other settings, in the same place."""
    return parse_config(NUMBER_LINE, settings).with_absolute_paths(Path(config.store).parent)


def test_the_prompts_of_another_memory_are_those_of_a_run_that_has_it(
    experts: RunConfig, tmp_path: Path
) -> None:
    other = parse_config(NUMBER_LINE, ["memory.size=1"]).with_absolute_paths(tmp_path)
    run_demonstration(
        other,
        RunDirectory.create(other),
        split=Split.TRAIN,
        num_tasks=20,
        console=Console(quiet=True),
    )

    compared = lab(experts, [WINDOW_1, MemoryConfig(kind="full")], stored(experts))
    played = lab(other, [], stored(other))

    found = compared.figures()
    assert list(found) == [OWN, "window:1", "full"]
    assert found["window:1"] == played.figures()[OWN]
    assert compared.integrity.num_by_messages == compared.integrity.num_stored == 97
    means = [found[name].mean_tokens for name in ("window:1", OWN, "full")]
    assert means == sorted(means)
    assert len(set(means)) == 3
    assert (found["full"].growth or 0) > 2 * abs(found["window:1"].growth or 0)


def test_a_memory_that_has_a_number_of_tokens_is_shortened_to_it(experts: RunConfig) -> None:
    long = MemoryConfig(kind="window", size=9)
    longest = int(lab(experts, [], stored(experts)).figures()[OWN].mean_tokens)

    found = lab(experts, [long, long.model_copy(update={"max_tokens": longest})], stored(experts))

    figures = found.figures()
    unbounded, bounded = figures["window:9"], figures[f"window:9,max_tokens={longest}"]
    assert bounded.high_tokens <= longest < unbounded.high_tokens
    assert bounded.num_shortened > unbounded.num_shortened == figures[OWN].num_shortened == 0
    assert bounded.num_unreached == 0


def test_prompts_that_are_not_the_stored_ones_are_compared_with_none(experts: RunConfig) -> None:
    made = lab(numbers(experts, "prompt.instruction=Write + or -."), [WINDOW_1], stored(experts))
    with pytest.raises(ConfigError, match=r"^97 of 97 stored prompts are not .* as step 0 of "):
        made.figures()


def test_a_single_other_prompt_is_found(experts: RunConfig) -> None:
    episodes = stored(experts)
    last = episodes[-1]
    *before, step = last.recorded.steps
    [call] = step.calls
    changed = replace(call, messages=(Message(role="user", content="Nothing."),))
    recorded = replace(last.recorded, steps=(*before, replace(step, calls=(changed,))))

    made = lab(experts, [], [*episodes[:-1], last._replace(recorded=recorded)])

    with pytest.raises(ConfigError, match=rf"^1 of 97 .* as step {step.index} of {last[0]}"):
        made.figures()


def test_prompts_that_do_not_fit_are_shortened_or_cut_the_episode_off(experts: RunConfig) -> None:
    longest = max(stored(experts), key=lambda each: len(each.recorded.steps))
    num_steps, full = len(longest.recorded.steps), MemoryConfig(kind="full")
    wide = numbers(experts, "rollout.max_prompt_tokens=4000")
    whole = lab(wide, [full], [longest]).figures()
    limit = f"rollout.max_prompt_tokens={max(whole[OWN].high_tokens + 10, 64):.0f}"

    narrow = lab(numbers(experts, limit), [full], [longest]).figures()
    assert narrow[OWN] == whole[OWN]
    assert whole["full"].num_shortened == 0
    assert 0 < narrow["full"].num_shortened < narrow["full"].num_prompts == num_steps

    spent = f"rollout.max_episode_tokens={whole[OWN].episode_tokens + 2 * num_steps + 10:.0f}"
    poor = lab(numbers(experts, limit, spent), [full], [longest]).figures()
    assert poor[OWN] == whole[OWN]
    assert 0 < poor["full"].num_unreached == num_steps - poor["full"].num_prompts

    spent = f"rollout.max_episode_tokens={whole[OWN].episode_tokens - 10:.0f}"
    with pytest.raises(ConfigError, match=rf" of the {num_steps} steps of .* fit, and then "):
        lab(numbers(experts, limit, spent), [], [longest])


def test_what_an_expert_read_whole_is_compared_where_it_fits(experts: RunConfig) -> None:
    longest = max(stored(experts), key=lambda each: len(each.recorded.steps))
    lengths = lab(experts, [], [longest]).figures()[OWN]

    made = lab(
        numbers(experts, f"rollout.max_prompt_tokens={lengths.high_tokens - 3:.0f}"), [], [longest]
    )

    found, shortened = made.integrity, made.figures()[OWN].num_shortened
    assert found.num_too_long == shortened > 0
    assert found.num_by_messages == len(longest.recorded.steps) - shortened > 0


class Plays:
    """Does what was recorded, plans, and writes a summary where one is asked for. A `Policy`."""

    def __init__(self, recorded: Trajectory) -> None:
        self._actions = [step.action for step in recorded.steps]
        self.num_summaries = 0

    async def act(self, prompt: Prompt, sampling: Sampling, *, episode_id: str) -> Completion:
        asked = prompt.messages[-1].text
        if asked.endswith(PromptTemplate().summary_request):
            self.num_summaries += 1
            text = f"moved {self.num_summaries}"
        else:
            text = "a plan" if "Do not act yet." in asked else self._actions.pop(0)
        return Completion(
            text=text, action_tokens=(5, 6), behavior_logprobs=(-1.0, -1.0), policy_version=0
        )


@pytest.mark.parametrize("agent", ["single_call", "plan_then_act"])
def test_summaries_are_the_stored_ones_and_no_other_memory_reads_them(
    experts: RunConfig, agent: str
) -> None:
    config = numbers(
        experts,
        f"agent.kind={agent}",
        "memory.kind=summary",
        "memory.size=1",
        "memory.summarize_every=2",
    )
    longest = max(stored(experts), key=lambda each: len(each.recorded.steps)).recorded
    policy = Plays(longest)
    player = unasked_player(config)
    played = asyncio.run(
        run_episode(
            EpisodeSpec(task=longest.task, seed=0),
            agent=replace(player.agent(longest.task.environment, "train"), policy=policy),
            make_environment=lambda task: RecordedEnvironment(longest),
            limits=limits_of(config, config.played_environments[0], horizon=longest.horizon),
        )
    )
    asyncio.run(player.close())
    assert isinstance(played, Trajectory), played
    assert policy.num_summaries >= 3

    made = lab(config, [WINDOW_1], [LabEpisode("e", GROUP, played)])

    found = made.figures()
    calls = [call for step in played.steps for call in step.calls]
    assert {call.purpose for call in calls} == {"act", "remember"} | (
        {"plan"} if agent == "plan_then_act" else set()
    )
    assert made.integrity.num_by_tokens == made.integrity.num_stored == len(calls)
    assert found[OWN].num_prompts == found["window:1"].num_prompts == len(played.steps)
    assert found["window:1"].episode_tokens < found[OWN].episode_tokens


class Asks(NoMemory):
    """Asks the model a question of its own after each step."""

    def __init__(self, *, size: int, template: PromptTemplate) -> None:
        super().__init__(template=template)

    async def write(
        self, *, observation: Observation, reply: str, action: str, context: MemoryContext
    ) -> None:
        await context.complete([Message(role="user", content="And?")])


def test_a_memory_that_asks_the_model_is_named(experts: RunConfig) -> None:
    kind = f"{__name__}:Asks"
    made = MemoryLab(experts, [MemoryConfig(kind=kind, size=3)])
    with pytest.raises(ConfigError, match=rf"cannot be played again under {kind}:3: "):
        asyncio.run(made.add(stored(experts)[0]))


@pytest.mark.parametrize(
    ("settings", "memories", "words"),
    [
        ((), [MemoryConfig(kind="summary")], "the lab asks no model"),
        (("memory.kind=summary",), [MemoryConfig(kind="summary")], "there without being named"),
        ((), [WINDOW_1, WINDOW_1], "names one of window:1 more than once"),
        ((), [MemoryConfig(kind="no_module:Memory")], "no_module"),
    ],
)
def test_what_cannot_be_compared_is_refused_by_name(
    experts: RunConfig, settings: tuple[str, ...], memories: list[MemoryConfig], words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        MemoryLab(numbers(experts, *settings), memories)


def test_the_prompts_of_programs_are_their_own(experts: RunConfig) -> None:
    agent = experts.agent.model_copy(update={"kind": "command"})
    with pytest.raises(ConfigError, match="a program composes its own prompts"):
        MemoryLab(experts.model_copy(update={"agent": agent}), [])
