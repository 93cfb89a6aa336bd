"""Actions: what a reply asks the environment to do, and whether it asked properly."""

from longhaul_core.actions.build import Parser, build_parser
from longhaul_core.actions.parser import (
    MAX_ACTION_CHARACTERS,
    ActionFormat,
    ActionParser,
    ParsedAction,
    called,
    default_instruction,
    split_thinking,
    with_answer,
    written,
)

__all__ = [
    "MAX_ACTION_CHARACTERS",
    "ActionFormat",
    "ActionParser",
    "ParsedAction",
    "Parser",
    "build_parser",
    "called",
    "default_instruction",
    "split_thinking",
    "with_answer",
    "written",
]
