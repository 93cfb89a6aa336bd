"""`trainer check`: is this description of a run right? On any machine, within seconds."""

import shlex
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from longhaul_core.errors import ConfigError
from longhaul_core.horizons import HorizonState
from longhaul_trainer.cli.arguments import Further, RunFile, console_of
from longhaul_trainer.cli.train import describe
from longhaul_trainer.cli.warm_start import describe_imitation
from longhaul_trainer.config import MixedEnvironmentConfig, RunConfig
from longhaul_trainer.config.agent_loops import (
    episodes_at_once,
    num_agent_loops,
)
from longhaul_trainer.config.load import problem_list
from longhaul_trainer.play.horizons import horizon_schedule
from longhaul_trainer.preflight.description_check import problems_of, require_model
from longhaul_trainer.preflight.resources import needs_here
from longhaul_trainer.preflight.resources.words import needs_in_words


def check(
    file: RunFile,
    further: Further = None,
    *,
    as_toml: Annotated[
        bool, typer.Option("--toml", help="Print the resolved configuration as TOML.")
    ] = False,
) -> None:
    """Check a run's description: every problem at once, or what the run will do."""
    description = describe(file, further)
    problems = list(description.problems)
    if description.config is not None:
        # An environment of one's own may take a minute to be made and to list its tasks.
        with console_of("stderr").status(f"checking {file}"):
            problems += problems_of(
                description.config, deeply=True, here=False, sure_of=description.sure_of
            )
    if description.config is not None and description.config.warm_start.demonstrations:
        imitation = describe_imitation(file, further or [], description.config)
        problems += [
            f"warm_start.settings: {problem}"
            for problem in imitation.problems
            if problem not in problems
        ]
    if problems:
        raise ConfigError(problem_list(description.source, problems))
    config = description.run()
    console = console_of("stdout")
    if as_toml:
        console.print(config.to_toml(), end="", markup=False)
        return
    table = Table(show_header=False, box=None, pad_edge=False)
    lines = summary(config) | needs_in_words(config, needs_here(config))
    for name, value in lines.items():
        table.add_row(f"[dim]{name}[/]", value)
    console.print(f"[green]{file} describes a run[/]")
    console.print(table)
    for line in [*missing_models(config), *description.remarks, *advice(config)]:
        console.print(f"[yellow]note:[/] {escape(line)}")


def summary(config: RunConfig) -> dict[str, str]:
    """The sizes that follow from a description, by what they are."""
    rollout, updates = config.rollout, config.optimizer.optimizer_steps_per_training_step
    episodes = config.tasks_per_training_step * rollout.group_size
    return {
        "model": config.model.path,
        **environments_in_words(config),
        "agent loops": agent_loops_in_words(config),
        "algorithm": algorithm_in_words(config),
        "training step": (
            f"{config.tasks_per_training_step} tasks × {rollout.group_size} = {episodes} episodes "
            f"of at most {horizon_span(config)} steps"
        ),
        "update": f"{updates} a training step, {episodes // updates} episodes each",
        "run": (
            f"{config.num_training_steps} training steps, "
            f"{config.num_training_steps * episodes:,} episodes"
        ),
        "longest row": f"{rollout.max_prompt_tokens + rollout.max_reply_tokens} tokens",
        "store": config.store,
    }


def environments_in_words(config: RunConfig) -> dict[str, str]:
    """The environment, or each of them with its share of the tasks and what it has of its own."""
    if config.agent.is_program:
        return programs_in_words(config)
    if not config.environments:
        where = "" if config.environment.server is None else f" on {config.environment.server}"
        return {"environment": f"{config.environment.id}{where}"}
    total = sum(entry.weight for entry in config.environments)
    lines: dict[str, str] = {}
    for place, entry in enumerate(config.environments):
        words = [f"{entry.id}, {entry.weight / total:.0%} of the tasks"]
        words += [] if entry.server is None else [f"on {entry.server}"]
        words += [f"memory {entry.memory.kind}", f"actions as {entry.actions.format}"]
        if entry.horizon is not None:
            words.append(f"at most {entry.horizon} steps")
        lines[f"environment {place + 1}"] = ", ".join(words)
    return lines


def programs_in_words(config: RunConfig) -> dict[str, str]:
    """The program that plays, and where its tasks are from."""
    agent = config.agent
    ids = ", ".join(entry.id for entry in config.played_environments)
    by_runners = f"that of each runner that connects to {agent.host}:{agent.port}"
    return {
        "program": by_runners
        if agent.kind == "remote"
        else agent.function or shlex.join(agent.command),
        "tasks": config.tasks.source or f"of {ids}",
    }


def agent_loops_in_words(config: RunConfig) -> str:
    """How many processes play the episodes, which may depend on the machine."""
    of_cpu, of_gpus = (num_agent_loops(config, device=device) for device in ("cpu", "gpu"))
    on_cpu = "1, in the trainer's process" if of_cpu == 1 else f"{of_cpu} processes"
    by_device = {"cpu": on_cpu, "gpu": f"{of_gpus} processes"}
    return by_device.get(config.resources.device, f"on GPUs {of_gpus}; on a CPU {on_cpu}")


def algorithm_in_words(config: RunConfig) -> str:
    """The estimator, and what it needs besides the group's episodes."""
    name = config.algorithm.name
    if config.algorithm.needs_greedy_episode:
        return f"{name}, with {config.tasks_per_training_step} greedy episodes a training step"
    if config.algorithm.uses_critic:
        warmup = config.critic.warmup_training_steps
        alone = f", {warmup} training steps alone at first" if warmup else ""
        start = config.critic.path or config.model.path
        return f"{name} by {config.algorithm.gae_level}, with a critic from {start}{alone}"
    return name


def missing_models(config: RunConfig) -> list[str]:
    """Models whose files are not here, and whose shapes are known all the same, in a line each."""
    lines: list[str] = []
    named = {"model.path": config.model.path, "critic.path": config.critic.path}
    for setting, path in named.items():
        try:
            if path is not None:
                require_model(path, setting=setting)
        except ConfigError:
            if setting == "model.path" and config.imitation.new_model_layers:
                lines.append(f"{setting} = {path!r} is made when a run imitates")
                continue
            lines.append(
                f"{setting} = {path!r} has no weights here: what the run takes is by the shape in "
                "its config.json, or in that of the published model of this name; to train, "
                "download the model there"
            )
    return lines


def horizon_span(config: RunConfig) -> str:
    """The horizon, or from what to what it grows, e.g. `10 to 30`."""
    first = horizon_schedule(config).horizon(1, HorizonState())
    final = config.rollout.horizon
    return f"{final}" if first == final else f"{first} to {final}"


def advice(config: RunConfig) -> list[str]:
    """What is allowed, and probably not meant."""
    lines: list[str] = []
    rollout = config.rollout
    workers = sum(entry.num_workers for entry in config.played_environments)
    if config.agent.is_program:
        workers = rollout.concurrent_episodes
    at_once = min(workers, rollout.concurrent_episodes)
    engines = config.num_engines
    if workers < rollout.concurrent_episodes:
        named = "environments: num_workers" if config.environments else "environment.num_workers"
        lines.append(
            f"{named} = {workers} lets {workers} episodes run at once, not "
            f"rollout.concurrent_episodes = {rollout.concurrent_episodes}"
        )
    if config.engine.max_sequences * engines < at_once:
        each = f" in each of {engines} engines" if engines > 1 else ""
        lines.append(
            f"engine.max_sequences = {config.engine.max_sequences}{each} makes some of "
            f"{at_once} episodes wait for the engine"
        )
    lines += agent_loop_advice(config)
    if rollout.top_p < 1:
        lines.append(
            f"rollout.top_p = {rollout.top_p:g} samples from a cut distribution, whose logprobs "
            "the learner does not reproduce"
        )
    if config.trainer.mode != "sync" and config.loss.importance_sampling == "none":
        lines.append(
            f'trainer.mode = "{config.trainer.mode}" learns from replies of older weights, and '
            'loss.importance_sampling = "none" does not correct for it; say "token" or "sequence"'
        )
    step_tokens = rollout.max_prompt_tokens + rollout.max_reply_tokens
    budget = rollout.max_episode_tokens
    if budget is not None and budget < rollout.horizon * step_tokens:
        lines.append(
            f"rollout.max_episode_tokens = {budget} holds {budget // step_tokens} full steps of "
            f"{step_tokens} tokens; an episode may be cut before rollout.horizon = "
            f"{rollout.horizon}"
        )
    last = horizon_schedule(config).horizon(config.num_training_steps, HorizonState())
    if config.horizon_schedule.kind in ("stepwise", "linear") and last < rollout.horizon:
        lines.append(
            f"num_training_steps = {config.num_training_steps} ends at a horizon of {last}, "
            f"before rollout.horizon = {rollout.horizon}, which validation plays"
        )
    for place, entry in enumerate(() if config.agent.is_program else config.played_environments):
        lines += memory_advice(config, entry, f"environments[{place}]." * bool(config.environments))
    return lines


def agent_loop_advice(config: RunConfig) -> list[str]:
    """Where agent loops are fewer than suits the engines, or play a group in several turns."""
    num_loops, engines = num_agent_loops(config, device="gpu"), config.num_engines
    group = config.episodes_of_a_group
    limits = (
        f"{config.least_workers} and "
        f"rollout.concurrent_episodes = {config.rollout.concurrent_episodes}"
    )
    if config.rollout.agent_loops is None:
        if num_loops < min(engines, config.tasks_per_training_step):
            return [
                f"on GPUs rollout.agent_loops is {num_loops} for {engines} engines: each agent "
                f"loop has room for a whole group of {group} episodes in {limits}"
            ]
        return []
    least = min(episodes_at_once(config, num_loops=num_loops))
    if num_loops > 1 and least < group:
        return [
            f"rollout.agent_loops = {num_loops} leaves one {least} episodes at once of {limits}: a "
            f"group of {group} is played by one agent loop, some of it after the rest"
        ]
    return []


def memory_advice(config: RunConfig, entry: MixedEnvironmentConfig, prefix: str) -> list[str]:
    """What an environment's memory shows against what the algorithm compares steps by."""
    lines: list[str] = []
    if entry.memory.kind == "full" and config.algorithm.name == "gigpo":
        lines.append(
            f'{prefix}memory.kind = "full" with algorithm.name = "gigpo": steps are compared by '
            "state, though their prompts differ by all of the past"
        )
    shown = {"none": 0, "window": entry.memory.size}.get(entry.memory.kind)
    compared = config.algorithm.history_length
    if config.algorithm.name == "hgpo" and shown is not None and shown != compared:
        lines.append(
            f"algorithm.history_length = {compared} compares steps by {compared} past states, "
            f"and the memory {f'of {entry.id} ' * bool(prefix)}shows {shown}"
        )
    return lines
