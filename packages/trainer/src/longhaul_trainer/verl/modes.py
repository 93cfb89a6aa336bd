"""The trainer of each `trainer.mode`: `LonghaulTrainer` over one of verl's three trainers.

verl's trainers differ in when rollout pauses and resumes; each class here inherits that from
verl, and what is trained from `LonghaulTrainer`.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Generator
from typing import Any, cast

from transfer_queue import KVBatchMeta
from verl.trainer.ppo.v1.trainer_base import PPOTrainer
from verl.trainer.ppo.v1.trainer_colocate_async import PPOTrainerColocateAsync
from verl.trainer.ppo.v1.trainer_separate_async import PPOTrainerSeparateAsync
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync
from verl.workers.rollout.llm_server import LLMServerClient

from longhaul_trainer.verl.client import EngineClient, InterruptibleClient
from longhaul_trainer.verl.trainer import LonghaulTrainer


class SyncTrainer(LonghaulTrainer, PPOTrainerSync):
    """Synchronous: plays a training step's episodes, then learns from them."""

    def get_llm_client(self) -> LLMServerClient:
        """Of engines whose replies are whole before the next update."""
        engines = self.llm_server_manager
        addresses, handles = engines.server_addresses, engines.server_handles
        return engines.get_client(
            client_cls=EngineClient,
            only_engine=(addresses[0], handles[0]) if len(handles) == 1 else None,
        )


class ColocateAsyncTrainer(LonghaulTrainer, PPOTrainerColocateAsync):
    """Asynchronous rollout on the learner's machines; replies pause during an update."""

    def get_llm_client(self) -> LLMServerClient:
        """Of engines whose replies are interrupted."""
        return self.llm_server_manager.get_client(client_cls=InterruptibleClient)

    @contextlib.contextmanager
    def _learner_has_the_card(self) -> Generator[None]:
        """See `LonghaulTrainer`; replies that are being written wait as they do for an update."""
        if not self._engines_sleep:
            yield
            return
        engines = cast("Any", self.checkpoint_manager)  # its coroutines wait for themselves
        engines.abort_replicas()
        with super()._learner_has_the_card():
            yield
        engines.resume_generation_replicas()


class SeparateAsyncTrainer(LonghaulTrainer, PPOTrainerSeparateAsync):
    """Asynchronous rollout on machines of its own; replies pause only while new weights arrive.

    verl takes an optimizer step's groups as soon as they are there, and counts a training step
    as so many of those. Here a training step takes all of its groups at once, as in the other
    modes, so that what credit compares, and the old logprobs, are of one training step.
    """

    def _setup(self) -> None:
        # verl hands its logger `print`'s argument `flush` there, which ends the run at level INFO.
        logging.getLogger(PPOTrainerSeparateAsync.__module__).setLevel(logging.WARNING)
        super()._setup()

    def get_llm_client(self) -> LLMServerClient:
        """Of engines whose replies are interrupted."""
        servers = cast("Any", self).standalone_server_manager
        return servers.get_client(client_cls=InterruptibleClient)

    def _logprobs_before_update(self, batch: KVBatchMeta, metrics: dict[str, Any]) -> KVBatchMeta:
        """See `LonghaulTrainer`; the learner still has those weights, which verl would keep."""
        return PPOTrainer._compute_old_log_prob(self, batch, metrics)

    @property
    def _engines_sleep(self) -> bool:
        """Never: they have GPUs of their own, whatever verl's settings say of shared ones."""
        return False


TRAINERS: dict[str, type[LonghaulTrainer]] = {
    "sync": SyncTrainer,
    "colocate_async": ColocateAsyncTrainer,
    "separate_async": SeparateAsyncTrainer,
}
"""By `trainer.mode`."""
