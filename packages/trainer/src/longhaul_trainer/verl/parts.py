"""Rows of a training step, computed a part at a time.

A worker of verl cuts its rows into micro-batches before it computes the first, and each micro-batch
unpacks all of the worker's rows (`tensordict_utils.index_select_tensor_dict`): the time is
quadratic in rows, and the GPU waits for it. 6,400 rows of 2,150 tokens take a worker's processor
eight minutes at once, and half a minute in parts of 256 (`benchmarks/micro_batches.py`).

What is computed of a row does not depend on the rows beside it, so log-probabilities can be asked
for in parts. An update cannot: its rows are one optimizer step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from transfer_queue import KVBatchMeta

ROWS_AT_ONCE = 256
"""Of a worker."""


class InParts:
    """A worker group that computes log-probabilities part by part of the rows.

    Everything else is the group's own.
    """

    def __init__(
        self, group: object, *, num_ranks: Callable[[], int], rows_at_once: int = ROWS_AT_ONCE
    ) -> None:
        """Wrap a worker group.

        Args:
            group: verl's.
            num_ranks: Gives the number of its workers, which share out the rows of a call in
                their order.
            rows_at_once: Of a worker, at least 1.
        """
        self._group: Any = group
        self._num_ranks_of_group = num_ranks
        self._rows_at_once = rows_at_once

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  whatever it is of the group
        """The group's own attribute of this name."""
        return getattr(self._group, name)

    def compute_log_prob(self, batch: KVBatchMeta) -> KVBatchMeta:
        """Put the policy's log-probabilities of rows into TransferQueue; returns the rows."""
        return self._computed(self._group.compute_log_prob, batch)

    def compute_ref_log_prob(self, batch: KVBatchMeta) -> KVBatchMeta:
        """As `compute_log_prob`, the reference's."""
        return self._computed(self._group.compute_ref_log_prob, batch)

    def _computed(
        self, compute: Callable[[KVBatchMeta], object], batch: KVBatchMeta
    ) -> KVBatchMeta:
        for keys in parts_of(
            batch.keys, num_ranks=self._num_ranks_of_group(), rows_at_once=self._rows_at_once
        ):
            compute(batch.select_keys(keys))
        return batch


def parts_of(keys: Sequence[str], *, num_ranks: int, rows_at_once: int) -> list[list[str]]:
    """The keys of each part; every worker computes the same rows, in the same order, as in one.

    Raises:
        ValueError: The workers cannot have equally many rows.
    """
    share, rest = divmod(len(keys), num_ranks)
    if rest:
        raise ValueError(f"{len(keys)} rows cannot be shared out evenly among {num_ranks} workers")
    return [
        [
            key
            for of_rank in range(0, len(keys), share)
            for key in keys[of_rank : of_rank + share][first : first + rows_at_once]
        ]
        for first in range(0, share, rows_at_once)
    ]
