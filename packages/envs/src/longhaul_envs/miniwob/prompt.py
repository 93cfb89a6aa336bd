"""How MiniWoB++ introduces itself."""

from longhaul_core.environment import EnvironmentPrompt

__all__ = ["ACTIONS", "PROMPT"]

ACTIONS = (
    '`click 3`, `double_click 3`, `triple_click 3`, `hover 3`, `type 3 "text"`, '
    '`select 3 "option"`, `press Enter`, `scroll down`, `scroll 3 up`, `drag 3 to 5`, '
    "`drag 3 by 20,-5` or `wait`; a point such as `80,120` stands where an element may"
)

PROMPT = EnvironmentPrompt(
    system=(
        "You use a small web page to reach a goal. Each line of an observation is an element of "
        "the page: its number in brackets, its kind, its text in quotes, and what else is to be "
        "seen of it. Lines that are set in belong to the element above. Positions are in pixels, "
        "from the left and from the top.\n"
        f"Your actions: {ACTIONS}. `type` replaces what a field holds. One action a step."
    ),
    instruction="What is the next action?",
)
