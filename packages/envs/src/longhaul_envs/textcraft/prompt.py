"""How TextCraft introduces itself."""

from longhaul_core.environment import EnvironmentPrompt

__all__ = ["PROMPT"]

PROMPT = EnvironmentPrompt(
    system=(
        "You craft items. Get raw materials, craft the parts a recipe asks for, then craft the "
        "goal. Not every recipe is needed."
    ),
    instruction="What is the next action?",
)
