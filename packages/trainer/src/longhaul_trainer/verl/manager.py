"""verl's agent-loop workers, with a way to stop the episodes that they play.

verl starts its workers as Ray actors, each of which imports verl, torch and transformers
again (over ten seconds on two cores). With one worker on the trainer's own machine that
buys nothing, since the trainer sleeps while episodes are played: on a CPU it is a thread.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from typing import Any

import ray
from tensordict import TensorDict
from verl.trainer.ppo.v1 import PPOTrainer
from verl.trainer.ppo.v1.agent_loop_tq import AgentLoopManagerTQ, AgentLoopWorkerTQ

from longhaul_trainer.agent_loops import AgentLoop
from longhaul_trainer.training.stopping import Stopped
from longhaul_trainer.verl.agent_loop import become, stop_groups

_actor_class: Any = AgentLoopWorkerTQ
_WorkerTQ: Any = _actor_class.__ray_metadata__.modified_class


class StoppableWorker(_WorkerTQ):
    """verl's worker, with a method that stops groups."""

    async def become(self, agent_loop: AgentLoop) -> None:
        """See `longhaul_trainer.verl.agent_loop.become`."""
        become(agent_loop)

    async def stop_groups(self, groups: Sequence[str]) -> dict[str, Stopped]:
        """See `longhaul_trainer.verl.agent_loop.stop_groups`."""
        return stop_groups(groups)


class StoppableAgentLoopManager(AgentLoopManagerTQ):
    """verl's manager, which can stop the episodes of groups in all of its workers."""

    async def _init_agent_loop_workers(self) -> None:
        self.agent_loop_workers_class = ray.remote(StoppableWorker)
        await super()._init_agent_loop_workers()
        # verl hands its workers all the same; here each gets the part of the run that it plays.
        num_workers = len(self.agent_loop_workers)
        await asyncio.gather(
            *(
                worker.become.remote(AgentLoop(index=index, of=num_workers))
                for index, worker in enumerate(self.agent_loop_workers)
            )
        )

    def stop_groups(self, groups: Sequence[str]) -> dict[str, Stopped]:
        """Stop the episodes of `groups`; returns what `EpisodesInFlight.stop` does."""
        answers: list[dict[str, Stopped]] = ray.get(
            [worker.stop_groups.remote(groups) for worker in self.agent_loop_workers]
        )
        return {group: stopped for answer in answers for group, stopped in answer.items()}


class InProcessAgentLoopManager(AgentLoopManagerTQ):
    """verl's manager with its worker on a thread of this process."""

    async def _init_agent_loop_workers(self) -> None:
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, name="episodes", daemon=True).start()

        async def build() -> object:
            return StoppableWorker(
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

    def stop_groups(self, groups: Sequence[str]) -> dict[str, Stopped]:
        """See `StoppableAgentLoopManager.stop_groups`."""
        stopping = self._worker.stop_groups(groups)
        return asyncio.run_coroutine_threadsafe(stopping, self._loop).result()

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
    """Stop the episodes still in progress when a run has done its last update."""
    if isinstance(manager, InProcessAgentLoopManager):
        manager.stop()
        return
    for worker in manager.agent_loop_workers:
        ray.kill(worker)


def create_agent_loops(trainer: PPOTrainer, *, device: str) -> AgentLoopManagerTQ:
    """Agent loops of verl for a trainer that has been initialised: in this process on the CPU."""
    # `create` waits for its coroutine where no event loop runs; the types do not say so.
    manager: Any = InProcessAgentLoopManager if device == "cpu" else StoppableAgentLoopManager
    return manager.create(
        config=trainer.config,
        llm_client=trainer.get_llm_client(),
        teacher_client=trainer.get_teacher_client(),
        reward_loop_worker_handles=trainer.get_reward_handles(),
    )
