# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
# (transformers annotates little of what it returns)
"""The gradient of small weights that a credit of stored steps makes.

Shapes: G groups, P weights, N replies, T tokens of the longest, K tokens of a reply.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch

from longhaul_core.advantages.credit import FloatArray
from longhaul_core.types import SampledTokens
from longhaul_trainer.play.small_policy import SmallModel, Tokens
from longhaul_trainer.play.truth.selection import Place

__all__ = ["Gradients", "gradients_of"]

Gradients = Callable[[Sequence[Mapping[Place, float]]], FloatArray]
"""Of each group, by a credit of its steps: shape (G, P), in float32."""


def gradients_of(
    calls: Mapping[Place, SampledTokens], model: SmallModel, *, temperature: float
) -> Gradients:
    r"""What ascends the return by a credit: Σ over steps of credit · ∇ Σ log π(token).

    It is the gradient of the policy loss by token, but for sign and scale, where the weights are
    those that sampled. A step without a reply has no part in it.

    Args:
        calls: The replies of steps.
        model: The weights.
        temperature: Of training, above 0.
    """

    def of_groups(credit: Sequence[Mapping[Place, float]]) -> FloatArray:
        return np.stack([_gradient(model, calls, of_group, temperature) for of_group in credit])

    return of_groups


def _gradient(
    model: SmallModel,
    calls: Mapping[Place, SampledTokens],
    credit: Mapping[Place, float],
    temperature: float,
) -> FloatArray:
    """Of one group, shape (P,)."""
    weights: list[torch.Tensor] = list(model.model.parameters())
    sums = [torch.zeros_like(each) for each in weights]
    # The same reply to the same prompt is read once.
    of_reply: defaultdict[tuple[Tokens, Tokens], float] = defaultdict(float)
    for place, worth in credit.items():
        if place in calls:
            call = calls[place]
            of_reply[call.prompt_tokens, call.action_tokens] += worth
    replies = [(*reply, worth) for reply, worth in of_reply.items() if worth != 0.0]
    rows = model.rows_at_once([prompt + reply for prompt, reply in of_reply] or [(0,)])
    for start in range(0, len(replies), rows):
        part = replies[start : start + rows]
        texts = [[*prompt, *reply[:-1]] for prompt, reply, _ in part]
        logprobs_NTV = torch.log_softmax(model.logits(texts) / temperature, dim=-1)
        worth_of = [
            worth
            * logprobs_NTV[row, torch.arange(len(prompt) - 1, len(text)), torch.tensor(reply)].sum()
            for row, ((prompt, reply, worth), text) in enumerate(zip(part, texts, strict=True))
        ]
        found = torch.autograd.grad(torch.stack(worth_of).sum(), weights)
        for total, each in zip(sums, found, strict=True):
            total += each
    return torch.cat([each.flatten() for each in sums]).numpy()
