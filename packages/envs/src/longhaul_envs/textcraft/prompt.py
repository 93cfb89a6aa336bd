"""How TextCraft introduces itself."""

from longhaul_core.environment import EnvironmentPrompt

__all__ = ["PROMPT"]

PROMPT = EnvironmentPrompt(
    system=(
        "You craft items. Get raw materials, craft the parts a recipe asks for, then craft the "
        "goal. Not every recipe is needed."
    ),
    instruction="What is the next action?",
    actions=(
        "Actions: `get 2 oak logs` fetches a raw material, 1 to 64 at once; `craft 4 oak planks "
        "using 1 oak logs` follows a recipe, with its numbers; `inventory` shows what you hold."
    ),
)
