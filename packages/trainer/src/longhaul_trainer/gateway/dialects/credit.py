"""What a program reports of its own step, beside what it asks for."""

from collections.abc import Mapping

from longhaul_core.environment import LARGEST_REWARD
from longhaul_trainer.gateway.dialects.fields import Fields, refusal
from longhaul_trainer.gateway.exchange import ApiError, CreditReport

__all__ = ["credit_of", "credit_report"]

_KEYS = ("reward", "anchor_state", "done", "train", "agent", "purpose")


def credit_of(headers: Mapping[str, str], body: Mapping[str, object]) -> CreditReport:
    """The report that headers and body of a request make together; the body's keys win.

    Args:
        headers: By names in lower case or any, e.g. `Longhaul-Reward`.
        body: Parsed JSON; its object `longhaul` is read.

    Raises:
        ApiError: A value is of the wrong type, or a key is none of `CreditReport`'s.
    """
    given: dict[str, object] = {}
    for key in _KEYS:
        value = headers.get(_header(key))
        if value is not None:
            given[key] = _of_header(key, value)
    if body.get("longhaul") is not None:
        given |= Fields.of(body["longhaul"], place="longhaul").values
    return credit_report(given, place="longhaul") if given else CreditReport()


def credit_report(values: Mapping[str, object], *, place: str = "") -> CreditReport:
    """The report of an object with the keys of `CreditReport`.

    Raises:
        ApiError: See `credit_of`.
    """
    fields = Fields(values, place=place)
    fields.known(_KEYS)
    done, train = fields.flag("done"), fields.flag("train")
    return CreditReport(
        reward=fields.number("reward", at_least=-LARGEST_REWARD, at_most=LARGEST_REWARD),
        anchor_state=fields.text("anchor_state"),
        done=False if done is None else done,
        train=True if train is None else train,
        agent=fields.text("agent") or "",
        purpose=fields.text("purpose") or "act",
    )


def _header(key: str) -> str:
    return f"longhaul-{key.replace('_', '-')}"


def _of_header(key: str, value: str) -> object:
    if key == "reward":
        try:
            return float(value)
        except ValueError as error:
            raise refusal(_header(key), value, "a number") from error
    if key in {"done", "train"}:
        flag = {"true": True, "1": True, "false": False, "0": False}.get(value.strip().lower())
        if flag is None:
            raise refusal(_header(key), value, "true or false")
        return flag
    try:  # HTTP's headers are Latin-1, and programs that send other text send it as UTF-8
        return value.encode("latin-1").decode("utf-8")
    except UnicodeError as error:
        raise ApiError(
            "invalid_request",
            f"{_header(key)} is {value!r}, which is not UTF-8; send longhaul.{key} in the body",
            parameter=_header(key),
        ) from error
