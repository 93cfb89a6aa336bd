"""Imports that are done once, ahead of time and side by side.

A run on a small machine spends most of its start importing. So, while Ray starts, the trainer
imports verl on a thread, and on the CPU a zygote imports the libraries below for all of Ray's
workers and for vLLM's engine.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import threading
from collections.abc import Generator
from pathlib import Path

from longhaul_trainer.config import RunConfig
from longhaul_trainer.run.device import Device
from longhaul_trainer.verl.cpu.zygote import Zygote

SHARED_ZYGOTE = "LONGHAUL_ZYGOTE"
"""Variable: the stand-in of a zygote that is there already, on each node of a cluster too. One run
after another uses it, and none starts its own; whoever started it ends it."""

OWN = ("longhaul_trainer.verl.trainer", "longhaul_trainer.verl.engine_server")
"""What the trainer's process needs: vLLM is imported in it when it launches the server."""

LIBRARIES = (
    "torch._dynamo",
    "torch.distributed.checkpoint",
    "transformers.models.auto.modeling_auto",
    "tensordict",
    "datasets",
    "peft",
    "hydra",
    "aiohttp",
    "fastapi",
    "sqlalchemy.orm",
    "numba",
    "vllm.v1.worker.cpu_worker",
    "vllm.entrypoints.openai.api_server",
    "vllm.model_executor.models.qwen3_next",  # verl's patches of vLLM import it
    "jsonschema",
    "torchdata.stateful_dataloader",
    "wcwidth",
    "longhaul_trainer.play.players",
    "longhaul_trainer.training.audit",
    "longhaul_trainer.run.context",
)
"""What Ray's workers and the engine spend their imports on. None of these may import Ray,
which reads settings of its process while it is imported."""


def import_ahead() -> None:
    """Begin to import what this process will need, on a thread of its own."""

    def work() -> None:
        for name in OWN:
            importlib.import_module(name)

    threading.Thread(target=work, name="import-ahead", daemon=True).start()


@contextlib.contextmanager
def preloaded_python(run: RunConfig, *, device: Device, folder: Path) -> Generator[Path | None]:
    """The interpreter that Ray is to start its workers with; None for the plain one.

    Args:
        run: A run that joins a cluster has workers that were there before it.
        device: On GPUs nothing is done ahead: verl's processes start as verl starts them.
        folder: For small files.
    """
    shared = os.environ.get(SHARED_ZYGOTE)
    if device == "cpu" and shared is not None:
        yield Path(shared)
    elif device == "gpu" or run.resources.ray_address is not None:
        yield None
    else:
        with Zygote(LIBRARIES, folder=folder) as zygote:
            yield zygote.stand_in
