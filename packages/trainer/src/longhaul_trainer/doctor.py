"""Whether this machine can carry a run, and what to do where it cannot.

The same checks serve `trainer doctor`, which shows all of them, and the start of a run,
which `require_ready` refuses before anything expensive. Needs are estimates from the
model's size, written out in the functions that make them; a run may be started against
them (`trainer train --skip-doctor`). Nothing here imports torch, verl, vllm or ray.
"""

import importlib.metadata
import json
import math
import os
import re
import resource
import shutil
import socket
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Literal, NamedTuple

import psutil

from longhaul_core.errors import ConfigError, LonghaulError, MachineError, StoreError
from longhaul_core.store.session import check_store
from longhaul_trainer.config import RunConfig
from longhaul_trainer.description_check import require_chat_template, require_environments
from longhaul_trainer.device import usable_gpus, wanted_device
from longhaul_trainer.models import prepare_model
from longhaul_trainer.provenance import Gpu
from longhaul_trainer.verl.attention import (
    ATTENTION,
    FLASH,
    SDPA,
    flash_attention_version,
    gpu_attention,
)

GIB = 2**30
PROCESSES_GIB = 5.5
"""What Ray's, verl's and vLLM's processes hold around a model of no size; measured on the smoke
run, which takes 5.7 GiB in all."""
WORKER_GIB = 1.0
"""What each further worker of the learner and its engine hold beside them; measured on the smoke
run with two workers."""
ACTIVATION_BYTES = 160
"""What a token leaves for the backward pass in each layer, per hidden unit: 40 numbers of 4 bytes,
with what the allocator keeps beside them; measured on the default run, 14.9 GiB in all."""
SHARED_MEMORY_GIB = 1.0
"""Weights travel to the engine through `/dev/shm` in buckets of half a GiB."""
OPEN_FILES = 4096
"""Ray's own recommendation is 65536; below this, workers fail to start."""
CONNECTION_SECONDS = 3.0
TEMPORARY_GIB = 2.0
"""Ray's session folder, with its logs and spilled objects."""


class Status(StrEnum):
    """How serious a finding is."""

    GOOD = "good"
    WARNING = "warning"
    """The run will work, but worse than it could."""
    BAD = "bad"
    """The run would fail."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What one check found."""

    name: str
    status: Status
    found: str
    advice: str = ""
    """What to do, where the status is not good."""
    error: type[LonghaulError] = MachineError
    """Raised by `require_ready` where the status is bad."""


class ModelSize(NamedTuple):
    """What memory follows from."""

    num_parameters: int
    vocabulary_size: int
    num_layers: int = 0
    hidden_size: int = 0
    linear_width: int = 0
    """Inputs and outputs of the layers' matrices, summed: what a rank of an adapter costs."""

    def num_trained(self, lora_rank: int) -> int:
        """Parameters that an optimizer moves: an adapter's, or all of them at rank 0."""
        return lora_rank * self.linear_width if lora_rank else self.num_parameters


BUILT_IN_SIZES = {
    "smollm2": ModelSize(134_515_008, 49_152, 30, 576, 305_280),
    "tiny": ModelSize(336_192, 4_096, 2, 64, 2_048),
    "tiny-moves": ModelSize(336_192, 4_096, 2, 64, 2_048),
}
"""Of the models that are names and may not be written yet."""

WEIGHT_BYTES = {"float32": 4, "bfloat16": 2}


def examine(config: RunConfig) -> list[Finding]:
    """Every check, worst news included; raises nothing.

    Args:
        config: The run that the machine is to carry, with absolute paths.
    """
    gpus = usable_gpus()
    checks: list[Callable[[], Finding]] = [
        lambda: check_packages(config, gpus),
        lambda: check_gpus(config, gpus),
        lambda: check_attention(config, gpus),
        lambda: check_cluster(config),
        lambda: check_model(config),
        lambda: check_environment(config),
        lambda: check_memory(config, gpus),
        check_processors,
        lambda: check_disk(config),
        check_temporary_space,
        check_shared_memory,
        check_open_files,
        lambda: check_store_access(config),
    ]
    return [check() for check in checks]


def require_ready(config: RunConfig) -> list[Finding]:
    """Warnings about a run that can start.

    Raises:
        ConfigError: If the description asks for a model or an environment that is not there.
        StoreError: If the store cannot be written.
        MachineError: If the machine lacks something. The class is that of the first problem;
            the message holds all of them.
    """
    findings = examine(config)
    bad = [finding for finding in findings if finding.status is Status.BAD]
    if bad:
        lines = [f"{finding.name}: {finding.found}; {finding.advice}" for finding in bad]
        raise bad[0].error("\n  ".join(["the run cannot start here:", *lines]))
    return [finding for finding in findings if finding.status is Status.WARNING]


def model_size(path: str, *, setting: str = "model.path") -> ModelSize:
    """Parameters and shape of a model, from the headers of its files.

    Raises:
        ConfigError: If `path` is no built-in model and no folder with weights.
    """
    if path in BUILT_IN_SIZES:
        return BUILT_IN_SIZES[path]
    folder = prepare_model(path, setting=setting)
    weights = sorted(folder.glob("*.safetensors"))
    try:
        config = json.loads((folder / "config.json").read_bytes())
        shapes = [shape for file in weights for shape in _shapes(file).items()]
        return ModelSize(
            num_parameters=sum(math.prod(shape) for _, shape in shapes),
            vocabulary_size=int(config["vocab_size"]),
            num_layers=int(config["num_hidden_layers"]),
            hidden_size=int(config["hidden_size"]),
            linear_width=sum(
                sum(shape) for name, shape in shapes if ".layers." in name and len(shape) == 2
            ),
        )
    except (OSError, ValueError, KeyError) as error:
        raise ConfigError(f"{setting} = {path!r} cannot be read: {error!r}") from error


def _known_size(config: RunConfig) -> ModelSize:
    """The model's size; nothing where it is not known, which `check_model` reports."""
    return _size_or_nothing(config.model.path)


def _critic_size(config: RunConfig) -> ModelSize:
    """The critic's size; nothing without one, and where it is not known."""
    if not config.algorithm.uses_critic:
        return ModelSize(0, 0)
    return _size_or_nothing(config.critic.path or config.model.path)


def _unknown_size(name: str, config: RunConfig, free: str) -> Finding | None:
    """A finding that says that nothing was estimated; None where all models' sizes are known."""
    needed = {"model.path": config.model.path}
    if config.algorithm.uses_critic and config.critic.path is not None:
        needed["critic.path"] = config.critic.path
    for setting, path in needed.items():
        if _size_or_nothing(path).num_parameters == 0:
            return Finding(
                name=name,
                status=Status.WARNING,
                found=f"{free}; what is needed is not known without {setting} = {path!r}",
                advice=f"mend {setting}, and look again",
            )
    return None


def _size_or_nothing(path: str) -> ModelSize:
    try:
        return model_size(path)
    except ConfigError:
        return ModelSize(0, 0)


def _shapes(file: Path) -> dict[str, list[int]]:
    """Of all tensors of a safetensors file: its header is JSON after its length."""
    with file.open("rb") as opened:
        header = json.loads(opened.read(int.from_bytes(opened.read(8), "little")))
    return {
        name: [int(length) for length in entry["shape"]]
        for name, entry in header.items()
        if name != "__metadata__"
    }


def check_model(config: RunConfig) -> Finding:
    """The weights are there, the critic's too, and the chat template writes the run's prompts."""
    try:
        size = model_size(config.model.path)
        if config.algorithm.uses_critic and config.critic.path is not None:
            model_size(config.critic.path, setting="critic.path")
        if check_environment(config).status is Status.GOOD:
            require_chat_template(config)
    except ConfigError as error:
        return Finding(
            name="model",
            status=Status.BAD,
            found=str(error),
            advice="name a built-in model, or the folder of a whole one",
            error=ConfigError,
        )
    found = f"{config.model.path}, {size.num_parameters / 1e6:,.0f} million parameters"
    return Finding(name="model", status=Status.GOOD, found=found)


def check_environment(config: RunConfig) -> Finding:
    """The modules import, and each environment describes itself under its options."""
    try:
        require_environments(config)
    except ConfigError as error:
        return Finding(
            name="environment",
            status=Status.BAD,
            found=str(error),
            advice="see the sections [environment] of the run and of the environment's own page",
            error=ConfigError,
        )
    return Finding(
        name="environment",
        status=Status.GOOD,
        found=", ".join(entry.id for entry in config.played_environments),
    )


def memory_needed_gib(config: RunConfig, device: Literal["cpu", "gpu"]) -> float:
    """Host memory of a run on this machine, estimated.

    On a CPU: the processes; per parameter 4 bytes of weights, 4 of the copy that travels to the
    engine, the engine's own 4 or 2, and 4 of a reference model if loss or reward needs one; per
    parameter that is trained 4 each of gradient and two AdamW moments; weights, gradient and
    moments of a critic; the key-value cache; and for the tokens of one micro-batch
    `ACTIVATION_BYTES` a layer and hidden unit, and for those of its replies logits and their
    gradient, 4 bytes each, over the vocabulary. Several workers share the weights' training
    state; each of them has whole weights and gradients for a moment, 4 bytes each, and copy,
    engine, cache and micro-batch of its own. On a GPU: the processes, and one copy of the weights
    on its way.
    """
    size = _known_size(config)
    if device == "gpu":
        return PROCESSES_GIB + 4 * size.num_parameters / GIB
    trained = size.num_trained(config.model.lora_rank)
    engine_bytes = WEIGHT_BYTES[config.model.engine_dtype]
    keeps_reference = config.loss.kl_coefficient > 0 or config.algorithm.reward_kl_coefficient > 0
    reference_bytes = 4 if keeps_reference else 0
    workers = config.resources.num_workers
    whole_bytes = 4 if workers > 1 else 0
    parameter_bytes = 4 + reference_bytes + workers * (4 + engine_bytes + whole_bytes)
    trained_bytes = 12 + workers * whole_bytes
    tokens, rollout = config.optimizer.micro_batch_tokens, config.rollout
    row_tokens = rollout.max_prompt_tokens + rollout.max_reply_tokens
    reply_tokens = tokens * rollout.max_reply_tokens / row_tokens
    activation_bytes = ACTIVATION_BYTES * size.num_layers * size.hidden_size * tokens
    logit_bytes = 8 * reply_tokens * size.vocabulary_size
    batch_bytes = workers * (activation_bytes + logit_bytes)
    critic_bytes = 16 * _critic_size(config).num_parameters
    policy_bytes = parameter_bytes * size.num_parameters + trained_bytes * trained
    model_gib = (policy_bytes + critic_bytes + batch_bytes) / GIB
    processes_gib = PROCESSES_GIB + (workers - 1) * WORKER_GIB
    return processes_gib + model_gib + workers * config.engine.memory_gib


def memory_available_gib() -> float:
    """Memory that is free now, within the limit of the container, if there is one."""
    available = psutil.virtual_memory().available
    for limit_file, usage_file in (
        ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
        (
            "/sys/fs/cgroup/memory/memory.limit_in_bytes",
            "/sys/fs/cgroup/memory/memory.usage_in_bytes",
        ),
    ):
        try:
            limit = Path(limit_file).read_text(encoding="ascii").strip()
            usage = Path(usage_file).read_text(encoding="ascii").strip()
        except OSError:
            continue
        if limit.isdigit() and usage.isdigit():
            available = min(available, int(limit) - int(usage))
    return available / GIB


def check_memory(config: RunConfig, gpus: tuple[Gpu, ...]) -> Finding:
    """The estimate fits into what is free; without the model's size there is none."""
    needed = memory_needed_gib(config, wanted_device(config, num_gpus=len(gpus)))
    available = memory_available_gib()
    unknown = _unknown_size("memory", config, f"{available:.1f} GiB free")
    if unknown is not None and needed <= available:
        return unknown
    status = Status.GOOD
    if needed > available:
        status = Status.BAD
    elif needed > 0.9 * available:
        status = Status.WARNING
    return Finding(
        name="memory",
        status=status,
        found=f"{available:.1f} GiB free, about {needed:.1f} GiB needed",
        advice="end other programs, or lower engine.memory_gib and optimizer.micro_batch_tokens",
    )


def num_processors() -> float:
    """Processors that this process may use, within the container's quota."""
    count = float(len(os.sched_getaffinity(0)))
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text(encoding="ascii").split()
    except (OSError, ValueError):
        return count
    return min(count, int(quota) / int(period)) if quota.isdigit() else count


def check_processors() -> Finding:
    """At least two processors: one for the learner or engine, one for everything else.

    Ray's *logical* processors are another matter: too few of them and verl waits without a
    word, so a Ray of the run's own is started with as many as the run needs, whatever the
    machine has.
    """
    count = num_processors()
    return Finding(
        name="processors",
        status=Status.GOOD if count >= 2 else Status.WARNING,
        found=f"{count:g}",
        advice="give the container at least 2 processors; with fewer every stage waits for others",
    )


def disk_needed_gib(config: RunConfig) -> float:
    """Disk below the runs folder, estimated.

    A checkpoint has the weights twice (as verl's shards, and as a Hugging Face folder) and two
    moments of each parameter that is trained, all in `model.dtype`; an adapter's parameters come
    on top of the model's. A critic's has its weights and two moments. `keep_last` of them and the
    best one stay while the next is written. The final and the best model take the weights once
    more each, where the disk cannot link files. One GiB is left to logs and the store.
    """
    size, critic, rank = _known_size(config), _critic_size(config), config.model.lora_rank
    trained = size.num_trained(rank)
    parameters = size.num_parameters + (trained if rank else 0)
    numbers = 2 * parameters + 2 * trained + 3 * critic.num_parameters
    num_best = 1 if config.checkpoint.keep_best else 0
    weight_bytes = WEIGHT_BYTES[config.model.dtype]
    checkpoints = (config.checkpoint.keep_last + num_best + 1) * weight_bytes * numbers
    models = weight_bytes * (1 + num_best) * parameters
    return (checkpoints + models) / GIB + 1.0


def check_disk(config: RunConfig) -> Finding:
    """Checkpoints fit where they go; how large they are follows from the model's size."""
    needed = disk_needed_gib(config)
    folder = _nearest_folder(Path(config.runs_directory))
    free = shutil.disk_usage(folder).free / GIB
    unknown = _unknown_size("disk", config, f"{free:.1f} GiB free at {folder}")
    writable = os.access(folder, os.W_OK | os.X_OK)
    if unknown is not None and needed <= free and writable:
        return unknown
    found = f"{free:.1f} GiB free at {folder}, about {needed:.1f} GiB needed"
    return Finding(
        name="disk",
        status=Status.GOOD if free >= needed and writable else Status.BAD,
        found=found if writable else f"{folder} is not writable",
        advice="name another place with runs_directory=…, or lower checkpoint.keep_last",
    )


def check_temporary_space() -> Finding:
    """Ray's session folder has room; Ray also stops spilling on a disk that is 95 % full."""
    folder = tempfile.gettempdir()
    usage = shutil.disk_usage(folder)
    full = 1 - usage.free / usage.total
    status = Status.GOOD
    if usage.free < TEMPORARY_GIB * GIB:
        status = Status.BAD
    elif full > 0.95:
        status = Status.WARNING
    return Finding(
        name="temporary files",
        status=status,
        found=f"{usage.free / GIB:.1f} GiB free at {folder}, {full:.0%} of the disk used",
        advice="make room, or set TMPDIR and RAY_TMPDIR to a disk with space",
    )


def check_shared_memory() -> Finding:
    """`/dev/shm` carries weights between processes."""
    folder = Path("/dev/shm")
    free = shutil.disk_usage(folder).free / GIB if folder.is_dir() else 0.0
    return Finding(
        name="shared memory",
        status=Status.GOOD if free >= SHARED_MEMORY_GIB else Status.BAD,
        found=f"{free:.1f} GiB free at {folder}, {SHARED_MEMORY_GIB:.1f} GiB needed",
        advice="start the container with --shm-size=4g, or: mount -o remount,size=4g /dev/shm",
    )


def check_open_files() -> Finding:
    """Ray's processes hold many sockets."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited = resource.RLIM_INFINITY
    return Finding(
        name="open files",
        status=Status.GOOD if soft == unlimited or soft >= OPEN_FILES else Status.BAD,
        found="unlimited" if soft == unlimited else f"limit {soft}, {OPEN_FILES} needed",
        advice=f"ulimit -n {OPEN_FILES}"
        if hard == unlimited or hard >= OPEN_FILES
        else f"raise the hard limit, now {hard}, to {OPEN_FILES}",
    )


def check_packages(config: RunConfig, gpus: tuple[Gpu, ...]) -> Finding:
    """The training stack is installed in the versions this package pins."""
    pins = _pinned_versions(wanted_device(config, num_gpus=len(gpus)))
    wrong = [
        f"{name} {_version(name) or 'missing'} ({version} wanted)"
        for name, version in pins.items()
        if _version(name) != version
    ]
    return Finding(
        name="packages",
        status=Status.BAD if wrong else Status.GOOD,
        found=", ".join(wrong or [f"{name} {version}" for name, version in pins.items()]),
        advice="`make cpu` or `make gpu` in a checkout installs the build for this machine",
    )


def check_gpus(config: RunConfig, gpus: tuple[Gpu, ...]) -> Finding:
    """As many GPUs as the run asks for, each with room for the engine's weights."""
    device = wanted_device(config, num_gpus=len(gpus))
    found = ", ".join(f"{gpu.name} ({gpu.memory_gib or '?'} GiB)" for gpu in gpus) or "none"
    if device == "cpu":
        idle = bool(gpus) and config.resources.device == "auto"
        return Finding(
            name="GPU",
            status=Status.WARNING if idle else Status.GOOD,
            found=f"{found}; the run computes on the CPU",
            advice="run `make gpu` to install vLLM's CUDA build" if idle else "",
        )
    resources = config.resources
    wanted = resources.num_workers + resources.num_engine_workers
    if config.resources.ray_address is None and len(gpus) < wanted:
        return Finding(
            name="GPU",
            status=Status.BAD,
            found=f"{found}; resources.num_workers = {resources.num_workers} needs {wanted}"
            + (" with the engines' own" if resources.num_engine_workers else ""),
            advice="lower resources.num_workers, or say resources.device=cpu",
        )
    return _engine_weights_fit(config, gpus, found)


def check_attention(config: RunConfig, gpus: tuple[Gpu, ...]) -> Finding:
    """Which attention the learner's models compute with, and that it is installed."""
    if wanted_device(config, num_gpus=len(gpus)) == "cpu":
        return Finding(name="attention", status=Status.GOOD, found=SDPA)
    attention, version = gpu_attention(config), flash_attention_version()
    if attention == FLASH:
        return Finding(
            name="attention",
            status=Status.BAD if version is None else Status.GOOD,
            found=f"{attention} of flash-attn {version or 'that is not installed'}",
            advice=f"install flash-attn, or leave out verl.{ATTENTION}",
        )
    tokens = config.optimizer.micro_batch_tokens
    found = f"{attention}, which compares every two of a micro-batch's {tokens} tokens"
    advice = "lower optimizer.micro_batch_tokens if the learner is slow or short of memory"
    if attention == SDPA and version is None and config.model.engine_dtype == "bfloat16":
        return Finding(
            name="attention",
            status=Status.WARNING,
            found=f"{found}; flash-attn is not installed",
            advice=f"install flash-attn for this torch and CUDA, or {advice}",
        )
    return Finding(
        name="attention",
        status=Status.GOOD,
        found=found if attention == SDPA else attention,
        advice=advice,
    )


def check_cluster(config: RunConfig) -> Finding:
    """Somebody listens where the run is to find its Ray cluster.

    What its nodes have is asked of them when the run has joined.
    """
    address = config.resources.ray_address
    if address is None or ":" not in address:
        own = (
            "a Ray of the run's own" if address is None else f"{address!r}, looked up at the start"
        )
        return Finding(name="Ray", status=Status.GOOD, found=own)
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), CONNECTION_SECONDS):
            pass
    except (OSError, ValueError, OverflowError) as error:
        return Finding(
            name="Ray",
            status=Status.BAD,
            found=f"nobody answers at resources.ray_address = {address!r}: {error}",
            advice="start the head with `ray start --head`, and this machine with "
            f"`ray start --address={address}`",
        )
    return Finding(name="Ray", status=Status.GOOD, found=f"a cluster at {address}")


def _engine_weights_fit(config: RunConfig, gpus: tuple[Gpu, ...], found: str) -> Finding:
    engine = config.engine
    bytes_each = 4 if config.model.engine_dtype == "float32" else 2
    weights = bytes_each * _known_size(config).num_parameters / GIB / engine.tensor_parallel_size
    sizes = [gpu.memory_gib for gpu in gpus if gpu.memory_gib is not None]
    share = engine.gpu_memory_utilization * min(sizes, default=float("inf"))
    return Finding(
        name="GPU",
        status=Status.GOOD if weights < share else Status.BAD,
        found=f"{found}; the engine's weights take {weights:.1f} of its {share:.1f} GiB a GPU",
        advice="raise engine.gpu_memory_utilization or engine.tensor_parallel_size",
    )


def check_store_access(config: RunConfig) -> Finding:
    """The store can be opened, and written now."""
    try:
        found = check_store(config.store)
    except StoreError as error:
        return Finding(
            name="store",
            status=Status.BAD,
            found=str(error),
            advice="or name another with store=…",
            error=StoreError,
        )
    return Finding(name="store", status=Status.GOOD, found=found)


def _nearest_folder(path: Path) -> Path:
    """The closest folder above `path`, itself included, that exists."""
    return next(folder for folder in (path, *path.absolute().parents) if folder.is_dir())


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _pinned_versions(extra: str) -> dict[str, str]:
    """`name==version` requirements of this package, and of this extra of it."""
    pins: dict[str, str] = {}
    for line in importlib.metadata.requires("longhaul-trainer") or []:
        requirement, _, marker = line.partition(";")
        pin = re.fullmatch(r"([A-Za-z0-9_.-]+)\s*==\s*([^,\s]+)", requirement.strip())
        of = re.search(r"""extra == ['"]([^'"]+)""", marker)
        if pin is not None and (of is None or of[1] == extra):
            pins[pin[1]] = pin[2]
    return pins
