"""How BabyAI introduces itself."""

from longhaul_core.environment import EnvironmentPrompt

__all__ = ["prompt_for"]

HIGH_LEVEL_PROMPT = EnvironmentPrompt(
    system=(
        "You move through rooms and reach the goal. You see only what is in front of you; turn "
        "to look around. Distances are in cells from you."
    ),
    instruction="What is the next action?",
    actions=(
        "Actions: `go to red ball 1`, `pick up red ball 1`, `put down next to red ball 1`, `drop`, "
        "`open` and `close` with a door or box, `go through` with a door, by the names that you "
        "see; `move forward`, `turn left`, `turn right`."
    ),
)

PRIMITIVE_PROMPT = EnvironmentPrompt(
    system=(
        "You move through rooms one cell at a time and reach the goal. You see only what is in "
        "front of you; turn to look around. `toggle` opens a door or box in front of you. "
        "Distances are in cells from you."
    ),
    instruction="What is the next action?",
    actions="Actions: `turn left`, `turn right`, `move forward`, `pick up`, `drop`, `toggle`.",
)


def prompt_for(actions: str) -> EnvironmentPrompt:
    """How it introduces itself under the option `actions`."""
    return PRIMITIVE_PROMPT if actions == "primitive" else HIGH_LEVEL_PROMPT
