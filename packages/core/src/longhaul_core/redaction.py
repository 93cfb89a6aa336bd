"""Keeps passwords and service keys out of the store and out of messages.

A configuration may name a database by a URL with a password in it, and an error may
repeat a key that it was given. What is redacted: the password of any URL, URL parameters
that look like secrets, the keys in HTTP headers, and the value of every environment variable
whose name says that it is a secret.
"""

import os
import re
from collections.abc import Mapping

__all__ = ["redacted"]

_MASK = "***"
_URL_PASSWORD = re.compile(
    r"(?P<scheme>\w[\w+.-]{0,40}://)(?P<user>[^\s:/@\"']{0,200}):[^\s\"'/]{1,500}@"
)
_SECRET_PARAMETER = re.compile(
    r"(?P<name>[?&](?:password|passwd|sslpassword|token|api_key|apikey|key|secret)=)[^\s&\"']+",
    re.IGNORECASE,
)
_HEADER = re.compile(
    r"(?P<name>\b(?:(?:proxy-)?authorization|x-api-key|x-goog-api-key|api-key)\b[\"']?\s*[:=,]\s*"
    r"(?:b?[\"'])?(?:(?:bearer|basic)\s+)?)[^\s\"',}]{1,500}",
    re.IGNORECASE,
)
_SECRET_VARIABLE = re.compile(r"(KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?)$", re.IGNORECASE)
_SHORTEST_SECRET = 8  # a shorter value would blank out ordinary words


def redacted(text: str, *, environment: Mapping[str, str] | None = None) -> str:
    """`text` with credentials replaced by `***`.

    Args:
        text: A configuration, a provenance record or an error message.
        environment: Variables that may hold secrets; `os.environ` if None.
    """
    variables = os.environ if environment is None else environment
    for name, value in variables.items():
        if _SECRET_VARIABLE.search(name) and len(value) >= _SHORTEST_SECRET:
            text = text.replace(value, _MASK)
    text = _URL_PASSWORD.sub(rf"\g<scheme>\g<user>:{_MASK}@", text)
    text = _HEADER.sub(rf"\g<name>{_MASK}", text)
    return _SECRET_PARAMETER.sub(rf"\g<name>{_MASK}", text)
