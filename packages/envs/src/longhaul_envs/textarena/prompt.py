"""How TextArena introduces itself; the rules of a game stand in each of its observations."""

from longhaul_core.environment import EnvironmentPrompt

__all__ = ["PROMPT"]

PROMPT = EnvironmentPrompt(
    system="You play a game. You see its rules, what is on the board, and what happened last.",
    instruction="What is your move?",
)
