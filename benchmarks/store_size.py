"""What a step weighs in the store, and what it costs to write and to read, at 2,000 prompt tokens.

    uv run python benchmarks/store_size.py [--against COMMIT] [--store URL] [--episodes N] [--full]

Episodes of 50 steps under a window memory of five exchanges: a prompt of some 2,000 tokens, a
reply of some 130 that thinks and acts, every fifth step a plan by a second purpose. With `--full`,
a memory of everything, whose last prompt has some 24,000. The text is lines of this project's
guides, the token ids follow from the text over a vocabulary of 151,936, logprobs are drawn. Groups
of eight episodes begin with the same observation. With `--against`, the store of another commit is
measured in the same run with the same episodes, by turns, and the last lines are the ratios.
"""

import argparse
import json
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
import zlib
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, text
from sqlalchemy.orm import Session

from longhaul_core.store import (
    CallCredit,
    EpisodeCredit,
    EpisodeRecord,
    RunStarted,
    StoreWriter,
    open_store,
    queries,
)
from longhaul_core.types import (
    Call,
    Message,
    Observation,
    SampledTokens,
    Split,
    Step,
    StopReason,
    Task,
    Trajectory,
)

ROOT = Path(__file__).parents[1]
STEPS_PER_EPISODE = 50
EPISODES_PER_BATCH = 8
WINDOW = 5
LINES_OF_AN_OBSERVATION = 10
VOCABULARY = 151_936
TURNS = 3
PIECE = re.compile(r" ?\w{1,7}|[^\w]")
SYSTEM = "You are an agent that works on a long task. Think, then answer with one action."
INSTRUCTION = "Think first. Then write the action: <action>what you do</action>, and nothing else."


def main() -> None:
    """Print every figure."""
    parser = argparse.ArgumentParser(description="Measure what a step weighs and costs.")
    parser.add_argument("--against", help="a commit whose store is measured as well")
    parser.add_argument("--store", help="path or URL of a new store; a temporary file if left out")
    parser.add_argument("--episodes", type=int, default=64)
    parser.add_argument("--full", action="store_true", help="a memory of everything")
    parser.add_argument("--json", action="store_true", help="print the figures alone")
    arguments = parser.parse_args()
    if arguments.json:
        print(
            json.dumps(
                measured(arguments.store, num_episodes=arguments.episodes, full=arguments.full)
            )
        )
        return
    names = ["here", *([arguments.against] if arguments.against else [])]
    turns: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    with tempfile.TemporaryDirectory() as folder:
        sources = {"here": ROOT / "packages/core/src"}
        if arguments.against:
            sources[arguments.against] = extracted(arguments.against, folder=Path(folder))
        for turn in range(TURNS):
            for name in names:
                store = arguments.store or str(Path(folder) / f"{name}-{turn}.db")
                command = [sys.executable, __file__, "--json", "--store", store]
                command += ["--episodes", str(arguments.episodes)]
                command += ["--full"] * arguments.full
                environment = os.environ | {"PYTHONPATH": str(sources[name])}
                out = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True)
                turns[name].append(json.loads(out.stdout))
    best = {name: {key: least(key, of) for key in of[0]} for name, of in turns.items()}
    for name, figures in best.items():
        print(f"{name}:")
        for key, value in figures.items():
            print(f"  {key:42} {value:12,.{3 if key.startswith('ms') else 1}f}")
    if arguments.against:
        print("ratio:")
        for key in sorted(set(best["here"]) & set(best[arguments.against])):
            before = best[arguments.against][key]
            print(f"  {key:42} {best['here'][key] / before:12.2f}" if before else f"  {key}: new")


def least(key: str, turns: list[dict[str, float]]) -> float:
    """The least disturbed of the turns."""
    values = [turn[key] for turn in turns]
    return max(values) if key.endswith("per CPU second") else min(values)


def extracted(commit: str, *, folder: Path) -> Path:
    """The core package as it was, in a folder of its own."""
    archive = subprocess.run(
        ["git", "archive", commit, "packages/core/src"], cwd=ROOT, check=True, capture_output=True
    ).stdout
    target = folder / "before"
    target.mkdir()
    subprocess.run(["tar", "-x", "-C", str(target)], input=archive, check=True)
    return target / "packages/core/src"


def measured(store: str, *, num_episodes: int, full: bool) -> dict[str, float]:
    """Write a store and read it; the figures by their name."""
    records = [make_record(number, full=full) for number in range(num_episodes)]
    num_steps = num_episodes * STEPS_PER_EPISODE
    calls = [call for each in records for step in each.outcome.steps for call in step.calls]
    sampled = [call.sampled for call in calls if call.sampled is not None]
    figures = {
        "prompt tokens a call": statistics.mean(len(each.prompt_tokens) for each in sampled),
        "reply tokens a call": statistics.mean(len(each.action_tokens) for each in sampled),
    }
    with StoreWriter(store) as writer:
        started = RunStarted(
            run_id="run",
            attempt=0,
            name="run",
            kind="train",
            config_json="{}",
            provenance_json="{}",
            started_at=0.0,
        )
        writer.write([started])
        began = time.process_time()
        for start in range(0, num_episodes, EPISODES_PER_BATCH):
            writer.write(records[start : start + EPISODES_PER_BATCH])
        figures["steps written per CPU second"] = num_steps / (time.process_time() - began)
        credits = [credit_of(record) for record in records]
        began = time.process_time()
        for start in range(0, num_episodes, EPISODES_PER_BATCH):
            writer.write(credits[start : start + EPISODES_PER_BATCH])
        figures["steps credited per CPU second"] = num_steps / (time.process_time() - began)
    engine = open_store(store)
    figures |= sizes(engine, num_steps=num_steps)
    figures |= reading_times(engine, [record.episode_id for record in records])
    engine.dispose()
    return figures


def sizes(engine: Engine, *, num_steps: int) -> dict[str, float]:
    """Bytes a step in all and, on SQLite, by table with its indexes and by column."""
    with Session(engine) as session:
        figures = {"bytes a step": queries.storage_stats(session).num_bytes / num_steps}
    if engine.dialect.name != "sqlite":
        return figures
    with engine.connect() as connection:
        tables = connection.execute(
            text(
                "SELECT coalesce(m.tbl_name, d.name), sum(d.pgsize) FROM dbstat d "
                "LEFT JOIN sqlite_master m ON m.name = d.name GROUP BY 1 ORDER BY 2 DESC LIMIT 5"
            )
        ).all()
        for table, num_bytes in tables:
            figures[f"bytes a step: {table}"] = num_bytes / num_steps
            for _, column, kind, *_ in connection.execute(text(f"PRAGMA table_info({table})")):
                if kind in {"TEXT", "BLOB"} or kind.startswith("VARCHAR"):
                    length = f"SELECT sum(length(CAST({column} AS BLOB))) FROM {table}"
                    held = connection.scalar(text(length)) or 0
                    if held > 8 * num_steps:
                        figures[f"bytes a step: {table}.{column}"] = held / num_steps
    return figures


def reading_times(engine: Engine, episode_ids: list[str]) -> dict[str, float]:
    """Milliseconds of processor time of the usual questions; the median of many."""
    draw = random.Random(7)
    with Session(engine) as session:

        def median(ask: Callable[[str], object]) -> float:
            seconds: list[float] = []
            for _ in range(40):
                episode_id = draw.choice(episode_ids)
                began = time.process_time()
                ask(episode_id)
                seconds.append(time.process_time() - began)
                session.rollback()
            return 1000 * statistics.median(seconds)

        def sql(question: str) -> Callable[[str], object]:
            def ask(episode_id: str) -> object:
                step = {"id": episode_id, "step": draw.randrange(STEPS_PER_EPISODE)}
                return session.execute(text(question), step).all()

            return ask

        return {
            "ms: an episode with tokens": median(
                lambda each: queries.get_episode(session, episode_id=each)
            ),
            "ms: an episode without tokens": median(
                lambda each: queries.get_episode(session, episode_id=each, tokens=False)
            ),
            "ms: one step, SQL": median(
                sql("SELECT * FROM step_detail WHERE episode_id = :id AND step_index = :step")
            ),
            "ms: the prompt of one step, SQL": median(
                sql(
                    "SELECT role, content FROM prompt_messages WHERE episode_id = :id "
                    "AND step_index = :step ORDER BY call_index, position"
                )
            ),
            "ms: mean reward of all steps, SQL": median(
                sql("SELECT phase, avg(reward) FROM step_detail GROUP BY phase")
            ),
            "ms: tokens by purpose of all calls, SQL": median(
                sql("SELECT purpose, sum(num_action_tokens) FROM calls GROUP BY purpose")
            ),
        }


class Window:
    """Prompts of the last exchanges in one message; every fifth step a plan by a second purpose."""

    def __init__(self, draw: random.Random) -> None:
        self._draw = draw
        self._past: deque[str] = deque(maxlen=WINDOW)

    def calls(self, index: int, seen: str, action: str) -> Iterator[Call]:
        """Of one step."""
        if index % 5 == 0:
            asked = "\n".join([*self._past, seen, "What is the plan?"])
            yield self._call(asked, "\n".join(self._draw.choices(LINES, k=3)), "plan")
        prompt = "\n".join(["Past:", *self._past, "Now:", seen, INSTRUCTION])
        yield self._call(prompt, thought(self._draw, action), "act")
        self._past.append(f"{seen}\n> {action}")

    def _call(self, prompt: str, reply: str, purpose: str) -> Call:
        read = tokens_of(f"{SYSTEM}\n{prompt}\n")
        messages = (Message(role="system", content=SYSTEM), Message(role="user", content=prompt))
        return call(messages, read, reply, purpose, self._draw)


class Memory:
    """Prompts of all that was, each exchange two messages."""

    def __init__(self, draw: random.Random) -> None:
        self._draw = draw
        self._messages = [Message(role="system", content=SYSTEM)]
        self._read = tokens_of(SYSTEM)

    def calls(self, index: int, seen: str, action: str) -> Iterator[Call]:
        """Of one step."""
        reply = thought(self._draw, action)
        shown = f"{seen}\n{INSTRUCTION}"
        self._messages.append(Message(role="user", content=shown))
        self._read += tokens_of(f"\n{shown}\n")
        yield call(tuple(self._messages), self._read, reply, "act", self._draw)
        self._messages.append(Message(role="assistant", content=reply))
        self._read += tokens_of(reply)


def thought(draw: random.Random, action: str) -> str:
    """A reply."""
    return f"{' '.join(draw.choices(LINES, k=4))}\n<action>{action}</action>"


def make_record(number: int, *, full: bool) -> EpisodeRecord:
    """The episode of this number: what it says depends on the number alone."""
    draw = random.Random(number)
    begins = random.Random(f"task {number // 8}")
    task = Task(
        environment="guides/Reader-v0", version="1", data_hash="d41d", task_id=str(number // 8),
        seed=number // 8, split=Split.TRAIN, goal="read",
    )  # fmt: skip
    memory = Memory(draw) if full else Window(draw)
    steps: list[Step] = []
    for index in range(STEPS_PER_EPISODE):
        seen = "\n".join((begins if index == 0 else draw).choices(LINES, k=LINES_OF_AN_OBSERVATION))
        action = f"open section {draw.randrange(1000)}"
        steps.append(
            Step(
                index=index,
                observation=Observation(text=seen),
                calls=tuple(memory.calls(index, seen, action)),
                action=action,
                action_valid=True,
                reward=0.0,
                environment_seconds=0.01,
            )
        )
    return EpisodeRecord(
        run_id="run",
        attempt=0,
        phase="train",
        training_step=number // 64 + 1,
        group_index=number % 64 // 8,
        group_size=8,
        retry=0,
        outcome=Trajectory(
            task=task,
            sample_index=number % 8,
            seed=number,
            horizon=STEPS_PER_EPISODE,
            steps=tuple(steps),
            stop_reason=StopReason.HORIZON_REACHED,
            success=False,
            final_observation=Observation(text="The end."),
            started_at=0.0,
            duration_seconds=1.0,
        ),
    )


def call(
    messages: tuple[Message, ...],
    read: tuple[int, ...],
    reply: str,
    purpose: str,
    draw: random.Random,
) -> Call:
    """A call as an engine of ours answers it."""
    replied = tokens_of(reply)
    return Call(
        messages=messages,
        reply=reply,
        sampled=SampledTokens(
            prompt_tokens=read,
            action_tokens=replied,
            behavior_logprobs=logprobs(len(replied), draw),
            policy_version=3,
        ),
        purpose=purpose,
        queue_seconds=0.1,
        generate_seconds=1.5,
    )


def logprobs(number: int, draw: random.Random) -> tuple[float, ...]:
    """Most tokens are all but certain, and some are not."""
    return tuple(-(draw.expovariate(1.0) ** 3) / 6 for _ in range(number))


def entropies(number: int, draw: random.Random) -> dict[str, Any]:
    """Likewise; none in a commit whose store has no place for them."""
    if "policy_entropies" not in CallCredit.__dataclass_fields__:
        return {}
    return {"policy_entropies": tuple(draw.expovariate(1.0) ** 3 / 6 for _ in range(number))}


def tokens_of(prompt: str) -> tuple[int, ...]:
    """A token for each word or piece of one, and for each sign."""
    return tuple(zlib.crc32(piece.encode()) % VOCABULARY for piece in PIECE.findall(prompt))


def credit_of(record: EpisodeRecord) -> EpisodeCredit:
    """Credit with the learner's logprobs for each call."""
    draw = random.Random(record.episode_id)
    steps = record.outcome.steps
    zeros = (0.0,) * len(steps)
    return EpisodeCredit(
        run_id="run",
        attempt=0,
        phase="train",
        training_step=record.training_step,
        trained_training_step=record.training_step,
        group_index=record.group_index,
        sample_index=record.outcome.sample_index,
        retry=0,
        trained=True,
        optimizer_step_index=0,
        episode_advantage=0.5,
        shaped_rewards=zeros,
        returns_to_go=zeros,
        step_advantages=zeros,
        advantages=zeros,
        loss_weights=zeros,
        calls=tuple(
            CallCredit(
                step_index=step.index,
                call_index=place,
                advantage=0.5,
                loss_weight=0.01,
                policy_logprobs=logprobs(len(each.sampled.action_tokens), draw),
                **entropies(len(each.sampled.action_tokens), draw),
            )
            for step in steps
            for place, each in enumerate(step.calls)
            if each.sampled is not None
        ),
    )


LINES = [
    line
    for path in sorted((ROOT / "docs").rglob("*.md"))
    for line in path.read_text(encoding="utf-8").splitlines()
    if 60 < len(line) < 200
]
"""Of the guides: what observations and replies are made of."""

if __name__ == "__main__":
    main()
