"""Keeps passwords and service keys out of the store and out of messages.

A configuration may name a database by a URL with a password in it, and an error may
repeat a key that it was given. What is redacted: the password of any URL, URL parameters
that look like secrets, the keys in HTTP headers, what stands under a name that says that it is
a secret (`"api_key": "…"`, `SERPER_API_KEY=…`), keys that begin as those of known services do,
and the value of every environment variable whose name says that it is a secret.
"""

import os
import re
from collections.abc import Mapping, Sequence

__all__ = ["redacted", "redacted_command"]

_MASK = "***"
_URL_PASSWORD = re.compile(
    # A password may hold a slash; digits and a slash after the colon are a port and a path.
    r"(?P<scheme>\w[\w+.-]{0,40}://)(?P<user>[^\s:/@\"']{0,200}):(?!\d{1,5}/)[^\s\"']{1,500}@"
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
_SECRET_NAME = (
    r"[\w.-]{0,200}(?<![a-z])"
    r"(?:(?:api|access|secret|private|auth|account)[_-]?key|token|secret|password|passwd|credentials?)"
)
"""A `key` alone opens doors in games, and `max_prompt_tokens` is a number."""
_NAMED = re.compile(
    "|".join(
        rf"(?P<{name}>{quote}{_SECRET_NAME}{quote}\s*:\s*{quote})(?:{character})+{quote}"
        for name, quote, character in (
            ("json", '"', r'[^"\\]|\\.'),
            ("python", "'", r"[^'\\]|\\."),
            ("json_in_json", r'\\"', r'[^"\\]|\\\\(?:\\.|[^\\"])'),
        )
    ),
    re.IGNORECASE | re.DOTALL,
)
_ASSIGNED = re.compile(
    rf"(?<![\w.-])(?P<name>{_SECRET_NAME}\s?=\s?)(?:\\?[\"'][^\"'\s]+\\?[\"']|[^\s\"'\\&,;{{}}\[\]]+)",
    re.IGNORECASE,
)
_WORD_OF_SECRET = re.compile(rf"{_SECRET_NAME}|.*_KEY", re.IGNORECASE)
_KNOWN_KEY = re.compile(
    r"\b(?:sk-(?:proj|ant|or|svcacct)-[\w-]{3,500}|sk-(?=[\w-]{0,60}\d)[\w-]{16,500}"
    r"|hf_[A-Za-z0-9]{20,200}|gh[oprsu]_[A-Za-z0-9]{20,300}|github_pat_\w{20,300}"
    r"|glpat-[\w-]{16,200}|xox[abeprs]-[\w-]{10,300}|(?:AKIA|ASIA)[A-Z0-9]{16}\b|AIza[\w-]{30,100})"
)
_SHORTEST_SECRET = 8  # a shorter value would blank out ordinary words


def redacted(text: str, *, environment: Mapping[str, str] | None = None) -> str:
    """`text` with credentials replaced by `***`; JSON stays JSON.

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
    text = _SECRET_PARAMETER.sub(rf"\g<name>{_MASK}", text)
    text = _NAMED.sub(_masked, text)
    text = _ASSIGNED.sub(rf"\g<name>{_MASK}", text)
    return _KNOWN_KEY.sub(_MASK, text)


def _masked(named: re.Match[str]) -> str:
    before = named[named.lastgroup or 0]
    return f"{before}{_MASK}{before[-2:] if named.lastgroup == 'json_in_json' else before[-1]}"


def redacted_command(words: Sequence[str]) -> tuple[str, ...]:
    """The words of a command line, each `redacted`, and whole where its setting is a secret.

    Args:
        words: Among them settings, such as `agent.environ.SERPER_API_KEY=…`.
    """
    return tuple(_redacted_word(word) for word in words)


def _redacted_word(word: str) -> str:
    name, equals, _ = word.partition("=")
    if equals and _WORD_OF_SECRET.fullmatch(name):
        return f"{name}={_MASK}"
    return redacted(word)
