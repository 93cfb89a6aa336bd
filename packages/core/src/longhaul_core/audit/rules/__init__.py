"""The rules, each a small function over the evidence of one training step."""

from longhaul_core.audit.rules import (
    credit,
    demonstrations,
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
from longhaul_core.audit.rules.demonstrations import RULES_OF_DEMONSTRATIONS

__all__ = ["RULES", "RULES_OF_DEMONSTRATIONS", "Rule"]

RULES: tuple[Rule, ...] = (
    *episodes.RULES,
    *sampling.RULES,
    *replies.RULES,
    *prompts.RULES,
    *greedy.RULES,
    *credit.RULES,
    *demonstrations.RULES,
    *values.RULES,
    *updates.RULES,
    *rows.RULES,
    *loss_inputs.RULES,
)
"""All of them, in the order that a report lists them."""
