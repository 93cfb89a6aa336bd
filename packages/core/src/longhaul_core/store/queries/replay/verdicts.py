"""Why an action counts as invalid: the reply is read once more, by the rules of its run.

The store keeps the verdict alone. An episode loop gives it in two parts: the parser must have
found an action of the asked-for form that is among the admissible ones, if these are known, and
then the environment must have accepted it. The parser's part can be repeated from the run's
configuration; where it finds nothing wrong, the environment refused.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

from longhaul_core.actions import ActionFormat, ActionParser
from longhaul_core.store.queries.base import Answer

__all__ = ["InvalidAction", "ReplyReader", "ReplyReading"]


@dataclass(frozen=True, slots=True)
class InvalidAction(Answer):
    """Who refused an action, and why."""

    judge: Literal["parser", "environment", "unknown"]
    """`parser`: the reply had no action of the asked-for form, or one that is not admissible;
    `environment`: it was read well, and then not accepted; `unknown`: neither can be said."""
    reason: str


@dataclass(frozen=True, slots=True)
class ReplyReading(Answer):
    """How actions are read out of replies: the arguments of `ActionParser`."""

    format: str
    """`tags`, `json` or `plain`."""
    require_thinking: bool
    reply_prefix: str
    """What the prompt already wrote of every reply, behind its last message."""


class ReplyReader:
    """Reads replies as the run that wrote them did."""

    def __init__(self, config_json: str, *, environment: str) -> None:
        """A reader for the episodes of one environment of a run.

        Args:
            config_json: The run's configuration, as the store has it.
            environment: Gymnasium id of the episode's environment.
        """
        self.reading: ReplyReading | None = None
        self._parser: ActionParser | None = None
        self._unknown = "the run's configuration does not say how its replies were read"
        config = _object(config_json)
        mixed = [_object(each) for each in config.get("environments") or ()]
        section = next((each for each in mixed if each.get("id") == environment), config)
        actions, prompt = _object(section.get("actions")), _object(section.get("prompt"))
        form = actions.get("format")
        if form in set(ActionFormat):
            self.reading = ReplyReading(
                str(form),
                bool(actions.get("require_thinking")),
                str(prompt.get("reply_prefix") or ""),
            )
            self._parser = ActionParser(
                format=ActionFormat(form),
                require_thinking=self.reading.require_thinking,
                reply_prefix=self.reading.reply_prefix,
            )
        elif isinstance(form, str):
            self._unknown = f"the run's replies were read by a parser of its own, {form}"

    def why_invalid(
        self, reply: str | None, *, action: str, admissible: Sequence[str] | None
    ) -> InvalidAction:
        """Why the action of an invalid step is invalid.

        Args:
            reply: Of the call that chose the action; None where no model did, or once retention
                removed it.
            action: What the environment was given.
            admissible: What it said it would accept; None if it did not say.
        """
        if reply is None:
            return InvalidAction("unknown", "the reply is not in the store")
        if self._parser is None:
            return InvalidAction("unknown", self._unknown)
        read = self._parser.parse(reply, admissible)
        if read.text != action:
            return InvalidAction(
                "unknown", "the run's parser of today reads another action from the reply"
            )
        if not read.valid:
            return InvalidAction("parser", read.reason)
        return InvalidAction(
            "environment", "the reply was read well, and the environment did not accept the action"
        )


def _object(value: object) -> Mapping[str, Any]:
    """A JSON object, from its text or as it is; empty for anything else."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return {}
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}
