"""A messenger that remembers where things are: a task of two questions, and an agent that plays it.

`play` is an agent written with the `openai` package. It tells the model where three things are, and
asks for two of them, one after the other. A wrong answer ends the errand; reward is 1 if both were
brought, and nothing else. Training, validation and test share no thing and no place, so whoever
does well in validation has learned to look things up in what it was told, and to say so briefly.

It runs with any model: `OPENAI_API_KEY=… MODEL=gpt-4o-mini python errands.py`.
"""

import asyncio
import os
import random
import re
from typing import Any, Protocol, TypedDict

import openai

THINGS = {
    "train": "lamp key coin book rope hat map drum apple knife bell cup ring flag shoe doll",
    "validation": "clock brush flute chain mirror candle basket feather",
    "test": "needle scarf whistle lantern compass spoon glove ribbon",
}
PLACES = {
    "train": "cellar attic kitchen garden barn tower stable library chapel harbor forest cave "
    "market mill bridge well",
    "validation": "castle school bakery island tent bank hotel museum",
    "test": "church office bathroom station prison theater hospital park",
}
NUM_TASKS = {"train": 512, "validation": 64, "test": 64}
NUM_THINGS, NUM_ERRANDS = 3, 2


class Errand(TypedDict):
    """A task: what is where, and which things are asked for."""

    places: list[list[str]]
    """Each thing and its place, in the order in which the model reads them."""
    wanted: list[str]


def tasks(split: str) -> list[Errand]:
    """The errands of a split: `tasks.source = "errands:tasks"`."""
    drawn, found = random.Random(split), dict[str, Errand]()
    while len(found) < NUM_TASKS[split]:
        things = drawn.sample(THINGS[split].split(), NUM_THINGS)
        places = drawn.sample(PLACES[split].split(), NUM_THINGS)
        errand = Errand(
            places=[list(pair) for pair in zip(things, places, strict=True)],
            wanted=drawn.sample(things, NUM_ERRANDS),
        )
        found[str(errand)] = errand
    return list(found.values())


def place_in(answer: str, places: list[str]) -> str | None:
    """The one place that an answer names; None if it names none, or several."""
    named = [place for place in places if re.search(rf"\b{place}\b", answer.lower())]
    return named[0] if len(named) == 1 else None


async def run_errand(errand: Errand, client: openai.AsyncOpenAI, *, model: str) -> bool:
    """Ask for one thing after the other; returns whether all were brought."""
    places = dict(errand["places"])
    said = " ".join(f"The {thing} is in the {place}." for thing, place in places.items())
    messages: list[Any] = []
    for thing in errand["wanted"]:
        messages.append({"role": "user", "content": f"{said} Where is the {thing}?"})
        reply = await client.chat.completions.create(model=model, messages=messages)
        answer = reply.choices[0].message.content or ""
        if place_in(answer, list(places.values())) != places[thing]:
            return False
        messages.append({"role": "assistant", "content": answer})
        said = "Right."
    return True


class Address(TypedDict):
    """Where the model is, as OpenAI's client takes it."""

    base_url: str
    api_key: str


class Endpoint(Protocol):
    """What a run's function is given to find the model."""

    @property
    def openai(self) -> Address: ...


async def play(task: Errand, endpoint: Endpoint) -> dict[str, object]:
    """Play one errand in a run: `agent.function = "errands:play"`."""
    async with openai.AsyncOpenAI(**endpoint.openai) as client:
        success = await run_errand(task, client, model="auto")
    return {"reward": float(success), "success": success}


async def main() -> None:
    """Play the first test task with a hosted model."""
    async with openai.AsyncOpenAI() as client:
        print(await run_errand(tasks("test")[0], client, model=os.environ["MODEL"]))


if __name__ == "__main__":
    asyncio.run(main())
