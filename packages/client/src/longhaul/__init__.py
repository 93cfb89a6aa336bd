"""What a program reports to Longhaul of its own steps: rewards, states, ends.

    reply = client.chat.completions.create(..., extra_headers=longhaul.headers(agent="planner"))
    longhaul.step(reward=0.5, anchor_state=board)
    longhaul.reward(1.0, success=True)

Where `LONGHAUL_URL` and `LONGHAUL_KEY` are not set, nobody trains the program: each of these does
nothing, and the first one warns, so that the same program runs with a hosted model. The values are
read at each call, and requests take no proxy. A report whose answer is lost is sent again under the
same key, and counts once.
"""

from __future__ import annotations

import http.client
import json
import math
import os
import urllib.error
import urllib.request
import uuid
import warnings

__all__ = ["LonghaulError", "extra_body", "headers", "reward", "step", "task"]

SECONDS = 60.0
"""For one request."""
TRIES = 3
"""Of a request that gets no answer."""

_DEFAULTS = {"anchor_state": None, "done": False, "train": True, "agent": ""}
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))
_warned = False


class LonghaulError(RuntimeError):
    """The gateway refused a report, or cannot be reached."""


def step(
    *,
    reward: float | None = None,
    anchor_state: str | None = None,
    done: bool = False,
    train: bool = True,
    agent: str = "",
) -> None:
    """Report between two calls: what the last one brought, and in which state the next one is made.

    Args:
        reward: For the step of the agent's last call; several are added up.
        anchor_state: State of the next call, as text: steps of equal states are compared.
        done: Whether the episode is over; the gateway answers nothing after it.
        train: False if the next call is not the agent's own, such as a judge's.
        agent: Whose step it is, in a program of several.

    Raises:
        LonghaulError: The gateway refused it, e.g. since the episode has ended.
        ValueError: The reward is not finite.
    """
    if _is_played():
        _ask(
            "step",
            _report(reward=reward, anchor_state=anchor_state, done=done, train=train, agent=agent),
        )


def reward(value: float, *, success: bool | None = None) -> None:
    """Report what the episode was worth, beside the rewards of its steps.

    Args:
        value: Finite; added to the last step when the program has ended. The last report counts.
        success: Whether the task was solved; None leaves it to the value.

    Raises:
        LonghaulError: The gateway refused it.
        ValueError: The value is not finite.
    """
    if _is_played():
        stated = {} if success is None else {"success": success}
        _ask("reward", {"value": _finite(value), **stated})


def task() -> dict[str, object] | None:
    """What the program is to work on; None where nobody trains it.

    Raises:
        LonghaulError: The gateway refused it.
    """
    return _ask("task") if _is_played() else None


def extra_body(
    *,
    reward: float | None = None,
    anchor_state: str | None = None,
    done: bool = False,
    train: bool = True,
    agent: str = "",
) -> dict[str, object]:
    """What a client's next call carries (`extra_body`); empty where nobody trains the program.

    Args:
        reward: What the step before brought.
        anchor_state: The state that the call is made in.
        done: Whether nothing comes after the call.
        train: False for a call that is not the agent's own, such as a judge's.
        agent: Whose call it is, in a program of several.

    Raises:
        ValueError: The reward is not finite.
    """
    if not _is_played():
        return {}
    return {
        "longhaul": _report(
            reward=reward, anchor_state=anchor_state, done=done, train=train, agent=agent
        )
    }


def headers(
    *,
    reward: float | None = None,
    anchor_state: str | None = None,
    done: bool = False,
    train: bool = True,
    agent: str = "",
) -> dict[str, str]:
    """The same as HTTP headers (`extra_headers`), which take ASCII on one line alone.

    Raises:
        ValueError: As in `extra_body`, or a text is no header.
    """
    if not _is_played():
        return {}
    found: dict[str, str] = {}
    for key, value in _report(
        reward=reward, anchor_state=anchor_state, done=done, train=train, agent=agent
    ).items():
        text = value if isinstance(value, str) else json.dumps(value)
        if not (text.isascii() and text.isprintable()):
            raise ValueError(f"{key} = {text!r} is no header; send it with extra_body")
        found["Longhaul-" + key.replace("_", "-").title()] = text
    return found


def _report(*, reward: float | None, **others: object) -> dict[str, object]:
    """What differs from its default."""
    report = {key: value for key, value in others.items() if value != _DEFAULTS[key]}
    if reward is not None:
        report["reward"] = _finite(reward)
    return report


def _finite(value: float) -> float:
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"a reward must be finite, got {number}")
    return number


def _is_played() -> bool:
    """Whether a gateway plays this program; the first time that none does, a warning."""
    global _warned
    if os.environ.get("LONGHAUL_URL") and os.environ.get("LONGHAUL_KEY"):
        return True
    if not _warned:
        _warned = True
        warnings.warn(
            "LONGHAUL_URL and LONGHAUL_KEY are not set: nothing is reported", stacklevel=3
        )
    return False


def _ask(path: str, report: dict[str, object] | None = None) -> dict[str, object] | None:
    """POST a report, or GET; what the gateway answers."""
    request = urllib.request.Request(
        os.environ["LONGHAUL_URL"] + "/" + path,
        data=None if report is None else json.dumps(report).encode(),
        headers={
            "Authorization": "Bearer " + os.environ["LONGHAUL_KEY"],
            "Content-Type": "application/json",
            "Idempotency-Key": uuid.uuid4().hex,
        },
    )
    num_left = TRIES
    while True:
        num_left -= 1
        try:
            with _DIRECT.open(request, timeout=SECONDS) as answer:
                return json.loads(answer.read() or b"null")
        except urllib.error.HTTPError as error:
            with error:
                said = error.read().decode(errors="replace")
            raise LonghaulError(f"{path}: HTTP {error.code}: {said}") from error
        except (OSError, http.client.HTTPException) as error:
            if not num_left:
                raise LonghaulError(f"{path}: {error}") from error
