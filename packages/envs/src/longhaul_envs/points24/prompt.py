"""How Points24 introduces itself."""

from longhaul_core.environment import EnvironmentPrompt
from longhaul_envs.points24.tasks import Points24Options

__all__ = ["prompt_for"]


def prompt_for(options: Points24Options) -> EnvironmentPrompt:
    """How it introduces itself under these options."""
    faces = (
        "jack, queen and king count 10"
        if options.face_cards_as_ten
        else "jack, queen and king count 11, 12 and 13"
    )
    where = "" if options.observation == "text" else " The cards are in the picture."
    return EnvironmentPrompt(
        system=(
            f"You write a formula that makes {options.target} out of four cards, one number or "
            f"sign at a time. An ace counts 1; {faces}. Each card is used once. The signs are "
            f"+, -, *, /, ( and ); the sign = ends the game.{where}"
        ),
        instruction="What comes next in the formula: the value of a card, or a sign?",
    )
