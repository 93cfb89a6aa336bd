"""Tests for `longhaul_trainer.losses.ppo`."""

import math

import pytest
import torch

from longhaul_trainer.losses import ActionTokens, PolicyLoss, ppo_loss
from loss_tokens import gradient_of, one_row


def loss_of(tokens: ActionTokens, *, clip_high: float = 0.2) -> PolicyLoss:
    return ppo_loss(tokens, clip_low=0.2, clip_high=clip_high, dual_clip=3.0)


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "gradient", "clipped"),
    [
        # -min(r A, clip(r, 0.8, 1.2) A); the gradient by log π is -r A where r is not clipped
        (1.0, 2.0, -2.0, -2.0, False),
        (1.1, 2.0, -2.2, -2.2, False),
        (1.5, 2.0, -2.4, 0.0, True),  # -1.2 * 2
        (0.5, 2.0, -1.0, -1.0, False),  # min(1, 1.6) = 1: a good action made rarer is not excused
        (1.5, -2.0, 3.0, 3.0, False),  # -min(-3, -2.4) = 3
        (0.5, -2.0, 1.6, 0.0, True),  # -min(-1, -1.6) = 1.6
        (4.0, -2.0, 6.0, 0.0, True),  # dual clip: min(8, 3 * 2) = 6
        (4.0, 0.0, 0.0, 0.0, False),
    ],
)
def test_matches_the_hand_worked_token(
    ratio: float, advantage: float, loss: float, gradient: float, clipped: bool
) -> None:
    tokens = one_row([ratio], [advantage], [0.25])

    found = loss_of(tokens)

    assert found.loss.item() == pytest.approx(0.25 * loss)
    assert gradient_of(tokens, found) == [[pytest.approx(0.25 * gradient)]]
    assert found.clipped.item() == (0.25 if clipped else 0.0)
    assert found.ratio.item() == pytest.approx(0.25 * ratio)
    # log π_old - log π = -log r
    assert found.divergence.item() == pytest.approx(-0.25 * math.log(ratio))


def test_clip_higher_lets_good_actions_grow_further() -> None:
    tokens = one_row([1.25], [1.0], [1.0])

    assert loss_of(tokens, clip_high=0.2).loss.item() == pytest.approx(-1.2)
    assert loss_of(tokens, clip_high=0.28).loss.item() == pytest.approx(-1.25)


def test_the_loss_is_the_weighted_sum_of_its_tokens() -> None:
    # 0.5 * -2 + 0.3 * -2.4 + 0.2 * 1.6 = -1 - 0.72 + 0.32
    found = loss_of(one_row([1.0, 1.5, 0.5], [2.0, 2.0, -2.0], [0.5, 0.3, 0.2]))

    assert found.loss.item() == pytest.approx(-1.4)
    assert found.clipped.item() == pytest.approx(0.5)


def test_ratios_beyond_any_float_stay_finite() -> None:
    tokens = ActionTokens(
        policy_logprobs_BT=torch.zeros(1, 2, dtype=torch.float64, requires_grad=True),
        old_logprobs_BT=torch.full((1, 2), -1e4, dtype=torch.float64),
        advantages_BT=torch.tensor([[1.0, -1.0]], dtype=torch.float64),
        loss_weights_BT=torch.tensor([[0.5, 0.5]], dtype=torch.float64),
        actions_BT=torch.zeros(1, 2, dtype=torch.int64),
    )

    found = loss_of(tokens)

    # 0.5 * -1.2 + 0.5 * 3
    assert found.loss.item() == pytest.approx(0.9)
    assert gradient_of(tokens, found) == [[0.0, 0.0]]
