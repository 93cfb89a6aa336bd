"""Can this run imitate what it is to imitate? Played through once, before a model is loaded."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from sqlalchemy.orm import Session

from longhaul_core.advantages.preferences import Choice, paired_steps
from longhaul_core.errors import ConfigError
from longhaul_core.rollout import EpisodeOutcome, EpisodeSpec
from longhaul_core.rollout.recorded import prompt_hash
from longhaul_core.store.queries import recorded_episode
from longhaul_core.store.session import read_only_engine
from longhaul_core.types import FailedEpisode, Task, TaskKey, Trajectory
from longhaul_trainer.config import RunConfig
from longhaul_trainer.play.environments import require_demonstrations
from longhaul_trainer.play.imitation.player import (
    asks_more,
    compared,
    played_again,
    unasked_player,
)
from longhaul_trainer.play.players import limits_of
from longhaul_trainer.run.demonstrations import Demonstration, Demonstrations

__all__ = ["Imitable", "require_imitable"]

MOST_CHECKED = 1000
"""Demonstrations that are played through; of more, so many that lie evenly among them."""
TOLERATED = 0.05
"""Share of those that may fail, which are left out of the loss, be cut, or ask for an invalid
action."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Imitable:
    """What was found."""

    demonstrations: Demonstrations
    """Those that were chosen."""
    num_checked: int
    """Episodes."""
    num_left_out: int
    """Of those, how many fail, are cut or have a worse action in this run."""
    num_recomposed: int
    """Replies whose prompt is another one here."""
    num_replies: int
    """Of the checked episodes."""
    in_pairs: bool
    """Whether the best episode of each task makes a pair with each other one."""
    num_step_pairs: int | None
    """Pairs of steps with one prompt in the checked episodes; None where no steps are compared."""

    def in_words(self) -> str:
        """For one line."""
        chosen = self.demonstrations
        words = (
            f"{chosen.num_episodes:,} episodes of {len(chosen.tasks):,} tasks, "
            f"{chosen.num_steps:,} steps, of {', '.join(dict.fromkeys(chosen.runs))}"
        )
        if self.in_pairs:
            words += f"; {chosen.num_episodes - len(chosen.tasks):,} pairs"
        if self.num_step_pairs is not None:
            words += f"; {self.num_step_pairs:,} pairs of steps"
        if self.num_left_out:
            words += f"; {self.num_left_out:,} of {self.num_checked:,} are cut or fail here"
        if self.num_recomposed:
            words += f"; {self.num_recomposed:,} of {self.num_replies:,} prompts are composed anew"
        return words


def require_imitable(config: RunConfig, *, console: Console) -> Imitable:
    """Choose the demonstrations of a run, and play them by its memory, prompts and tokens.

    Args:
        config: A run with sources, with absolute paths.
        console: For the progress.

    Raises:
        ConfigError: There are none, they cannot be imitated here, or their prompts are not those
            that this run composes.
    """
    demonstrations = Demonstrations.chosen(config)
    require_demonstrations(config, demonstrations.tasks)
    pairs = [
        (task, each) for task in demonstrations.tasks for each in demonstrations.of_task[task.key]
    ]
    stride = max(1, -(-len(pairs) // MOST_CHECKED))
    checks = _Checks(config)
    with _progress(console, len(pairs[::stride])) as advance:
        asyncio.run(checks.play(pairs[::stride], advance))
    found = Imitable(
        demonstrations=demonstrations,
        num_checked=len(pairs[::stride]),
        num_left_out=len(checks.left_out),
        num_recomposed=checks.num_recomposed,
        num_replies=checks.num_replies,
        in_pairs=config.imitation.preferences is not None and not config.imitation.compares_steps,
        num_step_pairs=checks.num_step_pairs if config.imitation.compares_steps else None,
    )
    _refuse(found, config, checks)
    return found


def _refuse(found: Imitable, config: RunConfig, checks: _Checks) -> None:
    if found.num_left_out > TOLERATED * found.num_checked:
        raise ConfigError(
            f"{found.num_left_out:,} of {found.num_checked:,} demonstrations cannot be imitated "
            f"whole, more than {TOLERATED:.0%}. The first: {checks.left_out[0]}"
        )
    if found.num_step_pairs == 0:
        raise ConfigError(
            'imitation.pairs = "steps": where the episodes took different actions in one state, '
            "this run's memory composes different prompts for them, as one does that shows all "
            'that was before; give it a shorter one, or compare whole episodes: pairs = "episodes"'
        )
    if found.num_recomposed and config.imitation.prompts == "recorded":
        raise ConfigError(
            f"{found.num_recomposed:,} of {found.num_replies:,} prompts are not those that the "
            f"replies were given to, as {checks.first_recomposed}: memory, prompt, list of actions "
            "or length differ. Give this run the settings of its source, or imitate the replies to "
            'the prompts that it composes: imitation.prompts = "recomposed"'
        )


class _Checks:
    def __init__(self, config: RunConfig) -> None:
        self._config = config
        self._player = unasked_player(config)
        self._entries = {entry.id: entry for entry in config.played_environments}
        self.left_out: list[str] = []
        self.num_recomposed = 0
        self.num_replies = 0
        self.first_recomposed = ""
        self._played: dict[TaskKey, list[Trajectory]] = {}

    @property
    def num_step_pairs(self) -> int:
        """Pairs of steps with one state and one prompt, of episodes that were played through."""
        return sum(
            len(
                paired_steps(
                    [[step.reward for step in one.steps] for one in of],
                    [
                        [
                            Choice.of(step.observation.anchor, prompt_hash(step), step.action)
                            for step in one.steps
                        ]
                        for one in of
                    ],
                    self._config.imitation,
                )
            )
            for of in self._played.values()
        )

    async def play(
        self, pairs: Sequence[tuple[Task, Demonstration]], advance: Callable[[], object]
    ) -> None:
        engine = read_only_engine(self._config.store)
        try:
            for task, demonstration in pairs:
                with Session(engine) as session:
                    recorded = recorded_episode(session, demonstration.episode_id)
                outcome = await self._again(task, recorded, imported=demonstration.imported)
                self._compare(demonstration.episode_id, recorded, outcome)
                advance()
        finally:
            engine.dispose()
            await self._player.close()

    async def _again(self, task: Task, recorded: Trajectory, *, imported: bool) -> EpisodeOutcome:
        run = self._config
        horizon = run.horizon_of(task.environment, scheduled=run.rollout.horizon)
        return await played_again(
            EpisodeSpec(task=task, seed=0),
            recorded,
            agent=self._player.agent(task.environment, "train"),
            imported=imported,
            asks_more=asks_more(run, task.environment),
            policy_version=0,
            limits=limits_of(run, self._entries[task.environment], horizon=horizon),
        )

    def _compare(self, episode_id: str, recorded: Trajectory, outcome: EpisodeOutcome) -> None:
        problem = _problem(recorded, outcome)
        if problem:
            self.left_out.append(f"{episode_id}: {problem}")
        if isinstance(outcome, FailedEpisode):
            return
        if self._config.imitation.compares_steps:
            self._played.setdefault(recorded.task.key, []).append(outcome)
        for each in compared(
            recorded,
            outcome,
            agent=self._player.agent(recorded.task.environment, "train"),
            asks_more=asks_more(self._config, recorded.task.environment),
        ):
            self.num_replies += 1
            if each.recomposed:
                self.num_recomposed += 1
                self.first_recomposed = (
                    self.first_recomposed or f"step {each.step_index} of {episode_id}"
                )


def _problem(recorded: Trajectory, outcome: EpisodeOutcome) -> str:
    """Why an episode is not imitated whole; empty where it is."""
    if isinstance(outcome, FailedEpisode):
        return outcome.message
    if len(outcome.steps) < len(recorded.steps):
        return (
            f"{len(outcome.steps)} of its {len(recorded.steps)} steps fit, and then "
            f"{outcome.stop_reason.value}: raise rollout.horizon or rollout.max_prompt_tokens"
        )
    worse = [
        step.index
        for step, before in zip(outcome.steps, recorded.steps, strict=True)
        if before.action_valid and not step.action_valid
    ]
    if not worse:
        return ""
    return (
        f"the reply of step {worse[0]} asks for a valid action where it was recorded, and for none "
        "here: set actions.format and prompt.reply_prefix as that run had them"
    )


@contextmanager
def _progress(console: Console, total: int) -> Generator[Callable[[], object]]:
    columns = (TextColumn("[bold]demonstrations"), BarColumn(bar_width=30), MofNCompleteColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        bar = progress.add_task("", total=total)
        yield lambda: progress.advance(bar)
