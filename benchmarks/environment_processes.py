"""What it costs to play TextCraft in worker processes, with 1 and with 16 episodes a process.

- *start*: from asking for an episode to its first observation in a process that has just started;
  the fork server is there already.
- *steps/s*: 64 episodes at once, each a step as soon as its last one is back.
- *memory an episode*: proportional set size of all processes below this one but the fork server,
  while 256 episodes are open and reset, divided by 256. Pages that several processes share are
  counted once, in parts.
- *256 at once*: seconds until 256 episodes have their first observation, all asked for at once.

Both ways are measured in turn, three times in one run, and the medians printed, with their ratio.

    uv run python benchmarks/environment_processes.py
"""

import asyncio
import os
import platform
import random
import re
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import gymnasium

from longhaul_core.gym import GymEnvironmentSpec, ProcessEnvironment, ProcessPool
from longhaul_core.types import Split, Task
from longhaul_envs.sources import environment_source
from longhaul_envs.textcraft.environment import TextCraft

NUM_ROUNDS = 3
NUM_STARTS = 20
NUM_PLAYERS = 64
NUM_STEPS = 100
NUM_AT_ONCE = 256


class TextCraftApart(TextCraft):
    """TextCraft, one episode a process."""

    episodes_per_process = 1


APART_ID = "benchmarks/TextCraftApart-v0"
if APART_ID not in gymnasium.registry:
    gymnasium.register(  # pyright: ignore[reportUnknownMemberType] its `kwargs` is a bare dict
        APART_ID, entry_point="environment_processes:TextCraftApart", disable_env_checker=True
    )

APART = GymEnvironmentSpec(environment_id=APART_ID, import_modules=("environment_processes",))
SHARED = GymEnvironmentSpec(
    environment_id="longhaul/TextCraft-v0", import_modules=("longhaul_envs.registry",)
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What one way costs; medians of the rounds."""

    start_ms: float
    steps_per_second: float
    episode_mib: float
    at_once_seconds: float
    num_processes: int
    """That 256 episodes at once took."""


async def opened(pool: ProcessPool, task: Task) -> ProcessEnvironment:
    """An episode that has been reset."""
    environment = pool(task)
    await environment.open()
    await environment.reset(task)
    return environment


async def play(pool: ProcessPool, task: Task) -> None:
    """An episode of 100 random steps of those that are offered, which is begun anew if it ends."""
    environment = pool(task)
    await environment.open()
    observation, draw = await environment.reset(task), random.Random(task.task_id)
    for _ in range(NUM_STEPS):
        result = await environment.step(draw.choice(observation.admissible_actions or ("",)))
        observation = result.observation
        if result.terminated:
            observation = await environment.reset(task)
    await environment.close()


async def start_ms(spec: GymEnvironmentSpec, task: Task) -> float:
    """Median milliseconds to the first observation of a process that is started for it."""
    seconds: list[float] = []
    async with ProcessPool(spec, num_workers=(NUM_STARTS + 1) * 16) as pool:
        kept = [await opened(pool, task)]  # the fork server, too, has started
        while len(seconds) < NUM_STARTS:
            before, num_before = time.perf_counter(), pool.num_processes
            kept.append(await opened(pool, task))
            if pool.num_processes > num_before:
                seconds.append(time.perf_counter() - before)
        for environment in kept:
            await environment.close()
    return 1000 * statistics.median(seconds)


async def steps_per_second(spec: GymEnvironmentSpec, tasks: Sequence[Task]) -> float:
    """Steps of 64 episodes at once, in processes that have played before."""
    async with ProcessPool(spec, num_workers=NUM_PLAYERS) as pool:
        await asyncio.gather(*(play(pool, task) for task in tasks[:NUM_PLAYERS]))
        before = time.perf_counter()
        await asyncio.gather(*(play(pool, task) for task in tasks[:NUM_PLAYERS]))
        return NUM_PLAYERS * NUM_STEPS / (time.perf_counter() - before)


async def at_once(spec: GymEnvironmentSpec, tasks: Sequence[Task]) -> tuple[float, float, int]:
    """Seconds until 256 episodes are reset, MiB of each, and how many processes they are in."""
    async with ProcessPool(spec, num_workers=NUM_AT_ONCE) as pool:
        await (await opened(pool, tasks[0])).close()
        before = time.perf_counter()
        environments = await asyncio.gather(*(opened(pool, task) for task in tasks[:NUM_AT_ONCE]))
        seconds = time.perf_counter() - before
        mebibytes, num_processes = resident_mib(), pool.num_processes
        for environment in environments:
            await environment.close()
    return seconds, mebibytes / NUM_AT_ONCE, num_processes


def resident_mib() -> float:
    """Proportional set size of the worker processes: what lies below this one's children."""
    parents = {
        int(stat.split(" ", 1)[0]): int(stat.rpartition(")")[2].split()[1])
        for stat in (read(path / "stat") for path in Path("/proc").glob("[0-9]*"))
        if stat
    }
    workers = [pid for pid, parent in parents.items() if parents.get(parent) == os.getpid()]
    sizes = [read(Path(f"/proc/{pid}/smaps_rollup")) for pid in workers]
    return sum(int(found[1]) for text in sizes if (found := re.search(r"Pss: +(\d+)", text))) / 1024


def read(path: Path) -> str:
    """A file of /proc; nothing if its process has ended."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return ""


async def measured(spec: GymEnvironmentSpec, tasks: Sequence[Task]) -> Figures:
    """One round of one way."""
    start = await start_ms(spec, tasks[0])
    steps = await steps_per_second(spec, tasks)
    seconds, mebibytes, num_processes = await at_once(spec, tasks)
    return Figures(
        start_ms=start,
        steps_per_second=steps,
        episode_mib=mebibytes,
        at_once_seconds=seconds,
        num_processes=num_processes,
    )


def main() -> None:
    """Measure both ways and print them side by side."""
    tasks = environment_source(SHARED).tasks(Split.TRAIN)[:NUM_AT_ONCE]
    rounds = [
        [asyncio.run(measured(spec, tasks)) for spec in (APART, SHARED)] for _ in range(NUM_ROUNDS)
    ]
    print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}")
    print(f"{'':28}{'1 a process':>14}{'16 a process':>14}{'ratio':>9}")
    for name, what in (
        ("start_ms", "start, ms"),
        ("steps_per_second", f"steps/s, {NUM_PLAYERS} episodes"),
        ("episode_mib", "memory an episode, MiB"),
        ("at_once_seconds", f"{NUM_AT_ONCE} at once, s"),
        ("num_processes", f"processes for {NUM_AT_ONCE}"),
    ):
        apart, shared = (
            statistics.median(getattr(figures[way], name) for figures in rounds) for way in (0, 1)
        )
        print(f"{what:28}{apart:>14.2f}{shared:>14.2f}{apart / shared:>9.2f}")


if __name__ == "__main__":
    main()
