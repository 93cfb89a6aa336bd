"""What a call through the gateway costs, beside its stand-in engine and beside a plain proxy.

Every process is a real one on this machine, and talks HTTP:

- *engine*: answers 300 tokens with logprobs at once, to chat completions as vLLM's server does
  (token ids of prompt and reply in JSON), and to tokens, packed, as an engine does;
- *direct*: the client calls the engine's chat completions; what the measuring itself costs;
- *proxy*: a reverse proxy of agent-lightning 1's shape, written anew from its description: one
  process of FastAPI and httpx that parses each body, rewrites model and sampling, forwards it,
  parses the answer, keeps both as JSON, and sends it on;
- *server*: the same engine behind what vLLM's server does with a prompt: the JSON is read, and
  SmolLM2's chat template and tokenizer make it into tokens, all of it at every call;
- *gateway*: ours, one process. It makes prompts into tokens itself; a call is checked, recorded in
  its episode, and answered in the same JSON.

Somebody makes each prompt into tokens: our gateway, or the server behind the proxy. So there are
two comparisons. *proxy* and *gateway* are the processor time of that one process, with tokens made
by ours and not by the proxy. *proxy and server* is that of both processes, *gateway and engine*
that of ours and of the engine that gets tokens: the same work on both sides.

Conversations have 8 turns, whose prompts have about 4,000 tokens on average; a fresh call is one
prompt of that length. The gateway's process reports its own processor time and memory. It runs on
uvloop, as the actors of Ray do that play a run's episodes on GPUs.

*large* is how long other calls wait while the gateway is sent bodies of 100,000 messages. With
`--against`, the gateway of another commit is measured in the same run, by turns, and the last lines
are the ratios.

    uv run python benchmarks/gateway.py [--seconds 10]
        [--part throughput|streams|store|memory|large] [--against COMMIT]
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
# psutil and transformers are typed in part.

import argparse
import asyncio
import gc
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import tracemalloc
from array import array
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import NamedTuple, cast

import aiohttp
import psutil
import uvloop
from sqlalchemy import text

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from gateway_stand_ins import (
    NUM_REPLY_TOKENS,
    NUM_STREAMED_TOKENS,
    REPLY_LOGPROBS,
    REPLY_TEXT,
    REPLY_TOKENS,
    SECONDS_PER_TOKEN,
    say,
    words,
)

from longhaul_core.policy import Completion, Prompt
from longhaul_core.rollout import EpisodeLimits, EpisodeSession, EpisodeSpec, Responder
from longhaul_core.store import StoreWriter, open_store
from longhaul_core.types import Message, Sampling, Split, StopReason, Task
from longhaul_trainer.gateway.episode import CallRules, OpenEpisode
from longhaul_trainer.gateway.exchange import ChatRequest
from longhaul_trainer.gateway.server import Gateway
from longhaul_trainer.rendering.renderer import ChatTemplateRenderer, load_renderer
from longhaul_trainer.run.garbage import spare_what_is_loaded
from store_samples import make_record, run_started

ROOT = Path(__file__).parents[1]
NUM_TURNS = 8
NUM_CLIENTS = 16
# The gateway


@dataclass(frozen=True, slots=True)
class EnginePolicy:
    """Sends tokens to the stand-in engine, packed, and reads its reply."""

    address: str
    session: aiohttp.ClientSession

    async def act(self, prompt: Prompt, sampling: Sampling, *, episode_id: str) -> Completion:
        """See `Policy`."""
        packed = array("i", prompt.tokens).tobytes()
        async with self.session.post(f"{self.address}/generate", data=packed) as answer:
            received = await answer.read()
        split = 4 * NUM_REPLY_TOKENS
        tokens, logprobs = array("i"), array("d")
        tokens.frombytes(received[:split])
        logprobs.frombytes(received[split:])
        return completion(tokens, logprobs)


class LocalPolicy:
    """The same reply, without a way to another process; waits for `let` where there is one."""

    def __init__(self, *, let: asyncio.Event | None = None) -> None:
        self._let = let
        self._asked = asyncio.Semaphore(0)

    async def act(self, prompt: Prompt, sampling: Sampling, *, episode_id: str) -> Completion:
        """See `Policy`."""
        self._asked.release()
        if self._let is not None:
            await self._let.wait()
        return completion(REPLY_TOKENS, REPLY_LOGPROBS)

    async def all_asked(self, number: int) -> None:
        """Return when it was asked so often."""
        for _ in range(number):
            await self._asked.acquire()


class PacedPolicy(LocalPolicy):
    """Writes a token each 20 ms, as an engine under load does."""

    async def stream(
        self,
        prompt: Prompt,
        sampling: Sampling,
        *,
        episode_id: str,
        on_tokens: Callable[[Sequence[int]], None],
    ) -> Completion:
        """See `StreamingPolicy`."""
        tokens = REPLY_TOKENS[:NUM_STREAMED_TOKENS]
        for token in tokens:
            await asyncio.sleep(SECONDS_PER_TOKEN)
            on_tokens((token,))
        return completion(tokens, REPLY_LOGPROBS[:NUM_STREAMED_TOKENS])


def completion(tokens: Sequence[int], logprobs: Sequence[float]) -> Completion:
    """A reply of these tokens."""
    return Completion(
        text=REPLY_TEXT,
        action_tokens=tuple(tokens),
        behavior_logprobs=tuple(logprobs),
        policy_version=1,
    )


def renderer() -> ChatTemplateRenderer:
    """SmolLM2's."""
    return load_renderer(Path(os.environ[TOKENIZER]))


TOKENIZER = "LONGHAUL_BENCHMARK_TOKENIZER"
"""Variable with the folder of the tokenizer, which the first process writes: torch is slow."""


def write_renderer(folder: Path) -> None:
    """Write SmolLM2's tokenizer, for this process and those that it starts."""
    from longhaul_trainer.models.folder import write_tokenizer
    from longhaul_trainer.models.smollm2 import packaged_model, packaged_vocabulary

    write_tokenizer(folder, *packaged_vocabulary(packaged_model()))
    os.environ[TOKENIZER] = str(folder)


TASK = Task(
    environment="benchmarks/Calls", version="1", data_hash="", task_id="1", seed=1,
    split=Split.TRAIN,
)  # fmt: skip
_NUMBERS = count()


def opened(gateway: Gateway, responder: Responder) -> tuple[EpisodeSession, OpenEpisode]:
    """An episode without a limit that matters."""
    limits = EpisodeLimits(horizon=1_000_000, max_prompt_tokens=32_000)
    spec = EpisodeSpec(task=TASK, seed=next(_NUMBERS))
    session = EpisodeSession(spec, limits=limits, responder=responder)
    rules = CallRules(trains=True)
    return session, gateway.open(session, models={"policy": responder}, rules=rules, task=TASK)


async def serve_gateway(engine_address: str, *, is_local: bool) -> None:
    """Open an episode for each line that is read; close it when its program reports its end."""
    chat = renderer()
    spare_what_is_loaded()  # as an agent loop does
    gateway = Gateway()
    await gateway.start()
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        policy = LocalPolicy() if is_local else EnginePolicy(engine_address, session)
        paced = PacedPolicy()
        kinds = {
            "whole": Responder(policy=policy, renderer=chat, max_reply_tokens=400),
            "paced": Responder(policy=paced, renderer=chat, max_reply_tokens=400),
        }
        ending: set[asyncio.Task[None]] = set()

        async def end(episode: OpenEpisode) -> None:
            await episode.wait_done()
            await episode.close()

        say("ready")
        while line := (await asyncio.to_thread(sys.stdin.readline)).strip():
            found: list[tuple[str, str]] = []
            for _ in range(int(line.split()[1])):
                _, episode = opened(gateway, kinds[line.split()[0]])
                found.append((episode.environ()["OPENAI_BASE_URL"], episode.access.key))
                ending.add(task := asyncio.create_task(end(episode)))
                task.add_done_callback(ending.discard)
            say(json.dumps(found))
    await gateway.stop()


# The measuring side


@dataclass(slots=True)
class Server:
    """A process that serves."""

    address: str
    process: subprocess.Popen[str]
    of: psutil.Process = field(init=False)

    def __post_init__(self) -> None:
        self.of = psutil.Process(self.process.pid)

    def cpu_seconds(self) -> float:
        """Processor time that it has taken."""
        times = self.of.cpu_times()
        return times.user + times.system

    def exact_cpu_seconds(self) -> float:
        """The same of its threads that live, to the nanosecond."""
        spent = Path(f"/proc/{self.process.pid}/task").glob("*/schedstat")
        return sum(int(each.read_text().split()[0]) for each in spent) / 1e9

    def ask(self, line: str) -> str:
        """Its answer to a line."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline()


@contextmanager
def started(role: str, *arguments: str, root: Path = ROOT) -> Generator[Server]:
    """A process: a stand-in, or this file as the gateway; of the checkout `root`."""
    here = root / "benchmarks"
    if role.startswith("gateway"):
        command = [str(here / "gateway.py"), "--role", role, *arguments]
    else:
        command = [str(here / "gateway_stand_ins.py"), role, *arguments]
    process = subprocess.Popen(
        [sys.executable, *command],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(str(one) for one in sources_of(root))},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        address = process.stdout.readline().strip()
        if not address:
            raise SystemExit(f"{role} did not start")
        yield Server(address, process)
    finally:
        process.kill()
        process.wait()


@dataclass(slots=True)
class Load:
    """Clients that call for some seconds."""

    seconds: float
    places: Callable[[], tuple[str, dict[str, str]]]
    """Base URL and headers for the next conversation."""
    num_turns: int
    num_calls: int = 0
    num_tokens: int = 0

    async def run(self) -> float:
        """Seconds that it took."""
        began = time.perf_counter()
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http:
            await asyncio.gather(*(self._client(http, began, n) for n in range(NUM_CLIENTS)))
        return time.perf_counter() - began

    async def _client(self, http: aiohttp.ClientSession, began: float, number: int) -> None:
        first = 4_000 if self.num_turns == 1 else 2_850
        for place in count():
            base, headers = self.places()
            prompt = f"{number}.{place} " + words(first, seed=number * 100_000 + place)
            messages = [{"role": "user", "content": prompt}]
            for turn in range(self.num_turns):
                last = turn == self.num_turns - 1
                sent = headers | ({"Longhaul-Done": "true"} if last else {})
                body = {"model": "auto", "messages": messages, "logprobs": True}
                async with http.post(f"{base}/chat/completions", json=body, headers=sent) as answer:
                    replied = await answer.json()
                    if answer.status != 200:
                        raise SystemExit(f"{answer.status}: {replied}")
                self.num_calls += 1
                self.num_tokens += replied["usage"]["prompt_tokens"]
                said = replied["choices"][0]["message"]["content"]
                messages += [
                    {"role": "assistant", "content": said},
                    {"role": "user", "content": words(20, seed=turn)},
                ]
            if time.perf_counter() - began > self.seconds:
                return


def places_of(server: Server, kind: str = "whole") -> Callable[[], tuple[str, dict[str, str]]]:
    """Episodes of a gateway, opened by the hundred."""
    waiting: list[tuple[str, str]] = []

    def place() -> tuple[str, dict[str, str]]:
        if not waiting:
            waiting.extend(tuple(one) for one in json.loads(server.ask(f"{kind} 100")))
        base, key = waiting.pop()
        return base, {"Authorization": f"Bearer {key}"}

    return place


def throughput(seconds: float) -> None:
    """Print calls per second and processor time a call, of each way."""
    with (
        started("engine") as there,
        started("proxy", there.address) as proxy,
        started("gateway", there.address) as ours,
        started("gateway-local", there.address) as local,
        started("tokenizing-engine", os.environ[TOKENIZER]) as server,
        started("proxy", server.address) as proxy_of_server,
    ):
        rollouts = count()

        def through(proxy: Server) -> Callable[[], tuple[str, dict[str, str]]]:
            def place() -> tuple[str, dict[str, str]]:
                path = f"/proxy/rollout/ro-{next(rollouts)}/attempt/0/mode/train/openai/v1"
                return proxy.address + path, {}

            return place

        def direct() -> tuple[str, dict[str, str]]:
            return f"{there.address}/v1", {}

        pair, both = (proxy_of_server, server), (ours, there)
        ways: list[tuple[str, tuple[Server, ...], Callable[[], tuple[str, dict[str, str]]]]] = [
            ("direct", (there,), direct),
            ("proxy", (proxy,), through(proxy)),
            ("gateway", (ours,), places_of(ours)),
            ("gateway, engine in it", (local,), places_of(local)),
            ("proxy and server", pair, through(proxy_of_server)),
            ("gateway and engine", both, places_of(ours)),
        ]
        print(f"{'':38}{'calls/s':>9}{'CPU ms a call':>15}{'calls/CPU s':>13}{'tokens':>8}")
        for way, servers, places in ways:
            for kind, num_turns in (("conversations", NUM_TURNS), ("fresh prompts", 1)):
                asyncio.run(Load(seconds=1, places=places, num_turns=num_turns).run())
                load = Load(seconds=seconds, places=places, num_turns=num_turns)
                before = sum(one.cpu_seconds() for one in servers)
                took = asyncio.run(load.run())
                cpu = sum(one.cpu_seconds() for one in servers) - before
                print(
                    f"{f'{way}, {kind}':38}{load.num_calls / took:9.0f}"
                    f"{1e3 * cpu / load.num_calls:15.2f}{load.num_calls / cpu:13.0f}"
                    f"{load.num_tokens / load.num_calls:8.0f}",
                    flush=True,
                )


def sources_of(root: Path) -> list[Path]:
    """What a process of a checkout imports this project's packages from."""
    return sorted(root.glob("packages/*/src"))


def ratios(commit: str, seconds: float) -> None:
    """Print processor time a call of this gateway and of another commit's, and their ratios.

    The least of three turns counts, which is disturbed least.
    """
    with tempfile.TemporaryDirectory() as folder:
        archive = subprocess.run(
            ["git", "archive", commit, "packages", "benchmarks", "tests"],
            cwd=ROOT,
            check=True,
            capture_output=True,
        ).stdout
        subprocess.run(["tar", "-x", "-C", folder], input=archive, check=True)
        with (
            started("engine") as there,
            started("gateway", there.address) as ours,
            started("gateway", there.address, root=Path(folder)) as before,
        ):
            for kind, num_turns in (("conversations", NUM_TURNS), ("fresh prompts", 1)):
                found: dict[str, list[float]] = {"here": [], commit: []}
                for turn in range(4):
                    for name, server in (("here", ours), (commit, before)):
                        load = Load(
                            seconds=seconds if turn else 1,
                            places=places_of(server),
                            num_turns=num_turns,
                        )
                        began = server.cpu_seconds()
                        asyncio.run(load.run())
                        if turn:
                            cpu = server.cpu_seconds() - began
                            found[name].append(1e3 * cpu / load.num_calls)
                least = {name: min(each) for name, each in found.items()}
                said = ", ".join(f"{name} {each:.2f}" for name, each in least.items())
                print(
                    f"CPU ms a call, {kind}: {said}; calls per CPU second, ratio "
                    f"{least[commit] / least['here']:.2f}",
                    flush=True,
                )


NUM_LARGE = 3
NUM_MESSAGES = 100_000


class Wait(NamedTuple):
    """How long a call took."""

    seconds: float
    cpu_seconds: float
    """Processor time that the gateway, all threads, took meanwhile: what the call would have taken
    on a machine that is not busy with other work."""


async def waits(server: Server) -> tuple[list[Wait], list[Wait], set[int]]:
    """Short calls, alone and beside large bodies, and the status of the answers to these.

    The large bodies come one after the other.
    """
    (base, headers), large = places_of(server)(), places_of(server)()
    alone: list[Wait] = []
    beside: list[Wait] = []
    statuses: set[int] = set()
    bodies = [
        json.dumps(
            {
                "model": "auto",
                "messages": [
                    {"role": "user", "content": f"{number} {place}"}
                    for place in range(NUM_MESSAGES)
                ],
            }
        ).encode()
        for number in range(NUM_LARGE)
    ]
    gc.freeze()
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http:

        async def call(found: list[Wait]) -> None:
            body = {"model": "auto", "messages": [{"role": "user", "content": "Which way?"}]}
            began, before = time.perf_counter(), server.exact_cpu_seconds()
            async with http.post(f"{base}/chat/completions", json=body, headers=headers) as answer:
                assert answer.status == 200, await answer.text()
                await answer.read()
            found.append(Wait(time.perf_counter() - began, server.exact_cpu_seconds() - before))

        async def send_large() -> None:
            for body in bodies:
                url = f"{large[0]}/chat/completions"
                sent = {**large[1], "Content-Type": "application/json"}
                async with http.post(url, data=body, headers=sent) as answer:
                    statuses.add(answer.status)
                    await answer.read()

        for _ in range(200):
            await call(alone)
        sending = asyncio.create_task(send_large())
        while not sending.done():
            await call(beside)
        await sending
    return alone, beside, statuses


def large() -> None:
    """Print how long other calls wait while the gateway is sent bodies of 100,000 messages."""
    with started("gateway-local", "") as ours:
        alone, beside, statuses = asyncio.run(waits(ours))
    for name, calls in (("alone", alone), (f"beside {NUM_MESSAGES:,} messages", beside)):
        for kind, found in zip(("time", "CPU time"), zip(*calls, strict=True), strict=True):
            ordered = sorted(found)
            print(
                f"{kind} of a short call {name}: median {1e3 * statistics.median(ordered):.1f} ms, "
                f"99th percentile {1e3 * ordered[int(0.99 * len(ordered))]:.1f} ms, "
                f"longest {1e3 * ordered[-1]:.1f} ms of {len(ordered)}"
            )
    print(f"answers to the large bodies: {sorted(statuses)}")


async def first_tokens(
    places: Callable[[], tuple[str, dict[str, str]]], *, goes_on: bool
) -> list[float]:
    """Seconds to the first token of 64 streams at once, three times, after one to warm up.

    Args:
        places: Base URL and headers of each conversation.
        goes_on: Whether the streams go on from a first call of some 3,500 tokens; else they are
            first calls of 200.
    """
    found: list[float] = []
    known = [places() for _ in range(4 * 64)]  # opening them would hold up this process

    async def conversation(http: aiohttp.ClientSession, number: int) -> list[dict[str, str]]:
        """What a stream is asked for."""
        text = words(3_500 if goes_on else 200, seed=number)
        messages = [{"role": "user", "content": text}]
        if goes_on:
            base, headers = known[number]
            body = {"model": "auto", "messages": messages}
            async with http.post(f"{base}/chat/completions", json=body, headers=headers) as answer:
                said = (await answer.json())["choices"][0]["message"]["content"]
            messages.append({"role": "assistant", "content": said})
            messages.append({"role": "user", "content": words(20, seed=number)})
        return messages

    async def stream(http: aiohttp.ClientSession, number: int, sent: bytes) -> None:
        base, headers = known[number]
        headers = {**headers, "Content-Type": "application/json"}
        began = time.perf_counter()
        async with http.post(f"{base}/chat/completions", data=sent, headers=headers) as answer:
            async for line in answer.content:
                if b'"content": " word"' in line or (b'"content":"' in line and b'""' not in line):
                    found.append(time.perf_counter() - began)
                    break
            await answer.read()

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http:
        for turn in range(4):
            if turn == 1:
                found.clear()
            bodies = [
                json.dumps(
                    {"model": "auto", "stream": True, "messages": await conversation(http, number)}
                ).encode()
                for number in range(64 * turn, 64 * turn + 64)
            ]
            await asyncio.gather(
                *(stream(http, 64 * turn + n, body) for n, body in enumerate(bodies))
            )
    return found


def streams() -> None:
    """Print what the gateway adds to the first token of 64 streams at once."""
    with started("engine") as there, started("gateway", there.address) as ours:
        for kind, goes_on in (("200 new tokens", False), ("going on from 3,800 tokens", True)):
            known: dict[str, float] = {}
            for name, places in (
                ("direct", lambda: (f"{there.address}/v1", cast("dict[str, str]", {}))),
                ("gateway", places_of(ours, "paced")),
            ):
                found = sorted(uvloop.run(first_tokens(places, goes_on=goes_on)))
                known[name] = found[int(0.95 * len(found))]
                print(
                    f"first token, {kind}, {name}: median {1e3 * statistics.median(found):.1f} ms, "
                    f"95th percentile {1e3 * known[name]:.1f} ms of {len(found)}",
                    flush=True,
                )
            added = 1e3 * (known["gateway"] - known["direct"])
            print(f"added at the 95th percentile, {kind}: {added:.1f} ms", flush=True)


@asynccontextmanager
async def local_gateway() -> AsyncGenerator[Gateway]:
    """A gateway of this process, until the block ends."""
    gateway = Gateway()
    await gateway.start()
    try:
        yield gateway
    finally:
        await gateway.stop()


async def store() -> None:
    """Print how many of 512 calls in flight at once are in the store."""
    let = asyncio.Event()
    policy = LocalPolicy(let=let)
    responder = Responder(policy=policy, renderer=renderer(), max_reply_tokens=400)
    async with (
        local_gateway() as gateway,
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http,
    ):
        episodes = [opened(gateway, responder) for _ in range(32)]

        async def call(episode: OpenEpisode, number: int) -> None:
            environ = episode.environ()
            body = {
                "model": "auto",
                "messages": [{"role": "user", "content": words(50, seed=number)}],
            }
            key = {"Authorization": f"Bearer {environ['OPENAI_API_KEY']}"}
            url = f"{environ['OPENAI_BASE_URL']}/chat/completions"
            async with http.post(url, json=body, headers=key) as answer:
                assert answer.status == 200, await answer.text()

        calls = [
            asyncio.create_task(call(episode, number))
            for _, episode in episodes
            for number in range(16)
        ]
        await policy.all_asked(len(calls))
        let.set()
        await asyncio.gather(*calls)
        records = [
            make_record(
                session.end(StopReason.TASK_SOLVED, success=True),
                training_step=1,
                group_index=number,
                group_size=1,
            )
            for number, (session, _) in enumerate(episodes)
        ]
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/benchmark.db"
        with StoreWriter(path) as writer:
            writer.write([run_started()])
            writer.write(records)
            writer.flush()
        with open_store(path).connect() as connection:
            stored = connection.execute(text("SELECT count(*) FROM calls")).scalar_one()
            steps = connection.execute(text("SELECT count(*) FROM steps")).scalar_one()
    print(f"{len(calls)} calls in flight at once: {stored} calls of {steps} steps in SQLite")


async def memory() -> None:
    """Print what a call takes in an open episode, and what is left of 10,000 in ended ones."""
    responder = Responder(policy=LocalPolicy(), renderer=renderer(), max_reply_tokens=400)
    here = psutil.Process()

    async def play(episode: OpenEpisode, *, num_turns: int, seed: int) -> tuple[int, int]:
        """Packed bytes of tokens, logprobs and text; and number of calls."""
        first = 4_000 if num_turns == 1 else 2_850
        messages = [Message(role="user", content=f"{seed} " + words(first, seed=seed))]
        packed = len(messages[0].text)
        for turn in range(num_turns):
            # as they come from a body: texts of their own
            fresh = tuple(Message(role=m.role, content=m.text + " "[1:]) for m in messages)
            reply = await episode.answer(ChatRequest(model="auto", messages=fresh), None)
            packed += 4 * reply.usage.prompt_tokens + (4 + 8) * NUM_REPLY_TOKENS
            said, new = reply.choices[0].text, words(20, seed=turn)
            packed += len(said) + len(new)
            messages += [
                Message(role="assistant", content=said), Message(role="user", content=new)
            ]  # fmt: skip
        return packed, num_turns

    async with local_gateway() as gateway:
        for name, num_turns, num_episodes in (("conversations", NUM_TURNS, 50), ("fresh", 1, 400)):
            kept = [opened(gateway, responder) for _ in range(num_episodes + 10)]
            for number in range(10):
                await play(kept[number][1], num_turns=num_turns, seed=-number - 1)
            gc.collect()
            tracemalloc.start()  # the process' memory would not grow while it has free pages
            packed, calls = 0, 0
            for number, (_, episode) in enumerate(kept[10:]):
                size, made = await play(episode, num_turns=num_turns, seed=number)
                packed, calls = packed + size, calls + made
            gc.collect()
            grown, _ = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            print(
                f"a call in an open episode, {name}: {grown / calls / 1e3:.0f} kB, "
                f"{grown / packed:.2f} times its packed tokens, logprobs and text"
            )
            await asyncio.gather(*(episode.close() for _, episode in kept))
            kept.clear()
        marks: list[str] = []
        made = 0
        while made < 10_000:
            _, episode = opened(gateway, responder)
            made += (await play(episode, num_turns=NUM_TURNS, seed=made))[1]
            await episode.close()
            if made % 2_000 < NUM_TURNS:
                gc.collect()
                marks.append(f"{here.memory_info().rss / 1e6:.0f}")
        print(f"memory after 2,000, 4,000, … 10,000 calls of ended episodes: {marks} MB")


def main() -> None:
    """Measure, or serve in one of the roles."""
    parser = argparse.ArgumentParser(description="Measure the gateway.")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--part", choices=["throughput", "streams", "store", "memory", "large"])
    parser.add_argument("--against", help="a commit whose gateway is measured as well")
    parser.add_argument("--role")
    parser.add_argument("engine", nargs="?", default="")
    arguments = parser.parse_args()
    match arguments.role:
        case "gateway" | "gateway-local":
            is_local = arguments.role == "gateway-local"
            uvloop.run(serve_gateway(arguments.engine, is_local=is_local))
            return
        case _:
            pass
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory() as folder:
        write_renderer(Path(folder))
        if arguments.against:
            ratios(arguments.against, arguments.seconds)
            return
        if arguments.part in {None, "throughput"}:
            throughput(arguments.seconds)
        if arguments.part in {None, "streams"}:
            streams()
        if arguments.part in {None, "store"}:
            asyncio.run(store())
        if arguments.part in {None, "memory"}:
            asyncio.run(memory())
        if arguments.part in {None, "large"}:
            large()


if __name__ == "__main__":
    main()
