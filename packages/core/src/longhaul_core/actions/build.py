"""A parser of actions by its name in a configuration."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Protocol, cast

from longhaul_core.actions.parser import ActionFormat, ActionParser, ParsedAction
from longhaul_core.components import build_component

__all__ = ["Parser", "build_parser"]


class Parser(Protocol):
    """Reads the action out of a reply. Shared by many episodes, so it keeps no state."""

    @property
    def instruction(self) -> str:
        """One line that tells a policy how to write its action; empty for none."""
        ...

    def parse(self, reply: str, admissible: Sequence[str] | None = None) -> ParsedAction:
        """The action of `reply`, and whether it has the asked-for form.

        Args:
            reply: What the policy wrote, without what the prompt already wrote of it.
            admissible: Every action the environment accepts now; None if unknown.
        """
        ...


BUILT_IN: Mapping[str, Callable[..., Parser]] = {
    form.value: partial(ActionParser, format=form) for form in ActionFormat
}


def build_parser(name: str, *, require_thinking: bool = False, reply_prefix: str = "") -> Parser:
    """The parser that a configuration names.

    Args:
        name: An `ActionFormat`, or `package.module:name` of a class or function of one's own.
        require_thinking: Whether a reply without a closed thought is invalid.
        reply_prefix: What the prompt already wrote of the reply.

    Raises:
        ConfigError: If the name is not known, or a parser of one's own cannot be imported or made,
            or lacks what `Parser` has.
    """
    made = build_component(
        name,
        BUILT_IN,
        setting="actions.format",
        needs=("instruction", "parse"),
        arguments={"require_thinking": require_thinking, "reply_prefix": reply_prefix},
    )
    return cast("Parser", made)
