"""Whether this machine can carry a run, and what to do where it cannot.

The same checks serve `trainer doctor`, which shows all of them, and the start of a run,
which `require_ready` refuses before anything expensive. What a run takes is computed in
`preflight.resources`; much of it is an estimate, and a run may be started against it
(`trainer train --skip-doctor`). Nothing here imports torch, verl, vllm or ray.
"""

import ctypes
import importlib.metadata
import os
import re
import resource
import shutil
import socket
import sysconfig
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from longhaul_core.errors import ConfigError, LonghaulError, MachineError, StoreError
from longhaul_core.store.session import check_store
from longhaul_trainer.config import RunConfig
from longhaul_trainer.models.caches import cache_folder
from longhaul_trainer.models.vision import needs_flash_attn_to_pack
from longhaul_trainer.preflight.description_check import require_chat_template, require_player
from longhaul_trainer.preflight.machine import memory_available, num_processors
from longhaul_trainer.preflight.resources import Needs, model_size, needs_of
from longhaul_trainer.run.device import least_driver, torch_cuda_version, usable_gpus, wanted_device
from longhaul_trainer.run.provenance import Gpu, driver_version
from longhaul_trainer.run.ray_token import FROM_ELSEWHERE, others_may_read, ray_token_file
from longhaul_trainer.verl.attention import (
    ATTENTION,
    FLASH,
    SDPA,
    TORCH_FLASH,
    flash_attention_version,
    gpu_attention,
)
from longhaul_trainer.verl.processors import busy_processes
from longhaul_trainer.verl.weight_choice import SETTING as WEIGHT_TRANSFER
from longhaul_trainer.verl.weight_choice import has_cupy, weight_transfer

GIB = 2**30
CONNECTION_SECONDS = 3.0
NUMA = "libnuma.so.1"
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


def examine(config: RunConfig, *, trains: bool = True) -> list[Finding]:
    """Every check, worst news included; raises nothing.

    Args:
        config: The run that the machine is to carry, with absolute paths.
        trains: Whether it is trained, and not its model evaluated or served alone.
    """
    gpus = usable_gpus()
    checks: list[Callable[[], Finding]] = [
        lambda: check_packages(config, gpus),
        lambda: check_libraries(config, gpus),
        lambda: check_gpus(config, gpus),
        lambda: check_driver(config, gpus),
        lambda: check_compiler(config, gpus),
        lambda: check_attention(config, gpus),
        lambda: check_weight_transfer(config, gpus),
        lambda: check_cluster(config),
        lambda: check_model(config),
        lambda: check_environment(config),
        check_caches,
        check_temporary_space,
        check_ray_token,
        lambda: check_store_access(config),
    ]
    return [check() for check in checks] + check_needs(config, gpus, trains=trains)


def check_needs(config: RunConfig, gpus: Sequence[Gpu], *, trains: bool = True) -> list[Finding]:
    """What the run takes against what this machine has, by kind.

    One finding alone where verl's settings cannot be composed, on which all of it depends.
    """
    device = wanted_device(config, num_gpus=len(gpus))
    try:
        gpu = gpus[0].name if gpus else None
        needs = needs_of(config, device=device, gpu=gpu, trains=trains)
    except (ConfigError, MachineError) as error:
        return [
            Finding(
                name="settings",
                status=Status.BAD,
                found=str(error),
                advice="mend them, and look again",
                error=type(error),
            )
        ]
    return [
        check_gpu_memory(needs, gpus),
        check_memory(needs),
        check_processors(needs),
        check_disk(config, needs),
        check_shared_memory(needs),
        check_open_files(needs),
    ]


def require_ready(config: RunConfig, *, trains: bool = True) -> list[Finding]:
    """Warnings about a run that can start.

    Args:
        config: The run, with absolute paths.
        trains: As for `examine`.

    Raises:
        ConfigError: If the description asks for a model or an environment that is not there.
        StoreError: If the store cannot be written.
        MachineError: If the machine lacks something. The class is that of the first problem;
            the message holds all of them.
    """
    findings = examine(config, trains=trains)
    bad = [finding for finding in findings if finding.status is Status.BAD]
    if bad:
        lines = [f"{finding.name}: {finding.found}; {finding.advice}" for finding in bad]
        raise bad[0].error("\n  ".join(["the run cannot start here:", *lines]))
    return [finding for finding in findings if finding.status is Status.WARNING]


def _unknown_size(name: str, needs: Needs, free: str) -> Finding | None:
    """A finding that says that nothing was estimated; None where all models' sizes are known."""
    for setting, path in needs.unknown:
        return Finding(
            name=name,
            status=Status.WARNING,
            found=f"{free}; what is needed is not known without {setting} = {path!r}",
            advice=f"mend {setting}, and look again",
        )
    return None


def check_model(config: RunConfig) -> Finding:
    """The weights are there, the critic's too, and the chat template writes the run's prompts."""
    try:
        size = model_size(config.model.path)
        if config.algorithm.uses_critic and config.critic.path is not None:
            model_size(config.critic.path, setting="critic.path")
        if check_environment(config).status is Status.GOOD:
            require_chat_template(config)
    except (ConfigError, MachineError) as error:
        return Finding(
            name="model",
            status=Status.BAD,
            found=str(error),
            advice="name a built-in model, or the folder of a whole one",
            error=type(error),
        )
    found = f"{config.model.path}, {size.num_parameters / 1e6:,.0f} million parameters"
    return Finding(name="model", status=Status.GOOD, found=found)


def check_environment(config: RunConfig) -> Finding:
    """Each environment describes itself under its options; or a program and its tasks are there."""
    try:
        require_player(config)
    except ConfigError as error:
        return Finding(
            name="environment",
            status=Status.BAD,
            found=str(error),
            advice="see the sections [agent] and [tasks] of the run"
            if config.agent.is_program
            else "see the sections [environment] of the run and of the environment's own page",
            error=ConfigError,
        )
    return Finding(
        name="environment",
        status=Status.GOOD,
        found=", ".join(entry.id for entry in config.played_environments),
    )


def check_gpu_memory(needs: Needs, gpus: Sequence[Gpu]) -> Finding:
    """The smallest GPU here holds the learner, and the engine in its share."""
    if needs.composed.device == "cpu":
        return Finding(name="GPU memory", status=Status.GOOD, found="none is used")
    sizes = [gpu.memory_gib for gpu in gpus if gpu.memory_gib is not None]
    has = f"{min(sizes):.1f} GiB each" if sizes else "no driver reports a size here"
    memory = needs.gpu
    if memory is None:
        unknown = _unknown_size("GPU memory", needs, has)
        assert unknown is not None, "of a known model the memory is estimated"
        return unknown
    found = (
        f"{has}; about {memory.learning / GIB:.1f} GiB for the learner, "
        f"{memory.resident / GIB:.1f} of which stay while episodes are played"
    )
    if memory.engine_share:
        found += (
            f" beside {memory.engine_share:.0%} for the engine, which needs "
            f"{memory.engine / GIB:.1f} at least"
        )
    status = Status.WARNING if not sizes else Status.GOOD
    if sizes and memory.smallest > min(sizes) * GIB:
        status = Status.BAD
        found += f"; a GPU of {memory.smallest / GIB:.0f} GiB would do"
    elif sizes and memory.smallest > 0.9 * min(sizes) * GIB:
        status = Status.WARNING
    return Finding(
        name="GPU memory",
        status=status,
        found=found,
        advice="lower optimizer.micro_batch_tokens, set model.gradient_checkpointing = true, "
        "change engine.gpu_memory_utilization, raise engine.tensor_parallel_size or "
        "resources.num_workers, or train an adapter (model.lora_rank)",
    )


def check_memory(needs: Needs) -> Finding:
    """The estimate fits into what is free; without the model's size there is none."""
    needed, available = needs.host.total / GIB, memory_available() / GIB
    unknown = _unknown_size("memory", needs, f"{available:.1f} GiB free")
    if unknown is not None and needed <= available:
        return unknown
    status = Status.GOOD
    if needed > available:
        status = Status.BAD
    elif needed > 0.9 * available:
        status = Status.WARNING
    advice = "end other programs, or lower engine.memory_gib and optimizer.micro_batch_tokens"
    if needs.composed.device == "gpu":
        advice = "end other programs, or take a machine with more memory"
    return Finding(
        name="memory",
        status=status,
        found=f"{available:.1f} GiB free, about {needed:.1f} GiB needed",
        advice=advice,
    )


def check_processors(needs: Needs) -> Finding:
    """A processor for each process that may compute at the same moment.

    Ray's *logical* processors are another matter: too few of them and verl waits without a
    word, so a Ray of the run's own is started with as many as the run needs, whatever the
    machine has, and a cluster's nodes are asked when the run has joined it.
    """
    count, wanted = num_processors(), busy_processes(needs.composed)
    return Finding(
        name="processors",
        status=Status.GOOD if count >= wanted else Status.WARNING,
        found=f"{count:g}, {wanted} wanted; {needs.ray.total} by Ray's count",
        advice=f"give the container {wanted} processors; with fewer every stage waits for others",
    )


def check_disk(config: RunConfig, needs: Needs) -> Finding:
    """Checkpoints fit where they go; how large they are follows from the model's size."""
    needed = needs.disk.folder / GIB
    folder = _nearest_folder(Path(config.runs_directory))
    free = shutil.disk_usage(folder).free / GIB
    unknown = _unknown_size("disk", needs, f"{free:.1f} GiB free at {folder}")
    writable = os.access(folder, os.W_OK | os.X_OK)
    if unknown is not None and needed <= free and writable:
        return unknown
    found = f"{free:.1f} GiB free at {folder}, about {needed:.1f} GiB needed"
    if needs.composed.trains:
        found += (
            f" by {needs.disk.num_checkpoints} checkpoints of "
            f"{needs.disk.checkpoint / GIB:.1f} GiB and the models"
        )
    return Finding(
        name="disk",
        status=Status.GOOD if free >= needed and writable else Status.BAD,
        found=found if writable else f"{folder} is not writable",
        advice="name another place with runs_directory=…, or lower checkpoint.keep_last",
    )


def check_caches() -> Finding:
    """There is a folder for built-in models and for what libraries compile."""
    name = "caches"
    try:
        folder = cache_folder()
    except MachineError as error:
        return Finding(
            name=name,
            status=Status.BAD,
            found=str(error),
            advice="a container's home may be read-only; mount a folder, and name it",
        )
    return Finding(name=name, status=Status.GOOD, found=str(folder))


def check_temporary_space() -> Finding:
    """Ray's session folder has room; Ray also stops spilling on a disk that is 95 % full."""
    name, advice = "temporary files", "make room, or set TMPDIR and RAY_TMPDIR to a disk with space"
    folder = _nearest_folder(Path(os.environ.get("RAY_TMPDIR") or tempfile.gettempdir()))
    if not os.access(folder, os.W_OK | os.X_OK):
        return Finding(
            name=name, status=Status.BAD, found=f"{folder} cannot be written", advice=advice
        )
    usage = shutil.disk_usage(folder)
    full = 1 - usage.free / usage.total
    status = Status.GOOD
    if usage.free < TEMPORARY_GIB * GIB:
        status = Status.BAD
    elif full > 0.95:
        status = Status.WARNING
    return Finding(
        name=name,
        status=status,
        found=f"{usage.free / GIB:.1f} GiB free at {folder}, {full:.0%} of the disk used",
        advice=advice,
    )


def check_ray_token() -> Finding:
    """No other user can read the token that Ray's ports ask for."""
    file = ray_token_file()
    if file is None:
        found = f"kept by the user ({', '.join(n for n in FROM_ELSEWHERE if n in os.environ)})"
        return Finding(name="Ray's token", status=Status.GOOD, found=found)
    if others_may_read(file):
        return Finding(
            name="Ray's token",
            status=Status.WARNING,
            found=f"other users may read {file}, and whoever has it runs code by your Ray",
            advice="the next run takes that permission away; if somebody may have read it, end "
            "your Rays and delete the file, and the next run draws another",
        )
    found = f"{file}, for this user alone" if file.exists() else "drawn by the first run"
    return Finding(name="Ray's token", status=Status.GOOD, found=found)


def check_shared_memory(needs: Needs) -> Finding:
    """`/dev/shm` carries weights between processes."""
    folder = Path("/dev/shm")
    free = shutil.disk_usage(folder).free / GIB if folder.is_dir() else 0.0
    needed = needs.shared_memory / GIB
    return Finding(
        name="shared memory",
        status=Status.GOOD if free >= needed else Status.BAD,
        found=f"{free:.1f} GiB free at {folder}, {needed:.1f} GiB needed",
        advice=f"start the container with --shm-size={_whole(needed)}g, or: "
        f"mount -o remount,size={_whole(needed)}g /dev/shm",
    )


def _whole(gib: float) -> int:
    """GiB to ask for: with room, and at least 4."""
    return max(4, int(gib) + 1)


def check_open_files(needs: Needs) -> Finding:
    """Ray's processes hold many sockets, and an agent loop one to each process of environments.

    The hard limit decides: every program of ours raises its soft limit to it.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited, needed = resource.RLIM_INFINITY, needs.open_files
    return Finding(
        name="open files",
        status=Status.GOOD if hard == unlimited or hard >= needed else Status.BAD,
        found="unlimited" if hard == unlimited else f"hard limit {hard}, {needed} needed",
        advice=f"raise the hard limit (`ulimit -Hn`) to {needed}: in /etc/security/limits.conf, or "
        f"start the container with --ulimit nofile={needed}",
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


def check_libraries(config: RunConfig, gpus: tuple[Gpu, ...]) -> Finding:
    """The library of the system that vLLM's CPU build loads; no wheel brings it."""
    name = "libraries"
    if wanted_device(config, num_gpus=len(gpus)) != "cpu":
        return Finding(name=name, status=Status.GOOD, found="the wheels bring them")
    try:
        ctypes.CDLL(NUMA)
    except OSError as error:
        return Finding(
            name=name,
            status=Status.BAD,
            found=f"vLLM's CPU build loads {NUMA}: {error}",
            advice="install it (`apt-get install libnuma1`, `dnf install numactl-libs`)",
        )
    return Finding(name=name, status=Status.GOOD, found=NUMA)


def check_gpus(config: RunConfig, gpus: tuple[Gpu, ...]) -> Finding:
    """As many GPUs as the run asks for."""
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
    return Finding(name="GPU", status=Status.GOOD, found=found)


def check_driver(config: RunConfig, gpus: tuple[Gpu, ...]) -> Finding:
    """The driver is new enough for the CUDA that the installed torch was built for."""
    cuda = torch_cuda_version()
    built_for = f"torch for CUDA {cuda}" if cuda else "torch without CUDA"
    if wanted_device(config, num_gpus=len(gpus)) == "cpu":
        return Finding(name="driver", status=Status.GOOD, found="none is used")
    driver = driver_version()
    if cuda is None or driver is None:
        here = "no driver answers" if driver is None else f"driver {driver}"
        return Finding(
            name="driver",
            # On a cluster the GPUs may all be other machines'.
            status=Status.WARNING if config.resources.ray_address is not None else Status.BAD,
            found=f"{here}, and {built_for}",
            advice="install NVIDIA's driver, and torch's CUDA build",
        )
    least = least_driver(cuda)
    major = driver.partition(".")[0]
    too_old = least is not None and major.isdigit() and int(major) < least
    return Finding(
        name="driver",
        status=Status.BAD if too_old else Status.GOOD,
        found=f"{driver}, and {built_for}"
        + (f", which needs {least} or newer" * (least is not None)),
        advice=f"update NVIDIA's driver to {least} or newer; where CUDA's forward compatibility "
        "package takes its place, start with --skip-doctor",
    )


def check_compiler(config: RunConfig, gpus: tuple[Gpu, ...]) -> Finding:
    """A C compiler and Python's headers, where a run on GPUs compiles what calls its kernels.

    vLLM and torch.compile write kernels in Triton, which builds a module of C for this Python when
    the first of them is loaded (`triton.runtime.build`). It takes `CC`, gcc or clang.
    """
    name = "compiler"
    if wanted_device(config, num_gpus=len(gpus)) == "cpu":
        return Finding(name=name, status=Status.GOOD, found="none is needed")
    given = os.environ.get("CC")
    compiler = (shutil.which("gcc") or shutil.which("clang")) if given is None else given
    header = Path(sysconfig.get_path("include"), "Python.h")
    on_cluster = config.resources.ray_address is not None  # the GPUs may all be other machines'
    lacking = Status.WARNING if on_cluster else Status.BAD
    if given is not None and shutil.which(given) is None:
        return Finding(
            name=name,
            status=lacking,
            found=f"CC = {given!r}, by which Triton compiles at the start, is no program",
            advice="name one that is, or unset CC, so that gcc or clang is taken",
        )
    if compiler is None:
        return Finding(
            name=name,
            status=lacking,
            found="neither gcc nor clang nor CC, by which Triton compiles while a run starts",
            advice="install one on every machine with GPUs, such as by `apt-get install gcc`",
        )
    if not header.is_file():
        return Finding(
            name=name,
            status=lacking,
            found=f"{compiler}, and no {header}, which Triton includes while a run starts",
            advice="install Python's headers (`apt-get install python3-dev`), or take a Python of "
            "uv's, which has them",
        )
    return Finding(name=name, status=Status.GOOD, found=f"{compiler}, with Python's headers")


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
    if attention == TORCH_FLASH and needs_flash_attn_to_pack(config.model.path):
        return Finding(
            name="attention",
            status=Status.WARNING,
            found=f"{attention} of torch's kernels; rows with pictures are padded",
            advice="install flash-attn for this torch and CUDA, by which this model's are packed",
        )
    if attention.startswith("flash_attention"):
        kernels = " of torch's kernels" if attention == TORCH_FLASH else ""
        return Finding(name="attention", status=Status.GOOD, found=f"{attention}{kernels}")
    tokens = config.optimizer.micro_batch_tokens
    return Finding(
        name="attention",
        status=Status.GOOD,
        found=f"{attention}, which compares every two of a micro-batch's {tokens} tokens",
        advice="lower optimizer.micro_batch_tokens if the learner is slow or short of memory",
    )


def check_weight_transfer(config: RunConfig, gpus: tuple[Gpu, ...]) -> Finding:
    """How weights reach separate engines, and that what it takes is installed."""
    name = "weight transfer"
    if config.trainer.mode != "separate_async":
        return Finding(name=name, status=Status.GOOD, found="the engines are beside the learner")
    device = wanted_device(config, num_gpus=len(gpus))
    try:
        way = weight_transfer(config, device=device)
    except ConfigError as error:
        return Finding(
            name=name,
            status=Status.BAD,
            found=str(error),
            advice=f"leave {WEIGHT_TRANSFER} out",
            error=ConfigError,
        )
    if way == "nccl" and not has_cupy():
        return Finding(
            name=name,
            status=Status.BAD,
            found="nccl, which needs the package cupy, and it is not installed",
            advice=f'install cupy-cuda13x on every node, or say {WEIGHT_TRANSFER} = "tcp"',
        )
    if way == "tcp" and device == "gpu":
        return Finding(
            name=name,
            status=Status.WARNING,
            found="tcp, through the memory of the host",
            advice="install cupy-cuda13x on every node for NCCL, from GPU to GPU",
        )
    return Finding(name=name, status=Status.GOOD, found=way or "as [verl] says")


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
