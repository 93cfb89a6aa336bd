"""The option `observation`, which all card games have."""

from longhaul_core.errors import ConfigError

__all__ = ["refuse_unknown_observation"]


def refuse_unknown_observation(observation: str) -> None:
    """Check the option.

    Raises:
        ConfigError: It is neither `text` nor `image`.
    """
    if observation not in ("text", "image"):
        raise ConfigError(f"observation must be text or image, got {observation!r}")
