"""Run by `test_two_ranks.py`, once for each rank: an update on rows with and without pictures.

The learner is that of GPUs, whose rows are packed. Rank 0 writes the gradients, whole.
"""

import sys
from pathlib import Path

import torch

from longhaul_trainer.config.machine import ModelConfig
from longhaul_trainer.verl.attention import TORCH_FLASH
from longhaul_trainer.verl.variables import prepare_environment
from trainer.verl.picture_rows import (
    SHOWN,
    as_verl_sends,
    computing_with,
    picture_rows,
    plain_model,
)
from trainer.verl.updates import LOSSES, still_run, update
from verl_process import one_worker

PLACES = ((0, 1, 2), (3, 3, 3))
"""Of the rows that each rank has; those of the second have no picture."""


def main(rank: int, port: int, model: Path, folder: Path) -> None:
    """Update with this rank's rows."""
    prepare_environment("cpu", scratch=folder / f"scratch-{rank}")
    all_rows = picture_rows(model, plain_model(model))
    rows = [all_rows[place] for place in PLACES[rank]]
    columns = as_verl_sends(model, rows, [SHOWN[place] for place in PLACES[rank]])
    of_run = {"model": ModelConfig(path=str(model), engine_dtype="float32")}
    run = still_run(num_ranks=2).model_copy(update=of_run)
    with (
        computing_with(TORCH_FLASH),
        one_worker(run, model, device="gpu", rank=rank, num_ranks=2, port=port) as worker,
    ):
        found, _ = update(worker, rows, LOSSES["clipped"], num_ranks=2, columns=columns)
    if rank == 0:
        torch.save(found, folder / "gradients.pt")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]), Path(sys.argv[4]))
