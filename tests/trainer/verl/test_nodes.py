"""Tests for `longhaul_trainer.verl.nodes`: what needs no cluster to be asked."""

from pathlib import Path
from typing import Any

import pytest

from longhaul_core.errors import MachineError
from longhaul_trainer.config import RunConfig
from longhaul_trainer.run.device import Device
from longhaul_trainer.verl.composed import Composed, compose
from longhaul_trainer.verl.nodes import Node, differences, look, require_size

SMALL = Node(node_id="a", address="10.0.0.1", num_gpus=1.0, num_cpus=16.0)
LARGE = Node(node_id="b", address="10.0.0.2", num_gpus=8.0, num_cpus=64.0)
FEW_CPUS = Node(node_id="c", address="10.0.0.3", num_gpus=8.0, num_cpus=27.0)
HEAD = Node(node_id="d", address="10.0.0.4", num_gpus=0.0, num_cpus=0.0)


def wanting(nodes: int, workers: int, *, device: Device = "gpu", **sections: object) -> Composed:
    run = {
        "num_training_steps": 1,
        "tasks_per_training_step": 1,
        "resources": {
            "num_nodes": nodes,
            "num_workers": workers,
            "ray_address": "10.0.0.1:6379",
            **{name: sections.pop(name) for name in list(sections) if name != "trainer"},
        },
        **sections,
    }
    return compose(RunConfig.model_validate(run), device)


@pytest.mark.parametrize(("nodes", "workers"), [(1, 8), (2, 1), (1, 1)])
def test_a_cluster_with_room_on_enough_nodes_is_taken(nodes: int, workers: int) -> None:
    require_size([SMALL, LARGE], wanting(nodes, workers))


@pytest.mark.parametrize(("nodes", "workers"), [(2, 2), (3, 1), (1, 9)])
def test_a_cluster_is_refused_by_node_although_its_sums_would_do(nodes: int, workers: int) -> None:
    with pytest.raises(MachineError, match=r"10.0.0.1 has 1 and 16, 10.0.0.2 has 8 and 64"):
        require_size([SMALL, LARGE], wanting(nodes, workers))


def test_a_node_with_too_few_logical_processors_is_told_how_many_it_needs() -> None:
    # 3 for each of 8 GPUs, 2 storage units, the controller, and 1 to place actors with
    with pytest.raises(MachineError, match="with 8 GPUs and 28 CPUs") as refused:
        require_size([FEW_CPUS], wanting(1, 8))

    assert "10.0.0.3 has 8 and 27" in str(refused.value)
    assert "`ray start --num-cpus=28`" in str(refused.value)
    require_size([FEW_CPUS._replace(num_cpus=28.0)], wanting(1, 8))


def test_a_node_without_gpus_is_told_how_many_workers_to_declare() -> None:
    with pytest.raises(MachineError, match="with 8 GPUs and 27 CPUs") as refused:
        require_size([SMALL], wanting(1, 8, device="cpu"))

    assert "`ray start --num-gpus=8 --num-cpus=27`, where a GPU stands" in str(refused.value)


def test_a_machine_with_one_gpu_and_eight_processors_carries_a_run() -> None:
    require_size([SMALL._replace(num_cpus=8.0)], wanting(1, 1))
    with pytest.raises(MachineError, match="with 1 GPUs and 13 CPUs"):
        require_size([SMALL._replace(num_cpus=8.0)], wanting(1, 1, storage_units=8))


def test_a_head_without_processors_is_refused_since_rows_would_go_there() -> None:
    with pytest.raises(MachineError, match=r"each node .* gets 1 of 2 .* 10.0.0.4 has 0 CPUs"):
        require_size([HEAD, LARGE], wanting(1, 8))


def test_engines_of_their_own_need_gpus_and_processors_beside_the_learner_s() -> None:
    apart: dict[str, Any] = {
        "trainer": {"mode": "separate_async", "prefetch_batches": 1, "max_staleness": 1},
        "num_engine_workers": 6,
    }
    # 2 learners x 3 + 6 engines x 2 + 2 storage units + the controller + 1 to place actors with
    composed = wanting(1, 2, **apart)

    require_size([LARGE._replace(num_cpus=22.0)], composed)
    with pytest.raises(MachineError, match=r"needs 22 CPUs by Ray's count.* cluster has 21"):
        require_size([LARGE._replace(num_cpus=21.0)], composed)
    with pytest.raises(MachineError, match=r"needs 8 GPUs .* 6 of them .* cluster has 7"):
        require_size([LARGE._replace(num_gpus=7.0)], composed)


def test_a_machine_is_like_itself_and_lacks_what_it_does_not_see(tmp_path: Path) -> None:
    there, absent = tmp_path / "there", tmp_path / "absent"
    there.touch()

    report = look([str(there), str(absent)])

    assert list(differences(report._replace(missing=()), report)) == []
    assert list(differences(report, report)) == [
        f"does not see {absent}; put it on a disk that all nodes share"
    ]


def test_other_packages_and_other_code_are_told_by_name() -> None:
    here = look([])
    other = here._replace(versions={**here.versions, "torch": "1.0", "verl": None}, code="another")

    found = list(differences(other, here))

    assert found == [
        f"has verl not, this machine has {here.versions['verl']}",
        f"has torch 1.0, this machine has {here.versions['torch']}",
        "has another version of Longhaul's own code than this machine",
    ]
