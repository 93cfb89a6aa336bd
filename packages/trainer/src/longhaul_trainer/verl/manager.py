"""verl's agent-loop workers, with a way to stop the episodes that they play.

verl starts its workers as Ray actors, each of which imports verl, torch and transformers
again. With one worker on the trainer's own machine that buys nothing, since the trainer sleeps
while episodes are played: on a CPU it is a thread, unless the run asks for more than one
(`rollout.agent_loops`).
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import textwrap
import threading
from collections.abc import Sequence
from typing import Any, cast

import ray
from ray.exceptions import RayActorError
from tensordict import TensorDict
from verl.trainer.ppo.v1 import PPOTrainer
from verl.trainer.ppo.v1.agent_loop_tq import AgentLoopManagerTQ, AgentLoopWorkerTQ
from verl.utils import tensordict_utils as tu

from longhaul_core.errors import LonghaulError
from longhaul_trainer.config import RunConfig
from longhaul_trainer.config.agent_loops import AgentLoop, episodes_at_once, spread
from longhaul_trainer.run.garbage import spare_what_is_loaded
from longhaul_trainer.training.stopping import Stopped
from longhaul_trainer.verl.agent_loop import become, close_services, stop_groups

logger = logging.getLogger(__name__)

DEATH_SECONDS = 10.0
"""How long Ray may take to notice the death of an actor that left a call without an answer."""

CLOSE_SECONDS, LONGEST_CLOSE_SECONDS = 10.0, 50.0
"""How long what plays may take to end: in a process that then ends all the same, and in ours."""

_actor_class: Any = AgentLoopWorkerTQ
_WorkerTQ: Any = _actor_class.__ray_metadata__.modified_class


class StoppableWorker(_WorkerTQ):
    """verl's worker, with a method that stops groups."""

    def __init__(self, *verls: object) -> None:
        """See verl's. Its process has loaded what it will load."""
        super().__init__(*verls)
        spare_what_is_loaded()

    async def become(self, agent_loop: AgentLoop) -> str:
        """See `longhaul_trainer.verl.agent_loop.become`; returns what process this is."""
        become(agent_loop)
        return f"process {os.getpid()} on {socket.gethostname()}"

    async def live(self) -> None:
        """Wait for ever; a caller that waits for the answer notices this process's death."""
        await asyncio.Event().wait()

    async def num_groups(self) -> int:
        """Groups in flight; each is a task of verl's worker from the moment it is given."""
        return len(self.background_tasks)

    async def stop_groups(self, groups: Sequence[str]) -> dict[str, Stopped]:
        """See `longhaul_trainer.verl.agent_loop.stop_groups`."""
        return stop_groups(groups)

    async def close(self, *, within_seconds: float) -> None:
        """Give up the episodes that are still being played, and end what plays them."""
        tasks = list(self.background_tasks)
        for task in tasks:
            task.cancel()
        try:
            async with asyncio.timeout(within_seconds):
                if tasks:
                    await asyncio.wait(tasks)
                await close_services()
        except TimeoutError:
            logger.warning("what plays episodes did not end within %g s", within_seconds)


class StoppableAgentLoopManager(AgentLoopManagerTQ):
    """verl's manager, which spreads groups evenly and can stop their episodes in all workers."""

    def __init__(self, *verls: object, at_once: Sequence[int], **others: object) -> None:
        """Describe the workers; verl's `create` starts them.

        Args:
            verls: verl's.
            at_once: Episodes that each worker plays at once.
            others: verl's, by name.
        """
        super().__init__(*verls, **others)
        self._at_once = at_once
        self._places: list[str] = []
        """What process each worker is, once all have started."""

    async def _init_agent_loop_workers(self) -> None:
        # They wait most of the time, so Ray reserves no processor for them.
        self.agent_loop_workers_class = ray.remote(num_cpus=0)(StoppableWorker)
        await super()._init_agent_loop_workers()
        self._lives = [worker.live.remote() for worker in self.agent_loop_workers]
        # verl hands its workers all the same; here each gets the part of the run that it plays.
        num_workers = len(self.agent_loop_workers)
        self._places = self._answers(
            [
                worker.become.remote(AgentLoop(index=index, of=num_workers))
                for index, worker in enumerate(self.agent_loop_workers)
            ]
        )

        for index, place in enumerate(self._places):
            logger.info("agent loop %d of %d is %s", index, num_workers, place)

    def generate_sequences(self, prompts: TensorDict) -> None:
        """Start the episodes of a batch and return; their rows arrive in TransferQueue."""
        playing = self._answers([worker.num_groups.remote() for worker in self.agent_loop_workers])
        given = spread(len(prompts), playing=playing, at_once=self._at_once)
        self._answers(
            [
                worker.generate_sequences.remote(tu.index_select_tensor_dict(prompts, [*groups]))
                for worker, groups in zip(self.agent_loop_workers, given, strict=True)
                if groups
            ]
        )

    def stop_groups(self, groups: Sequence[str]) -> dict[str, Stopped]:
        """Stop the episodes of `groups`; returns what `EpisodesInFlight.stop` does."""
        answers: list[dict[str, Stopped]] = self._answers(
            [worker.stop_groups.remote(groups) for worker in self.agent_loop_workers]
        )
        return {group: stopped for answer in answers for group, stopped in answer.items()}

    def require_alive(self, *, within_seconds: float = 0.0) -> None:
        """Check that every worker's process is alive; verl would wait for its groups for ever.

        Args:
            within_seconds: How long to wait for a death that is suspected.

        Raises:
            LonghaulError: If one is gone.
        """
        gone, _ = ray.wait(self._lives, num_returns=1, timeout=within_seconds)
        for life in gone:
            try:
                ray.get(life)
            except RayActorError as error:
                raise LonghaulError(self._obituary(self._lives.index(life), error)) from error

    def stop(self) -> None:
        """End the workers, and with them the episodes that are still being played."""
        closing = [
            worker.close.remote(within_seconds=CLOSE_SECONDS) for worker in self.agent_loop_workers
        ]
        ray.wait(closing, num_returns=len(closing), timeout=CLOSE_SECONDS)
        for worker in self.agent_loop_workers:
            ray.kill(worker)

    def _obituary(self, index: int, error: RayActorError) -> str:
        # Ray's message lists causes in general; all of it is in the log.
        reason = textwrap.shorten(str(error).strip().splitlines()[-1], 240, placeholder=" …")
        name = f"agent loop {index} of {len(self._lives)}"
        if not self._places:
            return f"{name} could not be started: {reason}"
        return (
            f"{name}, {self._places[index]}, is gone, with the episodes that it played: {reason} "
            "What it last wrote stands in logs/processes.log of the run's folder, and "
            "`trainer resume` goes on from the last checkpoint"
        )

    def _answers(self, asked: Sequence[ray.ObjectRef[Any]]) -> list[Any]:
        try:
            return ray.get(list(asked))
        except RayActorError:
            self.require_alive(within_seconds=DEATH_SECONDS)
            raise


class InProcessAgentLoopManager(AgentLoopManagerTQ):
    """verl's manager with its worker on a thread of this process."""

    async def _init_agent_loop_workers(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="episodes", daemon=True)
        self._thread.start()

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

    def require_alive(self) -> None:
        """Always: it is in this process."""

    def stop(self) -> None:
        """Give up the episodes that are still being played, within a minute; nothing runs then."""
        closing = self._worker.close(within_seconds=LONGEST_CLOSE_SECONDS)
        try:
            asyncio.run_coroutine_threadsafe(closing, self._loop).result(60)
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(CLOSE_SECONDS)


AgentLoops = StoppableAgentLoopManager | InProcessAgentLoopManager


def create_agent_loops(trainer: PPOTrainer, run: RunConfig, *, device: str) -> AgentLoops:
    """Agent loops of verl for a trainer that has been initialised.

    One on a CPU is in this process; several, or those of GPUs, are actors of Ray.
    """
    num_loops = trainer.config.actor_rollout_ref.rollout.agent.num_workers
    parts = {
        "config": trainer.config,
        "llm_client": trainer.get_llm_client(),
        "teacher_client": trainer.get_teacher_client(),
        "reward_loop_worker_handles": trainer.get_reward_handles(),
    }
    # `create` waits for its coroutine where no event loop runs; the types do not say so.
    if device == "cpu" and num_loops == 1:
        in_process = cast("Any", InProcessAgentLoopManager)
        return in_process.create(**parts)
    actors = cast("Any", StoppableAgentLoopManager)
    return actors.create(**parts, at_once=episodes_at_once(run, num_loops=num_loops))
