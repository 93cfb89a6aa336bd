"""What a run takes of the machines it runs on, computed from its settings before it starts.

`needs_of` is the one sum: `trainer doctor`, `trainer check`, the refusal at the start of a run and
the Ray that a run starts for itself read it. Ray's processors and TransferQueue's rows are counts,
exact by the code that asks for them. Memory, disk and time are estimates; each is written out, with
its source, in the class or function that makes it. Nothing here imports torch, verl, vllm or ray.
"""

from longhaul_trainer.resources.model_size import ModelSize, model_size, size_or_none
from longhaul_trainer.resources.needs import Needs, needs_here, needs_of
from longhaul_trainer.resources.processors import RayProcessors, ray_processors
from longhaul_trainer.resources.rows import most_rows, rows_of_a_training_step

__all__ = [
    "ModelSize",
    "Needs",
    "RayProcessors",
    "model_size",
    "most_rows",
    "needs_here",
    "needs_of",
    "ray_processors",
    "rows_of_a_training_step",
    "size_or_none",
]
