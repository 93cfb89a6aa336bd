"""Stored episodes are played again under other memories, by a run's own loop and renderer.

No environment is played and no model is asked: what was seen and replied is what was recorded, as
in imitation. The run's own memory comes first, and must compose what is stored: only then do the
others' prompts say what this run would have read.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from longhaul_core.environment import EnvironmentDescription
from longhaul_core.errors import ConfigError
from longhaul_core.rollout import EpisodeSpec, without_memory_calls
from longhaul_core.rollout.agent import Agent
from longhaul_core.store.queries import GroupId
from longhaul_core.types import FailedEpisode, Trajectory
from longhaul_trainer.config import MixedEnvironmentConfig, RunConfig
from longhaul_trainer.config.episodes import MemoryConfig
from longhaul_trainer.config.toml import toml_value
from longhaul_trainer.play.environments import descriptions_of, memory_builder, prompt_template
from longhaul_trainer.play.imitation.player import (
    Repeated,
    asks_more,
    compared,
    played_again,
    unasked_player,
)
from longhaul_trainer.play.memory_lab.figures import (
    EpisodeFigures,
    MemoryFigures,
    Tokens,
    figures_of,
    summed_up,
    tokens_of,
)
from longhaul_trainer.play.players import limits_of

__all__ = ["OWN", "Integrity", "LabEpisode", "MemoryLab", "named"]

OWN = "the run's own"
"""Stands for the memory that each environment of the run has."""


def named(memory: MemoryConfig) -> str:
    """A memory as `--memory` has it; those without a size are called by their kind."""
    has_size = memory.kind not in ("none", "full")
    others = memory.model_dump(exclude={"kind", "size"}, exclude_defaults=True)
    return ",".join(
        [
            f"{memory.kind}:{memory.size}" if has_size else memory.kind,
            *(f"{name}={toml_value(value)}" for name, value in others.items()),
        ]
    )


class LabEpisode(NamedTuple):
    """A stored episode that prompts are composed for."""

    episode_id: str
    group: GroupId
    recorded: Trajectory
    imported: bool = False
    """Whether it is of a file, which need not tell actions from replies."""


@dataclass(slots=True)
class Integrity:
    """How many stored prompts the run's own memory composed as they are stored."""

    num_by_tokens: int = 0
    """Equal, token for token."""
    num_by_messages: int = 0
    """Equal by their messages: the store has no tokens of them."""
    num_unstored: int = 0
    """Of which the store has neither, as of steps that nobody was asked for."""
    num_too_long: int = 0
    """Read whole, by an expert or a hosted model, and longer than `rollout.max_prompt_tokens`."""
    num_others: int = 0
    first_other: str = ""
    """Which prompt that is."""

    def add(self, each: Repeated, *, episode_id: str) -> None:
        """Count one stored prompt."""
        before, now = each.recorded.sampled, each.again.sampled
        if before is None and not each.recorded.messages:
            self.num_unstored += 1
        elif before is None and each.again.dropped_exchanges:
            self.num_too_long += 1
        elif (
            each.recomposed
            if before is None or now is None
            else before.prompt_tokens != now.prompt_tokens
        ):
            self.num_others += 1
            self.first_other = self.first_other or f"step {each.step_index} of {episode_id}"
        elif before is None:
            self.num_by_messages += 1
        else:
            self.num_by_tokens += 1

    @property
    def num_stored(self) -> int:
        """Prompts that could be compared."""
        return self.num_by_tokens + self.num_by_messages + self.num_others


class MemoryLab:
    """Composes the prompts of stored episodes under several memories."""

    def __init__(self, config: RunConfig, memories: Sequence[MemoryConfig]) -> None:
        """Load the run's tokenizer, and build each memory once.

        Args:
            config: Of the run that played the episodes.
            memories: Beside the run's own.

        Raises:
            ConfigError: The run plays programs, or a memory cannot be built, asks the model for
                summaries, wants longer prompts than the run has, or is there twice; or the model
                cannot be had.
        """
        if config.agent.is_program:
            raise ConfigError(
                f'agent.kind = "{config.agent.kind}": a program composes its own prompts, and has '
                "no memory that another could replace"
            )
        self._config = config
        self._environments = [entry.id for entry in config.played_environments]
        self._memories = _told_apart(memories, config)
        self._player = unasked_player(config)
        descriptions = descriptions_of(config)
        self._entries = {
            (name, entry.id): entry.model_copy(update={"memory": memory})
            for entry in config.played_environments
            for name, memory in ((OWN, entry.memory), *self._memories.items())
        }
        self._agents = {
            place: self._agent(entry, descriptions) for place, entry in self._entries.items()
        }
        for agent in self._agents.values():
            agent.build_memory()
        self._firsts: dict[tuple[str, GroupId], Tokens] = {}
        self._figures: dict[str, list[EpisodeFigures]] = defaultdict(list)
        self.integrity = Integrity()

    def _agent(
        self, entry: MixedEnvironmentConfig, descriptions: Mapping[str, EnvironmentDescription]
    ) -> Agent:
        template = prompt_template(entry, descriptions[entry.id])
        return replace(
            self._player.agent(entry.id, "train"),
            build_memory=memory_builder(entry, template=template),
        )

    async def close(self) -> None:
        """Release what the run's player holds."""
        await self._player.close()

    async def add(self, episode: LabEpisode) -> None:
        """Compose the prompts of one more episode under every memory.

        Raises:
            ConfigError: The run does not play its environment, the run's own memory does not get
                through it, or a memory asks the model for what the store does not have.
        """
        environment = episode.recorded.task.environment
        if environment not in self._environments:
            raise ConfigError(
                f"{episode.episode_id} is an episode of {environment}, and the run plays "
                f"{', '.join(self._environments)}: name a file that describes it by --config"
            )
        asks = asks_more(self._config, environment)
        own = await self._again(episode, OWN, episode.recorded, asks_more=asks)
        if len(own.steps) < len(episode.recorded.steps):
            raise ConfigError(
                f"under the run's own memory {len(own.steps)} of the "
                f"{len(episode.recorded.steps)} steps of {episode.episode_id} fit, and then "
                f"{own.stop_reason.value}: give the run the limits it had "
                "(rollout.max_prompt_tokens, rollout.max_episode_tokens)"
            )
        for each in compared(
            episode.recorded, own, agent=self._agents[OWN, environment], asks_more=asks
        ):
            self.integrity.add(each, episode_id=episode.episode_id)
        self._count(episode, OWN, own)
        without = without_memory_calls(episode.recorded)
        plans = self._config.agent.kind != "single_call"
        for name in self._memories:
            again = await self._again(episode, name, without, asks_more=plans)
            self._count(episode, name, again)

    async def _again(
        self, episode: LabEpisode, name: str, recorded: Trajectory, *, asks_more: bool
    ) -> Trajectory:
        entry = self._entries[name, recorded.task.environment]
        outcome = await played_again(
            EpisodeSpec(task=recorded.task, seed=0),
            recorded,
            agent=self._agents[name, entry.id],
            imported=episode.imported,
            asks_more=asks_more,
            policy_version=0,
            limits=limits_of(self._config, entry, horizon=recorded.horizon),
        )
        if isinstance(outcome, FailedEpisode):
            raise ConfigError(
                f"{episode.episode_id} cannot be played again under {name}: {outcome.message}"
            )
        return outcome

    def _count(self, episode: LabEpisode, name: str, again: Trajectory) -> None:
        place = name, episode.group
        self._figures[name].append(
            figures_of(
                again,
                recorded=episode.recorded,
                episode_id=episode.episode_id,
                first_of_group=self._firsts.get(place, ()),
            )
        )
        first_calls = again.steps[0].calls
        if first_calls:
            self._firsts.setdefault(place, tokens_of(first_calls[0]))

    def figures(self) -> dict[str, MemoryFigures]:
        """Of each memory, the run's own first.

        Raises:
            ConfigError: The run's own memory composed another prompt than one that is stored.
        """
        found = self.integrity
        if found.num_others:
            raise ConfigError(
                f"{found.num_others:,} of {found.num_stored:,} stored prompts are not those that "
                f"the run's own memory composes here, as {found.first_other}: model, memory, "
                "prompt, list of actions or length differ. Give the lab the settings that the run "
                "had, as overrides or by --config"
            )
        return {name: summed_up(of_memory) for name, of_memory in self._figures.items()}


def _told_apart(memories: Sequence[MemoryConfig], config: RunConfig) -> dict[str, MemoryConfig]:
    found: dict[str, MemoryConfig] = {}
    entries, longest = config.played_environments, config.rollout.max_prompt_tokens
    for memory in memories:
        if (memory.max_tokens or 0) > longest:
            raise ConfigError(
                f"memory.max_tokens = {memory.max_tokens} is more than rollout.max_prompt_tokens = "
                f"{longest} of the run, which bounds every prompt; name no more than that"
            )
        if memory.kind == "summary":
            owns = sum(entry.memory.kind == "summary" for entry in entries)
            own = f"; {OWN} is there without being named" if owns else ""
            raise ConfigError(
                'memory.kind = "summary" has the model write summaries, and the lab asks no model: '
                f"the store has none of these exchanges but those of the run's own memory{own}"
            )
        found[named(memory)] = memory
    if len(found) < len(memories):
        raise ConfigError(f"--memory names one of {', '.join(found)} more than once")
    return found
