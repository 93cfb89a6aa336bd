"""Writes `framework_requests.json.gz`: what agents in others' frameworks asked of the gateway.

    uv venv FOLDER/langchain; uv pip install --python FOLDER/langchain/bin/python langgraph …
    git clone https://github.com/microsoft/agent-lightning FOLDER/agentlightning/agent-lightning
    uv pip install --python FOLDER/agentlightning/bin/python "mcp<2" …
    uv run python tests/golden/make_framework_requests.py FOLDER [AGENT …]

Each of `framework_agents.py` is played as `make_agent_requests.py` plays command-line agents, by
the Python of its own virtual environment.
"""

import gzip
import json
import subprocess
import sys
from pathlib import Path

from framework_agents import FRAMEWORKS, Framework
from make_agent_requests import Agent, recorded

FILE = Path(__file__).parent / "framework_requests.json.gz"


def played(framework: Framework, folder: Path) -> dict[str, object]:
    """What a program in a framework asked, with the version of its package."""
    python = folder / (framework.environment or framework.package) / "bin"
    agent = Agent(
        command="python agent.py", replies=framework.replies, has_tools=framework.has_tools
    )
    asked = recorded(agent, program=framework.program, folder_of_python=str(python))
    if framework.commit:
        return {"version": framework.commit, **asked}
    say = f"import importlib.metadata as m; print(m.version({framework.package!r}))"
    said = subprocess.run(
        (str(python / "python"), "-c", say), capture_output=True, check=True, text=True
    )
    return {"version": said.stdout.strip(), **asked}


def main(folder: str, *names: str) -> None:
    """Record some agents, or all, anew."""
    known: dict[str, object] = {}
    if FILE.exists():
        known = json.loads(gzip.decompress(FILE.read_bytes()))
    for name in names or FRAMEWORKS:
        known[name] = played(FRAMEWORKS[name], Path(folder))
        FILE.write_bytes(gzip.compress(json.dumps(known, ensure_ascii=False).encode(), mtime=0))


if __name__ == "__main__":
    main(*sys.argv[1:])
