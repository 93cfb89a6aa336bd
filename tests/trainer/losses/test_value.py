"""Tests for `longhaul_trainer.losses.value`, by hand and against the definition of one value."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from longhaul_trainer.losses import value_loss

numbers = st.floats(-3, 3).map(lambda value: round(value, 3))


def loss_of(value: float, old: float, target: float, clip_range: float | None) -> tuple[float, ...]:
    values = torch.tensor([[value]], dtype=torch.float64, requires_grad=True)
    found = value_loss(
        values,
        old_values_BT=torch.tensor([[old]], dtype=torch.float64),
        targets_BT=torch.tensor([[target]], dtype=torch.float64),
        weights_BT=torch.tensor([[0.5]], dtype=torch.float64),
        clip_range=clip_range,
    )
    (gradient,) = torch.autograd.grad(found.loss, values)
    return found.loss.item(), gradient.item(), found.clipped.item()


def test_half_the_squared_error_by_hand() -> None:
    assert loss_of(3.0, 0.0, 1.0, None) == (1.0, 1.0, 0.0)  # 0.5 * (3 - 1)^2 / 2


def test_a_value_that_has_come_far_enough_gains_nothing_by_going_further() -> None:
    # from 0 to 0.5 on its way to 2, at a range of 0.2: (0.2 - 2)^2 / 4, and no gradient
    assert loss_of(0.5, 0.0, 2.0, 0.2) == pytest.approx((0.81, 0.0, 0.5))


def test_a_value_that_went_the_wrong_way_is_still_pulled_back() -> None:
    # from 0 to -0.5: the error itself is the larger one
    assert loss_of(-0.5, 0.0, 2.0, 0.2) == pytest.approx((1.5625, -1.25, 0.0))


@given(value=numbers, old=numbers, target=numbers, clip_range=st.none() | st.floats(0.01, 2))
def test_it_is_the_larger_of_both_errors(
    value: float, old: float, target: float, clip_range: float | None
) -> None:
    loss, _, _ = loss_of(value, old, target, clip_range)

    errors = [(value - target) ** 2]
    if clip_range is not None:
        errors.append((min(max(value, old - clip_range), old + clip_range) - target) ** 2)
    assert loss == pytest.approx(0.5 * max(errors) / 2, abs=1e-12)


def test_what_weighs_nothing_is_nothing_whatever_it_holds() -> None:
    values = torch.tensor([[1.0, float("nan"), float("inf")]], requires_grad=True)
    found = value_loss(
        values,
        old_values_BT=torch.zeros(1, 3),
        targets_BT=torch.zeros(1, 3),
        weights_BT=torch.tensor([[1.0, 0.0, 0.0]]),
        clip_range=0.5,
    )
    (gradient,) = torch.autograd.grad(found.loss, values)

    assert found.loss.item() == 0.5
    assert torch.equal(gradient, torch.tensor([[1.0, 0.0, 0.0]]))
