"""Rows that a run puts into TransferQueue, where a training step's tokens lie until its update."""

import math

from longhaul_core.components import is_own
from longhaul_trainer.config import MixedEnvironmentConfig, RunConfig

MARGIN = 2
"""Rows that the queue takes for each that is counted. Rows are shared out among its processes by
their number, not evenly, and a group that waits longer than others makes the shares differ."""

TRAINED_CALLS = {"single_call": 1, "plan_then_act": 2}
"""Trained calls of a step, by `agent.kind`."""


def rows_of_an_episode(run: RunConfig, environment: MixedEnvironmentConfig) -> int | None:
    """Most rows of an episode: one a trained call, and one more for the critic.

    Args:
        run: The run.
        environment: That is played.

    Returns:
        None with a program, or with an agent or a memory of the user's own, whose calls nobody
        knows.
    """
    memory = environment.memory
    if run.agent.is_program or is_own(run.agent.kind) or is_own(memory.kind):
        return None
    horizon = run.rollout.horizon
    if environment.horizon is not None:
        horizon = min(horizon, environment.horizon)
    calls = horizon * TRAINED_CALLS[run.agent.kind]
    if memory.kind == "summary" and memory.train_summaries:
        calls += math.ceil(horizon / memory.summarize_every)
    return calls + (1 if run.algorithm.uses_critic else 0)


def rows_of_a_training_step(run: RunConfig) -> int | None:
    """Most rows of the groups that one training step takes; None where `rows_of_an_episode` is."""
    longest = _longest(run)
    if longest is None:
        return None
    return run.tasks_per_training_step * run.episodes_of_a_group * longest


def most_rows(run: RunConfig) -> int | None:
    """Rows that TransferQueue must have room for (`total_storage_size`), `MARGIN` included.

    At once in the queue are the rows of the groups that an update takes, of those that are played
    ahead of it (`trainer.prefetch_batches`) or wait for it (`trainer.max_staleness`), of those that
    are played in the place of groups without a signal (`sampling`), which go when the update has
    been chosen, and of a panel: of as many tasks in each environment, each of which is played
    `validation.samples_per_task` times.

    Returns:
        None for no limit, where `rows_of_an_episode` is None.
    """
    longest = _longest(run)
    if longest is None:
        return None
    sampling, trainer = run.sampling, run.trainer
    waves = 1 + (sampling.max_refills if sampling.dynamic else 0)
    batches = waves + max(trainer.prefetch_batches, trainer.max_staleness)
    groups = batches * (run.tasks_per_training_step + sampling.extra_tasks)
    validation = run.validation
    tasks = max(validation.num_tasks, validation.test_num_tasks) * len(run.played_environments)
    panel = tasks * validation.samples_per_task
    return MARGIN * (groups * run.episodes_of_a_group + panel) * longest


def _longest(run: RunConfig) -> int | None:
    rows = [rows_of_an_episode(run, environment) for environment in run.played_environments]
    known = [number for number in rows if number is not None]
    return max(known) if len(known) == len(rows) else None
