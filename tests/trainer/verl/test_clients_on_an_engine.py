"""Clients and frameworks as users have them play episodes on a real engine, through the gateway.

They are told their environment variables alone. The model is tiny and calls a tool; vLLM, verl's
server and client, the gateway, the renderer and the store are those of a run.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Generator, Sequence
from pathlib import Path
from typing import Any

import agents
import anthropic
import openai
import pydantic_ai
import pytest
from pydantic_ai.exceptions import UnexpectedModelBehavior, UsageLimitExceeded
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.usage import UsageLimits
from sqlalchemy.orm import Session

from gateways import open_episode
from longhaul_core.rollout import Responder
from longhaul_core.store.queries import CallDetail, get_episode
from longhaul_core.store.session import open_store
from longhaul_core.store.writer import StoreWriter
from longhaul_core.types import Continuation, StopReason, Trajectory
from longhaul_trainer.gateway.server import Gateway
from longhaul_trainer.models import prepare_model
from longhaul_trainer.training.merging import cut_into_rows
from store_samples import make_record, run_started
from trainer.verl.pythons import Pythons
from verl_process import IMPORTS_VERL

pytestmark = [
    *IMPORTS_VERL,
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore:Inheritance class AiohttpClientSession:DeprecationWarning"),
]

MAX_PROMPT_TOKENS, MAX_REPLY_TOKENS = 1500, 24
TURNS = 3
SEED = 11
"""Of an episode in which the model calls the tool in its first two turns."""
RULES = "Find the way."
PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {"direction": {"type": "string"}},
    "required": ["direction"],
}


async def move(direction: str) -> str:
    """Go one step."""
    return f"You went {direction}."


async def moved(arguments: str) -> str:
    try:
        return await move(str(json.loads(arguments)["direction"]))
    except (ValueError, KeyError, TypeError):
        return "That is no direction."


async def chat(*, stream: bool) -> None:
    tool: Any = {"type": "function", "function": {"name": "move", "parameters": PARAMETERS}}
    messages: list[Any] = [{"role": "system", "content": RULES}, {"role": "user", "content": "Go"}]
    async with openai.AsyncOpenAI(max_retries=0) as client:
        for _ in range(TURNS):
            if stream:
                async with client.chat.completions.stream(
                    model="auto", messages=messages, tools=[tool]
                ) as events:
                    message: Any = (await events.get_final_completion()).choices[0].message
            else:
                completion = await client.chat.completions.create(
                    model="auto", messages=messages, tools=[tool]
                )
                message = completion.choices[0].message
            messages.append(message)
            for call in message.tool_calls or []:
                seen = await moved(call.function.arguments)
                messages.append({"role": "tool", "tool_call_id": call.id, "content": seen})
            if not message.tool_calls:
                messages.append({"role": "user", "content": "Go on"})


async def responses(*, stream: bool) -> None:
    tool: Any = {"type": "function", "name": "move", "parameters": PARAMETERS, "strict": False}
    sent: list[Any] = [{"role": "user", "content": "Go"}]
    async with openai.AsyncOpenAI(max_retries=0) as client:
        for _ in range(TURNS):
            asked: Any = {"model": "auto", "instructions": RULES, "input": sent, "tools": [tool]}
            if stream:
                async with client.responses.stream(**asked) as events:
                    response: Any = await events.get_final_response()
            else:
                response = await client.responses.create(**asked)
            sent += response.output
            calls = [item for item in response.output if item.type == "function_call"]
            for call in calls:
                seen = await moved(call.arguments)
                sent.append(
                    {"type": "function_call_output", "call_id": call.call_id, "output": seen}
                )
            if not calls:
                sent.append({"role": "user", "content": "Go on"})


async def messages(*, stream: bool) -> None:
    tool: Any = {"name": "move", "input_schema": PARAMETERS}
    sent: list[Any] = [{"role": "user", "content": "Go"}]
    async with anthropic.AsyncAnthropic(max_retries=0) as client:
        for _ in range(TURNS):
            asked: Any = {"model": "auto", "max_tokens": 100, "system": RULES, "tools": [tool]}
            if stream:
                async with client.messages.stream(**asked, messages=sent) as events:
                    message: Any = await events.get_final_message()
            else:
                message = await client.messages.create(**asked, messages=sent)
            sent.append({"role": "assistant", "content": message.content})
            results: list[Any] = [
                {
                    "type": "tool_result",
                    "tool_use_id": block.id,
                    "content": await moved(json.dumps(block.input)),
                }
                for block in message.content
                if block.type == "tool_use"
            ]
            sent.append({"role": "user", "content": results or "Go on"})


async def openai_agents(*, stream: bool) -> None:
    agents.set_tracing_disabled(True)
    agents.set_default_openai_client(openai.AsyncOpenAI(max_retries=0), use_for_tracing=False)
    agent = agents.Agent(
        name="a", model="auto", instructions=RULES, tools=[agents.function_tool(move)]
    )
    try:
        if stream:
            running = agents.Runner.run_streamed(agent, "Go", max_turns=TURNS)
            async for _ in running.stream_events():
                pass
        else:
            await agents.Runner.run(agent, "Go", max_turns=TURNS)
    except (agents.MaxTurnsExceeded, agents.ModelBehaviorError):
        pass  # as a program takes it: the episode is what it did until then


async def pydantic_agent(*, stream: bool) -> None:
    agent = pydantic_ai.Agent(OpenAIChatModel("auto"), system_prompt=RULES, tools=[move])
    limits = UsageLimits(request_limit=TURNS)
    try:
        if stream:
            async with agent.iter("Go", usage_limits=limits) as run:
                async for node in run:
                    if pydantic_ai.Agent.is_model_request_node(node):
                        async with node.stream(run.ctx) as events:
                            async for _ in events:
                                pass
        else:
            await agent.run("Go", usage_limits=limits)
    except (UsageLimitExceeded, UnexpectedModelBehavior):
        pass


CLIENTS: dict[str, Callable[..., Awaitable[None]]] = {
    "chat": chat,
    "responses": responses,
    "anthropic": messages,
    "openai-agents": openai_agents,
    "pydantic-ai": pydantic_agent,
}


REWRITES = {"pydantic-ai": Continuation.REWRITTEN}
"""It sends a tool's arguments back with other spaces; the sampled tokens are gone on from."""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepare_model("tiny-tools", tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def started(model: Path, cpu_run: None, pythons: Pythons) -> Generator[tuple[Any, Any]]:
    import ray

    from trainer.verl.local_ray import ray_here
    from trainer.verl.served_engine import start_engine

    with ray_here(python=pythons.engine):
        server, balancer = start_engine(
            model, max_model_tokens=MAX_PROMPT_TOKENS + MAX_REPLY_TOKENS
        )
        yield server, balancer
        ray.get(server.stop.remote())


def responder_of(model: Path, balancer: Any) -> Responder:  # noqa: ANN401
    """The policy as a run has it; on the event loop that uses it."""
    from transformers import AutoTokenizer

    from longhaul_trainer.rendering.renderer import ChatTemplateRenderer
    from longhaul_trainer.verl.client import EngineClient
    from longhaul_trainer.verl.engine_policy import EnginePolicy
    from trainer.verl.served_engine import client_of

    tokenizer: Any = AutoTokenizer.from_pretrained(model)
    renderer = ChatTemplateRenderer(tokenizer)
    policy = EnginePolicy(
        client_of(balancer, EngineClient),
        renderer,
        end_token=tokenizer.eos_token_id,
        policy_version=lambda training_step: training_step,
    )
    return Responder(policy=policy, renderer=renderer, max_reply_tokens=MAX_REPLY_TOKENS)


def stored(folder: Path, trajectory: Trajectory) -> Sequence[CallDetail]:
    """The calls of an episode, as its store has them."""
    record = make_record(trajectory)
    with StoreWriter(folder / "s.db") as writer:
        writer.write([run_started(), record])
    engine = open_store(folder / "s.db")
    with Session(engine) as session:
        detail = get_episode(session, episode_id=record.episode_id)
    engine.dispose()
    return [call for step in detail.steps for call in step.calls]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("client", CLIENTS)
def test_the_stored_rows_are_the_tokens_that_the_engine_read_and_wrote(
    started: tuple[Any, Any],
    model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    client: str,
    stream: bool,
) -> None:
    server, balancer = started

    async def play() -> Trajectory:
        gateway = Gateway()
        await gateway.start()
        session, episode = open_episode(
            gateway,
            models={"tiny-tools": responder_of(model, balancer)},
            seed=SEED,
            max_prompt_tokens=MAX_PROMPT_TOKENS,
        )
        for name, value in episode.environ().items():
            monkeypatch.setenv(name, value)
        await CLIENTS[client](stream=stream)
        await episode.close()
        await gateway.stop()
        return session.end(StopReason.TASK_FAILED, success=False)

    async def engines_record() -> list[tuple[list[int], list[int]]]:
        return await server.read_and_written.remote()

    num_before = len(asyncio.run(engines_record()))
    trajectory = asyncio.run(play())
    read_and_written = asyncio.run(engines_record())[num_before:]
    calls = stored(tmp_path, trajectory)

    assert [
        ([*call.tokens.prompt_tokens], [*call.tokens.action_tokens])
        for call in calls
        if call.tokens
    ] == read_and_written
    assert len(calls) == len(read_and_written) == TURNS
    assert any(call.tool_calls for call in calls), "the model called no tool"
    goes_on = REWRITES.get(client, Continuation.EXACT)
    assert [call.continuation for call in calls] == [
        Continuation.START,
        *[goes_on] * (TURNS - 1),
    ]
    (row,) = cut_into_rows(trajectory.steps, form="merged")
    prompt, reply = read_and_written[-1]
    assert [*row.prompt_tokens, *row.response_tokens] == [*prompt, *reply]
    assert sum(row.response_mask) == sum(len(reply) for _, reply in read_and_written)
