"""Shared memory and open files, which a machine limits."""

from longhaul_trainer.verl.composed import Composed

BESIDE_BUCKETS_BYTES = 512 << 20
"""Of `/dev/shm`: queues between vLLM's processes, and NCCL's buffers where cards cannot reach each
other. Estimated."""

OPEN_FILES = 4096
"""Of a process: Ray warns of less (`ray.init`), since its processes hold sockets to each other."""

FILES_OF_AN_ENVIRONMENT_PROCESS = 1
"""A socket to each, in the process that plays the episodes, and another in the fork server."""

FREE_FILES = 2048
"""Of those, for all that is not an environment."""


def shared_memory_bytes(composed: Composed) -> int:
    """Of `/dev/shm` on one machine.

    Each worker of the learner sends its engine weights through a bucket there: on a CPU always,
    and on a GPU where the container allows no CUDA IPC (verl's `BucketedWeightSender`).
    """
    return composed.workers_of_a_node * composed.weight_bucket_bytes + BESIDE_BUCKETS_BYTES


def open_files(environment_processes: int) -> int:
    """Descriptors that one process must be allowed: of all environments in one agent loop."""
    held = FILES_OF_AN_ENVIRONMENT_PROCESS * environment_processes
    return max(OPEN_FILES, FREE_FILES + held)
