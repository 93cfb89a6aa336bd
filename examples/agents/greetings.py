"""Tasks for command-line agents, what they are worth, and a random model that can do them.

    python greetings.py FOLDER Bash    # the model, whose tool has the name that the agent gives it

The model calls the agent's shell with a command that it draws, or is done. It reads prompts of up
to 65,536 tokens, and is trained as any other.
"""

import sys
from pathlib import Path

from longhaul_trainer.play.programs.grader import Graded

WORDS = ("hello", "welcome", "hi", "howdy", "ahoy", "cheers")
SUBMIT = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
"""Ends an episode of mini-swe-agent."""
TASKS = [{"goal": f"Write {word} into greeting.txt", "word": word} for word in WORDS]


def grade(graded: Graded) -> dict[str, object]:
    """1 for the word that was asked for, a half for another."""
    assert graded.leavings.folder is not None
    file = graded.leavings.folder / "greeting.txt"
    if not file.is_file():
        return {"reward": 0.0, "success": False}
    success = file.read_text().strip() == graded.data["word"]
    return {"reward": 1.0 if success else 0.5, "success": success}


def write_model(folder: Path, tool: str) -> None:
    """Write the random model."""
    from longhaul_trainer.models.tiny import write_tiny_tool_model  # imports torch

    folder.mkdir(parents=True)
    commands = [f"echo {word} > greeting.txt" for word in WORDS[:3]]
    write_tiny_tool_model(
        folder,
        tool=tool,
        argument="command",
        values=[*commands, SUBMIT],
        context_tokens=65_536,
    )


if __name__ == "__main__":
    write_model(Path(sys.argv[1]), sys.argv[2])
