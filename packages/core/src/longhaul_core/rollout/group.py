"""Groups: which episodes are to be played for a task, and what became of them."""

from collections import defaultdict
from collections.abc import Iterable, Sequence

from longhaul_core.errors import ConfigError, GroupError
from longhaul_core.rollout.runner import EpisodeResult
from longhaul_core.rollout.seeds import episode_seed
from longhaul_core.rollout.spec import EpisodeSpec
from longhaul_core.types import FailedEpisode, Task, Trajectory, TrajectoryGroup

__all__ = ["assemble_groups", "group_specs"]


def group_specs(
    tasks: Sequence[Task],
    *,
    group_size: int,
    run_seed: int,
    training_step: int,
    phase: str = "train",
) -> list[EpisodeSpec]:
    """`group_size` episodes for each task, in the order of the tasks.

    Args:
        tasks: One group each; the group's index is the place in this list.
        group_size: Episodes of a group, at least 1.
        run_seed: Chosen by the user; every episode's seed follows from it.
        training_step: The training step that the episodes are played for.
        phase: What they are played for; part of the seeds.
    """
    if group_size < 1:
        raise ConfigError(f"group_size must be at least 1, got {group_size}")
    return [
        EpisodeSpec(
            task=task,
            seed=episode_seed(
                run_seed,
                training_step=training_step,
                group_index=group_index,
                sample_index=sample_index,
                phase=phase,
            ),
            group_index=group_index,
            sample_index=sample_index,
        )
        for group_index, task in enumerate(tasks)
        for sample_index in range(group_size)
    ]


def assemble_groups(results: Iterable[EpisodeResult]) -> dict[int, TrajectoryGroup]:
    """Groups by their index, the same whatever order the episodes ended in.

    A failed try is among its group's failures, and a sample_index whose last try failed
    has no trajectory: it is left out, never scored. A group may so hold fewer than two
    trajectories, or none; advantages refuse such a group.

    Raises:
        GroupError: If a sample_index has two trajectories.
    """
    tries: defaultdict[int, list[EpisodeResult]] = defaultdict(list)
    for result in results:
        tries[result.spec.group_index].append(result)
    return {index: _group(index, tries[index]) for index in sorted(tries)}


def _group(index: int, results: list[EpisodeResult]) -> TrajectoryGroup:
    results.sort(key=lambda result: (result.spec.sample_index, result.spec.retry))
    outcomes = [result.outcome for result in results]
    trajectories = tuple(one for one in outcomes if isinstance(one, Trajectory))
    positions = [trajectory.sample_index for trajectory in trajectories]
    if len(set(positions)) < len(positions):
        raise GroupError(f"group {index} has two trajectories at one sample_index: {positions}")
    return TrajectoryGroup(
        task=outcomes[0].task,
        trajectories=trajectories,
        failures=tuple(one for one in outcomes if isinstance(one, FailedEpisode)),
    )
