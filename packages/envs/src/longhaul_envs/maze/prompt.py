"""How Maze introduces itself."""

from longhaul_core.environment import EnvironmentPrompt

__all__ = ["prompt_for"]

_RULES = (
    "You walk through a maze to its goal, one cell a step. The actions are: move up, move down, "
    "move left, move right. A wall stops you."
)
_SEEN = {
    "position": (
        "Positions are row, column, from 0, 0 at the top left: moving down adds one to the row, "
        "moving right adds one to the column."
    ),
    "walls": "You see only the walls beside you; remember where you went.",
    "grid": "In the grid, # is wall, @ is you, G is the goal, . is free.",
}


def prompt_for(observation: str) -> EnvironmentPrompt:
    """How it introduces itself under the option `observation`."""
    return EnvironmentPrompt(
        system=f"{_RULES} {_SEEN[observation]}", instruction="What is the next move?"
    )
