"""A game before it is played: its state and goal in PDDL, and how it speaks."""

from dataclasses import dataclass
from functools import cache
from importlib.resources import files

__all__ = ["UNKNOWN_GOAL", "Game", "wheel_domain", "wheel_grammar"]

UNKNOWN_GOAL = "UNKNOWN GOAL"
"""Stands in a grammar where the goal is to be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Game:
    """All that an engine needs."""

    family: str
    """One of `rooms.FAMILIES`."""
    target: str
    """Kind of the object, in small letters."""
    destination: str
    """Kind of the receptacle, or of the lamp, in small letters."""
    goal: str
    """In words."""
    domain: str
    """What actions need and do, in PDDL."""
    grammar: str
    """How actions and feedback read, in TextWorld's form; `UNKNOWN_GOAL` for the goal."""
    problem: str
    """The initial state and the goal, in PDDL."""


@cache
def wheel_domain() -> str:
    """The alfworld wheel's PDDL."""
    return (files("alfworld") / "data" / "alfred.pddl").read_text(encoding="utf-8")


@cache
def wheel_grammar() -> str:
    """The alfworld wheel's grammar."""
    return (files("alfworld") / "data" / "alfred.twl2").read_text(encoding="utf-8")
