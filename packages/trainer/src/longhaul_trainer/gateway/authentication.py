"""Who is let in to which episode: addresses and keys that nobody can guess."""

import hmac
import secrets
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

from longhaul_trainer.gateway.exchange import ApiError

__all__ = ["EpisodeAccess", "EpisodeKeys"]

_AZURE_VERSION = "2024-10-21"
"""Azure's clients must name one; it is not read here."""
_MAX_CLOSED = 10_000
"""Of how many ended episodes the cause is kept."""


def _new_id() -> str:
    return f"ep_{secrets.token_urlsafe(15)}"


def _new_key() -> str:
    return f"lh-{secrets.token_urlsafe(32)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeAccess:
    """Where one episode is reached, and by what key."""

    address: str
    """Of the gateway, `http://HOST:PORT`."""
    id: str = field(default_factory=_new_id)
    """The episode's name in addresses."""
    key: str = field(default_factory=_new_key, repr=False)
    """What each request carries."""

    def environ(self, *, mode: str) -> dict[str, str]:
        """Environment variables of a program: addresses, the key, and the policy's name.

        Args:
            mode: `train` or `val`, for agent-lightning's addresses.
        """
        base = f"{self.address}/e/{self.id}"
        models = ("OPENAI_MODEL", "GEMINI_MODEL", "ANTHROPIC_MODEL", "ANTHROPIC_SMALL_FAST_MODEL")
        of_claude = (f"ANTHROPIC_DEFAULT_{size}_MODEL" for size in ("HAIKU", "SONNET", "OPUS"))
        rollout = f"{self.address}/proxy/rollout/{self.id}/attempt/0/mode/{mode}"
        return {
            "OPENAI_BASE_URL": f"{base}/v1",
            "OPENAI_API_BASE": f"{base}/v1",
            "OPENAI_API_KEY": self.key,
            "ANTHROPIC_BASE_URL": base,
            "ANTHROPIC_API_KEY": self.key,
            "GOOGLE_GEMINI_BASE_URL": base,
            "GEMINI_API_BASE": f"{base}/v1beta",  # of LiteLLM
            "GEMINI_API_KEY": self.key,
            "AZURE_OPENAI_ENDPOINT": base,
            "AZURE_OPENAI_API_KEY": self.key,
            "OPENAI_API_VERSION": _AZURE_VERSION,
            "OPENAI_API_TYPE": "openai",  # whose the client of the module `openai` is
            "AZURE_API_BASE": base,  # of LiteLLM, with the two below
            "AZURE_API_KEY": self.key,
            "AZURE_API_VERSION": _AZURE_VERSION,
            "HOSTED_VLLM_API_BASE": f"{base}/v1",  # of LiteLLM
            "HOSTED_VLLM_API_KEY": self.key,
            "LLM_BASE_URL": f"{base}/v1",
            "LLM_API_KEY": self.key,
            **dict.fromkeys((*models, *of_claude), "auto"),
            "LONGHAUL_URL": f"{base}/longhaul",
            "LONGHAUL_KEY": self.key,
            "AGL_OPENAI_BASE_URL": f"{rollout}/openai/v1",
            "AGL_EVENT_URL": f"{self.address}/api/rollouts/{self.id}/attempt/0/events",
            "AGL_KEY": self.key,
        }


class EpisodeKeys:
    """The keys of a gateway's episodes, open and ended."""

    def __init__(self) -> None:
        """No episode is open."""
        self._open: dict[str, EpisodeAccess] = {}
        self._closed: OrderedDict[str, tuple[EpisodeAccess, str]] = OrderedDict()
        self._nowhere = EpisodeAccess(address="")

    def add(self, access: EpisodeAccess) -> None:
        """Let in who has its key."""
        self._open[access.id] = access

    def close(self, access: EpisodeAccess, *, cause: str) -> None:
        """Let in nobody any more; who has its key is told the cause."""
        if self._open.pop(access.id, None) is None:
            return
        self._closed[access.id] = (access, cause)
        if len(self._closed) > _MAX_CLOSED:
            self._closed.popitem(last=False)

    def require(self, episode_id: str, *, keys: Sequence[bytes]) -> None:
        """Refuse who may not enter.

        Args:
            episode_id: As the address has it.
            keys: As the request has them, one of which must fit: clients send those of several
                vendors at once.

        Raises:
            ApiError: `authentication`, the same for an unknown episode as for a wrong key; `gone`
                for the key of an episode that has ended, with its cause.
        """
        closed, cause = self._closed.get(episode_id, (self._nowhere, ""))
        access = self._open.get(episode_id, closed)
        expected = access.key.encode()
        fitting = [hmac.compare_digest(key, expected) for key in keys]  # all: time says nothing
        if not any(fitting) or access is self._nowhere:
            raise ApiError(
                "authentication",
                "no episode has this address and this key; take both from the environment "
                "variables that the program was given (OPENAI_BASE_URL and OPENAI_API_KEY, "
                "LONGHAUL_URL and LONGHAUL_KEY, …)",
            )
        if access is closed:
            raise ApiError("gone", f"the episode is over: {cause}")
