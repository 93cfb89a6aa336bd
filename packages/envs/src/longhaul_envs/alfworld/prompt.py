"""How ALFWorld introduces itself."""

from longhaul_core.environment import EnvironmentPrompt

__all__ = ["prompt_for"]


def prompt_for(wording: str) -> EnvironmentPrompt:
    """How it introduces itself under the option `wording`."""
    put = "move X to R" if wording == "current" else "put X in/on R"
    return EnvironmentPrompt(
        system=(
            "You do an errand in a room of a house. Things lie on or in receptacles: go to one to "
            "see what is on it, and open it first if it is closed. You can carry one thing. Heat "
            "with a microwave, cool with a fridge, clean at a sinkbasin.\n"
            f"Actions: go to R; open R; close R; take X from R; {put}; heat X with R; "
            "cool X with R; clean X with R; use X; examine X; examine R; look; inventory."
        ),
        instruction="What is the next action?",
    )
