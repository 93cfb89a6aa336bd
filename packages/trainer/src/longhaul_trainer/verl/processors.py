"""Logical processors by which Ray schedules what verl starts.

They are a count and no more: whoever starts Ray says how many there are, and the operating system
shares out the real ones. Too few of them and verl waits without a word.
"""

from dataclasses import dataclass

from longhaul_trainer.verl.composed import Composed

OF_A_LEARNER_GPU = 3
"""verl reserves room for three processes on each GPU of the learner's pool
(`ResourcePoolManager.max_colocate_count`), and a processor for each of them."""

OF_AN_ENGINE_GPU = 2
"""And for two on each GPU of an engine that stands alone (`RolloutReplica.init_standalone`)."""

OF_THE_CONTROLLER = 1
OF_A_STORAGE_UNIT = 1
"""TransferQueue's processes (`num_cpus=1` of both classes)."""

TO_PLACE_ACTORS = 1
"""Engines, agent loops and the router are actors without a request of their own. Ray holds a free
processor for such an actor while it is placed, and none once it runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RayProcessors:
    """Ray's logical processors, by what asks for them."""

    learner: int
    engines: int
    controller: int = OF_THE_CONTROLLER
    storage: int
    placing: int = TO_PLACE_ACTORS

    @property
    def total(self) -> int:
        """Of the whole run, where one machine has all of them."""
        return self.learner + self.engines + self.controller + self.storage + self.placing


def ray_processors(composed: Composed) -> RayProcessors:
    """What a run asks Ray for in all."""
    return RayProcessors(
        learner=OF_A_LEARNER_GPU * composed.num_workers,
        engines=OF_AN_ENGINE_GPU * composed.num_engine_workers,
        storage=OF_A_STORAGE_UNIT * composed.storage_units,
    )


def of_a_learner_node(composed: Composed) -> int:
    """Most that one of a cluster's nodes must have for its part of the learner.

    Storage units go to the cluster's nodes in turn, the controller to any of them.
    """
    return (
        OF_A_LEARNER_GPU * composed.workers_of_a_node
        + storage_of_a_node(composed)
        + OF_THE_CONTROLLER
        + TO_PLACE_ACTORS
    )


def storage_of_a_node(composed: Composed) -> int:
    """Most that TransferQueue's storage units ask of one node; each node of the cluster has some.

    TransferQueue shares them out among all nodes that are alive, those of engines too, of which
    there are at least `num_nodes`.
    """
    return OF_A_STORAGE_UNIT * -(-composed.storage_units // composed.num_nodes)


def busy_processes(composed: Composed) -> int:
    """Processes that may compute at the same moment, each of which wants a real processor.

    On a CPU learner and engine take turns: one process, and one for everything else. On GPUs the
    trainer, each agent loop, and of each engine a server, a scheduler and a worker on each GPU,
    which waits for the GPU at full speed; in its turn a worker of the learner does the same.
    """
    if composed.device == "cpu":
        return 2
    gpus = composed.num_engine_workers or composed.num_workers
    engines = -(-gpus // composed.tensor_parallel_size)
    learner = composed.num_workers if composed.engine_is_apart else 0
    return 1 + composed.agent_loops + 2 * engines + gpus + learner
