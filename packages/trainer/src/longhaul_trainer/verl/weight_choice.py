"""How weights travel to separate engines: chosen here, for settings and doctor alike.

verl's NCCL broadcast goes from GPU to GPU and needs the package cupy; ours goes over TCP, and needs
neither. Nothing here imports torch or verl.
"""

import importlib.util
from typing import Literal

from longhaul_core.errors import ConfigError
from longhaul_trainer.config import RunConfig

BACKEND = "actor_rollout_ref.rollout.checkpoint_engine.backend"
"""verl's setting, by which `[verl]` may name another of its ways."""

SETTING = "engine.weight_transfer"


def weight_transfer(run: RunConfig, *, device: str) -> Literal["nccl", "tcp"] | None:
    """The way of a run with separate engines; None for another one that `[verl]` names.

    Args:
        run: Its `engine.weight_transfer` says which, or `auto`: NCCL on GPUs where cupy is
            installed, TCP elsewhere.
        device: `"cpu"` or `"gpu"`.

    Raises:
        ConfigError: If it is NCCL on a CPU.
    """
    named, asked = run.verl.get(BACKEND), run.engine.weight_transfer
    if named not in (None, "nccl"):
        return None
    if named is None and asked == "auto":
        return "nccl" if device == "gpu" and has_cupy() else "tcp"
    if named is None and asked == "tcp":
        return "tcp"
    if device == "cpu":
        setting = SETTING if named is None else f"verl.{BACKEND}"
        raise ConfigError(f'{setting} = "nccl" needs GPUs; on a CPU say {SETTING} = "tcp"')
    return "nccl"


def has_cupy() -> bool:
    """Whether cupy is installed; it is not imported."""
    return importlib.util.find_spec("cupy") is not None
