"""How fast the API answers over a big store, and what readers cost the writer.

    uv run python benchmarks/viewer.py --folder DIR [--episodes 100000] [--steps-per-episode 10]
        [--postgresql] [--calls 40] [--nice 15]

The store is generated into the folder through `StoreWriter`, and indexed; a call goes on where the
one before was interrupted, and writes nothing once the store has so many episodes. With
`--postgresql` it is in a server of its own, whose data lie in the folder too; what a call without
it left in the folder is copied, as `trainer runs` restores an archive. Every question goes
to the API over HTTP, to a server in a process of its own,
one call after the other; "cold" is the first call of each kind after the server was started and
the file's pages were dropped from the kernel's cache, where the machine lets one. Readers beside
the writer are in a process of their own too, so that they do not take its interpreter's turns.

The tables are Markdown, for a document.
"""

import argparse
import asyncio
import multiprocessing
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import islice
from multiprocessing.sharedctypes import Synchronized
from multiprocessing.synchronize import Event
from pathlib import Path
from random import Random

import httpx
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from sqlalchemy import make_url, text
from sqlalchemy.orm import Session
from viewer_store import EVERYWHERE, MIDDLING, RARE, RUN_ID, SMALL_RUN_ID, StoreShape, records

from longhaul_api.main import NICENESS
from longhaul_core.store import (
    EpisodeRecord,
    Record,
    StoreWriter,
    maintenance,
    open_store,
    queries,
    read_only_engine,
)
from longhaul_core.store.copies import copy_run

console = Console()
AT_ONCE = 200
READERS = 10
GOALS = {
    "list": (50, 200),
    "filter": (50, 200),
    "open": (50, 200),
    "search rare": (300, 300),
    "search middling": (300, 300),
    "search everywhere": (1000, 1000),
}
"""Median and 95th percentile in milliseconds, by how a question's name begins."""


def main() -> None:
    """Print every figure."""
    parser = argparse.ArgumentParser(description="Measure the API over a big store.")
    parser.add_argument("--folder", type=Path, required=True, help="where the store is, or will be")
    parser.add_argument("--episodes", type=int, default=100_000)
    parser.add_argument("--steps-per-episode", type=int, default=10)
    parser.add_argument("--calls", type=int, default=40, help="of each question")
    parser.add_argument("--nice", type=int, default=NICENESS, help="the API's, as its own option")
    parser.add_argument("--postgresql", action="store_true", help="a server of its own")
    arguments = parser.parse_args()
    folder: Path = arguments.folder
    folder.mkdir(parents=True, exist_ok=True)
    console.print(f"load {os.getloadavg()[0]:.1f}, {os.cpu_count()} processors")
    with store_in(folder, postgresql=arguments.postgresql) as store:
        shape = StoreShape(arguments.episodes, arguments.steps_per_episode)
        if arguments.postgresql:
            copy_runs(folder / "store.db", store)
        generate(store, shape)
        describe(store)
        measure_questions(store, folder, calls=arguments.calls, nice=arguments.nice)
        measure_writer(store, nice=arguments.nice)


@contextmanager
def store_in(folder: Path, *, postgresql: bool) -> Generator[str]:
    """The address of the folder's store; for PostgreSQL its server runs meanwhile."""
    if not postgresql:
        yield str(folder / "store.db")
        return
    # The server's package wants a runtime folder, which a container often lacks.
    os.environ.setdefault("XDG_RUNTIME_DIR", tempfile.gettempdir())
    from pgserver.postgres_server import get_server

    server = get_server(folder / "postgresql", cleanup_mode="stop")
    try:
        url = make_url(server.get_uri()).set(drivername="postgresql+psycopg")
        yield url.render_as_string(hide_password=False)
    finally:
        server.cleanup()


def copy_runs(source: Path, store: str) -> None:
    """Copy the runs of a SQLite store of an earlier call, if there is one, that `store` lacks."""
    if not source.exists():
        return
    reading, engine = read_only_engine(source), open_store(store)
    with Session(reading) as session, Session(engine) as copied:
        there = {run.run_id for run in queries.list_runs(copied)}
        runs = [run for run in queries.list_runs(session) if run.run_id not in there]
    for run in runs:
        if run.run_id in {RUN_ID, SMALL_RUN_ID}:
            wall, cpu = time.perf_counter(), time.process_time()
            copy_run(reading, engine, run_id=run.run_id)
            wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
            console.print(f"copied: {run.num_steps:,} steps in {wall:,.0f} s, {cpu:,.0f} s ours")
    engine.dispose()
    reading.dispose()


def generate(store: str, shape: StoreShape) -> None:
    """Write what the store lacks, from the training step on where it ended, and index its text."""
    engine = open_store(store)
    with Session(engine) as session:
        done = {run.run_id: run.num_training_steps_done for run in queries.list_runs(session)}
        num_there = queries.count_episodes(session)
    columns = (SpinnerColumn(), *Progress.get_default_columns(), TimeElapsedColumn())
    with (
        Progress(*columns, TextColumn("{task.fields[rate]}"), console=console) as progress,
        StoreWriter(store) as writer,
    ):
        task = progress.add_task("episodes", total=shape.num_episodes, completed=num_there, rate="")
        begin, cpu, num_steps = time.perf_counter(), 0.0, 0
        for batch in records(shape, done=done):
            cpu -= time.process_time()
            writer.write(batch)
            cpu += time.process_time()
            played = [each for each in batch if isinstance(each, EpisodeRecord)]
            num_steps += sum(len(each.outcome.steps) for each in played)
            rate = f"{num_steps / (time.perf_counter() - begin):,.0f} steps/s"
            progress.update(task, advance=len(played), rate=rate)
    if num_steps:
        console.print(
            f"written: {num_steps:,} steps in {time.perf_counter() - begin:,.0f} s, "
            f"{num_steps / cpu:,.0f} steps per second of the writer's processor time"
        )
    wall, cpu = time.perf_counter(), time.process_time()
    num_indexed = 0
    while added := maintenance.index_text(engine, most_steps=50_000):
        num_indexed += added
        console.print(f"indexed {num_indexed:,} steps in {time.perf_counter() - wall:,.0f} s")
    if num_indexed:
        cpu = time.process_time() - cpu
        console.print(f"text index: {num_indexed / cpu:,.0f} steps per second of processor time")
    if engine.dialect.name == "postgresql":
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.execute(text("VACUUM ANALYZE"))
    engine.dispose()


def describe(store: str) -> None:
    """Print how big it is."""
    engine = read_only_engine(store)
    with Session(engine) as session:
        stats = queries.storage_stats(session)
        console.print(
            f"{engine.dialect.name}: {stats.num_episodes:,} episodes, {stats.num_steps:,} steps, "
            f"{stats.num_bytes / 2**30:.2f} GiB, {stats.bytes_per_step:,.0f} bytes a step"
        )
    engine.dispose()


@contextmanager
def api(store: str, *, nice: int) -> Generator[str]:
    """The address of a server over the store, in a process of its own with this niceness."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        with log.open("w") as output:
            command = [sys.executable, "-m", "longhaul_api.main", "--store", store, "--port", "0"]
            command += ["--nice", str(nice)]
            process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
        try:
            yield address_in(log, process)
        finally:
            process.terminate()
            process.wait(timeout=30)


def address_in(log: Path, process: subprocess.Popen[bytes]) -> str:
    """Where the server says that it listens."""
    for _ in range(3_000):
        for word in log.read_text(encoding="utf-8").split():
            if word.startswith("http://"):
                return word.rstrip("/")
        if process.poll() is not None:
            break
        time.sleep(0.1)
    raise SystemExit(f"the API did not start: {log.read_text(encoding='utf-8')[-2000:]}")


def measure_questions(store: str, folder: Path, *, calls: int, nice: int) -> None:
    """Print the time of each question, the first answer apart, and of 200 requests at once."""
    lines: list[str] = []
    asked = questions(store)
    forget_pages(folder)
    with api(store, nice=nice) as address, httpx.Client(base_url=address, timeout=120) as client:
        for name, addresses in asked.items():
            times: list[float] = []
            num_bytes = 0
            for number in range(calls + 1):
                begin = time.perf_counter()
                answer = client.get(addresses[number % len(addresses)])
                times.append((time.perf_counter() - begin) * 1000)
                answer.raise_for_status()
                num_bytes = len(answer.content)
            cold, warm = times[0], sorted(times[1:])
            median, high = statistics.median(warm), warm[int(0.95 * (len(warm) - 1))]
            numbers = (f"{each:,.0f}" for each in (cold, median, high, num_bytes / 1000))
            lines.append(" | ".join((name, *numbers, verdict(name, median, high))))
        print("\n| question | first, ms | median, ms | 95th percentile, ms | kB | goal |")
        print("|---|---:|---:|---:|---:|---|")
        print(*(f"| {line} |" for line in lines), "", sep="\n", flush=True)
        everything = [one for addresses in asked.values() for one in addresses]
        asyncio.run(ask_at_once(address, [everything[n % len(everything)] for n in range(AT_ONCE)]))


def verdict(name: str, median: float, high: float) -> str:
    """Whether the question's goal is reached; empty where it has none."""
    goal = next((goal for begin, goal in GOALS.items() if name.startswith(begin)), None)
    if goal is None:
        return ""
    reached = median <= goal[0] and high <= goal[1]
    return f"{'reached' if reached else 'MISSED'} ({goal[0]} / {goal[1]})"


def questions(store: str) -> dict[str, list[str]]:
    """Addresses of each kind, several where caches would make one too easy."""
    draw = Random(1)
    engine = read_only_engine(store)
    with Session(engine) as session:
        where = queries.EpisodeFilter(run_id=RUN_ID)
        newest = queries.list_episodes(session, where=where, limit=1).rows[0].training_step
        steps = [draw.randint(1, newest) for _ in range(20)]
        some = [
            row
            for step in steps
            for row in queries.list_episodes(
                session,
                where=queries.EpisodeFilter(
                    run_id=RUN_ID, min_training_step=step, max_training_step=step
                ),
                limit=2,
            ).rows
        ]
        deep = queries.list_episodes(
            session,
            where=queries.EpisodeFilter(run_id=RUN_ID, max_training_step=newest // 2),
            limit=100,
        ).next_key
        by_return = queries.list_episodes(
            session, where=where, sort="episode_return", limit=1000
        ).next_key
    engine.dispose()
    run = f"/runs/{RUN_ID}"
    listed = f"{run}/episodes?limit=100"
    if deep is None or by_return is None:
        raise SystemExit("too few episodes for a page half way down and an eleventh: take 2,000")
    return {
        "runs": ["/runs"],
        "run": [run],
        "curve": [f"{run}/curve"],
        "list": [listed],
        "list, half way down": [f"{listed}&after={deep}"],
        "list by return": [f"{listed}&sort=episode_return"],
        "list by return, page 11": [f"{listed}&sort=episode_return&after={by_return}"],
        "list with count": [f"{listed}&count_up_to=1000000"],
        "filter: training step": [
            f"{listed}&min_training_step={step}&max_training_step={step}" for step in steps
        ],
        "filter: solved, by tokens": [f"{listed}&success=true&sort=num_action_tokens"],
        "filter: failed": [f"{listed}&failed=true"],
        "filter: task": [f"{listed}&task_id={row.task_id}" for row in some],
        "filter: environment, returns": [
            f"{listed}&environment=longhaul/Household-v1&min_return=0.5"
        ],
        "filter: cause of failure": [f"{listed}&failure_cause=policy_error"],
        "filter: policy version": [f"{listed}&policy_version={step}" for step in steps],
        "filter: failures with their causes": [f"{run}/failures?limit=100"],
        "filter: failures of one cause": [f"{run}/failures?limit=100&cause=policy_error"],
        "filter: nothing found": [f"{listed}&min_return=7"],
        "filter: text, middling": [f"{listed}&text={MIDDLING}"],
        "filter: text, everywhere": [f"{listed}&text={EVERYWHERE}"],
        "open an episode": [f"/episodes/{row.episode_id}" for row in some],
        "open with tokens": [f"/episodes/{row.episode_id}?tokens=true" for row in some],
        "open one step": [f"/episodes/{row.episode_id}/steps/3" for row in some],
        "groups": [f"{run}/groups?limit=100"],
        "groups without signal": [f"{run}/groups?limit=100&has_signal=false"],
        "group": [f"{run}/groups/train/{row.training_step}/{row.group_index}" for row in some],
        "search rare": [f"/search?words={RARE}"],
        "search middling": [f"/search?words={MIDDLING}"],
        "search everywhere": [f"/search?words={EVERYWHERE}"],
        "search everywhere, of a run": [f"/search?words={EVERYWHERE}&run_id={RUN_ID}"],
        "search two words": [f"/search?words={EVERYWHERE}+{MIDDLING}"],
    }


def forget_pages(folder: Path) -> None:
    """Drop the files' pages from the kernel's cache, as far as it lets us."""
    for path in folder.rglob("*"):
        with suppress(OSError):
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(descriptor)


async def ask_at_once(address: str, addresses: Sequence[str]) -> None:
    """Print how long many requests took that were sent together, and what they were answered."""
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(base_url=address, timeout=300, limits=limits) as client:
        begin = time.perf_counter()
        answers = await asyncio.gather(*(client.get(each) for each in addresses))
        wall = time.perf_counter() - begin
    codes = sorted(
        {
            (code, sum(a.status_code == code for a in answers))
            for code in {a.status_code for a in answers}
        }
    )
    said = ", ".join(f"{count} times {code}" for code, count in codes)
    console.print(f"{len(addresses)} requests at once: {said} in {wall:.1f} s")


def measure_writer(store: str, *, nice: int) -> None:
    """Print the rates of a writer and of ten who page through the list, each alone and both."""
    run_id = f"viewer-writing-{time.time():.0f}"
    made = records(StoreShape(num_episodes=1_000_000, steps_per_episode=10), seed=1)
    started, *batches = [
        [replace(record, run_id=run_id) for record in batch] for batch in islice(made, 401)
    ]
    half = len(batches) // 2
    with StoreWriter(store) as writer, api(store, nice=nice) as address:
        writer.write(started)
        alone = rate(writer, batches[:half])
        console.print(f"writer alone: {alone:,.0f} steps/s")
        apart = multiprocessing.get_context("spawn")
        stop, num_pages = apart.Event(), apart.Value("q")
        readers = apart.Process(target=read_pages, args=(address, stop, num_pages))
        readers.start()
        while num_pages.value < READERS and readers.is_alive():
            time.sleep(0.01)
        alone_pages = pages_per_second(num_pages)
        already, begin = num_pages.value, time.perf_counter()
        beside = rate(writer, batches[half:])
        beside_pages = (num_pages.value - already) / (time.perf_counter() - begin)
        stop.set()
        readers.join()
        if readers.exitcode != 0:
            raise SystemExit("a reader was answered an error")
        console.print(
            f"writer beside {READERS} readers: {beside:,.0f} steps/s, {beside / alone:.2f} of it "
            f"alone; they read {beside_pages:,.0f} pages of 100 episodes/s, "
            f"{beside_pages / alone_pages:.2f} of the {alone_pages:,.0f} alone (niceness {nice})"
        )
        seconds = [visible_seconds(writer, address, run_id, number) for number in range(20)]
        console.print(
            f"an episode is visible {statistics.median(seconds) * 1000:.0f} ms after it was given "
            "to the writer (median of 20)"
        )
    engine = open_store(store)
    maintenance.delete_run(engine, run_id=run_id, force=True)
    engine.dispose()


def rate(writer: StoreWriter, batches: Sequence[Sequence[Record]]) -> float:
    """Steps written per second."""
    num_steps = sum(
        len(record.outcome.steps)
        for batch in batches
        for record in batch
        if isinstance(record, EpisodeRecord)
    )
    begin = time.perf_counter()
    for batch in batches:
        writer.write(batch)
    return num_steps / (time.perf_counter() - begin)


def pages_per_second(num_pages: "Synchronized[int]") -> float:
    """What the readers read in the next five seconds."""
    already, begin = num_pages.value, time.perf_counter()
    time.sleep(5)
    return (num_pages.value - already) / (time.perf_counter() - begin)


def read_pages(address: str, stop: Event, num_pages: "Synchronized[int]") -> None:
    """Page through the list of episodes as several readers at once, until told to stop."""
    with ThreadPoolExecutor(READERS) as pool:
        readers = [pool.submit(page_through, address, stop, num_pages) for _ in range(READERS)]
        for reader in readers:
            reader.result()


def page_through(address: str, stop: Event, num_pages: "Synchronized[int]") -> None:
    """Read the list of episodes from its beginning on, again and again, and count the pages."""
    with httpx.Client(base_url=address, timeout=120) as client:
        after: str | None = None
        while not stop.is_set():
            given: dict[str, str | int] = {"limit": 100} | ({"after": after} if after else {})
            answer = client.get(f"/runs/{RUN_ID}/episodes", params=given)
            answer.raise_for_status()
            after = answer.json()["next_key"]
            with num_pages.get_lock():
                num_pages.value += 1


def visible_seconds(writer: StoreWriter, address: str, run_id: str, number: int) -> float:
    """From the writer's call until the API has the episode."""
    record = next(
        record
        for batch in islice(records(StoreShape(1_000, 10), seed=2 + number), 1, 2)
        for record in batch
        if isinstance(record, EpisodeRecord)
    )
    record = replace(record, run_id=run_id, training_step=1_000 + number)
    with httpx.Client(base_url=address, timeout=120) as client:
        begin = time.perf_counter()
        writer.write([record])
        while client.get(f"/episodes/{record.episode_id}").status_code != 200:
            time.sleep(0.001)
        return time.perf_counter() - begin


if __name__ == "__main__":
    main()
