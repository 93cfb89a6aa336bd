"""From a run's configuration to its environments, its prompts and its tasks.

All of it is asked of the environments' sources (`longhaul_core.environment`): an installed
environment has one, and the class of any other Gymnasium id is asked in a worker process. None
is built here but to be played.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, cast

from longhaul_core.actions import ActionFormat, build_parser
from longhaul_core.environment import Environment, EnvironmentDescription, EnvironmentSource
from longhaul_core.errors import ConfigError
from longhaul_core.gym import GymEnvironmentSpec, GymSource, PooledSource
from longhaul_core.memory import Memory, PromptTemplate, build_memory, environment_template
from longhaul_core.tasks import (
    DifficultyState,
    DifficultyStream,
    MixedState,
    MixedStream,
    Panel,
    ShuffledState,
    ShuffledStream,
    TaskStream,
    refuse_shared_content,
)
from longhaul_core.types import Split, Task
from longhaul_envs.published import PUBLISHED, published_template
from longhaul_envs.sources import source_at
from longhaul_trainer.config import EnvironmentConfig, MixedEnvironmentConfig, RunConfig
from longhaul_trainer.config.agent_loops import AgentLoop

if TYPE_CHECKING:
    from longhaul_envs.remote.source import RemoteSource
    from longhaul_trainer.play.programs.tasks import TaskSource

PANEL_SIZES = {Split.VALIDATION: "num_tasks", Split.TEST: "test_num_tasks"}
"""The panels of a run, and the settings of `[validation]` that say how many tasks they have."""

REGISTRY = "longhaul_envs.registry"
"""Registers the packaged environments with Gymnasium, for those that play on one of them."""


def environment_spec(environment: EnvironmentConfig) -> GymEnvironmentSpec:
    """What an environment of the run is named, in any process."""
    return GymEnvironmentSpec(
        environment_id=environment.id,
        options=dict(environment.options),
        import_modules=(REGISTRY, *environment.import_modules),
    )


def source_of(environment: EnvironmentConfig) -> EnvironmentSource:
    """What answers for an environment of the run; equal ones have the same source.

    Raises:
        ConfigError: If it is installed, and refuses its options.
    """
    return source_at(environment.server, environment_spec(environment))


def task_sources(run: RunConfig) -> dict[str, TaskSource]:
    """Where the tasks of a run come from, by what they are of.

    Raises:
        ConfigError: If one cannot be had as the run describes it.
    """
    entries, source = run.played_environments, run.tasks.source
    if not run.agent.is_program:
        return {entry.id: source_of(entry) for entry in entries}
    # Imports Arrow, which no other run needs.
    from longhaul_trainer.play.programs.tasks import EnvironmentTasks, task_source

    if source is not None:
        return {run.tasks.name: task_source(source, name=run.tasks.name)}
    return {e.id: EnvironmentTasks(source_of(e), options=e.options) for e in entries}


class RunEnvironments:
    """Makes the environment of each episode, by the task's environment. An `EnvironmentFactory`.

    Those of Gymnasium play in worker processes, or in threads where the run says so; each
    environment has at most its `num_workers` processes. A server plays at most `num_workers`
    sessions of the run. Others play as their sources decide.
    """

    def __init__(self, run: RunConfig, *, agent_loop: AgentLoop | None = None) -> None:
        """Describe them; nothing is started yet.

        Args:
            run: Says which, and how many episodes of each at once.
            agent_loop: Which of the run's agent loops will play them; None for a run that has one.
        """
        agent_loop = agent_loop or AgentLoop()
        unit = run.episodes_of_a_group
        self._sources: dict[str, EnvironmentSource] = {}
        for entry in run.played_environments:
            source = source_of(entry)
            if entry.server is not None:
                share = agent_loop.share(entry.num_workers, unit=unit)
                source = cast("RemoteSource", source).limited(share)
            elif isinstance(source, GymSource) and entry.isolation == "process":
                share = agent_loop.share(entry.num_workers, unit=unit)
                most = entry.episodes_per_process
                source = PooledSource(source, num_workers=share, most_in_one=most)
            self._sources[entry.id] = source

    def __call__(self, task: Task) -> Environment:
        """See `EnvironmentFactory`."""
        return self._sources[task.environment].make(task)

    async def close(self) -> None:
        """End every worker process."""
        for source in self._sources.values():
            if isinstance(source, PooledSource):
                await source.close()


def descriptions_of(run: RunConfig) -> dict[str, EnvironmentDescription]:
    """The description that each environment of the run gives of itself, keyed by its id.

    Raises:
        ConfigError: If one cannot be had as the run describes it.
    """
    return {name: source.describe() for name, source in task_sources(run).items()}


def known_descriptions(run: RunConfig) -> dict[str, EnvironmentDescription]:
    """As `descriptions_of`; none where one cannot be had, which other checks report."""
    try:
        return descriptions_of(run)
    except ConfigError:
        return {}


def prompt_template(
    entry: MixedEnvironmentConfig, description: EnvironmentDescription
) -> PromptTemplate:
    """The words around an observation: the run's, or else the environment's own.

    Raises:
        ConfigError: See `environment_template` and `published_prompt`.
    """
    if entry.prompt.template in PUBLISHED:
        return published_prompt(entry)
    parser = build_parser(entry.actions.format, require_thinking=entry.actions.require_thinking)
    return environment_template(
        description.prompt,
        form=parser.instruction,
        name=entry.prompt.template,
        system=entry.prompt.system,
        instruction=entry.prompt.instruction,
        list_actions=entry.prompt.list_actions,
        reply_prefix=entry.prompt.reply_prefix,
        instruction_place=entry.prompt.instruction_place,
        shows_tools=entry.actions.format == ActionFormat.TOOL_CALL,
    )


def published_prompt(entry: MixedEnvironmentConfig) -> PromptTemplate:
    """The words of the published agent that `prompt.template` names.

    Raises:
        ConfigError: If the run has words of its own beside them; see also `published_template`.
    """
    prompt = entry.prompt
    for setting, words in (("system", prompt.system), ("instruction", prompt.instruction)):
        if words is not None:
            raise ConfigError(
                f"prompt.{setting} = {words!r} stands in no prompt of prompt.template = "
                f'"{prompt.template}", which are their authors\' word for word; leave it out'
            )
    return published_template(
        prompt.template,
        environment_id=entry.id,
        options=entry.options,
        memory=entry.memory.kind,
        reply_prefix=prompt.reply_prefix,
    )


def memory_builder(
    entry: MixedEnvironmentConfig, *, template: PromptTemplate
) -> Callable[[], Memory]:
    """Makes the environment's memory for each episode."""
    memory = entry.memory
    return functools.partial(
        build_memory,
        memory.kind,
        template=template,
        size=memory.size,
        summarize_every=memory.summarize_every,
        max_summary_tokens=memory.max_summary_tokens,
        train_summaries=memory.train_summaries,
        max_earlier=memory.max_earlier,
    )


def task_stream(
    run: RunConfig, *, state: ShuffledState | DifficultyState | MixedState | None = None
) -> TaskStream:
    """The training tasks of the run, in the order it meets them.

    Args:
        run: The run.
        state: Where the stream stood, for a run that goes on.

    Raises:
        ConfigError: If an environment is not known, a training step or a panel asks for more
            tasks than there are, its splits share content, or the state is of other tasks, of
            another order or of other environments.
    """
    entries = run.played_environments
    sources = task_sources(run)
    training = {name: source.tasks(Split.TRAIN) for name, source in sources.items()}
    panels = _panels_beside(run, training, sources)
    held_out = [panel for panel in panels if _held_out(run, panel.split)]
    refuse_shared_content([task for tasks in training.values() for task in tasks], *held_out)
    if len(entries) == 1:
        return _stream_of_one(run, training[entries[0].id], state)
    weights = {entry.id: entry.weight for entry in entries}
    if state is None:
        streams = {name: _stream_of_one(run, tasks, None) for name, tasks in training.items()}
        return MixedStream(streams, weights=weights, seed=run.seed)
    if state["order"] != "mixed":
        raise ConfigError(
            f"the tasks were those of one environment, in the order {state['order']!r}, and "
            f"{len(entries)} are mixed now; resume with the environment that the run was begun with"
        )
    return MixedStream.from_state(
        state,
        weights=weights,
        go_on=lambda name, of_one: _stream_of_one(
            run, training[name], cast("ShuffledState | DifficultyState", of_one)
        ),
    )


def demonstration_stream(
    run: RunConfig, tasks: Sequence[Task], *, state: ShuffledState | None = None
) -> ShuffledStream:
    """The tasks whose demonstrations a run imitates, each once in a pass.

    Args:
        run: An imitation.
        tasks: Those that were demonstrated.
        state: Where the stream stood, for a run that goes on.

    Raises:
        ConfigError: There are fewer than a training step takes, one of them is in a panel that the
            run is to be scored on, or the state is of other tasks.
    """
    require_demonstrations(run, tasks)
    return (
        ShuffledStream(tasks, seed=run.seed)
        if state is None
        else ShuffledStream.from_state(tasks, state)
    )


def require_demonstrations(run: RunConfig, tasks: Sequence[Task]) -> None:
    """Refuse tasks whose demonstrations the run cannot imitate.

    Raises:
        ConfigError: A training step of an imitation takes more, or one of them is in a panel that
            the run is to be scored on.
    """
    if run.imitation.imitates and run.tasks_per_training_step > len(tasks):
        raise ConfigError(
            f"tasks_per_training_step = {run.tasks_per_training_step}: {len(tasks)} tasks were "
            f"demonstrated, and a training step takes each once at most; ask for {len(tasks)} or "
            "fewer, or demonstrate more"
        )
    sources = task_sources(run)
    panels = [
        _panel_of(run, split, sources)
        for split, field in PANEL_SIZES.items()
        if getattr(run.validation, field) and _held_out(run, split)
    ]
    try:
        refuse_shared_content(tasks, *panels)
    except ConfigError as error:
        raise ConfigError(
            f'{error}. Of imitation.sources take `where = {{ phase = "train" }}`, or episodes of '
            "other tasks"
        ) from error


def _stream_of_one(
    run: RunConfig,
    training: Sequence[Task],
    state: ShuffledState | DifficultyState | MixedState | None,
) -> TaskStream:
    """The stream of one environment's tasks."""
    order = run.tasks.order
    if state is not None and state["order"] == "mixed":
        raise ConfigError(
            f"the tasks were mixed of {list(state['streams'])}, and there is one environment now; "
            "resume with the environments that the run was begun with"
        )
    if state is not None and state["order"] != order:
        raise ConfigError(
            f"the tasks were taken in the order {state['order']!r}, and tasks.order = {order!r} "
            "now; resume with the order that the run was begun with"
        )
    if order == "difficulty":
        rules = {"uniform_share": run.tasks.uniform_share, "smoothing": run.tasks.smoothing}
        if state is None:
            return DifficultyStream(training, seed=run.seed, **rules)
        return DifficultyStream.from_state(training, cast("DifficultyState", state), **rules)
    if state is None:
        return ShuffledStream(training, seed=run.seed)
    return ShuffledStream.from_state(training, cast("ShuffledState", state))


def _panels_beside(
    run: RunConfig, training: Mapping[str, Sequence[Task]], sources: Mapping[str, TaskSource]
) -> list[Panel]:
    """The panels that a run has, whose training step plays no task twice from the start."""
    problems: list[str] = []
    panels: list[Panel] = []
    first_wave = run.tasks_per_training_step + run.sampling.extra_tasks
    for environment_id, tasks in training.items():
        if first_wave > len(tasks):
            asked = f"tasks_per_training_step = {run.tasks_per_training_step}"
            if run.sampling.extra_tasks:
                asked += f" and sampling.extra_tasks = {run.sampling.extra_tasks}"
            problems.append(
                f"{asked}: {environment_id} has {len(tasks)} training tasks, and a training "
                f"step starts each once at most; ask for {len(tasks)} or fewer"
            )
    for split, field in PANEL_SIZES.items():
        if not getattr(run.validation, field):
            continue
        try:
            panels.append(_panel_of(run, split, sources))
        except ConfigError as error:
            problems.append(str(error))
    if problems:
        raise ConfigError("\n".join(problems))
    return panels


def task_panel(run: RunConfig, split: Split) -> Panel:
    """The fixed tasks that the run is validated or tested on: as many of each environment."""
    return _panel_of(run, split, task_sources(run))


def _held_out(run: RunConfig, split: Split) -> bool:
    """Whether the panel of a split has tasks that are not trained on."""
    return split is Split.TEST or run.validation.split == "validation"


def _panel_of(run: RunConfig, split: Split, sources: Mapping[str, TaskSource]) -> Panel:
    field = PANEL_SIZES[split]
    panels: list[Panel] = []
    for name, source in sources.items():
        try:
            if _held_out(run, split):
                tasks = source.tasks(split)
            else:
                tasks = [replace(task, split=split) for task in source.tasks(Split.TRAIN)]
            panels.append(
                Panel.spread(
                    tasks,
                    split=split,
                    num_tasks=getattr(run.validation, field),
                    setting=f"validation.{field}",
                )
            )
        except ConfigError as error:
            if len(sources) == 1:
                raise
            raise ConfigError(f"{name}: {error}") from error
    return Panel(split=split, tasks=tuple(task for panel in panels for task in panel.tasks))
