# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# (torch annotates little of `backward` and `tolist`)
"""Tests for `longhaul_trainer.losses.kl`."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from longhaul_trainer.losses import kl_estimate
from longhaul_trainer.losses.kl import KlKind

KINDS: tuple[KlKind, ...] = ("k1", "k2", "k3")

probabilities = st.lists(st.floats(0.05, 1.0), min_size=4, max_size=4).map(
    lambda weights: [weight / sum(weights) for weight in weights]
)
"""A policy over four tokens."""


def estimate(policy: float, reference: float, kind: KlKind) -> tuple[float, float]:
    """The estimate at one token with these logprobs, and its derivative by log π."""
    logprob = torch.tensor([[policy]], dtype=torch.float64, requires_grad=True)
    value = kl_estimate(logprob, torch.tensor([[reference]], dtype=torch.float64), kind=kind)
    value.sum().backward()
    assert logprob.grad is not None
    return value.item(), logprob.grad.item()


@pytest.mark.parametrize(
    ("kind", "value", "derivative"),
    [
        # π = 1/2, π_ref = 1/4: d = log(1/4) - log(1/2) = -log 2 = -0.693147
        ("k1", 0.693147, 1.0),  # -d; its derivative by log π is 1
        ("k2", 0.240227, 0.693147),  # d² / 2 = 0.480453 / 2; -d
        ("k3", 0.193147, 0.5),  # 1/2 - 1 + 0.693147; 1 - e^d
    ],
)
def test_matches_the_hand_worked_token(kind: KlKind, value: float, derivative: float) -> None:
    found = estimate(math.log(0.5), math.log(0.25), kind)

    assert found == pytest.approx((value, derivative), abs=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_equal_policies_are_at_distance_zero(kind: KlKind) -> None:
    assert estimate(-1.5, -1.5, kind)[0] == 0.0


@pytest.mark.parametrize("kind", ["k1", "k3"])
@given(policy=probabilities, reference=probabilities)
@settings(deadline=None, max_examples=30)
def test_the_mean_over_sampled_tokens_is_the_divergence(
    kind: KlKind, policy: list[float], reference: list[float]
) -> None:
    divergence = sum(p * math.log(p / q) for p, q in zip(policy, reference, strict=True))

    mean = sum(
        p * estimate(math.log(p), math.log(q), kind)[0]
        for p, q in zip(policy, reference, strict=True)
    )

    assert mean == pytest.approx(divergence, abs=1e-9)


@given(policy=probabilities, reference=probabilities)
@settings(deadline=None, max_examples=30)
def test_the_gradient_of_k2_is_that_of_the_divergence(
    policy: list[float], reference: list[float]
) -> None:
    """By the logits z of a softmax policy, exactly, as a sum over all tokens."""

    def logprobs(logits: torch.Tensor) -> torch.Tensor:
        return logits.log_softmax(-1)

    log_reference = torch.tensor(reference, dtype=torch.float64).log()
    logits = torch.tensor(policy, dtype=torch.float64).log().requires_grad_()
    exact = (logprobs(logits).exp() * (logprobs(logits) - log_reference)).sum()
    (expected,) = torch.autograd.grad(exact, logits)

    value = kl_estimate(logprobs(logits), log_reference, kind="k2")
    sampled = (torch.tensor(policy, dtype=torch.float64) * value).sum()
    (found,) = torch.autograd.grad(sampled, logits)

    torch.testing.assert_close(found, expected)


@given(st.floats(-30.0, 0.0), st.floats(-30.0, 0.0))
@settings(deadline=None, max_examples=30)
def test_k2_and_k3_are_never_negative(policy: float, reference: float) -> None:
    assert estimate(policy, reference, "k2")[0] >= 0.0
    assert estimate(policy, reference, "k3")[0] >= -1e-12


def test_k3_of_a_token_the_reference_finds_far_likelier_is_finite() -> None:
    value, derivative = estimate(-2000.0, 0.0, "k3")

    assert math.isfinite(value)
    assert math.isfinite(derivative)


def test_k3_pulls_back_a_token_the_reference_finds_nearly_impossible() -> None:
    # d = -50: e^d is 0, so the value is 49 and the derivative by log π is 1
    assert estimate(0.0, -50.0, "k3") == pytest.approx((49.0, 1.0))
