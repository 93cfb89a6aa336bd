"""How fast the writer puts steps into a store, and what an episode weighs on disk.

    uv run python benchmarks/store_writer.py [--store URL] [--episodes N]

Episodes of 32 steps; a step has a prompt of 400 tokens (half of it the same as in the step
before, as under a window memory), an action of 100 tokens with logprobs, and about two
kilobytes of text. The target is 5,000 steps a second into SQLite.
"""

import argparse
import os
import platform
import sys
import tempfile
import time
from pathlib import Path

from sqlalchemy import text
from sqlalchemy.orm import Session

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from longhaul_core.store import (
    EpisodeRecord,
    StoreWriter,
    maintenance,
    open_store,
    queries,
)
from store_samples import (
    make_credit,
    make_loss_input,
    make_record,
    make_task,
    make_trajectory,
    run_started,
)

STEPS_PER_EPISODE = 32
EPISODES_PER_BATCH = 16
TARGET_STEPS_PER_SECOND = 5_000


def main() -> None:
    """Print every figure."""
    parser = argparse.ArgumentParser(description="Measure the trajectory writer.")
    parser.add_argument("--store", help="path or URL of a new store; a temporary file if left out")
    parser.add_argument("--episodes", type=int, default=640)
    arguments = parser.parse_args()
    print(f"machine: {describe_machine()}")
    batches = make_batches(arguments.episodes)
    num_steps = arguments.episodes * STEPS_PER_EPISODE
    print(f"{arguments.episodes} episodes of {STEPS_PER_EPISODE} steps of 500 tokens")
    with tempfile.TemporaryDirectory() as folder:
        store = arguments.store or str(Path(folder) / "benchmark.db")
        rate = measure_writer(store, batches, num_steps)
        measure_credit(store, batches, num_steps)
        measure_loss_inputs(store, batches, num_steps)
        measure_reading(store, batches)
    if "://" not in store:
        verdict = "reached" if rate >= TARGET_STEPS_PER_SECOND else "MISSED"
        print(f"target of {TARGET_STEPS_PER_SECOND:,} steps/s into SQLite: {verdict}")


def describe_machine() -> str:
    """The machine a figure belongs to."""
    model = next(
        (
            line.split(":", 1)[1].strip()
            for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
            if line.startswith("model name")
        ),
        platform.processor(),
    )
    load = os.getloadavg()[0]
    return f"{model}, {os.cpu_count()} cores (load {load:.1f}), Python {platform.python_version()}"


def make_batches(num_episodes: int) -> list[list[EpisodeRecord]]:
    """Built before the clock starts."""
    records = [
        make_record(
            make_trajectory(
                task=make_task(number // 8),
                sample_index=number % 8,
                rewards=(0.0,) * (STEPS_PER_EPISODE - 1) + (1.0,),
                num_prompt_tokens=400,
                num_action_tokens=100,
            ),
            training_step=number // 128 + 1,
            group_index=number % 128 // 8,
            group_size=8,
        )
        for number in range(num_episodes)
    ]
    return [
        records[start : start + EPISODES_PER_BATCH]
        for start in range(0, num_episodes, EPISODES_PER_BATCH)
    ]


def measure_writer(store: str, batches: list[list[EpisodeRecord]], num_steps: int) -> float:
    """Print the speed of a first and of a repeated write; return the first, in steps/s."""
    with StoreWriter(store) as writer:
        writer.write([run_started()])
        wall, cpu = time.perf_counter(), time.process_time()
        for batch in batches:
            writer.write(batch)
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        flush = time.perf_counter()
        writer.flush()
        flush = time.perf_counter() - flush
        again = time.perf_counter()
        for batch in batches:
            writer.write(batch)
        again = time.perf_counter() - again
    rate = num_steps / wall
    print(f"write:        {rate:9,.0f} steps/s ({num_steps / cpu:,.0f} per CPU second)")
    print(f"flush:        {flush:9.2f} s for all of it")
    print(f"same again:   {num_steps / again:9,.0f} steps/s (a retry: nothing is written)")
    return rate


def measure_credit(store: str, batches: list[list[EpisodeRecord]], num_steps: int) -> None:
    """Print the speed of credit."""
    credits = [[make_credit(record) for record in batch] for batch in batches]
    with StoreWriter(store) as writer:
        wall = time.perf_counter()
        for batch in credits:
            writer.write(batch)
        wall = time.perf_counter() - wall
    print(f"credit:       {num_steps / wall:9,.0f} steps/s")


def measure_loss_inputs(store: str, batches: list[list[EpisodeRecord]], num_steps: int) -> None:
    """Print the speed and the size of what the loss read, reported one micro-batch at a time."""
    micro_batches = [make_loss_input(record) for batch in batches for record in batch]
    engine = open_store(store)
    with Session(engine) as session:
        before = queries.storage_stats(session).num_bytes
    with StoreWriter(store) as writer:
        wall = time.perf_counter()
        for micro_batch in micro_batches:
            writer.write([micro_batch])
        wall = time.perf_counter() - wall
    with Session(engine) as session:
        num_bytes = queries.storage_stats(session).num_bytes - before
    engine.dispose()
    print(
        f"loss inputs:  {num_steps / wall:9,.0f} steps/s, "
        f"{wall / len(micro_batches) * 1000:.1f} ms a micro-batch of {STEPS_PER_EPISODE} rows, "
        f"{num_bytes / num_steps:.0f} bytes a step"
    )


def measure_reading(store: str, batches: list[list[EpisodeRecord]]) -> None:
    """Print the size of an episode and the time of the usual questions."""
    engine = open_store(store)
    with Session(engine) as session:
        stats = queries.storage_stats(session)
        print(
            f"size:         {stats.bytes_per_episode / 1024:9,.0f} KiB per episode, "
            f"{stats.bytes_per_step / 1024:.1f} KiB per step"
        )
        wall = time.perf_counter()
        queries.get_episode(session, episode_id=batches[0][0].episode_id)
        print(f"one episode:  {(time.perf_counter() - wall) * 1000:9.1f} ms with all its steps")
        wall = time.perf_counter()
        session.execute(text("SELECT phase, avg(reward) FROM step_detail GROUP BY phase")).all()
        print(f"mean reward:  {(time.perf_counter() - wall) * 1000:9.1f} ms over all steps")
        wall = time.perf_counter()
        queries.list_runs(session)
        print(f"list of runs: {(time.perf_counter() - wall) * 1000:9.1f} ms")
    wall = time.perf_counter()
    num_indexed = maintenance.index_text(engine)
    wall = time.perf_counter() - wall
    print(f"text index:   {num_indexed / wall:9,.0f} steps/s (on demand)")
    engine.dispose()


if __name__ == "__main__":
    main()
