"""How EZPoints introduces itself."""

from longhaul_core.environment import EnvironmentPrompt

__all__ = ["prompt_for"]

_RULES = (
    "You write a formula that makes 12 out of two cards, one number or sign at a time. An ace "
    "counts 1; jack, queen and king count 10. Each card is used once. The sign = ends the game."
)


def prompt_for(observation: str) -> EnvironmentPrompt:
    """How it introduces itself under the option `observation`."""
    where = "" if observation == "text" else " The cards are in the picture."
    return EnvironmentPrompt(
        system=f"{_RULES}{where}",
        instruction="What comes next in the formula: the value of a card, +, * or =?",
    )
