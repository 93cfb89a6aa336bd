"""Lists of models. One body suits every vendor's clients: all ask at `/v1/models`."""

from collections.abc import Sequence
from datetime import UTC, datetime

from longhaul_trainer.gateway.exchange import ApiError

__all__ = ["find_model", "list_models"]


def list_models(names: Sequence[str], *, created: int) -> dict[str, object]:
    """The answer to `GET /v1/models`, and to `GET /v1beta/models`.

    Args:
        names: What a request's `model` may be, at least one.
        created: Unix time in seconds.
    """
    models = [_model(name, created) for name in names]
    return {
        "object": "list",
        "data": models,  # for OpenAI's and Anthropic's clients
        "has_more": False,
        "first_id": names[0],
        "last_id": names[-1],
        "models": models,  # for Google's
    }


def find_model(name: str, names: Sequence[str], *, created: int) -> dict[str, object]:
    """The answer to `GET /v1/models/{name}`.

    Raises:
        ApiError: `not_found`.
    """
    if name not in names:
        raise ApiError(
            "not_found",
            f"model is {name!r}; here are {', '.join(names)}",
            parameter="model",
        )
    return _model(name, created)


def _model(name: str, created: int) -> dict[str, object]:
    return {
        "id": name,
        "object": "model",
        "created": created,
        "owned_by": "longhaul",
        "type": "model",
        "display_name": name,
        "created_at": datetime.fromtimestamp(created, tz=UTC).isoformat(),
        "lifecycle": "active",
        "name": f"models/{name}",
        "displayName": name,
        "supportedGenerationMethods": ["generateContent", "countTokens"],
    }
