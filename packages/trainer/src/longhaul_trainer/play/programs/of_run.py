"""The program, the grader and the hosted models that a run names."""

from __future__ import annotations

from pathlib import Path

from longhaul_core.errors import ConfigError
from longhaul_trainer.config import RunConfig
from longhaul_trainer.gateway.hosted import HostedModel, endpoint_of
from longhaul_trainer.play.programs.command import CommandProgram
from longhaul_trainer.play.programs.function import FunctionProgram
from longhaul_trainer.play.programs.grader import Grader
from longhaul_trainer.play.programs.program import Program


def program_of(run: RunConfig) -> Program:
    """The program that a run names, and that is started here; nothing is started yet.

    Raises:
        ConfigError: It is not there.
    """
    agent = run.agent
    if agent.kind == "remote":
        raise ConfigError(
            'agent.kind = "remote": runners play it, while it is trained; to play it here, set '
            'agent.kind = "command" and agent.command'
        )
    if agent.function is not None:
        return FunctionProgram(agent.function, deadline_seconds=agent.deadline_seconds)
    folder = agent.working_directory
    return CommandProgram(
        agent.command,
        working_directory=None if folder is None else Path(folder),
        environ=agent.environ,
        deadline_seconds=agent.deadline_seconds,
        max_memory_bytes=agent.max_memory_bytes,
        max_processes=agent.max_processes,
        max_output_bytes=agent.max_output_bytes,
    )


def grader_of(run: RunConfig) -> Grader | None:
    """The run's own function for rewards; None where programs report theirs.

    Raises:
        ConfigError: It is not there.
    """
    return None if run.agent.grader is None else Grader(run.agent.grader)


def upstreams_of(run: RunConfig) -> dict[str, HostedModel]:
    """The hosted models that a run's programs may call, by their names; none is called yet.

    Raises:
        ConfigError: The variable that is to hold a key is not set.
    """
    return {
        name: HostedModel(endpoint_of(upstream, setting=f"agent.upstreams.{name}.api_key_variable"))
        for name, upstream in run.agent.upstreams.items()
    }
