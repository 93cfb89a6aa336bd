"""The options `observation` and `scoring`, which all card games have."""

from longhaul_core.errors import ConfigError

__all__ = ["TABLE_PIXELS", "refuse_unknown_observation", "refuse_unknown_scoring"]

TABLE_PIXELS = {1: 422 * 220, 2: 422 * 388}
"""Of a picture of the table, by its rows of cards, with the line below them."""

_SCORINGS = ("rl4vlm", "verl-agent")


def refuse_unknown_observation(observation: str) -> None:
    """Check the option.

    Raises:
        ConfigError: It is neither `text` nor `image`.
    """
    if observation not in ("text", "image"):
        raise ConfigError(f"observation must be text or image, got {observation!r}")


def refuse_unknown_scoring(scoring: str) -> None:
    """Check the option.

    Raises:
        ConfigError: It is neither the authors' nor verl-agent's.
    """
    if scoring not in _SCORINGS:
        raise ConfigError(f"scoring must be {' or '.join(_SCORINGS)}, got {scoring!r}")
