"""The proof that a learner sees, by a few rows of a training step: see `training.sight`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import transfer_queue as tq
from transfer_queue import KVBatchMeta
from verl.utils import tensordict_utils as tu
from verl.workers.utils.padding import response_from_nested

from longhaul_trainer.training.sight import mean_change, with_other_pictures
from longhaul_trainer.verl.buffer import PARTITION

SHOWN = "multi_modal_inputs"
"""verl's name of the field that holds what the model reads of a row's pictures."""
MIN_ROWS = 8
"""So many that not all of them are likely to have the same answer."""


def rows_to_try(batch: KVBatchMeta, *, num_ranks: int) -> KVBatchMeta:
    """A few rows from all over a batch, as many for each rank: `MIN_ROWS` or little more.

    Args:
        batch: Equally many rows for each rank.
        num_ranks: Of the learner.
    """
    wanted = -(-MIN_ROWS // num_ranks) * num_ranks
    number = min(wanted, len(batch))
    return batch.select_keys(batch.keys[:: len(batch) // number][:number])


def proof_of_sight(
    rows: KVBatchMeta, *, compute: Callable[[KVBatchMeta], object], temperature: float
) -> dict[str, float]:
    """How far other pictures move the log-probabilities of the sampled tokens of rows.

    Both passes read the same rows in the same order, so that a model which reads no picture gives
    the same numbers. The rows have their own pictures again when this returns.

    Args:
        rows: Some, equally many for each rank.
        compute: Has the learner write `log_probs` beside rows.
        temperature: Of the logits.

    Returns:
        `sight/logprob_change_mean`, in nats per token; nothing where the rows have no two different
        pictures of one size.
    """
    if SHOWN not in (rows.fields or ()):
        return {}
    own: list[dict[str, Any]] = _fetch(rows, SHOWN).pop(SHOWN).tolist()
    others = with_other_pictures(own)
    if not any(others):
        return {}
    rows.extra_info = (rows.extra_info or {}) | {
        "calculate_entropy": False,
        "compute_loss": False,
        "temperature": temperature,
    }
    with_own = _replies(rows, compute)
    try:
        _show(rows, [other or given for other, given in zip(others, own, strict=True)])
        with_others = _replies(rows, compute)
    finally:
        _show(rows, own)
    changed = [place for place, other in enumerate(others) if other]
    change = mean_change(
        [with_own[place] for place in changed], [with_others[place] for place in changed]
    )
    return {"sight/logprob_change_mean": change}


def _replies(rows: KVBatchMeta, compute: Callable[[KVBatchMeta], object]) -> list[torch.Tensor]:
    """Log-probabilities of each row's sampled tokens."""
    compute(rows)
    data = _fetch(rows, "log_probs", "response_mask")
    replies: Any = response_from_nested(data["log_probs"], data["response_mask"])
    pairs = zip(replies.unbind(), data["response_mask"].unbind(), strict=True)
    return [reply[mask.bool()] for reply, mask in pairs]


def _fetch(rows: KVBatchMeta, *fields: str) -> Any:  # noqa: ANN401  torch's stubs know no nested
    return tq.kv_batch_get(keys=rows.keys, partition_id=PARTITION, select_fields=list(fields))


def _show(rows: KVBatchMeta, pictures: list[dict[str, Any]]) -> None:
    fields = tu.get_tensordict({SHOWN: pictures})
    tq.kv_batch_put(keys=rows.keys, partition_id=PARTITION, fields=fields)
