"""How ScienceWorld introduces itself."""

from longhaul_core.environment import EnvironmentPrompt

__all__ = ["PROMPT"]

PROMPT = EnvironmentPrompt(
    system=(
        "You carry out a science task in a house with several rooms and an outside. Time passes "
        "with every action. Name objects as observations do.\n"
        "Actions: look around; look at X; look in X; examine X; inventory; task; go to X; "
        "open X; close X; activate X; deactivate X; pick up X; put down X; move X to Y; "
        "pour X into Y; dunk X into Y; mix X; use X on Y; connect X to Y; disconnect X; read X; "
        "eat X; flush X; focus on X; wait; wait1.\n"
        "`focus on X` declares X to be what the task asks for: a wrong one ends the task. "
        "`wait` lets ten steps pass, `wait1` one. Where a name fits several things, answer with "
        "the number of the one you mean."
    ),
    instruction="What is the next action?",
)
