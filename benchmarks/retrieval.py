"""Prints what sessions of WebShop share, and how fast WebShop and Search find things.

Data is made in the data folder first, if it is not there.

Run: `python benchmarks/retrieval.py`
"""

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from longhaul_core.types import Split
from longhaul_envs.search.environment import Search
from longhaul_envs.search.tasks import SearchOptions, open_library
from longhaul_envs.webshop.environment import WebShop
from longhaul_envs.webshop.tasks import WebShopOptions, open_shop

NUM_SESSIONS = 32
NUM_QUERIES = 500


def resident_mib() -> float:
    """Resident memory of this process that no other process shares, in MiB."""
    rollup = Path("/proc/self/smaps_rollup").read_text("utf-8")
    private = [line.split()[1] for line in rollup.splitlines() if line.startswith("Private_")]
    return sum(map(int, private)) / 1024


def sessions(options: dict[str, int]) -> None:
    """Print the memory of one session and of many, each in the middle of an episode."""
    opened: list[WebShop] = []
    WebShop(num_products=20).tasks(Split.TRAIN)  # the imports are not the sessions'
    before = resident_mib()
    for number in range(NUM_SESSIONS):
        session = WebShop(**options)
        session.reset(seed=number)
        for action in ("search[black jacket]", "click[next >]"):
            session.step(action)
        opened.append(session)
        if number == 0:
            first = resident_mib() - before
            print(f"WebShop {options}: 1 session {first:.1f} MiB", end=", ")
    print(f"{NUM_SESSIONS} sessions {resident_mib() - before:.1f} MiB")
    for session in opened:
        session.close()


def speed(name: str, queries: Sequence[str], search: Callable[[str], object]) -> None:
    """Print queries a second on one thread."""
    search(queries[0])
    started = time.perf_counter()
    for query in queries:
        search(query)
    seconds = time.perf_counter() - started
    print(f"{name}: {len(queries) / seconds:,.0f} queries/s")


def main() -> None:
    """Print everything."""
    for num_products in (1000, 20_000):
        WebShop(num_products=num_products).tasks(Split.TRAIN)
        sessions({"num_products": num_products})
        shop = open_shop(WebShopOptions(num_products=num_products))
        instructions = [goal.instruction for goal in shop.goals(Split.TRAIN, authors=False)]
        speed(f"WebShop, {num_products:,} products", instructions[:NUM_QUERIES], shop.search)
    questions = [task.goal for task in Search().tasks(Split.TRAIN)]
    library = open_library(SearchOptions())
    speed(
        f"Search, {len(library.corpus):,} documents",
        questions[:NUM_QUERIES],
        lambda query: library.retriever.search(query, limit=3),
    )
    names = [question.partition(" is ")[0] for question in questions]
    speed(
        "Search, names alone",
        names[:NUM_QUERIES],
        lambda query: library.retriever.search(query, limit=3),
    )


if __name__ == "__main__":
    main()
