"""Agents in the frameworks of others, as `make_agent_requests.py` starts them.

Each is a whole program. It has the task and one tool, and finds the gateway by the variables that
its framework reads by itself.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass

TASK = "Write hello into greeting.txt"
DONE = "It is \x02done."
"""A 2 is a token that has no text: a reply that was tokenised again would have lost it."""
FILE = {"path": "greeting.txt", "text": "hello\n"}
TOOL = f'''\
from pathlib import Path

TASK = "{TASK}"


def write_file(path: str, text: str) -> str:
    """Write a text into a file.

    Args:
        path: Of the file.
        text: What it is to hold.
    """
    Path(path).write_text(text)
    return "written"


'''
MODEL = """\
from pydantic import BaseModel


class File(BaseModel):
    path: str
    text: str


"""


def call(tool: str, **arguments: object) -> str:
    """A reply that says something and calls a tool."""
    return f"I greet. \x02<call>{json.dumps({'name': tool, 'arguments': arguments})}</call>"


WRITES = (call("write_file", **FILE), DONE)
JSON = json.dumps(FILE).replace(", ", ",\x02 ")


@dataclass(frozen=True, kw_only=True)
class Framework:
    """A program in a framework, and what the model replies to it."""

    package: str
    """Of PyPI."""
    program: str
    replies: tuple[str, ...] = WRITES
    has_tools: bool = True
    """Whether each of its calls offers tools."""
    commit: str = ""
    """Of a program that is no package: its repository is in the folder `package` there."""
    environment: str = ""
    """Folder of its virtual environment, if it is not the package's name."""


def _fields(**values: str) -> str:
    """A reply to DSPy's prompts."""
    parts = [f"[[ ## {name} ## ]]\n{value}" for name, value in values.items()]
    return "\x02" + "\n\n".join([*parts, "[[ ## completed ## ]]"])


_INSTRUCTOR = """\
import instructor

client = instructor.from_{client}, mode=instructor.Mode.{mode})
file = client.chat.completions.create(
    model="auto", response_model=File, max_tokens=500, max_retries=0,
    messages=[{{"role": "user", "content": TASK}}],
)
write_file(file.path, file.text)
"""


def _instructor(mode: str, client: str, reply: str) -> Framework:
    made = {
        "openai": "openai(openai.OpenAI()",
        "anthropic": "anthropic(anthropic.Anthropic()",
        "google.genai": "genai(google.genai.Client()",
    }
    program = _INSTRUCTOR.format(mode=mode, client=made[client])
    if client == "google.genai":  # which counts its tokens in its own way
        program = program.replace('"auto"', '"gemini-2.5-flash"').replace("max_tokens=500, ", "")
    return Framework(
        package="instructor",
        program=f"import {client}\n{TOOL}{MODEL}{program}",
        replies=(reply,),
        has_tools="<call>" in reply,
    )


_MANY = """\
from collections.abc import Iterable

import {module}
import instructor

client = instructor.from_{client}, mode=instructor.Mode.{mode})
for file in client.chat.completions.create(
    model="auto", response_model=Iterable[File], max_tokens=500,
    messages=[{{"role": "user", "content": TASK}}],
):
    write_file(file.path, file.text)
"""


def _instructor_of_many(mode: str, module: str, client: str) -> Framework:
    program = _MANY.format(mode=mode, module=module, client=client)
    return Framework(
        package="instructor",
        program=f"{TOOL}{MODEL}{program}",
        replies=(call("File", **FILE),),
    )


_AGENT_LIGHTNING = """\
import asyncio
import os
import sys
from pathlib import Path

sys.path.insert(0, f"{{sys.prefix}}/agent-lightning/examples/{folder}")
os.environ.update(QUESTION="What is 2 + 2?", {answer}="4")
{before}
from {module} import {agent}

asyncio.run({agent}().run())
Path("greeting.txt").write_text("hello\\n")  # it has come to its end
"""
_BYTE_TOKENIZER = """\
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast
from transformers.convert_slow_tokenizer import bytes_to_unicode

letters = {letter: byte for byte, letter in bytes_to_unicode().items()}
tokenizer = Tokenizer(models.BPE(vocab=letters, merges=[]))
tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
tokenizer.decoder = decoders.ByteLevel()
PreTrainedTokenizerFast(tokenizer_object=tokenizer).save_pretrained("tokenizer")
os.environ["GSM8K_MODEL"] = "tokenizer"
"""
"""The program makes its prompt's tokens, with the model's tokenizer; that of tests has bytes."""


def _agent_lightning(
    folder: str, module: str, agent: str, *, answer: str, replies: tuple[str, ...], before: str = ""
) -> Framework:
    program = _AGENT_LIGHTNING.format(
        folder=folder, module=module, agent=agent, answer=answer, before=before
    )
    return Framework(
        package="agent-lightning",
        commit="c632d8dd",
        environment="agentlightning",
        program=program,
        replies=replies,
        has_tools=False,
    )


_LITELLM = """\
import json

import litellm

tools = [{{"type": "function", "function": {{"name": "write_file", "parameters": {{
    "type": "object", "properties": {{"path": {{"type": "string"}}, "text": {{"type": "string"}}}},
}}}}}}]
messages = [{{"role": "user", "content": TASK}}]
message = litellm.completion("{route}", messages, tools=tools).choices[0].message
(called,) = message.tool_calls
result = write_file(**json.loads(called.function.arguments))
messages += [message, {{"role": "tool", "tool_call_id": called.id, "content": result}}]
litellm.completion("{route}", messages, tools=tools)
"""
_ROUTES = (
    "openai/auto",
    "openai/responses/auto",
    "anthropic/auto",
    "gemini/gemini-2.5-flash",
    "hosted_vllm/auto",
    "azure/auto",
)

FRAMEWORKS: Mapping[str, Framework] = {
    "LangGraph": Framework(
        package="langgraph",
        environment="langchain",
        program=TOOL
        + """\
from langchain_openai import ChatOpenAI
from langgraph.prebuilt import create_react_agent

agent = create_react_agent(ChatOpenAI(model="auto"), [write_file])
agent.invoke({"messages": [("user", TASK)]})
""",
    ),
    "LangGraph, streamed": Framework(
        package="langgraph",
        environment="langchain",
        program=TOOL
        + """\
from langchain_openai import ChatOpenAI
from langgraph.prebuilt import create_react_agent

agent = create_react_agent(ChatOpenAI(model="auto", streaming=True), [write_file])
for _ in agent.stream({"messages": [("user", TASK)]}, stream_mode="messages"):
    pass
""",
    ),
    "LangChain, Responses": Framework(
        package="langchain-openai",
        environment="langchain",
        program=TOOL
        + """\
from langchain.agents import create_agent
from langchain_openai import ChatOpenAI

agent = create_agent(ChatOpenAI(model="auto", use_responses_api=True), [write_file])
agent.invoke({"messages": [("user", TASK)]})
""",
    ),
    "LangChain, Anthropic": Framework(
        package="langchain-anthropic",
        environment="langchain",
        program=TOOL
        + """\
from langchain.agents import create_agent
from langchain_anthropic import ChatAnthropic

agent = create_agent(ChatAnthropic(model="auto"), [write_file])
agent.invoke({"messages": [("user", TASK)]})
""",
    ),
    "LangChain, structured output": Framework(
        package="langchain-openai",
        environment="langchain",
        replies=(JSON,),
        has_tools=False,
        program=TOOL
        + MODEL
        + """\
from langchain_openai import ChatOpenAI

file = ChatOpenAI(model="auto").with_structured_output(File).invoke(TASK)
write_file(file.path, file.text)
""",
    ),
    "DSPy ReAct": Framework(
        package="dspy",
        has_tools=False,
        replies=(
            _fields(
                next_thought="I write.",
                next_tool_name="write_file",
                next_tool_args=json.dumps(FILE),
            ),
            _fields(next_thought="Done.", next_tool_name="finish", next_tool_args="{}"),
            _fields(reasoning="It is written.", answer="done"),
        ),
        program=TOOL
        + """\
import dspy

dspy.configure(lm=dspy.LM("openai/auto"))
dspy.ReAct("question -> answer", tools=[write_file])(question=TASK)
""",
    ),
    "DSPy ReAct, a reply without its form": Framework(
        package="dspy",
        has_tools=False,
        replies=(
            "I \x02write.",
            json.dumps(
                {
                    "next_thought": "I write.",
                    "next_tool_name": "write_file",
                    "next_tool_args": FILE,
                }
            ),
            _fields(next_thought="Done.", next_tool_name="finish", next_tool_args="{}"),
            _fields(reasoning="It is written.", answer="done"),
        ),
        program=TOOL
        + """\
import dspy

dspy.configure(lm=dspy.LM("openai/auto"))
dspy.ReAct("question -> answer", tools=[write_file])(question=TASK)
""",
    ),
    "Instructor, TOOLS": _instructor("TOOLS", "openai", call("File", **FILE)),
    "Instructor, TOOLS_STRICT": _instructor("TOOLS_STRICT", "openai", call("File", **FILE)),
    "Instructor, PARALLEL_TOOLS": Framework(
        package="instructor",
        replies=(call("File", **FILE),),
        program=TOOL
        + MODEL
        + """\
from collections.abc import Iterable

import instructor
import openai

client = instructor.from_openai(openai.OpenAI(), mode=instructor.Mode.PARALLEL_TOOLS)
for file in client.chat.completions.create(
    model="auto", response_model=Iterable[File], messages=[{"role": "user", "content": TASK}]
):
    write_file(file.path, file.text)
""",
    ),
    "Instructor, JSON": _instructor("JSON", "openai", JSON),
    "Instructor, JSON_SCHEMA": _instructor("JSON_SCHEMA", "openai", JSON),
    "Instructor, MD_JSON": _instructor("MD_JSON", "openai", f"```json\n{JSON}\n```"),
    "Instructor, ANTHROPIC_TOOLS": _instructor(
        "ANTHROPIC_TOOLS", "anthropic", call("File", **FILE)
    ),
    "Instructor, ANTHROPIC_JSON": _instructor("ANTHROPIC_JSON", "anthropic", JSON),
    "Instructor, ANTHROPIC_REASONING_TOOLS": _instructor(
        "ANTHROPIC_REASONING_TOOLS", "anthropic", call("File", **FILE)
    ),
    "Instructor, ANTHROPIC_PARALLEL_TOOLS": _instructor_of_many(
        "ANTHROPIC_PARALLEL_TOOLS", "anthropic", "anthropic(anthropic.Anthropic()"
    ),
    "Instructor, FUNCTIONS": _instructor("FUNCTIONS", "openai", call("File", **FILE)),
    "Instructor, JSON_O1": _instructor("JSON_O1", "openai", JSON),
    "Instructor, RESPONSES_TOOLS": _instructor("RESPONSES_TOOLS", "openai", call("File", **FILE)),
    "Instructor, RESPONSES_TOOLS_WITH_INBUILT_TOOLS": _instructor(
        "RESPONSES_TOOLS_WITH_INBUILT_TOOLS", "openai", call("File", **FILE)
    ),
    "Instructor, GENAI_TOOLS": _instructor(  # which refuses a text beside a call
        "GENAI_TOOLS", "google.genai", call("File", **FILE).replace("I greet. ", "")
    ),
    "Instructor, GENAI_STRUCTURED_OUTPUTS": _instructor(
        "GENAI_STRUCTURED_OUTPUTS", "google.genai", JSON
    ),
    "Anthropic, tool search": Framework(
        package="anthropic",
        environment="instructor",
        program=TOOL
        + """\
import anthropic

client = anthropic.Anthropic()
fields = {"path": {"type": "string"}, "text": {"type": "string"}}
tools = [
    {"type": "tool_search_tool_regex_20251119", "name": "tool_search_tool_regex"},
    {
        "name": "write_file", "description": "Write a text into a file.", "defer_loading": True,
        "input_schema": {"type": "object", "properties": fields},
    },
]
messages = [{"role": "user", "content": TASK}]
settings = {"model": "auto", "max_tokens": 500, "betas": ["advanced-tool-use-2025-11-20"]}
reply = client.beta.messages.create(messages=messages, tools=tools, **settings)
(called,) = [block for block in reply.content if block.type == "tool_use"]
result = {"type": "tool_result", "tool_use_id": called.id, "content": write_file(**called.input)}
messages += [
    {"role": "assistant", "content": reply.content}, {"role": "user", "content": [result]}
]
client.beta.messages.create(messages=messages, tools=tools, **settings)
""",
    ),
    "agent-lightning, calc_x": _agent_lightning(
        "calc_x",
        "calc_agent",
        "Agent",
        answer="RESULT",
        replies=(call("calculate", expression="2+2"), "It is \x02done. ### ANSWER: 4 ###"),
    ),
    "agent-lightning, gsm8k, ChatAgent": _agent_lightning(
        "gsm8k",
        "gsm8k_agent",
        "ChatAgent",
        answer="ANSWER",
        replies=("It is \x02done. ### ANSWER: 4 ###",),
    ),
    "agent-lightning, gsm8k, CompletionAgent": _agent_lightning(
        "gsm8k",
        "gsm8k_agent",
        "CompletionAgent",
        answer="ANSWER",
        before=_BYTE_TOKENIZER,
        replies=("It is \x02done. ### ANSWER: 4 ###",),
    ),
    "CrewAI": Framework(
        package="crewai",
        program=TOOL
        + """\
from crewai import Agent, Crew, Task
from crewai.tools import tool

agent = Agent(
    role="writer", goal="write files", backstory="none", llm="openai/gpt-4o",
    tools=[tool("write_file")(write_file)],
)
task = Task(description=TASK, expected_output="a word", agent=agent)
Crew(agents=[agent], tasks=[task]).kickoff()
""",
    ),
    "AutoGen": Framework(
        package="autogen-agentchat",
        environment="autogen",
        replies=(WRITES[0],),
        program=TOOL
        + """\
import asyncio

from autogen_agentchat.agents import AssistantAgent
from autogen_ext.models.openai import OpenAIChatCompletionClient

info = dict.fromkeys(("vision", "json_output", "structured_output"), False)
client = OpenAIChatCompletionClient(
    model="auto", model_info={**info, "function_calling": True, "family": "unknown"}
)
asyncio.run(AssistantAgent("writer", client, tools=[write_file]).run(task=TASK))
""",
    ),
    "smolagents, ToolCallingAgent": Framework(
        package="smolagents",
        replies=(WRITES[0], call("final_answer", answer="done")),
        program=TOOL
        + """\
from smolagents import OpenAIServerModel, ToolCallingAgent, tool

ToolCallingAgent(tools=[tool(write_file)], model=OpenAIServerModel("auto")).run(TASK)
""",
    ),
    "smolagents, CodeAgent": Framework(
        package="smolagents",
        has_tools=False,
        replies=(
            'Thought: I write.\x02\n<code>\nwrite_file("greeting.txt", "hello\\n")\n</code>',
            'Thought: Done.\n<code>\nfinal_answer("done")\n</code>',
        ),
        program=TOOL
        + """\
from smolagents import CodeAgent, OpenAIServerModel, tool

CodeAgent(tools=[tool(write_file)], model=OpenAIServerModel("auto")).run(TASK)
""",
    ),
    "LlamaIndex, its default client": Framework(
        package="llama-index-llms-openai",
        environment="llamaindex",
        program=TOOL
        + """\
import asyncio

from llama_index.core.agent.workflow import FunctionAgent
from llama_index.llms.openai import OpenAI


async def main() -> None:
    await FunctionAgent(tools=[write_file], llm=OpenAI(model="gpt-4o")).run(TASK)


asyncio.run(main())
""",
    ),
    "Strands": Framework(
        package="strands-agents",
        environment="strands",
        program=TOOL
        + """\
from strands import Agent, tool
from strands.models.openai import OpenAIModel

Agent(model=OpenAIModel(model_id="auto"), tools=[tool(write_file)])(TASK)
""",
    ),
    "Strands, Anthropic": Framework(
        package="strands-agents",
        environment="strands",
        program=TOOL
        + """\
from strands import Agent, tool
from strands.models.anthropic import AnthropicModel

Agent(model=AnthropicModel(model_id="auto", max_tokens=500), tools=[tool(write_file)])(TASK)
""",
    ),
    "Google ADK": Framework(
        package="google-adk",
        environment="adk",
        program=TOOL
        + """\
import asyncio

from google.adk.agents import Agent
from google.adk.runners import InMemoryRunner

agent = Agent(name="writer", model="gemini-2.5-flash", tools=[write_file])
asyncio.run(InMemoryRunner(agent=agent).run_debug(TASK))
""",
    ),
    "Google ADK, LiteLLM": Framework(
        package="google-adk",
        environment="adk",
        program=TOOL
        + """\
import asyncio

from google.adk.agents import Agent
from google.adk.models.lite_llm import LiteLlm
from google.adk.runners import InMemoryRunner

agent = Agent(name="writer", model=LiteLlm("openai/auto"), tools=[write_file])
asyncio.run(InMemoryRunner(agent=agent).run_debug(TASK))
""",
    ),
    "Semantic Kernel": Framework(
        package="semantic-kernel",
        environment="sk",
        replies=(call("files-write_file", **FILE), DONE),
        program=TOOL
        + """\
import asyncio

from semantic_kernel.agents import ChatCompletionAgent
from semantic_kernel.connectors.ai.open_ai import OpenAIChatCompletion
from semantic_kernel.functions import KernelPlugin, kernel_function

plugin = KernelPlugin(name="files", functions={"write_file": kernel_function(write_file)})
agent = ChatCompletionAgent(
    service=OpenAIChatCompletion(ai_model_id="auto"), name="writer", plugins=[plugin]
)
asyncio.run(agent.get_response(messages=TASK))
""",
    ),
    "Agno": Framework(
        package="agno",
        program=TOOL
        + """\
from agno.agent import Agent
from agno.models.openai import OpenAIChat

Agent(model=OpenAIChat(id="auto"), tools=[write_file]).run(TASK)
""",
    ),
    "Agno, Responses": Framework(
        package="agno",
        program=TOOL
        + """\
from agno.agent import Agent
from agno.models.openai import OpenAIResponses

Agent(model=OpenAIResponses(id="auto"), tools=[write_file]).run(TASK)
""",
    ),
    "Agno, Anthropic": Framework(
        package="agno",
        program=TOOL
        + """\
from agno.agent import Agent
from agno.models.anthropic import Claude

Agent(model=Claude(id="auto"), tools=[write_file]).run(TASK)
""",
    ),
    "OpenAI Agents": Framework(
        package="openai-agents",
        environment="openaiagents",
        program=TOOL
        + """\
from agents import Agent, Runner, function_tool, set_tracing_disabled

set_tracing_disabled(True)
agent = Agent(name="writer", model="auto", tools=[function_tool(write_file)])
Runner.run_sync(agent, TASK)
""",
    ),
    "OpenAI Agents, output type": Framework(
        package="openai-agents",
        environment="openaiagents",
        replies=(JSON,),
        has_tools=False,
        program=TOOL
        + MODEL
        + """\
from agents import Agent, Runner, set_tracing_disabled

set_tracing_disabled(True)
agent = Agent(name="writer", model="auto", output_type=File)
file = Runner.run_sync(agent, TASK).final_output
write_file(file.path, file.text)
""",
    ),
    "Pydantic AI, native output": Framework(
        package="pydantic-ai-slim",
        environment="pydanticai",
        replies=(JSON,),
        has_tools=False,
        program=TOOL
        + MODEL
        + """\
from pydantic_ai import Agent, NativeOutput
from pydantic_ai.models.openai import OpenAIChatModel

file = Agent(OpenAIChatModel("auto"), output_type=NativeOutput(File)).run_sync(TASK).output
write_file(file.path, file.text)
""",
    ),
    **{
        f"LiteLLM, {route}": Framework(
            package="litellm", program=TOOL + _LITELLM.format(route=route)
        )
        for route in _ROUTES
    },
    "LiteLLM, text-completion-openai/auto": Framework(
        package="litellm",
        replies=("hello\x02\n",),
        has_tools=False,
        program=TOOL
        + """\
import litellm

said = litellm.text_completion(model="text-completion-openai/auto", prompt=TASK)
write_file("greeting.txt", said.choices[0].text)
""",
    ),
}
