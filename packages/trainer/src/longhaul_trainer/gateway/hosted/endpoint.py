"""Where a hosted model is, and what it costs."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Literal

from longhaul_core.errors import ConfigError
from longhaul_trainer.config.upstreams import UpstreamConfig
from longhaul_trainer.gateway.exchange import Usage

__all__ = ["Endpoint", "endpoint_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """An address, the key to it, and how it is called."""

    url: str
    """As clients take it: `https://api.openai.com/v1`, `https://api.anthropic.com`."""
    model: str
    """The vendor's name of the model."""
    api: Literal["openai", "anthropic"] = "openai"
    key: str | None = field(default=None, repr=False)
    """None where the endpoint asks for none."""
    price_prompt: float | None = None
    """US dollars for a million prompt tokens; None where it is not known. So for `price_reply`."""
    price_reply: float | None = None
    max_concurrent: int = 16
    """Requests in flight at once; more of them wait."""
    max_retries: int = 6
    """How often a request is repeated after 429, 5xx, or a connection that failed."""
    deadline_seconds: float = 600.0
    """For one try."""
    max_reply_tokens: int = 4096
    """Asked for where a client names no limit and the vendor demands one (Anthropic)."""

    def cost_usd(self, usage: Usage | None) -> float | None:
        """What the tokens of a reply cost; None without prices, or where no tokens were reported.

        Prompt tokens from the vendor's cache are counted at the full price.
        """
        if usage is None or self.price_prompt is None or self.price_reply is None:
            return None
        prompt = usage.prompt_tokens * self.price_prompt
        return (prompt + usage.reply_tokens * self.price_reply) / 1e6


def endpoint_of(config: UpstreamConfig, *, setting: str) -> Endpoint:
    """The endpoint that a run names, with its key from the environment.

    Args:
        config: As the run says.
        setting: What names the variable of its key, for messages.

    Raises:
        ConfigError: The variable that is to hold the key is not set.
    """
    return Endpoint(
        url=config.url,
        model=config.model,
        api=config.api,
        key=key_of(config.api_key_variable, setting=setting),
        price_prompt=config.price_prompt,
        price_reply=config.price_reply,
        max_concurrent=config.max_concurrent,
        max_retries=config.max_retries,
        deadline_seconds=config.deadline_seconds,
        max_reply_tokens=config.max_reply_tokens,
    )


def key_of(variable: str | None, *, setting: str) -> str | None:
    """The key that an environment variable holds; None without a variable.

    Raises:
        ConfigError: It is not set, or its value cannot stand in a header.
    """
    if variable is None:
        return None
    key = os.environ.get(variable, "").strip()
    if not key:
        raise ConfigError(
            f"{setting} = {variable!r}: this environment variable is not set; export it with the "
            "key as its value, or leave the setting out for an endpoint without keys"
        )
    if not key.isascii() or not key.isprintable():
        raise ConfigError(f"{setting} = {variable!r}: its value is no key: not printable ASCII")
    return key
