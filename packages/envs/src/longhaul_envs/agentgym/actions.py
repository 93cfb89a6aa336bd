"""Forms of an action: from the model's to the one that is sent, and back."""

__all__ = [
    "in_backticks",
    "move",
    "out_of_backticks",
    "plain_words",
    "spelled",
    "sql",
    "tool_call",
]

_KEPT = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789, ")


def plain_words(action: str) -> str:
    """Letters, digits and commas alone, with single spaces between."""
    one_line = " ".join(action.split())
    return " ".join("".join(one for one in one_line if one in _KEPT).split())


def move(action: str) -> str:
    """`up` is `move up`."""
    word = action.strip().lower()
    return f"move {word}" if word in ("up", "down", "left", "right") else action.strip()


def spelled(action: str) -> str:
    """A word of five letters with spaces between them."""
    word = action.strip().lower()
    return " ".join(word) if len(word) == 5 and word.isalpha() else action.strip()


def sql(action: str) -> str:
    """What stands in the last fenced block of SQL; without one, everything."""
    return action.rpartition("```sql")[2].partition("```")[0].strip()


def in_backticks(action: str) -> str:
    """The action within three backticks, where the server looks for it."""
    return action if "```" in action else f"```{action.strip()}```"


def out_of_backticks(reply: str) -> str:
    """The first text of `reply` that stands between three backticks; without one, all of it."""
    _, opening, rest = reply.partition("```")
    action, closing, _ = rest.partition("```")
    return (action if opening and closing else reply).strip()


def tool_call(action: str) -> str:
    """The action after the word that the server looks for."""
    return action if "Action:" in action else f"Action: {action.strip()}"
