"""How close the episodes of a training run come to the ideal schedule, and what lock-step costs.

256 episodes of random length, 64 at once; engine and environment take random times, which
are drawn beforehand, so that all three schedules are of the same work:

- *ideal*: 64 slots, each free slot takes the next episode, nothing but the drawn times;
  computed, not run, and no schedule of this order can be faster.
- *training*: `EpisodeService`, which plays the episodes of a training run in each of verl's
  agent-loop workers, really run: its slots, environments in processes of their own, memory,
  chat template and tokenizer, parsing, verl's rows, and the store, which must have an episode
  before its rows go on.
- *lock-step*: batches of 64; all wait for the slowest at each step, and episodes that
  have ended are stepped until the last one of the batch has; really run.

Then the processor time of an episode without any waiting, with 64 and with 1,024 waiting for a
slot: it must not grow with the number.

Only the engine is not there: its replies are written beforehand, and `asyncio.sleep` takes its
time. verl's classes, Ray and the process that writes the store are as in a run.

    uv run python benchmarks/episode_loop.py
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
# Ray and transformers are typed in part.

from __future__ import annotations

import asyncio
import heapq
import json
import os
import platform
import tempfile
import time
from collections import defaultdict
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from timed_world import HORIZON, ID, Script, script_of

from longhaul_core.store.records import RunStarted
from longhaul_core.types import Split, Task
from longhaul_trainer.config import RunConfig
from longhaul_trainer.models import prepare_model
from longhaul_trainer.play.environments import descriptions_of
from longhaul_trainer.run.context import RunContext
from longhaul_trainer.verl.variables import prepare_environment

if TYPE_CHECKING:
    from verl.experimental.agent_loop import AgentLoopOutput
    from verl.workers.rollout.llm_server import LLMServerClient

    from longhaul_trainer.verl.agent_loop import EpisodeService

NUM_EPISODES = 256
CONCURRENCY = 64
FEW, MANY = 64, 1024


class PacedServer:
    """Says "left" to every prompt, after the time that the script of its episode gives."""

    def __init__(self, scripts: Sequence[Script], tokens: Sequence[int]) -> None:
        self._scripts = scripts
        self._tokens = list(tokens)
        self._num_replies: defaultdict[str, int] = defaultdict(int)

    async def generate(self, request_id: str, **asked: object) -> SimpleNamespace:
        """What `LLMServerClient.generate` gives; the task id stands first in an episode's."""
        del asked
        step_index = self._num_replies[request_id]
        self._num_replies[request_id] += 1
        number = int(request_id.split("/")[0])
        await asyncio.sleep(self._scripts[number].policy_seconds[step_index])
        return SimpleNamespace(
            token_ids=self._tokens,
            log_probs=[-0.5] * len(self._tokens),
            stop_reason="completed",
            extra_fields={"min_global_steps": 0},
        )


def configuration(store: Path, *, waits: bool) -> RunConfig:
    """A run that plays `CONCURRENCY` episodes at once, each of them a group."""
    return RunConfig.model_validate(
        {
            "num_training_steps": 1,
            "tasks_per_training_step": 1,
            "store": str(store),
            "model": {"path": "tiny"},
            "environment": {
                "id": ID,
                "options": {"waits": waits},
                "import_modules": ["timed_world"],
                "num_workers": CONCURRENCY,
            },
            "rollout": {
                "group_size": 1,
                "horizon": HORIZON,
                "max_prompt_tokens": 2048,
                "concurrent_episodes": CONCURRENCY,
            },
            "memory": {"kind": "window", "size": 3},
            "actions": {"format": "plain"},
            "algorithm": {"name": "reinforce_plus_plus"},
            "validation": {"num_tasks": 1, "test_num_tasks": 1},
        }
    )


@contextmanager
def ray_of_a_run() -> Generator[None]:
    """A Ray of this machine alone, for the process that writes the store."""
    import ray

    ray.init(
        address="local",
        num_cpus=2,
        object_store_memory=256 << 20,
        include_dashboard=False,
        log_to_driver=False,
        configure_logging=False,
    )
    try:
        yield
    finally:
        ray.shutdown()


def training_seconds(scripts: Sequence[Script], *, waits: bool = True) -> tuple[float, float]:
    """Wall and processor seconds in which `EpisodeService` plays the scripts into a new store."""
    from transformers import AutoTokenizer

    from longhaul_trainer.verl.agent_loop import EpisodeService
    from longhaul_trainer.verl.run_recorder import RunRecorder

    with tempfile.TemporaryDirectory() as folder:
        run = configuration(Path(folder) / "longhaul.db", waits=waits)
        name = f"episode-loop-{folder}"
        recorder = RunRecorder.start(run.store, name=name, run_id="benchmark", attempt=0)
        recorder.write([started(run)])
        tokenizer: Any = AutoTokenizer.from_pretrained(prepare_model(run.model.path))
        server = PacedServer(scripts, tokenizer.encode(" left"))
        run_context = RunContext(
            run_id="benchmark",
            attempt=0,
            recorder_name=name,
            config=run,
            descriptions=descriptions_of(run),
        )

        async def measure() -> tuple[float, float]:
            service = EpisodeService(run_context, cast("LLMServerClient", server), tokenizer)
            await play(service, scripts[:1], training_step=1)  # the pool's processes are there
            wall, processor = time.perf_counter(), time.process_time()
            played = await play(service, scripts, training_step=2)
            spent = time.perf_counter() - wall, time.process_time() - processor
            assert [len(rows) for rows in played] == [script.num_steps for script in scripts]
            return spent

        try:
            return asyncio.run(measure())
        finally:
            recorder.close()


async def play(
    service: EpisodeService, scripts: Sequence[Script], *, training_step: int
) -> list[list[AgentLoopOutput]]:
    """Rows of each episode; all of them are asked for at once, as verl does it."""
    return await asyncio.gather(
        *(
            service.play(
                task_of(number),
                phase="train",
                training_step=training_step,
                group_index=number,
                sample_index=0,
                horizon=HORIZON,
            )
            for number in range(len(scripts))
        )
    )


def task_of(number: int) -> Task:
    """The task whose episode takes the times of script `number`."""
    return Task(
        environment=ID,
        version="1",
        data_hash="",
        task_id=str(number),
        seed=number,
        split=Split.TRAIN,
    )


def started(run: RunConfig) -> RunStarted:
    """What a store must know before it takes episodes."""
    return RunStarted(
        run_id="benchmark",
        name="episode loop",
        kind="train",
        attempt=0,
        config_json=json.dumps(run.model_dump(mode="json")),
        provenance_json="{}",
        started_at=time.time(),
    )


def ideal_seconds(scripts: Sequence[Script]) -> float:
    """When the last of `CONCURRENCY` slots is done, each taking the next episode when free."""
    free_at = [0.0] * CONCURRENCY
    for script in scripts:
        heapq.heappush(free_at, heapq.heappop(free_at) + script.total_seconds)
    return max(free_at)


async def lock_step_seconds(scripts: Sequence[Script]) -> float:
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


def processor_seconds_per_episode(num_episodes: int) -> float:
    """The service's own work, when nothing is waited for but a slot."""
    scripts = [script_of(number, waits=False) for number in range(num_episodes)]
    _, processor = training_seconds(scripts, waits=False)
    return processor / num_episodes


def machine() -> str:
    """Processor, number of cores, how busy they are, and the interpreter."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    model = next(line.split(": ")[1] for line in lines if line.startswith("model name"))
    return (
        f"{model}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, "
        f"{platform.system()} {platform.release()}, Python {platform.python_version()}"
    )


def main() -> None:
    """Print the three schedules, and what an episode costs with few and with many waiting."""
    scripts = [script_of(number) for number in range(NUM_EPISODES)]
    num_steps = sum(script.num_steps for script in scripts)
    print(machine())
    print(f"{NUM_EPISODES} episodes, {num_steps} steps, {CONCURRENCY} at once")
    ideal = ideal_seconds(scripts)
    print(f"ideal      {ideal:6.2f} s", flush=True)
    with tempfile.TemporaryDirectory() as scratch:
        prepare_environment("cpu", scratch=Path(scratch))
        with ray_of_a_run():
            wall, processor = training_seconds(scripts)
            print(
                f"training   {wall:6.2f} s  {wall / ideal:5.2f} x ideal, "
                f"{processor / num_steps * 1e3:.2f} ms of processor a step",
                flush=True,
            )
            lock_step = asyncio.run(lock_step_seconds(scripts))
            print(f"lock-step  {lock_step:6.2f} s  {lock_step / ideal:5.2f} x ideal", flush=True)
            few, many = (processor_seconds_per_episode(number) for number in (FEW, MANY))
            print(
                f"processor  {few * 1e3:.2f} ms an episode of 4 steps of {FEW}, "
                f"{many * 1e3:.2f} ms of {MANY}: {many / few:.2f} x"
            )


if __name__ == "__main__":
    main()
