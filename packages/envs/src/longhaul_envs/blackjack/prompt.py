"""How Blackjack introduces itself."""

from longhaul_core.environment import EnvironmentPrompt

__all__ = ["prompt_for"]

_RULES = (
    "You play blackjack. You win if your cards come nearer to 21 than the dealer's, and lose at "
    "once above 21. An ace counts 11, or 1 where 11 would be too much; jack, queen and king count "
    "10. The action hit takes a card. The action stand ends your turn: the dealer then takes "
    "cards up to 17 or more. Every card is drawn from a whole pack."
)


def prompt_for(observation: str) -> EnvironmentPrompt:
    """How it introduces itself under the option `observation`."""
    where = "" if observation == "text" else " The cards are in the picture, the dealer's above."
    return EnvironmentPrompt(system=f"{_RULES}{where}", instruction="Do you hit or stand?")
