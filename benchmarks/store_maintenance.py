"""How long the maintenance of a large store takes on PostgreSQL, beside SQLite.

    uv run python benchmarks/store_maintenance.py --postgresql URL [--steps N]

Each database gets the same store, made by its own SQL: episodes of 32 steps, each step with a text
and a message of its own; a tenth of the tasks is of runs that are gone, and half of the steps is in
the text index. Then, in both, the rest is indexed, what is indexed already is looked for once more,
retention takes the text of a tenth of the episodes, and garbage is collected. The last lines are
the ratios; the target is that PostgreSQL takes no more than five times as long as SQLite: a
constant, whatever the size.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from sqlalchemy import Engine, text
from store_writer import describe_machine

from longhaul_core.store import maintenance, open_store
from longhaul_core.store.retention import Retention

STEPS_PER_EPISODE = 32
MOST_TIMES_AS_LONG = 5.0

NUMBERS = (
    "WITH RECURSIVE numbers (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM numbers WHERE n < {})"
)
# Numbers of a simple generator stand for words: all differ, and some are frequent.
WORDS = " || ' ' || ".join(f"(n * {101 + 2 * k} + {k}) % {20 * 3**k}" for k in range(10))


def main() -> None:
    """Print every figure."""
    parser = argparse.ArgumentParser(description="Measure the maintenance of a store.")
    parser.add_argument("--postgresql", required=True, help="URL of an empty database")
    parser.add_argument("--steps", type=int, default=1_000_000)
    arguments = parser.parse_args()
    print(f"machine: {describe_machine()}")
    with tempfile.TemporaryDirectory() as folder:
        sqlite = measure(str(Path(folder) / "benchmark.db"), num_steps=arguments.steps)
    postgresql = measure(arguments.postgresql, num_steps=arguments.steps)
    worst = max(postgresql[name] / sqlite[name] for name in sqlite)
    for name in sqlite:
        print(f"{name}: PostgreSQL takes {postgresql[name] / sqlite[name]:.2f} times as long")
    if worst > MOST_TIMES_AS_LONG:
        sys.exit(f"MISSED: at most {MOST_TIMES_AS_LONG} times as long")


def measure(store: str, *, num_steps: int) -> dict[str, float]:
    """Print and return the seconds that each kind of maintenance takes, by its name."""
    engine = open_store(store)
    print(f"{engine.dialect.name}: {num_steps:,} steps", flush=True)
    fill(engine, num_steps=num_steps)
    kinds: dict[str, Callable[[], object]] = {
        "index the text of half of the steps": lambda: maintenance.index_text(engine),
        "index it again, with nothing to add": lambda: maintenance.index_text(engine),
        "remove the text of a tenth": lambda: remove_a_tenth(engine, num_steps=num_steps),
        "collect garbage": lambda: maintenance.collect_garbage(engine),
    }
    before = counts(engine)
    seconds: dict[str, float] = {}
    for name, maintain in kinds.items():
        began = time.perf_counter()
        maintain()
        seconds[name] = time.perf_counter() - began
        print(f"  {name}: {seconds[name]:.1f} s", flush=True)
    after = counts(engine)
    print(f"  gone: {before[0] - after[0]:,} messages, {before[1] - after[1]:,} tasks")
    engine.dispose()
    return seconds


def remove_a_tenth(engine: Engine, *, num_steps: int) -> None:
    """Apply retention to the training steps that played the first tenth of the episodes."""
    retention = Retention(engine, run_id="run", sampled_groups=0)
    while retention.remove_some(up_to=num_steps // STEPS_PER_EPISODE // 1280):
        pass


def fill(engine: Engine, *, num_steps: int) -> None:
    """Put the store together, half of its steps indexed."""
    num_episodes = num_steps // STEPS_PER_EPISODE
    steps = NUMBERS.format(num_steps - 1)
    episodes = NUMBERS.format(num_episodes - 1)
    with engine.begin() as connection:
        for statement in (
            "INSERT INTO runs (id, name, kind, attempt, status, message, started_at, heartbeat_at,"
            " config_json) VALUES ('run', 'run', 'train', 0, 'finished', '', 0, 0, '{}')",
            f"INSERT INTO tasks (hash, environment, version, data_hash, task_id, seed, split, goal)"
            f" {NUMBERS.format(num_episodes // 8 * 11 // 10)}"
            " SELECT 'task' || n, 'samples/Maze-v0', '1', '', n, n, 'train', 'leave ' || n"
            " FROM numbers",
            f"INSERT INTO episodes (id, run_id, attempt, phase, training_step, group_index,"
            " sample_index, retry, task_hash, rolled_back, failed, num_steps, horizon, num_calls,"
            " num_prompt_tokens, num_action_tokens, num_invalid_actions, seed, started_at,"
            f" duration_seconds, trained) {episodes}"
            " SELECT 'run/0/train/' || n, 'run', 0, 'train', n / 128, n % 128 / 8, n % 8, 0,"
            f" 'task' || (n / 8), false, false, {STEPS_PER_EPISODE}, 50, 0, 400, 100, 0, n, 0, 1,"
            " false FROM numbers",
            f"INSERT INTO messages (episode_id, number, role, own_lines) {steps}"
            f" SELECT 'run/0/train/' || (n / {STEPS_PER_EPISODE}), n % {STEPS_PER_EPISODE}, 'user',"
            f" {WORDS} FROM numbers",
            f"INSERT INTO observations (episode_id, step_index, text) {steps}"
            f" SELECT 'run/0/train/' || (n / {STEPS_PER_EPISODE}), n % {STEPS_PER_EPISODE},"
            f" {WORDS} FROM numbers",
            "INSERT INTO calls (episode_id, step_index, call_index, purpose, agent, model,"
            " messages_json, reply, finish_reason, dropped_exchanges, queue_seconds,"
            f" generate_seconds, trained, credit_share, credited_by) {steps}"
            f" SELECT 'run/0/train/' || (n / {STEPS_PER_EPISODE}), n % {STEPS_PER_EPISODE}, 0,"
            f" 'act', '', '', '[' || (n % {STEPS_PER_EPISODE} + 2097152) || ']',"  # a run of one
            " 'go ' || n, 'stop', 0, 0, 0,"
            " false, 1, 'step' FROM numbers",
        ):
            connection.exec_driver_sql(statement.replace("%", "%%") if pg(engine) else statement)
    with engine.begin() as connection:
        columns, document = "rowid, observation, replies", "id, observation, replies"
        if pg(engine):
            columns, document = "id, document", "id, to_tsvector('simple', observation)"
        connection.execute(
            text(
                f"INSERT INTO step_search ({columns}) SELECT {document} FROM step_texts"
                " WHERE id % 2 = 0"
            )
        )


def pg(engine: Engine) -> bool:
    """Whether it is PostgreSQL's."""
    return engine.dialect.name == "postgresql"


def counts(engine: Engine) -> tuple[int, int]:
    """Messages and tasks."""
    with engine.connect() as connection:
        count = "SELECT (SELECT count(*) FROM messages), (SELECT count(*) FROM tasks)"
        num_messages, num_tasks = connection.execute(text(count)).one()
    return num_messages, num_tasks


if __name__ == "__main__":
    main()
