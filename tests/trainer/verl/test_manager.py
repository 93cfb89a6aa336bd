"""Tests for `longhaul_trainer.verl.manager`: agent loops in processes of their own."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from longhaul_trainer.agent_loops import AgentLoop
from trainer.verl.local_ray import ray_here
from verl_process import IMPORTS_VERL

pytestmark = IMPORTS_VERL


def test_each_agent_loop_plays_with_a_share_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    import ray

    from longhaul_trainer.verl import agent_loop, manager

    class WithoutModel(manager.StoppableWorker):
        """A worker that has no model to load, and plays nothing."""

        def __init__(self, *others: object) -> None:
            pass

        async def which(self) -> AgentLoop:
            return agent_loop.this_process()

    monkeypatch.setattr(manager, "StoppableWorker", WithoutModel)
    loops: Any = manager.StoppableAgentLoopManager.__new__(manager.StoppableAgentLoopManager)
    loops.rollout_config = SimpleNamespace(agent=SimpleNamespace(num_workers=2))
    loops.config = loops.llm_client = loops.teacher_client = loops.reward_loop_worker_handles = None

    with ray_here():
        asyncio.run(loops._init_agent_loop_workers())
        told = ray.get([worker.which.remote() for worker in loops.agent_loop_workers])
    assert told == [AgentLoop(index=0, of=2), AgentLoop(index=1, of=2)]
