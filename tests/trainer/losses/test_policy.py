# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# (torch annotates little of `backward` and `tolist`)
"""Tests for `longhaul_trainer.losses.policy`.

Shapes: B rows, T tokens.
"""

import math
from typing import NamedTuple

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from longhaul_core.advantages import loss_weights
from longhaul_trainer.losses import PolicyLoss, clipped_policy_loss

LOG = math.log


class Rows(NamedTuple):
    """Tokens of some rows, as the loss takes them."""

    policy: torch.Tensor
    old: torch.Tensor
    advantages: torch.Tensor
    weights: torch.Tensor


def loss_of(rows: Rows, *, clip_high: float = 0.2) -> PolicyLoss:
    return clipped_policy_loss(
        policy_logprobs_BT=rows.policy,
        old_logprobs_BT=rows.old,
        advantages_BT=rows.advantages,
        loss_weights_BT=rows.weights,
        clip_low=0.2,
        clip_high=clip_high,
        dual_clip=3.0,
    )


def rows_of(ratios: list[float], advantages: list[float], weights: list[float]) -> Rows:
    """One row whose tokens have these probability ratios, from a probability of 1/2 before."""
    old = torch.full((1, len(ratios)), LOG(0.5), dtype=torch.float64)
    policy = old + torch.tensor([ratios], dtype=torch.float64).log()
    return Rows(
        policy.requires_grad_(),
        old,
        torch.tensor([advantages], dtype=torch.float64),
        torch.tensor([weights], dtype=torch.float64),
    )


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
    rows = rows_of([ratio], [advantage], [0.25])

    found = loss_of(rows)
    found.loss.backward()

    assert found.loss.item() == pytest.approx(0.25 * loss)
    assert rows.policy.grad is not None
    assert rows.policy.grad.item() == pytest.approx(0.25 * gradient)
    assert found.clipped_weight.item() == (0.25 if clipped else 0.0)
    # log π_old - log π = -log r
    assert found.divergence.item() == pytest.approx(-0.25 * LOG(ratio))


def test_clip_higher_lets_good_actions_grow_further() -> None:
    rows = rows_of([1.25], [1.0], [1.0])

    assert loss_of(rows, clip_high=0.2).loss.item() == pytest.approx(-1.2)
    assert loss_of(rows, clip_high=0.28).loss.item() == pytest.approx(-1.25)


def test_the_loss_is_the_weighted_sum_of_its_tokens() -> None:
    # 0.5 * -2 + 0.3 * -2.4 + 0.2 * 1.6 = -1 - 0.72 + 0.32
    found = loss_of(rows_of([1.0, 1.5, 0.5], [2.0, 2.0, -2.0], [0.5, 0.3, 0.2]))

    assert found.loss.item() == pytest.approx(-1.4)
    assert found.clipped_weight.item() == pytest.approx(0.5)


def test_differing_shapes_are_refused() -> None:
    rows = rows_of([1.0, 1.0], [1.0, 1.0], [0.5, 0.5])

    with pytest.raises(ValueError, match=r"differ in shape: \[\(1, 1\), \(1, 2\)\]"):
        loss_of(rows._replace(advantages=rows.advantages[:, :1]))


@pytest.mark.parametrize(
    ("policy_padding", "old_padding"),
    [(-math.inf, LOG(0.5)), (math.inf, LOG(0.5)), (-math.inf, -math.inf), (math.nan, 0.0)],
)
def test_tokens_without_weight_may_hold_anything(policy_padding: float, old_padding: float) -> None:
    rows = rows_of([1.5, 0.5], [2.0, 1.0], [1.0, 0.0])
    policy = torch.tensor([[rows.policy[0, 0].item(), policy_padding]], requires_grad=True)
    old = torch.tensor([[rows.old[0, 0].item(), old_padding]])

    found = loss_of(rows._replace(policy=policy, old=old))
    found.loss.backward()

    assert found.loss.item() == pytest.approx(-2.4)
    assert policy.grad is not None
    assert policy.grad.tolist() == [[0.0, 0.0]]


def test_ratios_beyond_any_float_stay_finite() -> None:
    rows = rows_of([1.0, 1.0], [1.0, -1.0], [0.5, 0.5])
    policy = torch.tensor([[0.0, 0.0]], dtype=torch.float64, requires_grad=True)
    old = torch.tensor([[-1e4, -1e4]], dtype=torch.float64)

    found = loss_of(rows._replace(policy=policy, old=old))
    found.loss.backward()

    # 0.5 * -1.2 + 0.5 * 3
    assert found.loss.item() == pytest.approx(0.9)
    assert policy.grad is not None
    assert policy.grad.tolist() == [[0.0, 0.0]]


# Properties: what an optimizer step learns does not depend on how its episodes were cut.

logprobs = st.floats(-4.0, 0.0)
tokens = st.tuples(logprobs, logprobs)
"""log π and log π_old of a token."""
actions = st.tuples(st.floats(-3.0, 3.0), st.lists(tokens, min_size=1, max_size=4))
"""Advantage and tokens of one step."""
episodes = st.lists(st.lists(actions, min_size=1, max_size=4), min_size=1, max_size=4)
Action = tuple[float, list[tuple[float, float]]]


def float64(numbers: list[float]) -> torch.Tensor:
    return torch.tensor(numbers, dtype=torch.float64)


def step_rows(steps: list[list[Action]], weights: list[tuple[float, ...]], *, pad: int) -> Rows:
    """One row per step, padded on the right by rubbish of weight 0."""
    flat = [(a, t, w) for episode, ws in zip(steps, weights, strict=True) for (a, t), w in
            zip(episode, ws, strict=True)]  # fmt: skip
    width = max(len(t) for _, t, _ in flat) + pad
    policy = torch.full((len(flat), width), -7.0, dtype=torch.float64)
    old = torch.full((len(flat), width), -0.1, dtype=torch.float64)
    advantages = torch.full((len(flat), width), 5.0, dtype=torch.float64)
    weights_BT = torch.zeros((len(flat), width), dtype=torch.float64)
    for row, (advantage, of_step, weight) in enumerate(flat):
        policy[row, : len(of_step)] = float64([new for new, _ in of_step])
        old[row, : len(of_step)] = float64([before for _, before in of_step])
        advantages[row, : len(of_step)] = advantage
        weights_BT[row, : len(of_step)] = weight
    return Rows(policy, old, advantages, weights_BT)


def weights_of(steps: list[list[Action]], unit: str) -> list[tuple[float, ...]]:
    counts = [[len(of_step) for _, of_step in episode] for episode in steps]
    assert unit in ("token", "step", "episode")
    return list(loss_weights(counts, loss_unit=unit))


def loss_and_gradient(rows: Rows) -> tuple[float, list[float]]:
    """The loss, and its gradient at the tokens that have a weight, in order."""
    policy = rows.policy.clone().requires_grad_()
    loss = loss_of(rows._replace(policy=policy)).loss
    loss.backward()
    assert policy.grad is not None
    return loss.item(), policy.grad[rows.weights > 0].tolist()


units = st.sampled_from(["token", "step", "episode"])


@given(episodes, units, st.integers(1, 5))
@settings(deadline=None, max_examples=30)
def test_padding_changes_nothing(steps: list[list[Action]], unit: str, pad: int) -> None:
    weights = weights_of(steps, unit)

    bare = loss_and_gradient(step_rows(steps, weights, pad=0))
    padded = loss_and_gradient(step_rows(steps, weights, pad=pad))

    assert padded[0] == pytest.approx(bare[0])
    assert padded[1] == pytest.approx(bare[1])


@given(episodes, units, st.integers(1, 3))
@settings(deadline=None, max_examples=30)
def test_micro_batches_add_up_to_the_whole(
    steps: list[list[Action]], unit: str, num_rows: int
) -> None:
    rows = step_rows(steps, weights_of(steps, unit), pad=0)
    whole = loss_and_gradient(rows)

    starts = range(0, len(rows.policy), num_rows)
    parts = [
        loss_and_gradient(Rows(*(tensor[start : start + num_rows] for tensor in rows)))
        for start in starts
    ]

    assert sum(loss for loss, _ in parts) == pytest.approx(whole[0], abs=1e-9)
    assert [g for _, gradient in parts for g in gradient] == pytest.approx(whole[1])


@given(episodes, units)
@settings(deadline=None, max_examples=30)
def test_rows_merged_into_one_per_episode_give_the_gradient_of_rows_per_step(
    steps: list[list[Action]], unit: str
) -> None:
    weights = weights_of(steps, unit)
    split = step_rows(steps, weights, pad=0)
    width = max(sum(len(t) for _, t in episode) for episode in steps)

    def merged(column: torch.Tensor) -> torch.Tensor:
        out = torch.zeros((len(steps), width), dtype=torch.float64)
        row = 0
        for place, episode in enumerate(steps):
            of_episode = [column[row + i, : len(t)] for i, (_, t) in enumerate(episode)]
            joined = torch.cat(of_episode)
            out[place, : len(joined)] = joined
            row += len(episode)
        return out

    loss, gradient = loss_and_gradient(Rows(*(merged(column) for column in split)))

    assert loss == pytest.approx(loss_and_gradient(split)[0], abs=1e-9)
    assert gradient == pytest.approx(loss_and_gradient(split)[1])


@given(episodes, units)
@settings(deadline=None, max_examples=30)
def test_agrees_with_the_definition_token_by_token(steps: list[list[Action]], unit: str) -> None:
    weights = weights_of(steps, unit)
    expected = 0.0
    for episode, of_episode in zip(steps, weights, strict=True):
        for (advantage, of_step), weight in zip(episode, of_episode, strict=True):
            for new, before in of_step:
                ratio = math.exp(new - before)
                surrogate = min(ratio * advantage, min(max(ratio, 0.8), 1.2) * advantage)
                if advantage < 0:
                    surrogate = max(surrogate, 3.0 * advantage)
                expected -= weight * surrogate

    assert loss_and_gradient(step_rows(steps, weights, pad=0))[0] == pytest.approx(
        expected, abs=1e-9
    )
