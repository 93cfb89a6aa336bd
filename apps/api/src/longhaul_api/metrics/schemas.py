"""What the metric routes answer."""

from longhaul_api.schemas import Answer

__all__ = ["MetricPoint"]


class MetricPoint(Answer):
    """One value of a series."""

    training_step: int
    value: float | None
    """Null where it was not a number."""
