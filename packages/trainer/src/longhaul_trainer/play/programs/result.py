"""What a program says its episode was worth: printed, returned or graded.

0.5
{"reward": 0.5, "success": false}
{"step_rewards": [0, 0, 1], "success": true}
{"success": true}
"""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import cast

from longhaul_core.environment import LARGEST_REWARD

__all__ = ["Result", "printed_result", "result_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What an episode was worth."""

    reward: float | None = None
    """Paid to the last step, beside what the steps were paid; None where `step_rewards` is all."""
    success: bool | None = None
    """None where it was left open."""
    step_rewards: tuple[float, ...] = ()
    """For every step in the order of their calls; empty where none are given."""


def result_of(value: object) -> Result | None:
    """What a function or a grader returned; None if it returned None.

    Raises:
        ValueError: It is no number and no object with a reward, or a number is not within
            `LARGEST_REWARD`.
    """
    if value is None:
        return None
    if not isinstance(value, Mapping):
        return Result(reward=_number(value, "the result"))
    fields = cast("Mapping[object, object]", value)
    reward, success, steps = (fields.get(key) for key in ("reward", "success", "step_rewards"))
    if reward is None and steps is None and success is None:
        raise ValueError(f"the result has no reward: {_shown(dict(fields))}")
    if success is not None and not isinstance(success, bool):
        raise ValueError(f"success must be true or false, got {_shown(success)}")
    if steps is not None and not isinstance(steps, list | tuple):
        raise ValueError(f"step_rewards must be a list of numbers, got {_shown(steps)}")
    return Result(
        reward=None if reward is None else _number(reward, "reward"),
        success=success,
        step_rewards=tuple(
            _number(one, f"step_rewards[{place}]")
            for place, one in enumerate(cast("list[object] | tuple[object, ...]", steps or ()))
        ),
    )


def printed_result(printed: str) -> Result | None:
    """The last line of a program's output that is a result; None if there is none.

    That is an object with `reward` or `step_rewards`, on whatever line, or a number on the last
    line that is not blank: further up a number may be anything. An object with `success` alone
    says that of the result, or of what was posted.

    Raises:
        ValueError: It is one, and its values are no rewards.
    """
    # Not splitlines: it cuts at U+2028 too, which a text within a result may hold.
    lines = [line for line in re.split(r"[\r\n]", printed) if line.strip()]
    success: bool | None = None
    for place, line in enumerate(reversed(lines)):
        if (found := _parsed(line, is_last=place == 0)) is not None:
            result = result_of(found)
            assert result is not None
            success = result.success if success is None else success
            if result.reward is not None or result.step_rewards:
                return replace(result, success=success)
    return None if success is None else Result(success=success)


def _parsed(line: str, *, is_last: bool) -> object:
    line = line.strip()
    if not is_last and not line.startswith("{"):
        return None
    try:
        value: object = json.loads(line)
    except (ValueError, RecursionError):  # a log's line, or one that was cut
        return None
    if isinstance(value, dict):
        fields = cast("dict[str, object]", value)
        has_reward = {"reward", "step_rewards"} & fields.keys()
        return fields if has_reward or isinstance(fields.get("success"), bool) else None
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return value if is_number else None


def _number(value: object, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        number = getattr(value, "item", None)  # of numpy or torch
        if number is None or isinstance(value, bool):
            raise ValueError(f"{name} must be a number, got {_shown(value)}")
        value = number()
    try:
        found = float(cast("float", value))
    except (OverflowError, TypeError, ValueError):
        found = math.nan
    if not abs(found) <= LARGEST_REWARD:  # nor is what is no number
        raise ValueError(
            f"{name} must be a finite number, at most {LARGEST_REWARD:g} in size, got "
            f"{_shown(value)}"
        )
    return found


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]}…"
