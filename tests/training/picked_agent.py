"""Plays a task as the agent of `examples/agents` that the task names: one run has them all."""

import json
import os
import sys
from pathlib import Path

AGENTS = Path(__file__).parents[2] / "examples" / "agents"
COMMANDS = {
    "openai": [sys.executable, str(AGENTS / "openai_agent.py")],
    "framework": [sys.executable, str(AGENTS / "pydantic_agent.py")],
    "team": [sys.executable, str(AGENTS / "team_agent.py")],
    "shell": ["bash", str(AGENTS / "shell_agent.sh")],
}

if __name__ == "__main__":
    task = json.loads(Path(os.environ["LONGHAUL_TASK_FILE"]).read_text(encoding="utf-8"))
    command = COMMANDS[task["agent"]]
    os.execv(command[0] if command[0] != "bash" else "/usr/bin/bash", command)
