"""A store with one long episode: a chat of 50 steps whose last prompt has 15,000 tokens.

Every prompt extends the one before, as under a memory of everything; in the middle the two oldest
exchanges are dropped for good. Boards of a maze stand in the observations, and the
third step has a word in Hebrew and one in Chinese, each character of which is several tokens.

    PYTHONPATH=tests python tests/apps/long_episode.py FILE
"""

import random
import sys

from longhaul_core.store import StoreWriter, TokenPieces
from longhaul_core.types import Message, Observation, Step, StopReason, Task, Trajectory
from steps import one_call_step
from store_samples import make_credit, make_decisions, make_record, make_task, run_started

NUM_STEPS = 50
PROMPT_TOKENS = 15_700
ACTION_TOKENS = 60
SCRIPTS = "שלום 木兰"
EPISODE_ID = "run/0/train/1/0/0/0"
_NUM_WORDS = 2_000
_BYTES = range(_NUM_WORDS, _NUM_WORDS + 256)
_BOARD = ("# # # # #", "# @ _ . #", "# _ $ _ #", "# # # # #")


def pieces() -> dict[int, bytes]:
    """The vocabulary: words of two to nine letters, and each byte by itself."""
    draw = random.Random(4)
    letters = "etaoinshrdlu"
    words = {
        number: (" " + "".join(draw.choices(letters, k=draw.randint(2, 9)))).encode()
        for number in range(_NUM_WORDS)
    }
    return words | {_BYTES[byte]: bytes([byte]) for byte in range(256)}


def long_episode(task: Task, *, sample_index: int, num_steps: int = NUM_STEPS) -> Trajectory:
    """The episode, made of numbers alone."""
    draw = random.Random(sample_index)
    words = pieces()

    def drawn(count: int) -> tuple[int, ...]:
        return tuple(draw.randrange(_NUM_WORDS) for _ in range(count))

    def text(tokens: tuple[int, ...]) -> str:
        return b"".join(words[token] for token in tokens).decode()

    system = drawn(100)
    exchange = (PROMPT_TOKENS - len(system)) // NUM_STEPS - ACTION_TOKENS
    shown: list[tuple[tuple[Message, tuple[int, ...]], ...]] = []
    steps: list[Step] = []
    for index in range(num_steps):
        seen = drawn(exchange)
        observed = "\n".join((f"Room {index}:{text(seen)}", *_BOARD))
        asked = Message(role="user", content=observed)
        past = shown[2:] if index > num_steps // 2 else shown
        spoken = [part for each in past for part in each]
        reply = drawn(ACTION_TOKENS)
        if index == 2:
            foreign = tuple(_BYTES[byte] for byte in SCRIPTS.encode())
            reply = (*foreign, *reply[len(foreign) :])
        said = text(reply)
        steps.append(
            one_call_step(
                index,
                Observation(text=observed, admissible_actions=("go north", "go south", "wait")),
                messages=(
                    Message(role="system", content=text(system)),
                    *(message for message, _ in spoken),
                    asked,
                ),
                prompt_tokens=(*system, *(t for _, tokens in spoken for t in tokens), *seen),
                action_tokens=reply,
                behavior_logprobs=tuple(-(draw.random() ** 4) * 6 for _ in reply),
                reply=said,
                action=("go north", "go south", "wait")[index % 3] if index % 9 else said[:40],
                action_valid=index % 9 != 0,
                reward=float(index % 7 == 6),
                policy_version=3,
                num_cached_tokens=100,
                queue_seconds=0.02,
                generate_seconds=0.4 + 2.0 * (index == 11),
                environment_seconds=0.05,
            )
        )
        shown.append(((asked, seen), (Message(role="assistant", content=said), reply)))
    return Trajectory(
        task=task,
        sample_index=sample_index,
        seed=sample_index,
        horizon=num_steps,
        steps=tuple(steps),
        stop_reason=StopReason.HORIZON_REACHED,
        success=False,
        final_observation=Observation(text="\n".join(_BOARD)),
        started_at=1_760_000_000.0,
        duration_seconds=30.0,
    )


def write_long_store(url: str, *, num_steps: int = NUM_STEPS) -> None:
    """A run of one group of two such episodes, the second one a copy of other words."""
    records = [
        make_record(long_episode(make_task(), sample_index=sample, num_steps=num_steps))
        for sample in range(2)
    ]
    with StoreWriter(url) as writer:
        writer.write(
            [
                run_started(),
                *records,
                *make_decisions(records),
                *(make_credit(record) for record in records),
                TokenPieces(run_id="run", pieces=pieces()),
            ]
        )


if __name__ == "__main__":
    write_long_store(sys.argv[1])
