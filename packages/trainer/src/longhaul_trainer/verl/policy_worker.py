"""verl's worker of the policy and of the reference on GPUs, with rows cut part by part.

See `parts` and `learning_rate`, and `pictures` for models that read them. All else is verl's own.
"""

from __future__ import annotations

from verl.workers.engine.base import EngineRegistry
from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithLMHead
from verl.workers.engine_workers import ActorRolloutRefWorker

from longhaul_trainer.verl import torch_flash
from longhaul_trainer.verl.learning_rate import RisingLearningRate
from longhaul_trainer.verl.parts import RowsInParts
from longhaul_trainer.verl.pictures import PicturesAsFeatures

torch_flash.register()


class GpuActorRolloutRefWorker(ActorRolloutRefWorker):
    """verl's own; its process has imported this module, and so the engine below."""


# verl's own holds the place of every vendor; that of one vendor is asked first.
@EngineRegistry.register(
    model_type="language_model", backend=["fsdp", "fsdp2"], device="cuda", vendor="nvidia"
)
class GpuPolicyEngine(RisingLearningRate, RowsInParts, PicturesAsFeatures, FSDPEngineWithLMHead):
    """verl's FSDP engine of language models."""
