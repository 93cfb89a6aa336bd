# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# (torch annotates little of `backward` and `tolist`)
"""Tests for `longhaul_trainer.losses.tokens`, and what holds for every policy loss.

Shapes: B rows, T tokens.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from operator import itemgetter

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from longhaul_core.advantages import loss_weights
from longhaul_trainer.losses import ActionTokens, PolicyLoss, cispo_loss, gspo_loss, ppo_loss
from loss_tokens import PolicyLossOf, gradient_of, one_row


def ppo(tokens: ActionTokens) -> PolicyLoss:
    return ppo_loss(tokens, clip_low=0.2, clip_high=0.2, dual_clip=3.0)


def gspo(tokens: ActionTokens) -> PolicyLoss:
    return gspo_loss(tokens, clip_low=0.2, clip_high=0.2)


def cispo(tokens: ActionTokens) -> PolicyLoss:
    return cispo_loss(tokens, clip_low=0.5, clip_high=0.5)


every_loss = pytest.mark.parametrize("loss_of", [ppo, gspo, cispo])


def test_differing_shapes_are_refused() -> None:
    tokens = one_row([1.0, 1.0], [1.0, 1.0], [0.5, 0.5])

    with pytest.raises(ValueError, match=r"differ in shape: \[\(1, 1\), \(1, 2\)\]"):
        replace(tokens, advantages_BT=tokens.advantages_BT[:, :1])


@every_loss
@pytest.mark.parametrize(
    ("policy_padding", "old_padding"),
    [(-math.inf, -0.7), (math.inf, -0.7), (-math.inf, -math.inf), (math.nan, 0.0)],
)
def test_tokens_without_weight_may_hold_anything(
    loss_of: PolicyLossOf, policy_padding: float, old_padding: float
) -> None:
    alone = one_row([1.1], [2.0], [1.0])
    row = ActionTokens(
        policy_logprobs_BT=torch.tensor(
            [[alone.policy_logprobs_BT.item(), policy_padding]],
            dtype=torch.float64,
            requires_grad=True,
        ),
        old_logprobs_BT=torch.tensor(
            [[alone.old_logprobs_BT.item(), old_padding]], dtype=torch.float64
        ),
        advantages_BT=torch.tensor([[2.0, 1.0]], dtype=torch.float64),
        loss_weights_BT=torch.tensor([[1.0, 0.0]], dtype=torch.float64),
        actions_BT=torch.zeros(1, 2, dtype=torch.int64),
    )

    found = loss_of(row)

    for value, expected in zip(found, loss_of(alone), strict=True):
        assert value.item() == pytest.approx(expected.item())
    assert gradient_of(row, found) == [[pytest.approx(gradient_of(alone, loss_of(alone))[0][0]), 0]]


numbers = st.lists(st.tuples(st.floats(-3.0, 3.0), st.floats(0.01, 1.0)), min_size=1, max_size=6)
"""Advantage and weight of each token of a row."""


@every_loss
@given(numbers)
@settings(deadline=None, max_examples=30)
def test_before_the_first_update_the_gradient_is_the_policy_gradient(
    loss_of: PolicyLossOf, row: list[tuple[float, float]]
) -> None:
    """Σ weight · A · ∇(−log π), and nothing is clipped."""
    tokens = one_row([1.0] * len(row), [a for a, _ in row], [w for _, w in row])

    found = loss_of(tokens)

    assert gradient_of(tokens, found) == [pytest.approx([-w * a for a, w in row])]
    assert found.clipped.item() == 0.0
    assert found.ratio.item() == pytest.approx(sum(w for _, w in row))
    assert found.divergence.item() == 0.0


def is_off_the_bounds(row: list[float]) -> bool:
    """Neither a token's ratio nor the action's lies where a bound begins and rounding decides."""
    of_action = math.exp(sum(math.log(ratio) for ratio in row) / len(row))
    bounds = (0.5, 0.8, 1.2, 1.5, 3.0)
    return not any(math.isclose(r, b, rel_tol=1e-6) for r in (*row, of_action) for b in bounds)


ratios = st.lists(st.floats(0.1, 8.0), min_size=1, max_size=5).filter(is_off_the_bounds)
advantages = st.integers(-30, 30).map(lambda tenths: tenths / 10)
"""None so small that a product with it would vanish."""


@every_loss
@given(ratios, advantages, st.data())
@settings(deadline=None, max_examples=30)
def test_a_factor_of_a_tokens_loss_is_a_factor_of_its_advantage(
    loss_of: PolicyLossOf, row: list[float], advantage: float, data: st.DataObject
) -> None:
    """Which is why importance weights are multiplied into advantages, and metrics stay."""
    num = len(row)
    factors = data.draw(st.lists(st.floats(0.1, 5.0), min_size=num, max_size=num))
    by_advantage = one_row(row, [advantage * factor for factor in factors], [0.5] * num)
    by_weight = one_row(row, [advantage] * num, [0.5 * factor for factor in factors])

    found, expected = loss_of(by_advantage), loss_of(by_weight)

    assert found.loss.item() == pytest.approx(expected.loss.item(), abs=1e-9)
    assert gradient_of(by_advantage, found)[0] == pytest.approx(gradient_of(by_weight, expected)[0])
    plain = loss_of(one_row(row, [advantage] * num, [0.5] * num))
    assert found.clipped.item() == plain.clipped.item()


@every_loss
@given(ratios)
@settings(deadline=None, max_examples=30)
def test_a_step_without_an_advantage_has_no_gradient_and_is_not_clipped(
    loss_of: PolicyLossOf, row: list[float]
) -> None:
    tokens = one_row(row, [0.0] * len(row), [0.5] * len(row))

    found = loss_of(tokens)

    assert gradient_of(tokens, found) == [[0.0] * len(row)]
    assert found.clipped.item() == 0.0


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


def step_rows(
    steps: list[list[Action]], weights: list[tuple[float, ...]], *, pad: int
) -> ActionTokens:
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
    return ActionTokens(
        policy_logprobs_BT=policy.requires_grad_(),
        old_logprobs_BT=old,
        advantages_BT=advantages,
        loss_weights_BT=weights_BT,
        actions_BT=torch.zeros_like(weights_BT, dtype=torch.int64),
    )


def weights_of(steps: list[list[Action]], unit: str) -> list[tuple[float, ...]]:
    counts = [[len(of_step) for _, of_step in episode] for episode in steps]
    assert unit in ("token", "step", "episode")
    return list(loss_weights(counts, loss_unit=unit))


def loss_and_gradient(loss_of: PolicyLossOf, rows: ActionTokens) -> tuple[float, list[float]]:
    """The loss, and its gradient at the tokens that have a weight, in order."""
    found = loss_of(rows)
    gradient_BT = torch.tensor(gradient_of(rows, found), dtype=torch.float64)
    return found.loss.item(), gradient_BT[rows.loss_weights_BT > 0].tolist()


def mapped(rows: ActionTokens, change: Callable[[torch.Tensor], torch.Tensor]) -> ActionTokens:
    """`rows` with every tensor changed in the same way."""
    return ActionTokens(
        policy_logprobs_BT=change(rows.policy_logprobs_BT.detach()).requires_grad_(),
        old_logprobs_BT=change(rows.old_logprobs_BT),
        advantages_BT=change(rows.advantages_BT),
        loss_weights_BT=change(rows.loss_weights_BT),
        actions_BT=change(rows.actions_BT),
    )


units = st.sampled_from(["token", "step", "episode"])


@every_loss
@given(episodes, units, st.integers(1, 5))
@settings(deadline=None, max_examples=30)
def test_padding_changes_nothing(
    loss_of: PolicyLossOf, steps: list[list[Action]], unit: str, pad: int
) -> None:
    weights = weights_of(steps, unit)

    bare = loss_and_gradient(loss_of, step_rows(steps, weights, pad=0))
    padded = loss_and_gradient(loss_of, step_rows(steps, weights, pad=pad))

    assert padded[0] == pytest.approx(bare[0])
    assert padded[1] == pytest.approx(bare[1])


@every_loss
@given(episodes, units, st.integers(1, 3))
@settings(deadline=None, max_examples=30)
def test_micro_batches_add_up_to_the_whole(
    loss_of: PolicyLossOf, steps: list[list[Action]], unit: str, num_rows: int
) -> None:
    rows = step_rows(steps, weights_of(steps, unit), pad=0)
    whole = loss_and_gradient(loss_of, rows)

    starts = range(0, len(rows.loss_weights_BT), num_rows)
    parts = [mapped(rows, itemgetter(slice(start, start + num_rows))) for start in starts]
    losses = [loss_and_gradient(loss_of, part) for part in parts]

    assert sum(loss for loss, _ in losses) == pytest.approx(whole[0], abs=1e-9)
    assert [g for _, gradient in losses for g in gradient] == pytest.approx(whole[1])
    metrics = [[value.item() for value in loss_of(part)] for part in parts]
    assert [sum(column) for column in zip(*metrics, strict=True)] == pytest.approx(
        [value.item() for value in loss_of(rows)], abs=1e-9
    )


def merged_rows(rows: ActionTokens, steps: list[list[Action]], *, gap: int) -> ActionTokens:
    """One row per episode: its actions, and between them `gap` tokens of rubbish."""
    widths = [sum(len(t) + gap for _, t in episode) for episode in steps]
    places: list[tuple[int, int, int]] = []  # row, start and number of each step's action
    for row, episode in enumerate(steps):
        start = 0
        for number, (_, of_step) in enumerate(episode):
            places.append((row, start, number))
            start += len(of_step) + gap

    def merged(column_BT: torch.Tensor, rubbish: float) -> torch.Tensor:
        out_BT = torch.full((len(steps), max(widths)), rubbish, dtype=torch.float64)
        of_steps = [of_step for episode in steps for _, of_step in episode]
        for (row, start, _), values, of_step in zip(places, column_BT, of_steps, strict=True):
            out_BT[row, start : start + len(of_step)] = values[: len(of_step)]
        return out_BT

    actions_BT = torch.zeros((len(steps), max(widths)), dtype=torch.int64)
    for row, start, number in places:
        actions_BT[row, start:] = number
    return ActionTokens(
        policy_logprobs_BT=merged(rows.policy_logprobs_BT.detach(), -7.0).requires_grad_(),
        old_logprobs_BT=merged(rows.old_logprobs_BT, -0.1),
        advantages_BT=merged(rows.advantages_BT, 5.0),
        loss_weights_BT=merged(rows.loss_weights_BT, 0.0),
        actions_BT=actions_BT,
    )


@every_loss
@given(episodes, units, st.integers(0, 3))
@settings(deadline=None, max_examples=30)
def test_rows_merged_into_one_per_episode_give_the_gradient_of_rows_per_step(
    loss_of: PolicyLossOf, steps: list[list[Action]], unit: str, gap: int
) -> None:
    split = step_rows(steps, weights_of(steps, unit), pad=0)
    merged = merged_rows(split, steps, gap=gap)

    loss, gradient = loss_and_gradient(loss_of, merged)

    assert loss == pytest.approx(loss_and_gradient(loss_of, split)[0], abs=1e-9)
    assert gradient == pytest.approx(loss_and_gradient(loss_of, split)[1])
    found, expected = loss_of(merged), loss_of(split)
    for name in ("clipped", "divergence", "ratio"):
        value = getattr(found, name).item()
        assert value == pytest.approx(getattr(expected, name).item(), abs=1e-9)


def test_without_its_actions_a_merged_row_has_another_ratio_of_the_sequence() -> None:
    ratios, actions = [1.5, 1.0, 0.5, 0.25], [0, 0, 1, 1]
    told = one_row(ratios, [1.0] * 4, [0.25] * 4, actions)

    assert gspo(told).loss.item() != pytest.approx(
        gspo(one_row(ratios, [1.0] * 4, [0.25] * 4)).loss.item()
    )


def step_ppo(advantage: float, of_step: list[tuple[float, float]]) -> list[float]:
    """By the definition, one token after the other."""
    losses: list[float] = []
    for new, before in of_step:
        ratio = math.exp(new - before)
        surrogate = min(ratio * advantage, min(max(ratio, 0.8), 1.2) * advantage)
        if advantage < 0:
            surrogate = max(surrogate, 3.0 * advantage)
        losses.append(-surrogate)
    return losses


def step_gspo(advantage: float, of_step: list[tuple[float, float]]) -> list[float]:
    """By the definition, the geometric mean of the step's ratios."""
    product = math.prod(math.exp(new) / math.exp(before) for new, before in of_step)
    ratio = product ** (1 / len(of_step))
    return [-min(ratio * advantage, min(max(ratio, 0.8), 1.2) * advantage)] * len(of_step)


def step_cispo(advantage: float, of_step: list[tuple[float, float]]) -> list[float]:
    """By the definition, one token after the other."""
    return [
        -min(max(math.exp(new - before), 0.5), 1.5) * advantage * new for new, before in of_step
    ]


@pytest.mark.parametrize(
    ("loss_of", "step_loss"), [(ppo, step_ppo), (gspo, step_gspo), (cispo, step_cispo)]
)
@given(episodes, units)
@settings(deadline=None, max_examples=30)
def test_agrees_with_the_definition_step_by_step(
    loss_of: PolicyLossOf,
    step_loss: Callable[[float, list[tuple[float, float]]], list[float]],
    steps: list[list[Action]],
    unit: str,
) -> None:
    weights = weights_of(steps, unit)
    expected = sum(
        weight * sum(step_loss(advantage, of_step))
        for episode, of_episode in zip(steps, weights, strict=True)
        for (advantage, of_step), weight in zip(episode, of_episode, strict=True)
    )

    found = loss_and_gradient(loss_of, step_rows(steps, weights, pad=0))[0]

    assert found == pytest.approx(expected, abs=1e-9)
