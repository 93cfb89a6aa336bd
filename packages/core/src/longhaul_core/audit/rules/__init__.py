"""The rules, each a small function over the evidence of one training step."""

from longhaul_core.audit.rules import (
    consumed,
    credit,
    episodes,
    greedy,
    replies,
    rows,
    sampling,
    updates,
    values,
)
from longhaul_core.audit.rules.base import Rule

__all__ = ["RULES", "Rule"]

RULES: tuple[Rule, ...] = (
    *episodes.RULES,
    *sampling.RULES,
    *replies.RULES,
    *greedy.RULES,
    *credit.RULES,
    *values.RULES,
    *updates.RULES,
    *rows.RULES,
    *consumed.RULES,
)
"""All of them, in the order that a report lists them."""
