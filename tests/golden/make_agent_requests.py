"""Writes `agent_requests.json.gz`: what command-line agents asked of the gateway.

    npm install @openai/codex @google/gemini-cli @anthropic-ai/claude-code \
        @qwen-code/qwen-code opencode-ai
    pip install mini-swe-agent; pip install aider-chat    # each in an environment of its own
    PATH=node_modules/.bin:…:$PATH uv run python tests/golden/make_agent_requests.py [AGENT …]

Each agent gets the variables that a run gives it, and is asked to write a file. The model is
scripted: it calls a tool of the agent's, and is done. The file must be there in the end. Texts of
more than 300 characters are cut, and what is of this machine alone is made up.

npm installs the newest versions of Claude Code and Qwen Code on Node.js 22 or later; on Node.js 20
it chooses an older one of Claude Code, which is recorded as well.
"""

import asyncio
import gzip
import json
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

sys.path += [str(Path(__file__).parents[1]), str(Path(__file__).parent)]

from framework_agents import DONE, TASK, call
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fakes import StreamingScriptedPolicy
from gateways import open_episode, responder_of
from longhaul_core.policy import Completion, Prompt, Sampling
from longhaul_trainer.gateway import server
from longhaul_trainer.gateway.app import Lobby
from longhaul_trainer.gateway.settings import GatewaySettings

FILE = Path(__file__).parent / "agent_requests.json.gz"
SECONDS = 120
KEPT_CHARACTERS = 300
KEPT_HEADERS = ("anthropic-beta", "user-agent", "x-stainless-retry-count")
TITLE = "A greeting"
PATCH = "*** Begin Patch\n*** Add File: greeting.txt\n+hello\n*** End Patch\n"


@dataclass(frozen=True, kw_only=True)
class Agent:
    """How an agent is started, and what the model replies."""

    command: str
    """For `sh`."""
    replies: tuple[str, ...]
    """To calls that offer tools, or to all if none does; others get a title."""
    has_tools: bool = True
    version: str = ""
    """The only one that is recorded; any, if empty."""

    @property
    def program(self) -> str:
        """Its executable file, which knows its version."""
        words = re.findall(r"[\w-]+(?= )", self.command.splitlines()[-1])
        return next(word for word in words if word in PROGRAMS)


PROGRAMS = ("codex", "gemini", "claude", "qwen", "opencode", "mini", "aider")
CODEX = f"""\
codex exec --skip-git-repo-check --dangerously-bypass-approvals-and-sandbox -m MODEL \
-c model_provider=longhaul -c "model_providers.longhaul={{name='longhaul', \
base_url='$OPENAI_BASE_URL', env_key='OPENAI_API_KEY', wire_api='responses'}}" '{TASK}'"""
NOTES = """\
import json
import sys

TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
TOOL = {"name": "save_note", "description": "Saves a text.", "inputSchema": TEXT}
for line in sys.stdin:
    asked = json.loads(line)
    given, answer = asked.get("params", {}), {}
    if asked["method"] == "initialize":
        answer = {"protocolVersion": given["protocolVersion"], "capabilities": {"tools": {}}}
        answer["serverInfo"] = {"name": "notes", "version": "1"}
    elif asked["method"] == "tools/list":
        answer = {"tools": [TOOL]}
    elif asked["method"] == "tools/call":
        with open("greeting.txt", "w") as file:
            print(given["arguments"]["text"], file=file)
        answer = {"content": [{"type": "text", "text": "It is saved."}]}
    if "id" in asked:
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": answer}), flush=True)
"""
"""An MCP server."""
OFFLINE = {"LITELLM_LOCAL_MODEL_COST_MAP": "True"}
"""LiteLLM would look for prices first."""
WRITE = "echo hello > greeting.txt"
CLAUDE = f"claude -p '{TASK}' --allowedTools Bash"
AGENTS = {
    "codex": Agent(
        command=CODEX.replace("MODEL", "auto"), replies=(call("exec_command", cmd=WRITE), DONE)
    ),
    "codex, as GPT-5.5": Agent(
        command=CODEX.replace("MODEL", "gpt-5.5"), replies=(call("apply_patch", input=PATCH), DONE)
    ),
    "codex, as GPT-5.6": Agent(
        command=CODEX.replace("MODEL", "gpt-5.6-sol"),
        replies=(
            call("functions__exec", input=f'await tools.exec_command({{cmd: "{WRITE}"}})'),
            DONE,
        ),
    ),
    "codex, as GPT-5.5, with an MCP server": Agent(
        command=f"""\
cat > notes.py <<'END'
{NOTES}END
mkdir -p ~/.codex
echo 'mcp_servers.notes = {{command = "python3", args = ["notes.py"]}}' > ~/.codex/config.toml
{CODEX.replace("MODEL", "gpt-5.5")}""",
        replies=(
            call("tool_search", query="note", limit=4),
            call("mcp__notes__save_note", text="hello"),
            DONE,
        ),
    ),
    "gemini": Agent(
        command=f"""\
mkdir -p ~/.gemini
echo '{{"security": {{"auth": {{"selectedType": "gemini-api-key"}}}}}}' > ~/.gemini/settings.json
gemini --skip-trust --yolo -m gemini-2.5-flash -p '{TASK}'""",
        replies=(call("run_shell_command", command=WRITE, is_background=False), DONE),
    ),
    "claude": Agent(
        command=CLAUDE, replies=(call("Bash", command=WRITE, description="Greets"), DONE)
    ),
    "claude, as npm chooses it on Node.js 20": Agent(
        command=CLAUDE,
        replies=(call("Bash", command=WRITE, description="Greets"), DONE),
        version="2.1.197",
    ),
    "claude, with all its tools": Agent(
        command=f"""\
export IS_SANDBOX=1
claude -p '{TASK}' --dangerously-skip-permissions""",
        replies=(
            call("Write", file_path="greeting.txt", content="hallo\n"),
            call("Read", file_path="greeting.txt"),
            call("Edit", file_path="greeting.txt", old_string="hallo", new_string="hello"),
            call("ToolSearch", query="select:CronList,NotebookEdit", max_results=5),
            call("CronList"),
            call("Bash", command="cat greeting.txt", description="Shows"),
            DONE,
        ),
    ),
    "qwen": Agent(
        command=f"qwen --yolo -p '{TASK}'",
        replies=(call("run_shell_command", command=WRITE, is_background=False), DONE),
    ),
    "opencode": Agent(
        command=f"""\
echo '{{"provider": {{"longhaul": {{"npm": "@ai-sdk/openai-compatible", "models": {{"auto": {{}}}},
"options": {{"baseURL": "{{env:OPENAI_BASE_URL}}", "apiKey": "{{env:OPENAI_API_KEY}}"}}}}}}}}' \
> opencode.json
opencode run -m longhaul/auto '{TASK}'""",
        replies=(call("bash", command=WRITE, description="Greets"), DONE),
    ),
    "mini-swe-agent": Agent(
        command=f"""\
export MSWEA_CONFIGURED=true MSWEA_COST_TRACKING=ignore_errors
mini -m openai/auto -t '{TASK}' -y --exit-immediately""",
        replies=(
            call("bash", command=WRITE),
            call("bash", command="echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"),
        ),
    ),
    "aider": Agent(
        command="aider --model openai/auto --no-git --yes-always --no-check-update "
        f"--analytics-disable --no-show-model-warnings --message '{TASK}'",
        replies=("greeting.txt\n```\nhello\x02\n```\n",),
        has_tools=False,
    ),
}


class AgentScript(StreamingScriptedPolicy):
    """Replies to an agent, and keeps what it replied."""

    def __init__(self, agent: Agent) -> None:
        super().__init__(agent.replies)
        self._agent = agent
        self._titles = StreamingScriptedPolicy([TITLE])
        self.replied: list[str] = []

    async def act(self, prompt: Prompt, sampling: Sampling, *, episode_id: str) -> Completion:
        is_own = not self._agent.has_tools or bytes(prompt.tokens).startswith(b"\x02tools: ")
        source = super() if is_own else self._titles
        completion = await source.act(prompt, sampling, episode_id=episode_id)
        self.replied.append(completion.text)
        return completion


class Recording:
    """ASGI middleware that keeps what is asked."""

    def __init__(self, app: ASGIApp, asked: list[tuple[Scope, bytearray]]) -> None:
        self._app = app
        self._asked = asked

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = bytearray()
        if scope["type"] == "http":
            self._asked.append((scope, body))

        async def received() -> Message:
            message = await receive()
            body.extend(message.get("body", b""))
            return message

        await self._app(scope, received, send)


async def played(
    agent: Agent, home: Path, *, path: str
) -> tuple[list[tuple[Scope, bytearray]], list[str]]:
    """What an agent asks in an episode, and what it is replied."""
    asked: list[tuple[Scope, bytearray]] = []
    create_app = server.create_app

    def recording(lobby: Lobby, settings: GatewaySettings, **further: Any) -> ASGIApp:  # noqa: ANN401
        return Recording(create_app(lobby, settings, **further), asked)

    server.create_app = recording
    gateway = server.Gateway()
    await gateway.start()
    script = AgentScript(agent)
    responder = responder_of(script, max_reply_tokens=4_000)
    _, episode = open_episode(gateway, models=dict.fromkeys(("policy", "*"), responder))
    process = await asyncio.create_subprocess_exec(
        *("timeout", str(SECONDS), "sh", "-c", agent.command),
        cwd=home,
        env={"PATH": path, "HOME": str(home), **OFFLINE, **episode.environ()},
        stdin=asyncio.subprocess.DEVNULL,
    )
    await process.wait()
    await episode.close()
    await gateway.stop()
    server.create_app = create_app
    return asked, script.replied


def path_of(path: str) -> str:
    """A path within the episode's address, or one of agent-lightning's, which name the episode."""
    if path.startswith("/e/"):
        return "/" + path.split("/", 3)[3]
    _, kind, part, _, rest = path.split("/", 4)
    return f"/{kind}/{part}/EPISODE/{rest}"


def recorded(agent: Agent, *, program: str = "", folder_of_python: str = "") -> dict[str, object]:
    """All that an agent asked and was replied.

    Args:
        agent: That is started.
        program: Text of the file `agent.py`, if it has one.
        folder_of_python: That comes first in `PATH`.
    """
    path = os.environ["PATH"]
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        (home / "agent.py").write_text(program, encoding="utf-8")
        path = f"{folder_of_python}:{path}" if folder_of_python else path
        asked, replies = asyncio.run(played(agent, home, path=path))
        assert (home / "greeting.txt").read_text(encoding="utf-8") == "hello\n"

    def plain(value: object) -> object:
        """Without long texts, and without what is of this machine or this episode alone."""
        match value:
            case str():
                text = value.replace(folder, "/home/agent").replace(os.uname().release, "6.1.0")
                text = re.sub(rf"\b{re.escape(os.uname().nodename)}\b", "machine", text)
                text = re.sub(r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", "UUID", text)
                text = re.sub(r"\b[0-9a-f]{64}\b", "HASH", text)
                more = len(text) - KEPT_CHARACTERS
                return text if more <= 0 else f"{text[:KEPT_CHARACTERS]}… ({more} more characters)"
            case list():
                return [plain(one) for one in cast("list[object]", value)]
            case dict():
                return {key: plain(one) for key, one in cast("dict[str, object]", value).items()}
            case _:
                return value

    requests: list[dict[str, object]] = []
    for scope, body in asked:
        if not body:  # a question whether the address is there
            continue
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        query = scope["query_string"].decode()
        requests.append(
            {
                "path": path_of(scope["path"]) + (f"?{query}" if query else ""),
                "headers": {key: headers[key] for key in KEPT_HEADERS if key in headers},
                "body": plain(json.loads(bytes(body))),
            }
        )
    return {"command": agent.command, "replies": replies, "requests": requests}


def version_of(agent: Agent) -> str:
    """As its program says it."""
    said = subprocess.run((agent.program, "--version"), capture_output=True, check=False)
    version = re.search(rb"\d+\.\d+\.\d+", said.stdout + said.stderr)
    assert version is not None
    return version[0].decode()


def main(names: list[str]) -> None:
    """Record some agents, or all, anew."""
    known: dict[str, object] = {}
    if FILE.exists():
        known = json.loads(gzip.decompress(FILE.read_bytes()))
    for name in names or AGENTS:
        version = version_of(AGENTS[name])
        if version == (AGENTS[name].version or version):
            known[name] = {"version": version, **recorded(AGENTS[name])}
        else:
            sys.stderr.write(f"{name}: not recorded anew, since {version} is installed\n")
    FILE.write_bytes(gzip.compress(json.dumps(known, ensure_ascii=False).encode(), mtime=0))


if __name__ == "__main__":
    main(sys.argv[1:])
