"""What a rule is."""

from collections.abc import Callable
from dataclasses import dataclass

from longhaul_core.audit.evidence import Evidence
from longhaul_core.audit.report import Tally

__all__ = ["Rule"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """Something that is true of a run that trains what it means to train."""

    name: str
    claim: str
    """What is true, in a few words."""
    check: Callable[[Evidence, Tally], None]
    """Holds one training step to it."""
