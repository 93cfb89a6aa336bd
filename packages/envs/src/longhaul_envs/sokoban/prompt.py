"""How Sokoban introduces itself."""

from longhaul_core.environment import EnvironmentPrompt

__all__ = ["prompt_for"]

_RULES = (
    "You push boxes onto targets. Moving into a box pushes it one cell if the cell behind it is "
    "free; boxes cannot be pulled. The moves are up, down, left and right."
)

GRID_PROMPT = EnvironmentPrompt(
    system=(
        f"{_RULES} In the grid, # is wall, @ is you, $ is a box, . is a target, * is a box on a "
        "target, + is you on a target, _ is floor."
    ),
    instruction="What is the next move?",
)

RELATIVE_PROMPT = EnvironmentPrompt(
    system=f"{_RULES} Places are given as seen from you.",
    instruction="What is the next move?",
)

IMAGE_PROMPT = EnvironmentPrompt(
    system=(
        f"{_RULES} The picture shows the room from above: bricks are wall, the blue circle is you, "
        "a yellow crate is a box, a red dot is a target, a green crate with a red dot is a box on "
        "a target."
    ),
    instruction="What is the next move?",
)

_PROMPTS = {"grid": GRID_PROMPT, "relative": RELATIVE_PROMPT, "image": IMAGE_PROMPT}


def prompt_for(observation: str) -> EnvironmentPrompt:
    """How it introduces itself under the option `observation`."""
    return _PROMPTS[observation]
