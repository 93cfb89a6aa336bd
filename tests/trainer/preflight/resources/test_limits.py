"""Tests for `longhaul_trainer.preflight.resources.limits`."""

import asyncio
import os

from longhaul_core.gym import GymEnvironmentSpec, ProcessPool
from longhaul_trainer.preflight.resources.limits import (
    FILES_OF_AN_ENVIRONMENT_PROCESS,
    OPEN_FILES,
    open_files,
    shared_memory_bytes,
)
from trainer.preflight.resources.runs import MIB, composed


def test_each_worker_sends_its_weights_through_a_bucket() -> None:
    assert shared_memory_bytes(composed("cpu")) == 1024 * MIB
    assert shared_memory_bytes(composed("gpu", resources={"num_workers": 8})) == 4608 * MIB
    assert (
        shared_memory_bytes(composed("gpu", engine={"weight_bucket_megabytes": 2048})) == 2560 * MIB
    )


def test_ray_s_limit_is_enough_until_environments_need_more() -> None:
    assert open_files(128) == OPEN_FILES == 4096
    assert open_files(3000) == 2048 + 3000


def test_an_environment_s_process_takes_so_many_descriptors_of_the_one_that_plays_it() -> None:
    async def held_by(num_processes: int) -> int:
        spec = GymEnvironmentSpec(
            environment_id="longhaul/Sokoban-v0", import_modules=("longhaul_envs.registry",)
        )
        async with ProcessPool(spec, num_workers=16 * num_processes) as pool:
            places = [await pool.acquire() for _ in range(16 * num_processes)]
            assert pool.num_processes == num_processes
            files = len(os.listdir("/proc/self/fd"))
            for place in places:
                pool.release(place, reusable=True)
        return files

    grown = asyncio.run(held_by(3)) - asyncio.run(held_by(1))

    assert grown == 2 * FILES_OF_AN_ENVIRONMENT_PROCESS
