"""How Wordle introduces itself."""

from longhaul_core.environment import EnvironmentPrompt

__all__ = ["PROMPT"]

PROMPT = EnvironmentPrompt(
    system=(
        "You look for an English word of five letters, and have six guesses. Each guess must be "
        "an English word of five letters. Below its letters stand marks: g, the letter is in its "
        "place; y, the word has the letter in another place; b, the word does not have it, or not "
        "once more."
    ),
    instruction="Which word do you guess?",
)
