"""The training worker of verl on a machine without an accelerator."""

from __future__ import annotations

import importlib

from omegaconf import DictConfig
from verl.utils.distributed import initialize_global_process_group_ray
from verl.workers.config import DistillationConfig, TrainingWorkerConfig
from verl.workers.engine_workers import ActorRolloutRefWorker, TrainingWorker

for _engine in ("learner", "critic"):  # register the engines with verl
    importlib.import_module(f"longhaul_trainer.verl.cpu.{_engine}")


class CpuActorRolloutRefWorker(ActorRolloutRefWorker):
    """verl's worker on a plain gloo process group.

    verl composes the backend as `cpu:gloo,<device>:<backend>`, which on this platform
    names the CPU twice and is refused by torch; a group that exists is left alone.
    """

    def __init__(
        self,
        config: DictConfig,
        role: str,
        distillation_config: DistillationConfig | None = None,
        **others: object,
    ) -> None:
        super().__init__(config, role, distillation_config, **others)
        initialize_global_process_group_ray(backend="gloo")


class CpuTrainingWorker(TrainingWorker):
    """verl's worker of the critic, on the same process group."""

    def __init__(self, config: TrainingWorkerConfig) -> None:
        initialize_global_process_group_ray(backend="gloo")
        super().__init__(config)
