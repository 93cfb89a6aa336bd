"""Tests for `longhaul_trainer.verl.nodes`: what needs no cluster to be asked."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from longhaul_core.errors import MachineError
from longhaul_trainer.config import ResourcesConfig
from longhaul_trainer.verl.nodes import Node, differences, look, require_size

SMALL = Node(node_id="a", address="10.0.0.1", num_gpus=1.0, num_cpus=16.0)
LARGE = Node(node_id="b", address="10.0.0.2", num_gpus=8.0, num_cpus=64.0)
FEW_CPUS = Node(node_id="c", address="10.0.0.3", num_gpus=8.0, num_cpus=31.0)


@dataclass(frozen=True)
class Wanted:
    nodes: int
    workers: int

    @property
    def resources(self) -> ResourcesConfig:
        return ResourcesConfig(
            num_nodes=self.nodes, num_workers=self.workers, ray_address="10.0.0.1:6379"
        )


@pytest.mark.parametrize("wanted", [Wanted(1, 8), Wanted(2, 1), Wanted(1, 1)])
def test_a_cluster_with_room_on_enough_nodes_is_taken(wanted: Wanted) -> None:
    require_size([SMALL, LARGE], wanted.resources, device="gpu")


@pytest.mark.parametrize("wanted", [Wanted(2, 2), Wanted(3, 1), Wanted(1, 9)])
def test_a_cluster_is_refused_by_node_although_its_sums_would_do(wanted: Wanted) -> None:
    with pytest.raises(MachineError, match=r"10.0.0.1 has 1 and 16, 10.0.0.2 has 8 and 64"):
        require_size([SMALL, LARGE], wanted.resources, device="gpu")


def test_a_node_with_too_few_logical_processors_is_no_room() -> None:
    with pytest.raises(MachineError, match="with 8 GPUs and 32 CPUs") as refused:
        require_size([FEW_CPUS], Wanted(1, 8).resources, device="cpu")

    assert "ray start --num-gpus=8 --num-cpus=128" in str(refused.value)


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
