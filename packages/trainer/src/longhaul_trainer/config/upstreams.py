"""Models of other servers that a run's programs may call."""

from collections.abc import Generator
from typing import Literal, cast
from urllib.parse import parse_qs, urlsplit

from pydantic import Field, field_validator

from longhaul_trainer.config.section import Section

KEY_FIELDS = ("api_key", "key", "token", "password", "secret")
"""What a reader may take for the place of a key."""


class UpstreamConfig(Section):
    """A model of another server, for a judge or a teacher: `[agent.upstreams.NAME]`."""

    url: str
    """Address as clients take it: `https://api.openai.com/v1`, `https://api.anthropic.com`."""
    model: str = Field(min_length=1)
    """The vendor's name of the model."""
    api: Literal["openai", "anthropic"] = "openai"
    """What the address speaks: chat completions as OpenAI's, or Anthropic's messages."""
    api_key_variable: str | None = None
    """Environment variable that holds the key; left out for an endpoint without keys. The key
    itself is refused: it would be written into the run's folder."""
    price_prompt: float | None = Field(default=None, ge=0)
    """US dollars for a million prompt tokens; with both prices each call has its cost."""
    price_reply: float | None = Field(default=None, ge=0)
    """US dollars for a million tokens of replies."""
    max_concurrent: int = Field(default=16, ge=1)
    """Requests in flight at once, of one agent loop."""
    max_retries: int = Field(default=6, ge=0)
    """How often a request is repeated after 429, 5xx, or a connection that failed."""
    deadline_seconds: float = Field(default=600.0, gt=0)
    """For one try."""
    max_reply_tokens: int = Field(default=4096, ge=1)
    """Longest reply where a program names none and the vendor demands a limit (Anthropic)."""

    @field_validator("url")
    @classmethod
    def _an_address_without_a_secret(cls, value: str) -> str:
        address = urlsplit(value)
        if address.scheme not in ("http", "https") or not address.hostname:
            raise ValueError("must be an address that begins with http:// or https://")
        if address.password is not None or address.username is not None or parse_qs(address.query):
            raise ValueError(
                "the address carries a user, a password or parameters, which would be written "
                "into the run's folder; leave them out, and name the key's environment variable"
            )
        return value

    @field_validator("api_key_variable")
    @classmethod
    def _a_name_and_no_key(cls, value: str | None) -> str | None:
        if value is not None and not (value.isidentifier() and value == value.upper()):
            raise ValueError(
                "must be the name of an environment variable in capital letters, such as "
                "OPENAI_API_KEY, and not the key itself"
            )
        return value

    def conflicts(self) -> Generator[str]:
        """A cost needs both prices."""
        if (self.price_prompt is None) != (self.price_reply is None):
            yield (
                "price_prompt and price_reply make a cost together; give both, or leave both out"
            )


def no_key_is_written_down(upstreams: object) -> object:
    """Refuse a key where the name of its variable belongs, before it is shown in a message.

    Raises:
        ValueError: An upstream has one, or a name that stands for the policy.
    """
    if not isinstance(upstreams, dict):
        return upstreams
    tables = cast("dict[str, object]", upstreams)
    for name, entry in tables.items():
        if name == "auto":
            raise ValueError("an upstream cannot be called 'auto': this is the run's own model")
        for field in KEY_FIELDS:
            if isinstance(entry, dict) and field in entry:
                raise ValueError(
                    f"{name}.{field}: a key would be written into the run's folder; keep it in an "
                    f"environment variable, and give its name as {name}.api_key_variable"
                )
    return tables
