"""The formats by name: what reads each, and what writes it."""

import functools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from longhaul_core.errors import ConfigError
from longhaul_core.exchange.agent_lightning import (
    Decode,
    read_agent_lightning,
    write_agent_lightning,
)
from longhaul_core.exchange.agentgym import read_agentgym, write_agentgym, write_agentgym_eval
from longhaul_core.exchange.atif import read_atif, write_atif
from longhaul_core.exchange.conversations import read_conversations, write_conversations
from longhaul_core.exchange.episodes import ImportedEpisode
from longhaul_core.exchange.messages import read_messages, write_messages
from longhaul_core.exchange.reading import PARQUET, Value
from longhaul_core.exchange.stored import StoredEpisode
from longhaul_core.exchange.verl import (
    read_verl,
    read_verl_agent,
    write_verl,
    write_verl_agent,
)

__all__ = ["FORMATS", "Format", "FormatName", "format_named"]

FormatName = Literal[
    "conversations",
    "messages",
    "atif",
    "verl",
    "verl_agent",
    "agentgym",
    "agentgym_eval",
    "agent_lightning",
]
Read = Callable[[Iterable[Value]], Iterator[ImportedEpisode]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """How one other program's files are read and written."""

    name: FormatName
    title: str
    """For people."""
    read: Callable[..., Iterator[ImportedEpisode]]
    write: Callable[[StoredEpisode], Iterator[dict[str, Any]]]
    """Objects of an episode, as JSON has them; none where it holds nothing for the format."""
    is_array: bool = False
    """One JSON array a file; otherwise a JSON object a line."""
    is_parquet: bool = False
    """A row an object, in Parquet."""
    with_tokens: bool = False
    """Whether it holds token ids and logprobs."""

    @property
    def media_type(self) -> str:
        """Of a file, for HTTP."""
        if self.is_parquet:
            return "application/vnd.apache.parquet"
        return "application/json" if self.is_array else "application/jsonl"

    @property
    def suffix(self) -> str:
        """Of a file's name."""
        if self.is_parquet:
            return PARQUET
        return ".json" if self.is_array else ".jsonl"

    def reader(self, *, decode: Decode | None) -> Read:
        """What reads the values of a file; `decode` is for a format without text."""
        if self.name == "agent_lightning":
            return functools.partial(self.read, decode=decode)
        return self.read


FORMATS: dict[FormatName, Format] = {
    each.name: each
    for each in (
        Format(
            name="conversations",
            title="conversations for imitation (SFT): `messages` in OpenAI's JSON, a line a call",
            read=read_conversations,
            write=write_conversations,
        ),
        Format(
            name="messages",
            title="`messages` in Parquet, for SFT by TRL, verl and others: a row a call",
            read=read_messages,
            write=write_messages,
            is_parquet=True,
        ),
        Format(
            name="atif",
            title="ATIF, Harbor's Agent Trajectory Interchange Format",
            read=read_atif,
            write=write_atif,
            with_tokens=True,
        ),
        Format(
            name="verl",
            title="verl's dumps of rollouts and validation",
            read=read_verl,
            write=write_verl,
        ),
        Format(
            name="verl_agent",
            title="verl-agent's dumps of rollouts",
            read=read_verl_agent,
            write=write_verl_agent,
        ),
        Format(
            name="agentgym",
            title="AgentGym-RL's logs of rollouts, as its trainer writes them",
            read=read_agentgym,
            write=write_agentgym,
            is_array=True,
        ),
        Format(
            name="agentgym_eval",
            title="AgentGym's logs of evaluation, and its data for imitation",
            read=read_agentgym,
            write=write_agentgym_eval,
        ),
        Format(
            name="agent_lightning",
            title="agent-lightning's triplets, a line a rollout",
            read=read_agent_lightning,
            write=write_agent_lightning,
            with_tokens=True,
        ),
    )
}


def format_named(name: str) -> Format:
    """The format of that name.

    Raises:
        ConfigError: There is none.
    """
    for known in FORMATS.values():
        if known.name == name:
            return known
    raise ConfigError(f"there is no format {name!r}; there are {', '.join(FORMATS)}")
