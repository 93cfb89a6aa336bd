"""The dialects of AgentGym's servers, as a table.

The servers share no schema: what differs between them stands here, and nowhere else. Names of
routes and fields are those of the servers and of the authors' clients (package `agentenv`);
`README.md` says what was checked against what.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from longhaul_core.environment import Determinism, EnvironmentPrompt
from longhaul_core.types import Split
from longhaul_envs.agentgym import actions, prompts

__all__ = ["DIALECTS", "Dialect"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """How one of AgentGym's servers is spoken to, and what it answers."""

    summary: str
    num_items: int
    """Items that a reset can name: 0 to `num_items` - 1."""
    item_field: str
    """Of `/reset`, for the number of the item."""
    prompt: EnvironmentPrompt
    actions: str
    """What an action looks like, in words."""

    path: str = ""
    """That the address ends with."""
    id_field: str = "id"
    """Of bodies and queries, for the environment's id."""
    created_id: str | None = "id"
    """Where `/create` answers the id; None if the answer is the bare number, and `/reset` then
    answers a pair of observation and nothing."""
    begins_at_create: bool = False
    """Whether `/create` begins the item of the id's number, and answers as `/reset` does."""
    create_body: Mapping[str, object] = field(default_factory=dict[str, object])
    reset_body: Mapping[str, object] = field(default_factory=dict[str, object])
    """Beside the id and the item."""
    asks_first_observation: bool = False
    """Whether the first observation is asked by GET `/observation`, as the authors' client does,
    instead of taken from the answer to `/reset`."""
    first_fields: tuple[str, ...] = ("observation",)
    """Of the answer to `/reset`: joined by line breaks they are the first observation."""
    words_path: str = ""
    """Route whose list of words goes before the first observation."""
    text_field: str = "observation"
    score_field: str = "reward"
    """Of `/step`: the score that the episode would have if it ended now."""
    done_field: str = "done"
    truncated_field: str = ""
    success_score: float = 1.0
    """Least score of an ended episode that is solved."""
    score_only_at_end: bool = False
    """Whether a score counts only in the step that ends the episode."""
    broken_start: str = ""
    """First observation with which the server reports that the reset failed."""

    admissible_actions: tuple[str, ...] | None = None
    """Where they never change."""
    actions_field: str = ""
    """Of `/reset` and `/step`, for the admissible actions."""
    actions_marker: str = ""
    """What in the text comes before a JSON list of them, which ends the text."""
    write: Callable[[str], str] = str.strip
    """Makes what is sent of the action that was chosen."""
    read: Callable[[str], str] = str
    """Finds the action in what the authors' client sends."""
    refusals: tuple[str, ...] = ()
    """How an observation begins that refuses the action."""

    splits: Mapping[Split, range] = field(default_factory=dict[Split, range])
    """Of the items, where the authors give ranges."""
    max_environments: int | None = None
    """How many the server keeps before it hands one out twice."""
    determinism: Determinism = Determinism.FIRST_OBSERVATION


def _tool(summary: str, num_items: int, tools: str) -> Dialect:
    """One of the five servers of tools, which differ in tools and items alone."""
    return Dialect(
        summary=summary,
        num_items=num_items,
        item_field="id",
        id_field="env_idx",
        created_id=None,
        create_body={"id": 0},
        asks_first_observation=True,
        write=actions.tool_call,
        refusals=("Format error", "ERROR |", "Observation: ERROR |"),
        prompt=prompts.tool_prompt(tools),
        actions="`NAME with Action Input: {JSON object}`",
    )


DIALECTS: Mapping[str, Dialect] = {
    "textcraft": Dialect(
        summary="craft a goal item out of Minecraft's recipes",
        num_items=544,
        item_field="data_idx",
        begins_at_create=True,
        write=actions.plain_words,
        refusals=("Could not", "Wrong item format"),
        prompt=prompts.TEXTCRAFT,
        actions="`craft N ITEM using N ITEM[, N ITEM…]`, `get N ITEM` or `inventory`",
        # which goal an item is, and the order of recipes, change with the server's process
        determinism=Determinism.NONE,
    ),
    "babyai": Dialect(
        summary="instructions in grid worlds that are seen in part",
        num_items=900,
        item_field="data_idx",
        score_field="score",
        success_score=0.5,  # the server ends no episode at or below it
        actions_marker="\nAvailable actions: ",
        write=actions.plain_words,
        refusals=("The action is not recognized", "No change in state"),
        prompt=prompts.BABYAI,
        actions="one of the listed actions, such as `go to red ball 1` or `turn left`",
    ),
    "sciworld": Dialect(
        summary="experiments of elementary school in a simulated house",
        num_items=2320,
        item_field="data_idx",
        first_fields=("task_description", "observation"),
        score_field="score",
        success_score=100.0,
        refusals=("No known action matches that input", "Ambiguous request"),
        prompt=prompts.SCIWORLD,
        actions="a command such as `open door to kitchen`, `focus on thermometer` or `wait`",
    ),
    "alfworld": Dialect(
        summary="household chores in a text game",
        num_items=3827,
        item_field="game",
        reset_body={"world_type": "Text"},
        actions_field="available_actions",
        refusals=("Nothing happens",),
        prompt=prompts.ALFWORLD,
        actions="one of the listed actions, such as `go to fridge 1`",
    ),
    "webshop": Dialect(
        summary="buy what an instruction describes in a web shop",
        num_items=6910,
        item_field="session_id",
        id_field="env_idx",
        created_id=None,
        asks_first_observation=True,
        text_field="state",
        prompt=prompts.WEBSHOP,
        actions="`search[WORDS]` or `click[BUTTON]`",
        max_environments=8000,
    ),
    "searchqa": Dialect(
        summary="questions that take searches in an encyclopedia",
        num_items=221_328,
        item_field="id",
        id_field="env_idx",
        created_id=None,
        create_body={"id": 0},
        asks_first_observation=True,
        refusals=("Your previous action is invalid",),
        prompt=prompts.SEARCHQA,
        actions="`<search>WORDS</search>` or `<answer>ANSWER</answer>`",
        splits={Split.TEST: range(51_713), Split.TRAIN: range(51_713, 221_328)},
    ),
    "webarena": Dialect(
        summary="tasks on self-hosted web sites in a real browser",
        num_items=812,
        item_field="idx",
        reset_body={"seed": 0},
        id_field="env_idx",
        created_id="env_idx",
        asks_first_observation=True,
        done_field="terminated",
        truncated_field="truncated",
        score_only_at_end=True,
        broken_start="TimeoutError",
        write=actions.in_backticks,
        read=actions.out_of_backticks,
        refusals=("Cannot parse action from response", "Invalid action"),
        prompt=prompts.WEBARENA,
        actions="`click [ID]`, `type [ID] [TEXT] [0|1]`, `goto [URL]`, … or `stop [ANSWER]`",
        determinism=Determinism.NONE,
    ),
    "maze": Dialect(
        summary="find the way through a maze by its walls",
        num_items=25,  # item 25 begins on the goal
        item_field="game",
        path="/maze",
        admissible_actions=("move up", "move down", "move left", "move right"),
        write=actions.move,
        prompt=prompts.MAZE,
        actions="`move up`, `move down`, `move left` or `move right`",
    ),
    "wordle": Dialect(
        summary="guess a word of five letters in six attempts",
        num_items=980,
        item_field="seed",
        path="/wordle",
        words_path="/filtered_vocab",
        write=actions.spelled,
        refusals=("invalid word",),
        prompt=prompts.WORDLE,
        actions="five letters with spaces between, such as `s h i r e`",
    ),
    "sqlgym": Dialect(
        summary="answer a question about a database by one SQL statement (BIRD)",
        num_items=10_962,
        item_field="item_id",
        id_field="env_idx",
        created_id=None,
        asks_first_observation=True,
        text_field="state",
        write=actions.sql,
        prompt=prompts.SQLGYM,
        actions="one SQL statement",
        splits={Split.TRAIN: range(9428), Split.TEST: range(9428, 10_962)},
        max_environments=8,
    ),
    "weather": _tool(
        "questions about the weather, answered by tools",
        343,
        "the date, the user's place, and past, present and forecast weather of places",
    ),
    "movie": _tool("questions about films, answered by tools", 238, "films, their crews and casts"),
    "academia": _tool(
        "questions about papers and authors, answered by tools",
        20,
        "a citation network of papers and authors",
    ),
    "todo": _tool(
        "questions and chores about a list of tasks", 155, "a list of projects and tasks"
    ),
    "sheet": _tool("edits of a spreadsheet", 20, "the cells, rows and columns of a spreadsheet"),
}
"""By the authors' `task_name`."""
