"""Everything that a run takes, in one value."""

from __future__ import annotations

from dataclasses import dataclass

from longhaul_trainer.config import RunConfig
from longhaul_trainer.play.environments import known_descriptions
from longhaul_trainer.preflight.resources.disk import Disk, disk
from longhaul_trainer.preflight.resources.gpu_memory import GpuMemory, gpu_memory
from longhaul_trainer.preflight.resources.host_memory import HostMemory, host_memory
from longhaul_trainer.preflight.resources.limits import open_files, shared_memory_bytes
from longhaul_trainer.preflight.resources.model_size import ModelSize, size_or_none
from longhaul_trainer.preflight.resources.step_time import StepTime, step_time
from longhaul_trainer.run.device import Device, usable_gpus, wanted_device
from longhaul_trainer.verl.composed import Composed, compose
from longhaul_trainer.verl.processors import RayProcessors, ray_processors

NOTHING = ModelSize(
    num_parameters=0,
    vocabulary_size=0,
    num_layers=0,
    hidden_size=0,
    mlp_width=0,
    key_value_width=0,
    tied=False,
)
"""Of a model that cannot be read: what is left is needed in any case."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """What a run takes of the machine that it is started on."""

    composed: Composed
    unknown: tuple[tuple[str, str], ...]
    """Settings, and their values, that name models which cannot be read; the sums lack them."""
    ray: RayProcessors
    gpu: GpuMemory | None
    """Of each of the learner's GPUs; None on a CPU, and of an unknown model."""
    host: HostMemory
    disk: Disk
    shared_memory: int
    """Bytes of `/dev/shm`."""
    open_files: int
    environment_processes: int
    """Most at once."""
    time: StepTime | None
    """Of a training step; None on a CPU, and of an unknown model."""


def needs_of(
    run: RunConfig, *, device: Device, gpu: str | None = None, trains: bool = True
) -> Needs:
    """What `run` takes.

    Args:
        run: With absolute paths.
        device: `"cpu"` or `"gpu"`.
        gpu: The driver's name of this machine's GPUs, for the estimate of time; None for none.
        trains: Whether it is trained, and not its model evaluated or served alone.

    Raises:
        ConfigError: If the `[verl]` table cannot be.
        MachineError: If verl is not installed, or is another one.
    """
    composed = compose(run, device, trains=trains)
    size = size_or_none(run.model.path)
    unknown = [] if size is not None else [("model.path", run.model.path)]
    critic = None
    if composed.has_critic:
        path = run.critic.path or run.model.path
        critic = size_or_none(path)
        if critic is None and run.critic.path is not None:
            unknown.append(("critic.path", path))
    known = size or NOTHING
    processes = environment_processes(run)
    on_gpus = size is not None and device == "gpu"
    longest_call = run.rollout.max_prompt_tokens + run.rollout.max_reply_tokens
    return Needs(
        composed=composed,
        unknown=tuple(unknown),
        ray=ray_processors(composed),
        gpu=gpu_memory(composed, known, critic, longest_call=longest_call) if on_gpus else None,
        host=host_memory(run, composed, known, critic, environment_processes=processes),
        disk=disk(run, composed, known, critic),
        shared_memory=shared_memory_bytes(composed),
        open_files=open_files(processes),
        environment_processes=processes,
        time=step_time(run, composed, known, critic, gpu=gpu) if on_gpus else None,
    )


def needs_here(run: RunConfig) -> Needs:
    """What `run` takes, if it is started on this machine.

    Raises:
        ConfigError: As `needs_of`.
        MachineError: As `needs_of`.
    """
    gpus = usable_gpus()
    device = wanted_device(run, num_gpus=len(gpus))
    return needs_of(run, device=device, gpu=gpus[0].name if gpus else None)


def environment_processes(run: RunConfig) -> int:
    """Processes that play the run's environments at once, at most.

    A class may let several episodes share a process; one that cannot be asked has one in each. What
    a server plays is in no process of the run.
    """
    described = known_descriptions(run)
    processes = 0
    for entry in run.played_environments:
        if entry.isolation == "process" and entry.server is None:
            shared = described[entry.id].episodes_per_process if entry.id in described else 1
            shared = min(shared, entry.episodes_per_process or shared)
            processes += -(-entry.num_workers // shared)
    return processes
