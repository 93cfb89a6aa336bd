"""How close the episode loop comes to the ideal schedule, and what lock-step costs.

256 episodes of random length, 64 at once; engine and environment take random times, which
are drawn beforehand, so that all three schedules are of the same work:

- *ideal*: 64 slots, each free slot takes the next episode, nothing but the drawn times;
  computed, not run, and no schedule of this order can be faster.
- *ours*: `EpisodeRunner`, really run.
- *lock-step*: batches of 64; all wait for the slowest at each step, and episodes that
  have ended are stepped until the last one of the batch has; really run.

Then the processor time of an episode without any waiting, with 100 and with 4,000 in
flight: it must not grow with the number.

The waiting is `asyncio.sleep`; memory, rendering, parsing and records are the real ones.

    uv run python benchmarks/episode_loop.py
"""

import asyncio
import heapq
import os
import platform
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from longhaul_core.actions import ActionFormat, ActionParser
from longhaul_core.environment import StepResult
from longhaul_core.memory import PromptTemplate, WindowMemory
from longhaul_core.policy import Completion, Prompt, Sampling
from longhaul_core.rollout import Agent, EpisodeLimits, EpisodeRunner, EpisodeSpec
from longhaul_core.types import Message, Observation, Split, Step, Task, Trajectory

NUM_EPISODES = 256
CONCURRENCY = 64
HORIZON = 40
ACCEPTED_RATIO = 1.10
FEW, MANY = 100, 4000


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """The drawn times of one episode, in seconds; as many as a lock-step batch may need."""

    num_steps: int
    reset_seconds: float
    policy_seconds: tuple[float, ...]
    environment_seconds: tuple[float, ...]

    @property
    def total_seconds(self) -> float:
        """Time of the episode if nothing is added."""
        steps = slice(self.num_steps)
        waiting = sum(self.policy_seconds[steps]) + sum(self.environment_seconds[steps])
        return self.reset_seconds + waiting


def draw_scripts(seed: int) -> list[Script]:
    """Lengths uniform in 4 to 40 steps; engine 20 to 40 ms, environment log-normal around 15 ms."""
    generator = np.random.default_rng(seed)
    return [
        Script(
            num_steps=int(generator.integers(4, HORIZON + 1)),
            reset_seconds=float(generator.uniform(0.02, 0.1)),
            policy_seconds=tuple(generator.uniform(0.02, 0.04, HORIZON).tolist()),
            environment_seconds=tuple(generator.lognormal(np.log(0.015), 1.0, HORIZON).tolist()),
        )
        for _ in range(NUM_EPISODES)
    ]


class TimedEnvironment:
    """Takes the scripted times, then ends."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self._num_steps = 0

    async def open(self) -> None:
        """Nothing to wait for."""

    async def reset(self, task: Task) -> Observation:
        """Take the scripted time."""
        await asyncio.sleep(self._script.reset_seconds)
        return self._observe()

    async def step(self, action: str) -> StepResult:
        """Take the scripted time."""
        await asyncio.sleep(self._script.environment_seconds[self._num_steps])
        self._num_steps += 1
        ended = self._num_steps >= self._script.num_steps
        return StepResult(
            observation=self._observe(), reward=float(ended), terminated=ended, success=ended
        )

    async def close(self) -> None:
        """Nothing to release."""

    def _observe(self) -> Observation:
        return Observation(
            text=f"You stand in room {self._num_steps}. " * 10, admissible_actions=("left", "right")
        )


class TimedPolicy:
    """Takes the scripted times of the episode that the task id, first in an episode id, names."""

    def __init__(self, scripts: list[Script]) -> None:
        self._scripts = scripts
        self._num_acted: dict[str, int] = {}

    async def act(self, prompt: Prompt, sampling: Sampling, *, episode_id: str) -> Completion:
        """Take the scripted time, then go left."""
        step_index = self._num_acted.get(episode_id, 0)
        self._num_acted[episode_id] = step_index + 1
        number = int(episode_id.split("/")[0])
        await asyncio.sleep(self._scripts[number].policy_seconds[step_index])
        return Completion(
            text="left",
            action_tokens=(3, 4, 5, 6),
            behavior_logprobs=(-0.1, -0.2, -0.3, -0.4),
            policy_version=0,
        )


class WordRenderer:
    """One token a word: the arithmetic of a renderer without its time."""

    def render(self, messages: Sequence[Message], *, after: Step | None = None) -> tuple[int, ...]:
        """Lengths of the words."""
        return tuple(len(word) for message in messages for word in message.content.split())

    def decode(self, tokens: Sequence[int]) -> str:
        """Never needed here."""
        return " ".join(map(str, tokens))


def ideal_seconds(scripts: list[Script]) -> float:
    """When the last of `CONCURRENCY` slots is done, each taking the next episode when free."""
    free_at = [0.0] * CONCURRENCY
    for script in scripts:
        heapq.heappush(free_at, heapq.heappop(free_at) + script.total_seconds)
    return max(free_at)


async def our_seconds(scripts: list[Script], *, concurrency: int = CONCURRENCY) -> float:
    """Wall time of `EpisodeRunner` on the scripts."""

    def make_environment(task: Task) -> TimedEnvironment:
        return TimedEnvironment(scripts[task.seed])

    template = PromptTemplate(instruction="Write one action.")
    runner = EpisodeRunner(
        agent=Agent(
            policy=TimedPolicy(scripts),
            renderer=WordRenderer(),
            parser=ActionParser(format=ActionFormat.PLAIN),
            build_memory=lambda: WindowMemory(size=3, template=template),
        ),
        make_environment=make_environment,
        limits=EpisodeLimits(horizon=HORIZON, max_prompt_tokens=1000),
        concurrency=concurrency,
    )
    specs = [
        EpisodeSpec(
            task=Task(
                environment="timed",
                version="1",
                data_hash="",
                task_id=str(number),
                seed=number,
                split=Split.TRAIN,
            ),
            seed=number,
        )
        for number in range(len(scripts))
    ]
    start = time.perf_counter()
    results = [result async for result in runner.run(specs)]
    elapsed = time.perf_counter() - start
    for result in results:
        assert isinstance(result.outcome, Trajectory), result.outcome
        assert len(result.outcome.steps) == scripts[result.spec.task.seed].num_steps
    assert len(results) == len(scripts)
    return elapsed


async def lock_step_seconds(scripts: list[Script]) -> float:
    """Wall time of batches in which every step waits for the slowest."""
    start = time.perf_counter()
    for first in range(0, len(scripts), CONCURRENCY):
        batch = scripts[first : first + CONCURRENCY]
        await asyncio.gather(*(asyncio.sleep(script.reset_seconds) for script in batch))
        for step in range(max(script.num_steps for script in batch)):
            await asyncio.gather(*(asyncio.sleep(script.policy_seconds[step]) for script in batch))
            await asyncio.gather(
                *(asyncio.sleep(script.environment_seconds[step]) for script in batch)
            )
    return time.perf_counter() - start


def processor_seconds_per_episode(num_in_flight: int) -> float:
    """Best of three: the loop's own work when nothing is waited for."""
    script = Script(
        num_steps=4,
        reset_seconds=0.0,
        policy_seconds=(0.0,) * HORIZON,
        environment_seconds=(0.0,) * HORIZON,
    )
    tries: list[float] = []
    for _ in range(3):
        start = time.process_time()
        asyncio.run(our_seconds([script] * num_in_flight, concurrency=num_in_flight))
        tries.append((time.process_time() - start) / num_in_flight)
    return min(tries)


def machine() -> str:
    """Processor, number of cores, how busy they are, and the interpreter."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    model = next(line.split(": ")[1] for line in lines if line.startswith("model name"))
    return (
        f"{model}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, "
        f"{platform.system()} {platform.release()}, Python {platform.python_version()}"
    )


def main() -> None:
    """Print the three schedules; the exit status is 1 if ours misses the mark."""
    scripts = draw_scripts(seed=0)
    num_steps = sum(script.num_steps for script in scripts)
    print(machine())
    print(f"{NUM_EPISODES} episodes, {num_steps} steps, {CONCURRENCY} at once")
    ideal = ideal_seconds(scripts)
    print(f"ideal      {ideal:6.2f} s", flush=True)
    processor_start = time.process_time()
    ours = asyncio.run(our_seconds(scripts))
    processor = time.process_time() - processor_start
    print(
        f"ours       {ours:6.2f} s  {ours / ideal:5.2f} x ideal (at most {ACCEPTED_RATIO}), "
        f"{processor / num_steps * 1e6:.0f} µs of processor a step",
        flush=True,
    )
    lock_step = asyncio.run(lock_step_seconds(scripts))
    print(f"lock-step  {lock_step:6.2f} s  {lock_step / ideal:5.2f} x ideal")
    few, many = (processor_seconds_per_episode(number) for number in (FEW, MANY))
    print(
        f"processor  {few * 1e6:.0f} µs an episode of 4 steps with {FEW} in flight, "
        f"{many * 1e6:.0f} µs with {MANY}: {many / few:.2f} x"
    )
    raise SystemExit(ours > ACCEPTED_RATIO * ideal)


if __name__ == "__main__":
    main()
