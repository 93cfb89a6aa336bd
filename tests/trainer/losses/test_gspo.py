# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# (torch annotates little of `backward` and `tolist`)
"""Tests for `longhaul_trainer.losses.gspo`."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from longhaul_trainer.losses import ActionTokens, PolicyLoss, gspo_loss
from loss_tokens import gradient_of, one_row


def loss_of(tokens: ActionTokens) -> PolicyLoss:
    return gspo_loss(tokens, clip_low=0.2, clip_high=0.3)


@pytest.mark.parametrize(
    ("ratios", "advantage", "loss", "gradient", "clipped"),
    [
        # s = (4 * 1/4)^(1/2) = 1: a token's own ratio does not matter
        ([4.0, 0.25], 2.0, -2.0, -2.0, False),
        # s = (1.44 * 1)^(1/2) = 1.2, inside [0.8, 1.3]: -1.2 * 2
        ([1.44, 1.0], 2.0, -2.4, -2.4, False),
        # s = (9 * 1/4)^(1/2) = 1.5: -min(1.5 * 2, 1.3 * 2)
        ([9.0, 0.25], 2.0, -2.6, 0.0, True),
        # s = 1.5: -min(-3, -2.6)
        ([9.0, 0.25], -2.0, 3.0, 3.0, False),
        # s = (1 * 0.25)^(1/2) = 0.5: -min(0.5 * 2, 0.8 * 2)
        ([1.0, 0.25], 2.0, -1.0, -1.0, False),
        # s = 0.5: -min(-1, -1.6)
        ([1.0, 0.25], -2.0, 1.6, 0.0, True),
        # s = 16^(1/2) = 4; nothing up to e^10 bounds the loss of what was bad and became likelier
        ([4.0, 4.0], -2.0, 8.0, 8.0, False),
    ],
)
def test_matches_the_hand_worked_reply_of_two_tokens(
    ratios: list[float], advantage: float, loss: float, gradient: float, clipped: bool
) -> None:
    tokens = one_row(ratios, [advantage] * 2, [0.25] * 2)

    found = loss_of(tokens)

    # two tokens of weight 1/4 each; each token's gradient is its weight's share of -s A
    assert found.loss.item() == pytest.approx(0.5 * loss)
    assert gradient_of(tokens, found) == [pytest.approx([0.25 * gradient] * 2)]
    assert found.clipped.item() == pytest.approx(0.5 if clipped else 0.0)
    assert found.ratio.item() == pytest.approx(0.5 * math.sqrt(ratios[0] * ratios[1]))
    assert found.divergence.item() == pytest.approx(-0.25 * math.log(ratios[0] * ratios[1]))


def test_padding_is_no_part_of_the_mean() -> None:
    # s = 1.44^(1/2) = 1.2 over two tokens; over three it would be 1.13
    tokens = one_row([1.44, 1.0, 1.0], [2.0, 2.0, 2.0], [0.5, 0.5, 0.0])

    assert loss_of(tokens).loss.item() == pytest.approx(-2.4)


def test_with_an_advantage_per_token_each_keeps_its_own() -> None:
    # s = 1.2 for both; -0.5 * 1.2 * 2 - 0.5 * 1.2 * (-1)
    tokens = one_row([1.44, 1.0], [2.0, -1.0], [0.5, 0.5])

    found = loss_of(tokens)

    assert found.loss.item() == pytest.approx(-0.6)
    assert gradient_of(tokens, found) == [pytest.approx([-1.2, 0.6])]


@given(
    st.lists(st.floats(-0.5, 0.5), min_size=1, max_size=6),
    st.floats(-2.0, 2.0),
    st.floats(0.01, 1.0),
)
@settings(deadline=None, max_examples=60)
def test_agrees_with_the_loss_of_the_sequence_differentiated_as_it_stands(
    log_ratios: list[float], advantage: float, weight: float
) -> None:
    """Not the token form: the paper's own ratio, through which the gradient goes."""
    old = torch.full((len(log_ratios),), -1.0, dtype=torch.float64)
    policy = (old + torch.tensor(log_ratios, dtype=torch.float64)).requires_grad_()
    ratio = ((policy - old).sum() / len(log_ratios)).exp()
    objective = torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.3) * advantage)
    (expected,) = torch.autograd.grad(-weight * len(log_ratios) * objective, policy)

    row = policy.detach()[None].requires_grad_()
    tokens = ActionTokens(
        policy_logprobs_BT=row,
        old_logprobs_BT=old[None],
        advantages_BT=torch.full_like(row, advantage, requires_grad=False),
        loss_weights_BT=torch.full_like(row, weight, requires_grad=False),
        actions_BT=torch.zeros_like(row, dtype=torch.int64, requires_grad=False),
    )
    found = loss_of(tokens)

    assert found.loss.item() == pytest.approx(-weight * len(log_ratios) * objective.item())
    assert gradient_of(tokens, found) == [pytest.approx(expected.tolist(), abs=1e-12)]


def test_ratios_beyond_any_float_stay_finite() -> None:
    tokens = ActionTokens(
        policy_logprobs_BT=torch.zeros(1, 2, dtype=torch.float64, requires_grad=True),
        old_logprobs_BT=torch.full((1, 2), -1e4, dtype=torch.float64),
        advantages_BT=torch.full((1, 2), -1.0, dtype=torch.float64),
        loss_weights_BT=torch.full((1, 2), 0.5, dtype=torch.float64),
        actions_BT=torch.zeros(1, 2, dtype=torch.int64),
    )

    found = loss_of(tokens)

    # s is held at e^10, as in verl, and there is no gradient beyond it
    assert found.loss.item() == pytest.approx(math.exp(10))
    assert gradient_of(tokens, found) == [[0.0, 0.0]]
