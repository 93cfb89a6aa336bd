"""Tests for `longhaul_trainer.losses.cispo`."""

import math

import pytest
import torch

from longhaul_trainer.losses import ActionTokens, PolicyLoss, cispo_loss
from loss_tokens import OLD_LOGPROB, gradient_of, one_row


def loss_of(tokens: ActionTokens, *, clip_low: float = 1.0) -> PolicyLoss:
    return cispo_loss(tokens, clip_low=clip_low, clip_high=1.0)


@pytest.mark.parametrize(
    ("ratio", "advantage", "clip_low", "gradient", "clipped"),
    [
        # the gradient by log π is -clip(r, 1 - clip_low, 2) A, whatever r is
        (1.0, 2.0, 1.0, -2.0, False),
        (1.5, 2.0, 1.0, -3.0, False),
        (4.0, 2.0, 1.0, -4.0, True),  # PPO would have dropped this token
        (4.0, -2.0, 1.0, 4.0, True),
        (0.01, 2.0, 1.0, -0.02, False),  # no lower bound
        (0.01, 2.0, 0.5, -1.0, True),  # 0.5 * 2
        (4.0, 0.0, 1.0, 0.0, False),
    ],
)
def test_matches_the_hand_worked_token(
    ratio: float, advantage: float, clip_low: float, gradient: float, clipped: bool
) -> None:
    tokens = one_row([ratio], [advantage], [0.25])

    found = loss_of(tokens, clip_low=clip_low)

    assert gradient_of(tokens, found) == [[pytest.approx(0.25 * gradient)]]
    # -weight * A * log π, with log π = log(1/2) + log r
    logprob = OLD_LOGPROB + math.log(ratio)
    assert found.loss.item() == pytest.approx(0.25 * gradient * logprob)
    assert found.clipped.item() == (0.25 if clipped else 0.0)
    assert found.ratio.item() == pytest.approx(0.25 * ratio)
    assert found.divergence.item() == pytest.approx(-0.25 * math.log(ratio))


def test_ratios_beyond_any_float_stay_finite() -> None:
    tokens = ActionTokens(
        policy_logprobs_BT=torch.full((1, 1), -1.0, dtype=torch.float64, requires_grad=True),
        old_logprobs_BT=torch.full((1, 1), -1e4, dtype=torch.float64),
        advantages_BT=torch.ones(1, 1, dtype=torch.float64),
        loss_weights_BT=torch.ones(1, 1, dtype=torch.float64),
        actions_BT=torch.zeros(1, 1, dtype=torch.int64),
    )

    assert gradient_of(tokens, loss_of(tokens)) == [[-2.0]]
