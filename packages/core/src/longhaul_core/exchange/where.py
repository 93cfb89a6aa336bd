"""Which episodes are meant, as people and programs write it: checked words instead of texts."""

from collections.abc import Sequence
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, ValidationError

from longhaul_core.errors import ConfigError
from longhaul_core.store.queries import EpisodeFilter
from longhaul_core.store.records import Phase
from longhaul_core.types import FailureCause, StopReason

__all__ = ["LARGEST", "EpisodeWhere", "parse_where"]

LARGEST = 2**31 - 1
"""SQL databases hold integers of 64 bits; nothing that is asked for here comes near 32."""
Count = Annotated[int, Field(ge=0, le=LARGEST)]
Name = Annotated[str, Field(max_length=1000)]


class EpisodeWhere(BaseModel):
    """Which episodes. A filter that is left out does not restrict; both ends of a range are in."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    phase: Phase | None = None
    """What they were played for."""
    min_training_step: Count | None = None
    """Played in this training step or later."""
    max_training_step: Count | None = None
    """Played in this training step or earlier."""
    group_index: Count | None = None
    """Place of their task in the training step's batch, or in the panel."""
    failed: bool | None = None
    """True: only failed episodes; false: only those that ended."""
    success: bool | None = None
    """Whether the environment says that the task was solved."""
    trained: bool | None = None
    """Whether they were in the loss."""
    stop_reason: StopReason | None = None
    """Why they ended."""
    failure_cause: FailureCause | None = None
    """Why they failed."""
    environment: Name | None = None
    """Id of their environment."""
    task_id: Name | None = None
    """Of their task, unique within the environment."""
    min_return: FiniteFloat | None = None
    """Least sum of rewards."""
    max_return: FiniteFloat | None = None
    """Greatest sum of rewards."""
    min_steps: Count | None = None
    """Least number of steps."""
    max_steps: Count | None = None
    """Greatest number of steps."""
    policy_version: Count | None = None
    """Sampled, at least in part, by these weights."""
    text: Name | None = None
    """Words that one step of the episode has; only text that is indexed is found."""
    rolled_back: bool | None = False
    """False: the lineage; true: what a resume took back."""

    def filter_of(self, run_id: str) -> EpisodeFilter:
        """The store's filter for the episodes of one run."""
        return EpisodeFilter(
            run_id=run_id, **{name: getattr(self, name) for name in EpisodeWhere.model_fields}
        )


def parse_where(conditions: Sequence[str]) -> EpisodeWhere:
    """Conditions such as `success=true`.

    Raises:
        ConfigError: One is none, has no value that makes sense, or stands there twice.
    """
    given: dict[str, str] = {}
    for condition in conditions:
        name, equals, value = condition.partition("=")
        if not equals:
            raise ConfigError(f"a condition is NAME=VALUE, e.g. success=true; got {condition!r}")
        if name.strip() in given:
            raise ConfigError(f"{name.strip()} is given twice")
        given[name.strip()] = value.strip()
    try:
        return EpisodeWhere.model_validate(given)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        name = ".".join(str(part) for part in first["loc"])
        if first["type"] == "extra_forbidden":
            known = ", ".join(EpisodeWhere.model_fields)
            raise ConfigError(f"there is no condition {name!r}; there are {known}") from error
        raise ConfigError(f"{name}: {first['msg']}, got {first['input']!r}") from error
