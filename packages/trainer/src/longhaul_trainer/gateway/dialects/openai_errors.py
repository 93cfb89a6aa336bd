"""Errors and numbers of tokens as OpenAI's clients read them."""

from collections.abc import Mapping

from longhaul_trainer.gateway.exchange import ApiError, ErrorKind

__all__ = ["openai_error"]

_TYPES: Mapping[ErrorKind, tuple[str, str | None]] = {
    "invalid_request": ("invalid_request_error", None),
    "authentication": ("invalid_request_error", "invalid_api_key"),
    "not_found": ("invalid_request_error", "model_not_found"),
    "too_large": ("invalid_request_error", "request_too_large"),
    "gone": ("invalid_request_error", "episode_ended"),
    "rate_limited": ("rate_limit_error", "rate_limit_exceeded"),
    "prompt_too_long": ("invalid_request_error", "context_length_exceeded"),
    "episode_limit": ("invalid_request_error", "episode_limit_reached"),
    "unsupported": ("invalid_request_error", "unsupported_parameter"),
    "overloaded": ("server_error", "overloaded"),
    "upstream": ("server_error", "upstream_error"),
    "internal": ("server_error", "internal_error"),
}


def openai_error(error: ApiError) -> dict[str, object]:
    """The object `error` of an answer."""
    kind, code = _TYPES[error.kind]
    return {"message": error.message, "type": kind, "param": error.parameter, "code": code}
