"""The token by which a run knows its runners."""

from __future__ import annotations

import os
from collections.abc import Mapping

from longhaul_core.addresses import is_loopback
from longhaul_core.errors import ConfigError
from longhaul_core.serving import MIN_TOKEN_CHARACTERS
from longhaul_trainer.config import RunConfig
from longhaul_trainer.play.runners.wire import TOKEN_VARIABLE

__all__ = ["token_of"]


def token_of(run: RunConfig, environ: Mapping[str, str] = os.environ) -> str:
    """The token of a run's runners; empty where there is none.

    Raises:
        ConfigError: Other machines reach the run and there is none, or it is easily guessed.
    """
    token = environ.get(TOKEN_VARIABLE, "")
    if token and (len(token) < MIN_TOKEN_CHARACTERS or not token.isascii() or " " in token):
        raise ConfigError(
            f"{TOKEN_VARIABLE} must have {MIN_TOKEN_CHARACTERS} ASCII characters or more and no "
            f"space, has {len(token)}; `openssl rand -hex 32` makes one"
        )
    if not token and not is_loopback(run.agent.host):
        raise ConfigError(
            f"agent.host = {run.agent.host!r} can be reached from other machines, and there is no "
            f"token; set the environment variable {TOKEN_VARIABLE} here and for the runners"
        )
    return token
