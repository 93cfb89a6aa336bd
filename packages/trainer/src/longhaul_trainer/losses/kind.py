"""One kind of policy loss: its function, its settings, and what it reads of a row."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from longhaul_trainer.losses.tokens import PolicyLoss

ClipLow = Annotated[
    float,
    Field(
        gt=0,
        le=1,
        description="Probability ratios are clipped below at 1 - clip_low; 1 sets no lower bound.",
    ),
]
ClipHigh = Annotated[
    float, Field(gt=0, description="Probability ratios are clipped above at 1 + clip_high.")
]


class LossSettings(BaseModel):
    """Keys of `[loss]` that one kind reads, with the values that it takes if they are left out.

    A key that several kinds have means the same in each; the defaults may differ.
    """

    model_config = ConfigDict(use_attribute_docstrings=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class LossKind:
    """A built-in kind; its name is that of its file."""

    compute: Callable[..., PolicyLoss]
    """Called with `ActionTokens`, and each of the settings by keyword."""
    settings: type[LossSettings]
    summary: str
    """A few words for the configuration's reference."""
    needs_behavior: bool = False
    """Whether it reads `ActionTokens.behavior_logprobs_BT`."""

    @property
    def defaults(self) -> dict[str, object]:
        """Its settings as they are if a run leaves them out."""
        return self.settings().model_dump()

    @property
    def about(self) -> str:
        """The summary, and the settings."""
        values = ", ".join(f"{name} = {value}" for name, value in self.defaults.items())
        return f"{self.summary}; left out, {values}" if values else self.summary
