"""What sources of other systems' servers share: an address, a question, and splits that are whole.

Nothing here keeps a connection; `longhaul_envs.wire` has the one of an episode.
"""

import json
import math
import os
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from typing import cast
from urllib.parse import urlsplit

from longhaul_core.errors import ConfigError, message_of
from longhaul_core.text import shortened
from longhaul_core.types import Split
from longhaul_envs.task_lists import HELD_OUT_SHARE, content_hash

__all__ = ["ask", "bearer", "checked_url", "field_of", "items_of", "with_every_split"]

_MAX_ANSWER_BYTES = 64 * 2**20
"""A list of tasks may be long."""
_SHOWN_CHARACTERS = 300


def field_of(value: object, name: str) -> object:
    """What a server put under `name`; None if there is nothing, or `value` is no object."""
    return cast("Mapping[str, object]", value).get(name) if isinstance(value, Mapping) else None


def items_of(value: object) -> list[object]:
    """The items of a list that a server gave; none if it is no list."""
    return cast("list[object]", value) if isinstance(value, list) else []


def checked_url(url: str, *, environment_id: str, option: str = "url") -> str:
    """`url` without a slash at its end.

    Raises:
        ConfigError: If it is empty, or no address of `http` or `https` with a host.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise ConfigError(
            f"{environment_id} needs the address of its server as option {option!r}, such as "
            f"'http://127.0.0.1:8000', got {url!r}"
        )
    if parts.password is not None or parts.username is not None:
        raise ConfigError(
            f"option {option!r} of {environment_id} must not hold a user or a password; name the "
            "environment variable that holds a token as option 'token_variable'"
        )
    return url.rstrip("/")


def bearer(variable: str) -> dict[str, str]:
    """The header that carries the token in the environment variable `variable`; none if it is "".

    Raises:
        ConfigError: If the variable is not set.
    """
    if not variable:
        return {}
    token = os.environ.get(variable)
    if not token:
        raise ConfigError(
            f"the environment variable {variable!r}, named as token_variable, is not set"
        )
    return {"Authorization": f"Bearer {token}"}


def ask(
    url: str,
    *,
    body: Mapping[str, object] | None = None,
    headers: Mapping[str, str] | None = None,
    timeout_seconds: float,
) -> tuple[int, object]:
    """The status and the JSON that `url` answers to a GET, or to a POST of `body`.

    For questions before a run, whose caller waits. No proxy is used.

    Raises:
        ConfigError: If it cannot be reached within the time, or answers no JSON. A status of an
            error is returned, with the text that came with it.
    """
    request = urllib.request.Request(
        url,
        data=None if body is None else json.dumps(body).encode(),
        headers={"Content-Type": "application/json", **(headers or {})},
    )
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=timeout_seconds) as answer:
            status, data = answer.status, answer.read(_MAX_ANSWER_BYTES + 1)
    except urllib.error.HTTPError as error:
        with error:
            text = error.read(_SHOWN_CHARACTERS).decode(errors="replace")
            return error.code, text
    except OSError as error:  # URLError, and what a socket raises beside it
        raise ConfigError(
            f"{url} cannot be asked: {message_of(error)}; is the server running there?"
        ) from error
    if len(data) > _MAX_ANSWER_BYTES:
        raise ConfigError(f"{url} answered more than {_MAX_ANSWER_BYTES:,} bytes")
    try:
        return status, json.loads(data)
    except ValueError as error:
        shown = shortened(data.decode(errors="replace"), _SHOWN_CHARACTERS)
        raise ConfigError(f"{url} answered no JSON: {shown!r}") from error


def with_every_split(
    given: Mapping[Split, Sequence[str]], *, environment_id: str
) -> dict[Split, list[str]]:
    """`given`, where a split that is missing has been taken out of the training items.

    Of the training items, those with the lowest hashes become validation, the next ones test:
    `HELD_OUT_SHARE` each, rounded up. The items of a split that is given stay in it, in order.

    Raises:
        ConfigError: If there are no training items, or too few to take any out; or if two splits
            share an item.
    """
    splits = {split: list(given.get(split, ())) for split in Split}
    met: dict[str, Split] = {}
    for split, items in splits.items():
        for item in items:
            if met.setdefault(item, split) is not split:
                raise ConfigError(
                    f"{environment_id}: item {item!r} is in {met[item].value} and in {split.value}"
                )
    num_training = len(splits[Split.TRAIN])
    missing = [split for split in (Split.VALIDATION, Split.TEST) if not splits[split]]
    if num_training <= len(missing):
        raise ConfigError(
            f"{environment_id} has {num_training} training items, from which "
            f"{' and '.join(split.value for split in missing) or 'nothing'} would be taken; it "
            f"needs at least {len(missing) + 1}"
        )
    for split in missing:
        ranked = sorted(splits[Split.TRAIN], key=content_hash)
        held_out = set(ranked[: math.ceil(num_training * HELD_OUT_SHARE)])
        splits[split] = [item for item in splits[Split.TRAIN] if item in held_out]
        splits[Split.TRAIN] = [item for item in splits[Split.TRAIN] if item not in held_out]
    return splits
