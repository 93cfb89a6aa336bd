"""From a run's configuration to its environments, its prompts and its tasks.

A packaged environment is known by its id; any other Gymnasium environment with text
observations and actions is made known by `environment.import_modules`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import cast

from longhaul_core.actions import build_parser
from longhaul_core.environment import EnvironmentFactory
from longhaul_core.errors import ConfigError
from longhaul_core.gym import GymEnvironmentSpec, ProcessPool, thread_environments
from longhaul_core.memory import Memory, PromptTemplate, build_memory, build_template
from longhaul_core.tasks import (
    DifficultyState,
    DifficultyStream,
    Panel,
    ShuffledState,
    ShuffledStream,
    TaskStream,
    refuse_shared_content,
)
from longhaul_core.types import Split, Task
from longhaul_envs.capabilities import HasPrompt
from longhaul_envs.sources import task_source_for
from longhaul_trainer.agent_loops import AgentLoop
from longhaul_trainer.config import RunConfig

REGISTRY = "longhaul_envs.registry"
"""Registers the packaged environments with Gymnasium."""


def environment_spec(run: RunConfig) -> GymEnvironmentSpec:
    """How the run's environment is made, in any process."""
    return GymEnvironmentSpec(
        environment_id=run.environment.id,
        options=dict(run.environment.options),
        import_modules=(REGISTRY, *run.environment.import_modules),
    )


def environment_factory(
    run: RunConfig, *, agent_loop: AgentLoop | None = None
) -> EnvironmentFactory:
    """Makes an environment for each episode, in a worker process or in a thread.

    Args:
        run: Says which, and how many at once.
        agent_loop: Which of the run's agent loops will play them; None for a run that has one.
    """
    spec = environment_spec(run)
    if run.environment.isolation == "thread":
        return thread_environments(spec)
    num_workers = (agent_loop or AgentLoop()).share(run.environment.num_workers)
    return ProcessPool(spec, num_workers=num_workers)


def prompt_template(run: RunConfig) -> PromptTemplate:
    """The words around an observation: the run's, or else the environment's own."""
    environment = environment_spec(run).make()
    try:
        bare = environment.unwrapped
        own = bare.prompt if isinstance(bare, HasPrompt) else None
    finally:
        environment.close()
    parser = build_parser(run.actions.format, require_thinking=run.actions.require_thinking)
    form = parser.instruction
    # With a prefix in place the reply can only be the action itself.
    asked = [] if run.prompt.reply_prefix else [form]
    instruction = run.prompt.instruction
    if instruction is None:
        instruction = " ".join(filter(None, [own.instruction if own else "", *asked]))
    system = run.prompt.system
    if system is None:
        system = own.system if own else ""
    return build_template(
        run.prompt.template,
        system=system,
        instruction=instruction,
        list_actions=run.prompt.list_actions,
        reply_prefix=run.prompt.reply_prefix,
    )


def memory_builder(run: RunConfig, *, template: PromptTemplate) -> Callable[[], Memory]:
    """Makes the run's memory for each episode."""
    memory = run.memory
    return functools.partial(
        build_memory,
        memory.kind,
        template=template,
        size=memory.size,
        summarize_every=memory.summarize_every,
        max_summary_tokens=memory.max_summary_tokens,
        train_summaries=memory.train_summaries,
    )


def task_stream(
    run: RunConfig, *, state: ShuffledState | DifficultyState | None = None
) -> TaskStream:
    """The training tasks of the run, in the order it meets them.

    Args:
        run: The run.
        state: Where the stream stood, for a run that goes on.

    Raises:
        ConfigError: If the environment is not known, a training step or a panel asks for more
            tasks than there are, its splits share content, or the state is of other tasks or of
            another order.
    """
    source = task_source_for(environment_spec(run))
    training = source.tasks(Split.TRAIN)
    refuse_shared_content(training, *_panels_beside(run, training))
    order = run.tasks.order
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


def _panels_beside(run: RunConfig, training: Sequence[Task]) -> list[Panel]:
    """Both panels of a run, whose training step plays no task twice from the start."""
    problems: list[str] = []
    panels: list[Panel] = []
    first_wave = run.tasks_per_training_step + run.sampling.extra_tasks
    if first_wave > len(training):
        asked = f"tasks_per_training_step = {run.tasks_per_training_step}"
        if run.sampling.extra_tasks:
            asked += f" and sampling.extra_tasks = {run.sampling.extra_tasks}"
        problems.append(
            f"{asked}: {run.environment.id} has {len(training)} training tasks, and a training "
            f"step starts each once at most; ask for {len(training)} or fewer"
        )
    for split in (Split.VALIDATION, Split.TEST):
        try:
            panels.append(task_panel(run, split))
        except ConfigError as error:
            problems.append(str(error))
    if problems:
        raise ConfigError("\n".join(problems))
    return panels


def task_panel(run: RunConfig, split: Split) -> Panel:
    """The fixed tasks that the run is validated or tested on."""
    field = {Split.VALIDATION: "num_tasks", Split.TEST: "test_num_tasks"}[split]
    tasks = task_source_for(environment_spec(run)).tasks(split)
    return Panel.spread(
        tasks,
        split=split,
        num_tasks=getattr(run.validation, field),
        setting=f"validation.{field}",
    )
