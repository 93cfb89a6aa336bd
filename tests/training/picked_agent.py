"""Plays a task as the agent of `examples/agents` that the task names: one run has them all."""

import json
import os
import runpy
import sys
from pathlib import Path

AGENTS = Path(__file__).parents[2] / "examples" / "agents"
FILES = {
    "openai": "openai_agent.py",
    "framework": "pydantic_agent.py",
    "team": "team_agent.py",
    "shell": "shell_agent.sh",
}

if __name__ == "__main__":
    task = json.loads(Path(os.environ["LONGHAUL_TASK_FILE"]).read_text(encoding="utf-8"))
    agent = AGENTS / FILES[task["agent"]]
    if agent.suffix == ".sh":
        os.execv("/usr/bin/bash", ["bash", str(agent)])
    sys.path.insert(0, str(AGENTS))
    runpy.run_path(str(agent), run_name="__main__")
