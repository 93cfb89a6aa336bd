"""Run by `test_two_ranks.py`, once for each rank: an update with this rank's share of the rows.

Rank 0 writes the gradients of each loss, whole, as a torch file; both write a checkpoint.
"""

import sys
from dataclasses import replace
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM

from longhaul_trainer.verl.variables import prepare_environment
from trainer.verl.updates import LOSSES, PADDING, make_rows, still_run, update
from verl_process import one_worker

NUM_RANKS = 2
WRONG = "clipped, with a wrong weight on one row"


def main(rank: int, port: int, model: Path, folder: Path) -> None:
    """Update with every second row, from `rank` on."""
    prepare_environment("cpu", scratch=folder / f"scratch-{rank}")
    plain = AutoModelForCausalLM.from_pretrained(
        model, dtype=torch.float32, attn_implementation="sdpa"
    )
    rows = [*make_rows(plain), PADDING]
    wrong = [replace(rows[0], weight=2 * rows[0].weight), *rows[1:]]
    run = still_run(num_ranks=NUM_RANKS)
    updates = {name: (rows, loss) for name, loss in LOSSES.items()}
    updates[WRONG] = (wrong, LOSSES["clipped"])
    with one_worker(run, model, rank=rank, num_ranks=NUM_RANKS, port=port) as worker:
        found = {
            name: update(worker, given[rank::NUM_RANKS], loss, num_ranks=NUM_RANKS)[0]
            for name, (given, loss) in updates.items()
        }
        worker.save_checkpoint(str(folder / "actor"), None, 1)
    if rank == 0:
        torch.save(found, folder / "gradients.pt")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]), Path(sys.argv[4]))
