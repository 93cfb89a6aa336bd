"""How SQL introduces itself."""

from longhaul_core.environment import EnvironmentPrompt

__all__ = ["prompt_for"]

_LOOKS = (
    "You answer a question about an SQLite database. The action `query` with a SELECT statement "
    "shows its first rows; make as many as you need. The action `answer` with a SELECT statement "
    "ends the task: the rows that it gives are your answer."
)
_SINGLE = (
    "You answer a question about an SQLite database by one SELECT statement: the rows that it "
    "gives are your answer."
)
_HIDDEN = " The table sqlite_master tells which tables there are."


def prompt_for(form: str, schema: str) -> EnvironmentPrompt:
    """How it introduces itself under the options `form` and `schema`."""
    system = _LOOKS if form == "explore" else _SINGLE
    return EnvironmentPrompt(
        system=system + (_HIDDEN if schema == "hidden" else ""),
        instruction=(
            "What comes next: query SELECT ..., or answer SELECT ...?"
            if form == "explore"
            else "Which SELECT statement answers the question?"
        ),
    )
