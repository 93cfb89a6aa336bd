"""Stand-ins for the expensive parts, shared by all tests. Fakes behave; nothing is a mock.

The asynchronous fakes are for tests of the episode loop; the Gymnasium ones are played
through the adapters, in threads or worker processes (`import_modules=("fakes",)`).
"""

import asyncio
import codecs
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium

from longhaul_core.actions import ActionFormat, ActionParser
from longhaul_core.environment import StepResult
from longhaul_core.errors import MAX_MESSAGE_CHARACTERS, PolicyFailure
from longhaul_core.memory import Memory, NoMemory, PromptTemplate
from longhaul_core.policy import (
    Completion,
    Policy,
    Prompt,
    ReadReply,
    ReplyPart,
    Sampling,
)
from longhaul_core.rollout import Agent
from longhaul_core.types import Call, Message, Observation, Split, Task, Tool, ToolCall


def make_task(number: int = 0, *, split: Split = Split.TRAIN) -> Task:
    """A task; equal numbers give equal tasks."""
    return Task(
        environment="fakes/Counting-v0",
        version="1",
        data_hash="",
        task_id=f"{split.value}/{number:05}",
        seed=number,
        split=split,
        goal=f"goal {number}",
    )


class ByteRenderer:
    """One token per byte of "role: content" lines, so lengths are easy to work out."""

    def render(
        self,
        messages: Sequence[Message],
        *,
        earlier: Sequence[Call] = (),
        begins_reply: bool = True,
    ) -> tuple[int, ...]:
        return tuple("\n".join(f"{one.role}: {one.text}" for one in messages).encode())

    def decode(self, tokens: Sequence[int]) -> str:
        return bytes(tokens).decode()


class ByteChatRenderer(ByteRenderer):
    r"""A chat template over bytes: tools, thoughts, and prompts that go on from a call.

    A message is written `\x02role: text\x03`; a thought `<think>…</think>` ahead of the text,
    a tool call `<call>{"name": …, "arguments": …}</call>` after it, the tools' names first of all.
    """

    END = 3
    """The end token. `decode` leaves out it, and the one that begins a message."""

    def __init__(self, *, forgets_thoughts: bool = False) -> None:
        """A renderer that counts its work.

        Args:
            forgets_thoughts: Leave a thought out once a user's message follows, as many templates
                do: such a call cannot be gone on from.
        """
        self._forgets_thoughts = forgets_thoughts
        self.num_written = 0
        """Messages made into tokens so far."""

    def render_chat(
        self, messages: Sequence[Message], *, tools: Sequence[Tool] = ()
    ) -> tuple[int, ...]:
        names = f"\x02tools: {' '.join(tool.name for tool in tools)}\x03" if tools else ""
        asked = max((place for place, one in enumerate(messages) if one.role == "user"), default=0)
        written = [
            self._written(one, forgets=self._forgets_thoughts and place < asked)
            for place, one in enumerate(messages)
        ]
        return tuple((names + "".join(written) + "\x02assistant: ").encode())

    def token_bytes(self, tokens: Sequence[int]) -> tuple[bytes, ...]:
        return tuple(bytes([token]) for token in tokens)

    def added(
        self, call: Call, messages: Sequence[Message], *, tools: Sequence[Tool] = ()
    ) -> tuple[int, ...] | None:
        assert call.sampled is not None, "only a call with tokens can be gone on from"
        has_thought = "<think>" in self.decode(call.sampled.action_tokens)
        if self._forgets_thoughts and has_thought and any(m.role == "user" for m in messages):
            return None
        end = () if call.sampled.action_tokens[-1] == self.END else (self.END,)
        written = [self._written(one, forgets=False) for one in messages]
        return (*end, *("".join(written) + "\x02assistant: ").encode())

    def reader(
        self, *, tools: Sequence[Tool] = (), salt: str = "", after_result: bool = False
    ) -> "ByteReplyReader":
        return ByteReplyReader(salt)

    def decode(self, tokens: Sequence[int]) -> str:
        return _text_of(tokens).decode()

    def _written(self, message: Message, *, forgets: bool) -> str:
        self.num_written += 1
        thought = f"<think>{message.reasoning}</think>" if message.reasoning else ""
        calls = [
            f'<call>{{"name": "{one.name}", "arguments": {one.arguments}}}</call>'
            for one in message.tool_calls
        ]
        text = ("" if forgets else thought) + message.text + "".join(calls)
        return f"\x02{message.role}: {text}\x03"


class ByteReplyReader:
    """Reads a reply as `ByteChatRenderer` writes it; what follows a `<` waits for the whole tag."""

    _PIECE = re.compile(
        r"<think>(?P<thought>.*?)</think>|<call>(?P<call>.*?)</call>|(?P<text>[^<]+)", re.DOTALL
    )

    def __init__(self, salt: str) -> None:
        self._salt = salt
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._unread = ""
        self._parts: list[ReplyPart] = []

    def feed(self, tokens: Sequence[int]) -> Sequence[ReplyPart]:
        self._unread += self._decoder.decode(_text_of(tokens))
        num_told = len(self._parts)
        while piece := self._PIECE.match(self._unread):
            self._parts.append(self._part(piece))
            self._unread = self._unread[piece.end() :]
        return self._parts[num_told:]

    def end(self) -> tuple[Sequence[ReplyPart], ReadReply]:
        rest = [ReplyPart(text=self._unread)] if self._unread else []
        whole = [*self._parts, *rest]
        return rest, ReadReply(
            text="".join(part.text for part in whole),
            reasoning="".join(part.reasoning for part in whole),
            tool_calls=tuple(
                ToolCall(id=part.tool_id, name=part.tool_name, arguments=part.tool_arguments)
                for part in whole
                if part.tool_place is not None
            ),
        )

    def _part(self, piece: re.Match[str]) -> ReplyPart:
        thought, call, text = piece.group("thought", "call", "text")
        if call is None:
            return ReplyPart(text=text or "", reasoning=thought or "")
        asked = json.loads(call)
        place = sum(part.tool_place is not None for part in self._parts)
        return ReplyPart(
            tool_place=place,
            tool_id=f"call_{self._salt}/{place}",
            tool_name=asked["name"],
            tool_arguments=json.dumps(asked["arguments"]),
        )


def _text_of(tokens: Sequence[int]) -> bytes:
    """The tokens that are bytes of text."""
    return bytes(token for token in tokens if token not in (2, ByteChatRenderer.END))


class ScriptedPolicy:
    """Plays back replies, the last one for ever; keeps every prompt and sampling it saw."""

    def __init__(self, replies: Sequence[str] = ("go",), *, delay_seconds: float = 0.0) -> None:
        self._replies = list(replies)
        self._delay_seconds = delay_seconds
        self._num_acted: dict[str, int] = {}
        self.prompts: list[Prompt] = []
        self.samplings: list[Sampling] = []

    async def act(self, prompt: Prompt, sampling: Sampling, *, episode_id: str) -> Completion:
        await asyncio.sleep(self._delay_seconds)
        self.prompts.append(prompt)
        self.samplings.append(sampling)
        turn = self._num_acted.get(episode_id, 0)
        self._num_acted[episode_id] = turn + 1
        reply = self._replies[min(turn, len(self._replies) - 1)]
        tokens = tuple(reply.encode())
        return Completion(
            text=reply,
            action_tokens=tokens,
            behavior_logprobs=tuple(-0.5 - place / 8 for place in range(len(tokens))),
            policy_version=7,
        )


class StreamingScriptedPolicy(ScriptedPolicy):
    """Plays back replies and hands them on a token at a time; counts the requests it gave up."""

    def __init__(self, replies: Sequence[str] = ("go",), *, seconds_per_token: float = 0.0) -> None:
        super().__init__(replies)
        self._seconds_per_token = seconds_per_token
        self.num_cancelled = 0

    async def stream(
        self,
        prompt: Prompt,
        sampling: Sampling,
        *,
        episode_id: str,
        on_tokens: Callable[[Sequence[int]], None],
    ) -> Completion:
        completion = await self.act(prompt, sampling, episode_id=episode_id)
        try:
            for token in completion.action_tokens:
                await asyncio.sleep(self._seconds_per_token)
                on_tokens((token,))
        except asyncio.CancelledError:
            self.num_cancelled += 1
            raise
        return completion


class FailingPolicy:
    """Raises at its `turn`-th call, counted from 0 over all episodes."""

    def __init__(self, *, turn: int = 0) -> None:
        self._turn = turn
        self._inner = ScriptedPolicy()

    async def act(self, prompt: Prompt, sampling: Sampling, *, episode_id: str) -> Completion:
        if len(self._inner.prompts) == self._turn:
            raise ConnectionError("engine gone")
        return await self._inner.act(prompt, sampling, episode_id=episode_id)


class ReplyingPolicy:
    """Gives the same completion for ever."""

    def __init__(self, completion: Completion) -> None:
        self._completion = completion

    async def act(self, prompt: Prompt, sampling: Sampling, *, episode_id: str) -> Completion:
        return self._completion


class HangingPolicy:
    """Never answers."""

    async def act(self, prompt: Prompt, sampling: Sampling, *, episode_id: str) -> Completion:
        await asyncio.Event().wait()
        raise AssertionError("unreachable")


class ScriptedEnvironment:
    """Pays out a list of rewards, one a step, and ends with the last of them."""

    def __init__(
        self,
        rewards: Sequence[float] = (0.0, 1.0),
        *,
        truncated: bool = False,
        success: bool = True,
        admissible_actions: tuple[str, ...] | None = None,
        delay_seconds: float = 0.0,
    ) -> None:
        self._rewards = list(rewards)
        self._truncated = truncated
        self._success = success
        self._admissible_actions = admissible_actions
        self._delay_seconds = delay_seconds
        self.actions: list[str] = []
        self.num_closed = 0

    async def open(self) -> None:
        pass

    async def reset(self, task: Task) -> Observation:
        await asyncio.sleep(self._delay_seconds)
        return self._observe(f"start {task.seed}")

    async def step(self, action: str) -> StepResult:
        await asyncio.sleep(self._delay_seconds)
        self.actions.append(action)
        last = len(self.actions) == len(self._rewards)
        return StepResult(
            observation=self._observe(f"after {len(self.actions)}"),
            reward=self._rewards[len(self.actions) - 1],
            terminated=last and not self._truncated,
            truncated=last and self._truncated,
            success=last and self._success,
        )

    async def close(self) -> None:
        self.num_closed += 1

    def _observe(self, text: str) -> Observation:
        return Observation(text=text, admissible_actions=self._admissible_actions)


class FailingEnvironment(ScriptedEnvironment):
    """Raises in `where`: "open", "reset", "step" or "close"; in "step" at its `turn`-th."""

    def __init__(self, *, where: str, turn: int = 0) -> None:
        super().__init__(rewards=[0.0] * 100)
        self._where = where
        self._turn = turn

    async def open(self) -> None:
        if self._where == "open":
            raise ConnectionError("server gone")

    async def reset(self, task: Task) -> Observation:
        if self._where == "reset":
            raise ConnectionError("server gone")
        return await super().reset(task)

    async def step(self, action: str) -> StepResult:
        if self._where == "step" and len(self.actions) == self._turn:
            raise ConnectionError("server gone")
        return await super().step(action)

    async def close(self) -> None:
        await super().close()
        if self._where == "close":
            raise ConnectionError("server gone")


class HangingEnvironment(ScriptedEnvironment):
    """Never returns from `where`: "open", "reset", "step" or "close"."""

    def __init__(self, *, where: str) -> None:
        super().__init__()
        self._where = where

    async def open(self) -> None:
        await self._perhaps_hang("open")

    async def reset(self, task: Task) -> Observation:
        await self._perhaps_hang("reset")
        return await super().reset(task)

    async def step(self, action: str) -> StepResult:
        await self._perhaps_hang("step")
        return await super().step(action)

    async def close(self) -> None:
        await super().close()
        await self._perhaps_hang("close")

    async def _perhaps_hang(self, where: str) -> None:
        if where == self._where:
            await asyncio.Event().wait()


def make_agent(
    policy: Policy | None = None,
    *,
    build_memory: Callable[[], Memory] | None = None,
    max_reply_tokens: int = 8,
) -> Agent:
    """An agent of fakes: plain actions, no memory unless one is given."""
    return Agent(
        policy=policy or ScriptedPolicy(),
        renderer=ByteRenderer(),
        parser=ActionParser(format=ActionFormat.PLAIN),
        build_memory=build_memory or (lambda: NoMemory(template=PromptTemplate())),
        max_reply_tokens=max_reply_tokens,
    )


class CountingGym(gymnasium.Env[str, str]):
    """A text environment: count up from the seed; "stop" at `target` solves the task.

    `misbehave` names what it does wrong in a step, or in reset if it begins with "reset-".
    """

    def __init__(self, target: int = 3, misbehave: str = "") -> None:
        self.observation_space = gymnasium.spaces.Text(1000)
        self.action_space = gymnasium.spaces.Text(1000)
        self._target = target
        self._misbehave = misbehave
        self._count = 0
        self._first = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed)
        misbehave(self._misbehave.removeprefix("reset-"), self._misbehave.startswith("reset-"))
        self._count = 0
        self._first = seed or 0
        task_id = (options or {}).get("task_id")
        return f"{task_id}: {self._first}", self._info()

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        misbehave(self._misbehave, True)
        if self._misbehave == "long-observation":
            return "x" * 20_000_000, 0.0, False, False, self._info()
        if self._misbehave == "half-pair-observation":
            return "\udcff", 0.0, False, False, self._info() | {"anchor_state": "\udcff"}
        if action == "stop":
            solved = self._count == self._target
            return "stopped", float(solved), True, False, self._info() | {"success": solved}
        self._count += action == "count"
        info = self._info() | {"action_accepted": action == "count"}
        return f"{self._first + self._count}", 0.0, False, False, info

    def _info(self) -> dict[str, Any]:
        return {"admissible_actions": ["count", "stop"], "anchor_state": str(self._count)}


class SharedCountingGym(CountingGym):
    """Four of them may be played in a process.

    The action "do HOW" misbehaves in that way, and "pause" takes 0.3 s.
    """

    episodes_per_process = 4

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        misbehave(action.removeprefix("do "), action.startswith("do "))
        time.sleep(0.3 if action == "pause" else 0)
        return super().step(action)


class Unprintable(Exception):
    """Raises what it is when it is asked for its text."""

    def __str__(self) -> str:
        raise self


DAEMON_SECONDS = ("3602.5", "3603.5")
"""How long the two processes that `start_daemons` starts would sleep: they are known by it."""


def start_daemons() -> None:
    """Start a child in a session of its own, and one whose parent has gone."""
    child, orphan = DAEMON_SECONDS
    subprocess.Popen(["sleep", child], start_new_session=True)
    subprocess.run(["setsid", "sh", "-c", f"sleep {orphan} & exit"], check=True)


ERRORS: dict[str, Callable[[], BaseException]] = {
    "raise": lambda: KeyError("broken rule"),
    "exit": lambda: SystemExit(3),
    "interrupt": lambda: KeyboardInterrupt("of its own"),
    "cancelled": lambda: asyncio.CancelledError("of its own"),
    "foreign": lambda: PolicyFailure("of its own"),
    "unprintable": Unprintable,
    "half-pair": lambda: ValueError("\ud83d"),
    "endless-text": lambda: ValueError("x" * 20_000_000),
}
"""What `CountingGym` raises, by the way of its misbehaving."""

FAILING_CALLS = [
    ("raise", "KeyError: 'broken rule'"),
    ("exit", "SystemExit: 3"),
    ("interrupt", "KeyboardInterrupt: of its own"),
    ("cancelled", "CancelledError: of its own"),
    ("unprintable", "Unprintable: <exception str() failed>"),
    ("half-pair", "ValueError: \ufffd"),
    (
        "endless-text",
        f"ValueError: {'x' * MAX_MESSAGE_CHARACTERS}… (20,000,000 characters in all)",
    ),
]
"""Some of them, and what is told of each."""


def misbehave(how: str, now: bool) -> None:
    """Do what a broken environment does, if it is to be done now."""
    if not now:
        return
    if how in ERRORS:
        raise ERRORS[how]()
    if how.startswith("daemon"):
        start_daemons()
    match how.removeprefix("daemon-"):
        case "hang":
            time.sleep(3600)
        case "child":
            with subprocess.Popen(["sleep", "3600"]):
                time.sleep(3600)
        case "orphan":
            subprocess.Popen(["sleep", "3601"])
            os.abort()
        case "spin":
            while True:
                pass
        case "exit-hard":
            os._exit(3)
        case "abort":
            os.abort()
        case "print":
            sys.stdout.write("noise on stdout\n" * 10_000)
            sys.stdout.flush()
        case _:
            pass


for environment_id, entry_point in (
    ("fakes/Counting-v0", "fakes:CountingGym"),
    ("fakes/SharedCounting-v0", "fakes:SharedCountingGym"),
):
    if environment_id not in gymnasium.registry:
        gymnasium.register(  # pyright: ignore[reportUnknownMemberType] its `kwargs` is a bare dict
            environment_id, entry_point=entry_point
        )
