"""What a run takes of the machines it runs on, computed from its settings before it starts.

`needs_of` is the one sum: `trainer doctor`, `trainer check`, the refusal at the start of a run and
the Ray that a run starts for itself read it. Ray's processors (`verl.processors`) and
TransferQueue's rows (`verl.queue_rows`) are counts, exact by the code that asks for them. Memory,
disk and time are estimates; each is written out, with its source, in the class or function that
makes it. Nothing here imports torch, verl, vllm or ray.
"""

from longhaul_trainer.preflight.resources.model_size import model_size
from longhaul_trainer.preflight.resources.needs import Needs, needs_here, needs_of

__all__ = [
    "Needs",
    "model_size",
    "needs_here",
    "needs_of",
]
