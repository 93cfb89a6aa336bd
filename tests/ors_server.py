"""A server made with the package `openreward`: its environments are held as its users hold them."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import openreward.environments.server
from openreward.environments import Environment, ImageBlock, Server, TextBlock, ToolOutput, tool
from openreward.environments import terminal as ends_the_task
from pydantic import BaseModel

from running_servers import serve

PIXEL = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJg"
    "gg=="
)


def text(*lines: str, reward: float | None = None, finished: bool = False) -> ToolOutput:
    return ToolOutput(
        blocks=[TextBlock(text=line) for line in lines], reward=reward, finished=finished
    )


class Number(BaseModel):
    value: int


class Signal(BaseModel):
    log: str
    """Pipe that is written to when the call acts."""
    go: str
    """Pipe that is read before the call returns."""


class Sums(Environment):
    """Add up two numbers, which the prompt shows; twenty tasks to train, five to test."""

    @classmethod
    def list_splits(cls) -> list[str]:
        return ["train", "test"]

    @classmethod
    def list_tasks(cls, split: str) -> Sequence[dict[str, int]]:
        first, number = {"train": (100, 20), "test": (0, 5)}[split]
        return [{"a": first + place, "b": 2} for place in range(number)]

    @property
    def total(self) -> int:
        return sum(int(str(self.task_spec[name])) for name in ("a", "b"))

    def get_prompt(self) -> list[TextBlock | ImageBlock]:
        return [
            TextBlock(text=f"What is {self.task_spec['a']} + {self.task_spec['b']}?"),
            ImageBlock(data=PIXEL, mimeType="image/png"),
        ]

    @tool
    async def answer(self, given: Number) -> ToolOutput:
        """Answer with a number."""
        right = given.value == self.total
        return text("Right." if right else "Wrong.", reward=float(right), finished=True)

    @tool
    async def hint(self) -> ToolOutput:
        """Ask for a hint, which costs a quarter."""
        return text("It is at least", str(self.total - 1), "x" * 20_000, reward=-0.25)

    @tool
    async def break_down(self) -> ToolOutput:
        """Break."""
        raise RuntimeError("the abacus fell over")

    @tool(shared=False)
    async def secret(self) -> ToolOutput:
        """Not listed."""
        return text("hush")

    @tool
    async def wait_for(self, signal: Signal) -> ToolOutput:
        """Act, and answer later."""
        self._num_calls += 1
        await asyncio.to_thread(Path(signal.log).write_text, "acted")
        await asyncio.to_thread(Path(signal.go).read_text)
        return text(f"Done, call {self._num_calls}.", reward=0.5)

    _num_calls = 0


class Essay(BaseModel):
    words: str


class Essays(Environment):
    """Write an essay; it takes a while to set up."""

    @classmethod
    def list_splits(cls) -> list[str]:
        return ["train"]

    @classmethod
    def list_tasks(cls, split: str) -> Sequence[dict[str, int]]:
        return [{"topic": number} for number in range(20)]

    async def setup(self) -> None:
        await asyncio.sleep(0.5)

    def get_prompt(self) -> list[TextBlock]:
        return [TextBlock(text=f"Write essay {self.task_spec['topic']}.")]

    @ends_the_task
    @tool
    async def submit(self, essay: Essay) -> ToolOutput:
        """Submit the essay."""
        return text("Thank you.", reward=len(essay.words.split()) / 10, finished=True)


if __name__ == "__main__":
    settings: Any = openreward.environments.server
    settings._SETUP_WAIT_TIMEOUT_S = 0.1
    settings._SETUP_WAIT_RETRY_AFTER_S = 0
    serve(Server([Sums, Essays]).app)
