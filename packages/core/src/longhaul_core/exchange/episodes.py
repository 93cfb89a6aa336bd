"""Episodes between a file and the store: what a reader of a format makes, and what it lacks."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from longhaul_core.errors import FormatError
from longhaul_core.exchange.reading import Place
from longhaul_core.store.packing import content_hash
from longhaul_core.store.records import EpisodeRecord, Phase
from longhaul_core.types import Observation, Split, Step, StopReason, Task, Trajectory

__all__ = ["MOST_STEPS", "EpisodeNumbers", "ImportedEpisode", "prompt_id", "with_return"]

MOST_STEPS = 10_000
"""Of one episode; more are a file that is not what it seems."""
_LARGEST = 2**31 - 1


def prompt_id(prompt: str) -> str:
    """A task's id where a format has none: equal for equal first prompts."""
    return f"prompt/{content_hash(prompt)[:16]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedEpisode:
    """An episode as a file has it. What is None, no file says."""

    place: Place
    """Of its first line."""
    task_id: str
    steps: tuple[Step, ...]
    environment: str | None = None
    group: str | None = None
    """Episodes of one training step and phase with equal ones were played to be compared; None:
    those of one task."""
    success: bool | None = None
    stop_reason: StopReason | None = None
    training_step: int = 0
    phase: Phase = "train"
    split: Split = Split.TRAIN
    goal: str = ""
    task_data: str = ""
    """A JSON object, or empty."""
    final_observation: str = ""
    horizon: int | None = None
    seed: int = 0
    started_at: float = 0.0
    duration_seconds: float = 0.0
    branched_from: str | None = None
    branched_at_step: int | None = None
    branched_action: str | None = None
    left_out: frozenset[str] = frozenset()
    """Fields of the file that the store has no place for."""

    def __post_init__(self) -> None:
        if not self.steps:
            raise FormatError(f"{self.place.file}, line {self.place.line}: no reply of a model")
        given = (self.branched_from, self.branched_at_step)
        is_branch = self.phase == "branch"
        if any((one is not None) != is_branch for one in given) or (
            self.branched_action is not None and not is_branch
        ):
            raise self.place.error(
                'an episode of phase "branch", and no other, has branched_from and '
                f"branched_at_step; this one is of phase {self.phase!r} and has {given}"
            )
        if len(self.steps) > MOST_STEPS:
            raise self.place.error(f"{len(self.steps):,} steps; {MOST_STEPS:,} are the most")
        if not 0 <= self.training_step <= _LARGEST:
            raise self.place.error(
                f"training step {self.training_step} must lie in [0, {_LARGEST}]"
            )

    @property
    def episode_return(self) -> float:
        """Undiscounted sum of rewards."""
        return sum(step.reward for step in self.steps)


@dataclass(slots=True)
class _Group:
    index: int
    task_hash: str
    num_episodes: int = 0


@dataclass(slots=True)
class EpisodeNumbers:
    """Gives the episodes of one import their places in groups, in the order of the files."""

    run_id: str
    environment: str
    """Of episodes whose file names none."""
    success_at: float
    """Least return of an episode that counts as solved where its file does not say."""
    _groups: dict[tuple[str, int], dict[str, _Group]] = field(
        default_factory=dict[tuple[str, int], dict[str, _Group]]
    )

    def record(self, episode: ImportedEpisode) -> EpisodeRecord:
        """What the store's writer takes.

        Raises:
            FormatError: Episodes of one group are of different tasks.
        """
        with episode.place.errors():
            task = Task(
                environment=episode.environment or self.environment,
                version="",
                data_hash="",
                task_id=episode.task_id,
                seed=0,
                split=episode.split,
                goal=episode.goal,
                data=episode.task_data,
            )
            group = self._group(episode, task)
            success = episode.success
            if success is None:
                success = episode.episode_return >= self.success_at
            stop_reason = episode.stop_reason
            if stop_reason is None:
                stop_reason = StopReason.TASK_SOLVED if success else StopReason.TASK_FAILED
            outcome = Trajectory(
                task=task,
                sample_index=group.num_episodes,
                seed=episode.seed,
                horizon=max(episode.horizon or 0, len(episode.steps)),
                steps=episode.steps,
                stop_reason=stop_reason,
                success=success,
                final_observation=Observation(text=episode.final_observation),
                started_at=episode.started_at,
                duration_seconds=episode.duration_seconds,
            )
        group.num_episodes += 1
        return EpisodeRecord(
            run_id=self.run_id,
            attempt=0,
            phase=episode.phase,
            training_step=episode.training_step,
            group_index=group.index,
            retry=0,
            outcome=outcome,
            branched_from=episode.branched_from,
            branched_at_step=episode.branched_at_step,
            branched_action=episode.branched_action,
        )

    def _group(self, episode: ImportedEpisode, task: Task) -> _Group:
        groups = self._groups.setdefault((episode.phase, episode.training_step), {})
        name = f"{task.environment}\n{task.task_id}" if episode.group is None else episode.group
        task_hash = content_hash(task.environment, task.task_id, task.split.value, task.data)
        group = groups.setdefault(content_hash(name), _Group(len(groups), task_hash))
        if group.task_hash != task_hash:
            raise episode.place.error(
                f"task {task.task_id!r} is in the group {name!r} of another task; episodes of a "
                "group are attempts at one"
            )
        return group


def with_return(steps: Sequence[Step], episode_return: float) -> tuple[Step, ...]:
    """Steps whose rewards no file says: the last one is paid the whole return."""
    *earlier, last = steps
    return (
        *(replace(step, reward=0.0) for step in earlier),
        replace(last, reward=episode_return),
    )
