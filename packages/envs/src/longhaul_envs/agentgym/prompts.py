"""How AgentGym's environments are introduced: what the authors' first message says, in our words.

The form of a reply is not here: the run's `actions.format` asks for it.
"""

from longhaul_core.environment import EnvironmentPrompt

__all__ = [
    "ALFWORLD",
    "BABYAI",
    "MAZE",
    "SCIWORLD",
    "SEARCHQA",
    "SQLGYM",
    "TEXTCRAFT",
    "WEBARENA",
    "WEBSHOP",
    "WORDLE",
    "tool_prompt",
]

TEXTCRAFT = EnvironmentPrompt(
    system=(
        "You craft an item in Minecraft. The crafting commands that may help are listed. "
        "`get N ITEM` takes a raw material, `craft N ITEM using N ITEM, N ITEM` follows one of the "
        "listed commands, and `inventory` lists what you carry. Always name the number. Where a "
        "command asks for a kind, such as planks, any item of that kind will do."
    ),
    instruction="What do you do next?",
)

BABYAI = EnvironmentPrompt(
    system=(
        "You walk through rooms to reach a goal, and see only what lies before you. Beside turning "
        "left or right and moving forward you can go to a thing that you see, pick it up, and open "
        "and go through doors. A locked door needs a key of its colour in your hands. Actions are "
        "named with the number of the thing, such as `go to red ball 1`."
    ),
    instruction="What do you do next?",
)

SCIWORLD = EnvironmentPrompt(
    system=(
        "You work on a task of elementary science in a simulated house. Commands: open or close, "
        "activate or deactivate, connect OBJ to OBJ, disconnect OBJ, use OBJ on OBJ, look around, "
        "look at OBJ, look in OBJ, read OBJ, move OBJ to OBJ, pick up OBJ, put down OBJ, pour OBJ "
        "into OBJ, dunk OBJ into OBJ, mix OBJ, go to PLACE, eat OBJ, flush OBJ, wait (10 ticks), "
        "wait1 (1 tick), task, inventory. `focus on OBJ` declares that OBJ is the one that the "
        "task asks for: a wrong one fails the task."
    ),
    instruction="What is the next command?",
)

ALFWORLD = EnvironmentPrompt(
    system=(
        "You do a chore in a household. What you see and the goal are told at first; what you do "
        "is answered by what happens. 'Nothing happens' means that the action was not possible."
    ),
    instruction="Which of the listed actions do you take?",
)

WEBSHOP = EnvironmentPrompt(
    system=(
        "You shop on a web site for the product that the instruction describes. Where there is a "
        "search bar, `search[WORDS]` looks for products. `click[BUTTON]` presses a button or a "
        "link of the page, by its text: choose the product and its options, then `click[buy now]`. "
        "What is impossible does nothing."
    ),
    instruction="What do you do next?",
)

SEARCHQA = EnvironmentPrompt(
    system=(
        "You answer a question. `<search>WORDS</search>` shows passages that match, "
        "`<answer>ANSWER</answer>` answers in few words. Search until you know."
    ),
    instruction="Do you search, or answer?",
)

WEBARENA = EnvironmentPrompt(
    system=(
        "You work in a web browser towards the objective. The page is shown as a tree of its "
        "elements, each with a number. Actions: click [ID]; type [ID] [TEXT] [1], where 1 presses "
        "Enter at the end and 0 does not; hover [ID]; press [KEYS]; scroll [down] or scroll [up]; "
        "new_tab; tab_focus [NUMBER]; close_tab; goto [URL]; go_back; go_forward. "
        "`stop [ANSWER]` ends the task; leave the answer empty where none was asked for, and "
        "answer N/A if the task cannot be done."
    ),
    instruction="What is the next action?",
)

MAZE = EnvironmentPrompt(
    system=(
        "You look for the goal of a maze. Positions are named by row and column: moving down adds "
        "one to the first number, moving right to the second. The walls around you are named; a "
        "move into one leaves you where you are."
    ),
    instruction="Where do you move?",
)

WORDLE = EnvironmentPrompt(
    system=(
        "You guess a hidden word of five letters in six attempts. Write a guess as letters with "
        "spaces between, such as `s h i r e`. Each letter is answered: b, it is not in the word; "
        "y, it is elsewhere in the word; g, it is in its place. A word that is not in the list is "
        "invalid."
    ),
    instruction="What is your guess?",
)

SQLGYM = EnvironmentPrompt(
    system=(
        "You answer a question about an SQLite database whose tables are described. Write one SQL "
        "statement, on one line; its result is the answer."
    ),
    instruction="Which statement do you run?",
)


def tool_prompt(tools: str) -> EnvironmentPrompt:
    """How one of the servers of tools is introduced; `tools` says what they are about."""
    return EnvironmentPrompt(
        system=(
            f"You reach the goal by calling tools about {tools}. A call is written as "
            'NAME with Action Input: {"PARAMETER": VALUE}. `check_valid_actions with Action Input: '
            "{}` lists the tools. Take what you need to know from their answers, never from "
            'memory. `finish with Action Input: {"answer": ANSWER}` ends the task.'
        ),
        instruction="Which tool do you call?",
    )
