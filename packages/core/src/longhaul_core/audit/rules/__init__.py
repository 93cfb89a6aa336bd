"""The rules, each a small function over the evidence of one training step."""

from longhaul_core.audit.rules import (
    credit,
    episodes,
    greedy,
    loss_inputs,
    prompts,
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
    *prompts.RULES,
    *greedy.RULES,
    *credit.RULES,
    *values.RULES,
    *updates.RULES,
    *rows.RULES,
    *loss_inputs.RULES,
)
"""All of them, in the order that a report lists them."""
