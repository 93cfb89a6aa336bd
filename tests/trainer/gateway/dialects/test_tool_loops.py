"""Loops that call tools by themselves, of clients and of frameworks."""

import asyncio
import json
from collections.abc import Callable, Iterator

import agents
import anthropic
import openai
import pydantic_ai
import pytest
from anthropic import beta_tool
from google import genai
from google.genai import types
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider

from longhaul_core.policy import ReplyPart
from longhaul_core.types import FinishReason, Message, ToolCall
from longhaul_trainer.gateway.exchange import ChatReply, ChatRequest, Delta
from running_servers import running
from scripted_gateway import Script, ScriptedGateway

ASKS = Script(
    choices=[
        [
            ReplyPart(text="Let me "),
            ReplyPart(text="look."),
            ReplyPart(tool_place=0, tool_id="call_a", tool_name="weather"),
            ReplyPart(tool_place=0, tool_arguments='{"city":"P'),
            ReplyPart(tool_place=0, tool_arguments='aris"}'),
            ReplyPart(tool_place=1, tool_id="call_b", tool_name="weather"),
            ReplyPart(tool_place=1, tool_arguments='{"city":"Rome"}'),
        ]
    ],
    finish_reason=FinishReason.TOOL_CALLS,
)
OPERATION = {"type": "create_file", "path": "a", "diff": "+x"}
CALLS = {
    "local_shell": '{"command": ["ls"]}',
    "shell": '{"commands": ["ls"]}',
    "apply_patch": json.dumps(OPERATION),
    "upper": '{"input": "rain"}',
}
FORMS = Script(
    choices=[
        [
            ReplyPart(tool_place=place, tool_id=name, tool_name=name, tool_arguments=arguments)
            for place, (name, arguments) in enumerate(CALLS.items())
        ]
    ],
    finish_reason=FinishReason.TOOL_CALLS,
)
SAYS = Script(choices=[[ReplyPart(text="It "), ReplyPart(text="rains.")]])


class Weather(ScriptedGateway):
    """Asks for the weather of two cities, and says it once it knows."""

    async def answer(
        self, request: ChatRequest, on_delta: Callable[[Delta], None] | None
    ) -> ChatReply:
        knows = request.messages[-1].role == "tool"
        asks = FORMS if request.model == "forms" else ASKS
        self.scripts[request.model] = SAYS if knows else asks
        return await super().answer(request, on_delta)


def weather(city: str) -> str:
    """The weather of a city."""
    return f"Rain in {city}"


@pytest.fixture(scope="module")
def serving() -> Iterator[tuple[ScriptedGateway, str]]:
    gateway = Weather()
    with running(gateway.app) as address:
        yield gateway, address


def openai_agents(address: str, model: Callable[..., agents.Model], *, streams: bool) -> str:
    async def run() -> str:
        async with openai.AsyncOpenAI(base_url=f"{address}/v1", api_key="key") as client:
            agent = agents.Agent(
                name="a",
                model=model("auto", openai_client=client),
                tools=[agents.function_tool(weather)],
            )
            agents.set_tracing_disabled(True)
            if not streams:
                return (await agents.Runner.run(agent, "Hi")).final_output
            running = agents.Runner.run_streamed(agent, "Hi")
            async for _ in running.stream_events():
                pass
            return running.final_output

    return asyncio.run(run())


def pydantic_agent(address: str, model: Callable[..., pydantic_ai.models.Model]) -> str:
    async def run() -> str:
        async with openai.AsyncOpenAI(base_url=f"{address}/v1", api_key="key") as client:
            provider = OpenAIProvider(openai_client=client)
            agent = pydantic_ai.Agent(model("auto", provider=provider), tools=[weather])
            return (await agent.run("Hi")).output

    return asyncio.run(run())


def anthropic_runner(address: str, *, streams: bool) -> str:
    with anthropic.Anthropic(base_url=address, api_key="key", max_retries=0) as client:
        runner = client.beta.messages.tool_runner(
            model="auto",
            max_tokens=50,
            tools=[beta_tool(weather)],
            messages=[{"role": "user", "content": "Hi"}],
            stream=streams,
        )
        message = runner.until_done()
        return "".join(block.text for block in message.content if block.type == "text")


def google_chat(address: str) -> str:
    client = genai.Client(api_key="key", http_options=types.HttpOptions(base_url=address))
    chat = client.chats.create(model="auto", config=types.GenerateContentConfig(tools=[weather]))
    text = chat.send_message("Hi").text  # pyright: ignore[reportUnknownMemberType]
    client.close()
    return text or ""


LOOPS: dict[str, Callable[[str], str]] = {
    "agents chat": lambda url: openai_agents(url, agents.OpenAIChatCompletionsModel, streams=False),
    "agents chat, streamed": lambda url: openai_agents(
        url, agents.OpenAIChatCompletionsModel, streams=True
    ),
    "agents responses": lambda url: openai_agents(url, agents.OpenAIResponsesModel, streams=False),
    "agents responses, streamed": lambda url: openai_agents(
        url, agents.OpenAIResponsesModel, streams=True
    ),
    "pydantic-ai chat": lambda url: pydantic_agent(url, OpenAIChatModel),
    "pydantic-ai responses": lambda url: pydantic_agent(url, OpenAIResponsesModel),
    "anthropic": lambda url: anthropic_runner(url, streams=False),
    "anthropic, streamed": lambda url: anthropic_runner(url, streams=True),
    "google": google_chat,
}


@pytest.mark.parametrize("loop", LOOPS)
def test_a_loop_sends_back_the_reply_and_what_its_tools_returned(
    gateway: ScriptedGateway, address: str, loop: str
) -> None:
    assert LOOPS[loop](address) == "It rains."

    sent = gateway.last.messages
    calls = sent[1].tool_calls
    assert sent == (
        Message(role="user", content="Hi"),
        Message(
            role="assistant",
            content="Let me look.",
            tool_calls=(
                ToolCall(id="call_a", name="weather", arguments=calls[0].arguments),
                ToolCall(id="call_b", name="weather", arguments=calls[1].arguments),
            ),
        ),
        *(
            Message(role="tool", content=answered(f"Rain in {city}", loop), tool_call_id=id)
            for id, city in (("call_a", "Paris"), ("call_b", "Rome"))
        ),
    )
    assert [call.arguments.replace(" ", "") for call in calls] == [
        '{"city":"Paris"}',
        '{"city":"Rome"}',
    ]


class Editor:
    """Notes what it is to change."""

    def __init__(self) -> None:
        self.asked: list[object] = []

    def create_file(self, operation: agents.ApplyPatchOperation) -> str:
        self.asked.append({"type": operation.type, "path": operation.path, "diff": operation.diff})
        return "created"

    update_file = delete_file = create_file


@pytest.mark.parametrize("streams", [False, True], ids=["whole", "streamed"])
def test_openais_agents_run_their_tools_that_are_no_functions(
    gateway: ScriptedGateway, address: str, streams: bool
) -> None:
    editor = Editor()

    async def upper(context: object, text: str) -> str:
        return text.upper()

    async def run() -> str:
        async with openai.AsyncOpenAI(base_url=f"{address}/v1", api_key="key") as client:
            agent = agents.Agent(
                name="a",
                model=agents.OpenAIResponsesModel("forms", openai_client=client),
                tools=[
                    agents.LocalShellTool(lambda asked: " ".join(asked.data.action.command)),
                    agents.ShellTool(lambda asked: " ".join(asked.data.action.commands)),
                    agents.ApplyPatchTool(editor),
                    agents.CustomTool("upper", "In capitals.", upper),
                ],
            )
            agents.set_tracing_disabled(True)
            if not streams:
                return (await agents.Runner.run(agent, "Hi")).final_output
            running = agents.Runner.run_streamed(agent, "Hi")
            async for _ in running.stream_events():
                pass
            return running.final_output

    assert asyncio.run(run()) == "It rains."
    assert editor.asked == [OPERATION]
    _, asked, *told = gateway.last.messages
    assert {call.id: json.loads(call.arguments) for call in asked.tool_calls} == {
        name: json.loads(arguments) for name, arguments in CALLS.items()
    }
    results = {message.tool_call_id: message.text for message in told}
    assert results.keys() == CALLS.keys()
    assert results["local_shell"] == "ls"
    assert '"stdout": "ls"' in results["shell"]
    assert results["apply_patch"] == "completed\ncreated"
    assert results["upper"] == "RAIN"


def answered(text: str, loop: str) -> str:
    """A tool's answer; Google's client sends an object."""
    return f'{{"result": "{text}"}}' if loop == "google" else text
