"""How NumberLine introduces itself."""

from longhaul_core.environment import EnvironmentPrompt

__all__ = ["prompt_for"]


def prompt_for(observation: str) -> EnvironmentPrompt:
    """How it introduces itself under the option `observation`."""
    where = "" if observation == "text" else " Both are in the picture."
    return EnvironmentPrompt(
        system=(
            "You bring the current number to the target. The action + adds one, the action - "
            f"takes one away.{where}"
        ),
        instruction="Which action comes next, + or -?",
    )
