"""How BabyAI introduces itself."""

from longhaul_envs.capabilities import EnvironmentPrompt

__all__ = ["HIGH_LEVEL_PROMPT", "PRIMITIVE_PROMPT"]

HIGH_LEVEL_PROMPT = EnvironmentPrompt(
    system=(
        "You move through rooms and reach the goal. You see only what is in front of you; turn "
        "to look around. Distances are in cells from you."
    ),
    instruction="What is the next action?",
)

PRIMITIVE_PROMPT = EnvironmentPrompt(
    system=(
        "You move through rooms one cell at a time and reach the goal. You see only what is in "
        "front of you; turn to look around. `toggle` opens a door or box in front of you. "
        "Distances are in cells from you."
    ),
    instruction="What is the next action?",
)
