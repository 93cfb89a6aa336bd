"""The agent-loop worker inside the trainer's process, for machines with few processors.

verl starts its workers as Ray actors, each of which imports verl, torch and transformers
again (over ten seconds on two cores). With one worker on the trainer's own machine that
buys nothing: the trainer sleeps while episodes are played.
"""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import ray
from tensordict import TensorDict
from verl.trainer.ppo.v1 import PPOTrainer
from verl.trainer.ppo.v1.agent_loop_tq import AgentLoopManagerTQ, AgentLoopWorkerTQ


class InProcessAgentLoopManager(AgentLoopManagerTQ):
    """verl's manager with its worker on a thread of this process."""

    async def _init_agent_loop_workers(self) -> None:
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, name="episodes", daemon=True).start()
        actor_class: Any = AgentLoopWorkerTQ
        worker_class = actor_class.__ray_metadata__.modified_class

        async def build() -> object:
            return worker_class(
                self.config, self.llm_client, self.teacher_client, self.reward_loop_worker_handles
            )

        # The worker binds its clients to the event loop that it is made on.
        self._worker: Any = await asyncio.wrap_future(
            asyncio.run_coroutine_threadsafe(build(), self._loop)
        )

    def generate_sequences(self, prompts: TensorDict) -> None:
        """Start the episodes of a batch and return; their rows arrive in TransferQueue."""
        asyncio.run_coroutine_threadsafe(
            self._worker.generate_sequences(prompts), self._loop
        ).result()

    def stop(self) -> None:
        """Give up the episodes that are still being played, within a minute."""

        async def cancel() -> None:
            tasks = list(self._worker.background_tasks)
            for task in tasks:
                task.cancel()
            if tasks:
                await asyncio.wait(tasks, timeout=50)

        asyncio.run_coroutine_threadsafe(cancel(), self._loop).result(60)


def stop_agent_loops(manager: AgentLoopManagerTQ) -> None:
    """Give up what is still being played ahead when a run has learned all it wants to."""
    if isinstance(manager, InProcessAgentLoopManager):
        manager.stop()
        return
    for worker in manager.agent_loop_workers:
        ray.kill(worker)


def create_agent_loops(trainer: PPOTrainer, *, device: str) -> AgentLoopManagerTQ:
    """Agent loops of verl for a trainer that has been initialised: in this process on the CPU."""
    # `create` waits for its coroutine where no event loop runs; the types do not say so.
    manager: Any = InProcessAgentLoopManager if device == "cpu" else AgentLoopManagerTQ
    return manager.create(
        config=trainer.config,
        llm_client=trainer.get_llm_client(),
        teacher_client=trainer.get_teacher_client(),
        reward_loop_worker_handles=trainer.get_reward_handles(),
    )
