"""How TextWorld introduces itself."""

from longhaul_core.environment import EnvironmentPrompt

__all__ = ["PROMPT"]

PROMPT = EnvironmentPrompt(
    system=(
        "You play a text adventure in a house. Walk between rooms, open doors and containers, take "
        "and use things, and reach the goal. What you do not see may be in another room or in "
        "something closed."
    ),
    instruction="What is the next action?",
)
