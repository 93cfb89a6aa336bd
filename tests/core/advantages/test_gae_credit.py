"""Tests for `longhaul_core.advantages.gae_credit`: by hand, and against GAE and whitening apart."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from longhaul_core.advantages import Whiten
from longhaul_core.advantages.gae import gae_over_steps, gae_over_tokens
from longhaul_core.advantages.gae_credit import GaeLevel, gae_credit

numbers = st.floats(-4, 4).map(lambda value: round(value, 3))
steps = st.tuples(numbers, st.lists(numbers, min_size=1, max_size=4))
"""A reward, and a value before each token."""
episodes = st.tuples(st.lists(steps, min_size=1, max_size=5), st.none() | numbers)
batches = st.lists(episodes, min_size=2, max_size=5)


def arrays(batch: list[Any]) -> tuple[list[Any], list[Any], list[float | None]]:
    rewards = [np.array([reward for reward, _ in steps]) for steps, _ in batch]
    values = [[np.array(values) for _, values in steps] for steps, _ in batch]
    return rewards, values, [final for _, final in batch]


def test_actions_by_hand() -> None:
    # discount 1, decay 1: targets are what is still paid: 1, 1 | 0 + final value 2
    # less the values 0.5, 1 | 1: 0.5, 0 | 1; two tokens, one | one: mean 0.5, variance 1/6
    credits = gae_credit(
        [np.array([0.0, 1.0]), np.array([0.0])],
        [[np.array([0.5, 9.0]), np.array([1.0])], [np.array([1.0])]],
        [None, 2.0],
        level="step",
        discount=1.0,
        gae_lambda=1.0,
    )

    scale = (1 / 6 + 1e-8) ** -0.5
    assert [credit.value_targets for credit in credits] == [(1.0, 1.0), (2.0,)]
    assert credits[0].advantages == pytest.approx((0.0, -0.5 * scale))
    assert credits[1].advantages == pytest.approx((0.5 * scale,))
    assert credits[0].step_advantages == credits[0].advantages
    assert credits[0].episode_advantage == 0.0
    assert credits[0].token_advantages is None
    assert credits[0].returns_to_go == (1.0, 1.0)


@pytest.mark.parametrize("level", ["step", "token"])
def test_an_episode_that_is_left_alone_has_nothing_to_be_compared_with(level: GaeLevel) -> None:
    """The others of its training step failed. The critic still learns of it."""
    [credit] = gae_credit(
        [np.array([0.0, 1.0])],
        [[np.array([0.5]), np.array([0.25])]],
        [None],
        level=level,
        discount=1.0,
        gae_lambda=1.0,
        whiten="episode",
    )

    assert credit.advantages == (0.0, 0.0)
    assert credit.value_targets == (1.0, 1.0)


def test_tokens_by_hand() -> None:
    # target 1 in both episodes: 1 - 0.5, 1 - 1.5 | 1 - 1: mean 0, variance 1/4
    credits = gae_credit(
        [np.array([1.0]), np.array([1.0])],
        [[np.array([0.5, 1.5])], [np.array([1.0])]],
        [None, None],
        level="token",
        discount=0.9,
        gae_lambda=0.5,
    )

    assert credits[0].token_advantages == (pytest.approx((1.0, -1.0), abs=1e-6),)
    assert credits[1].token_advantages == (pytest.approx((0.0,), abs=1e-6),)
    assert credits[0].advantages == pytest.approx((0.0,), abs=1e-12)
    assert credits[0].value_targets == (1.0,)


@given(
    batch=batches,
    level=st.sampled_from(("step", "token")),
    whiten=st.sampled_from(("token", "episode")),
)
def test_it_is_gae_less_its_mean_and_by_its_deviation(
    batch: list[Any], level: GaeLevel, whiten: Whiten
) -> None:
    rewards, values, finals = arrays(batch)
    if whiten == "token" and sum(len(v) for episode in values for v in episode) < 2:
        return
    decays: Any = {"discount": 0.9, "gae_lambda": 0.7}

    credits = gae_credit(rewards, values, finals, level=level, whiten=whiten, **decays)

    if level == "step":
        first = [np.array([v[0] for v in episode]) for episode in values]
        raw = [
            [np.full(len(v), a) for v, a in zip(episode, credit.advantages, strict=True)]
            for episode, credit in zip(
                values, gae_over_steps(rewards, first, finals, **decays), strict=True
            )
        ]
        found = [
            [np.full(len(v), a) for v, a in zip(episode, credit.advantages, strict=True)]
            for episode, credit in zip(values, credits, strict=True)
        ]
    else:
        raw = [list(c.advantages) for c in gae_over_tokens(rewards, values, finals, **decays)]
        found = [[np.array(a) for a in c.token_advantages or ()] for c in credits]
    tokens = [np.concatenate(episode) for episode in raw]
    weights = [np.full(len(t), 1.0 if whiten == "token" else 1 / len(t)) for t in tokens]
    all_tokens, all_weights = np.concatenate(tokens), np.concatenate(weights)
    mean = (all_weights * all_tokens).sum() / all_weights.sum()
    variance = (all_weights * (all_tokens - mean) ** 2).sum() / (all_weights.sum() - 1)
    expected = (all_tokens - mean) / np.sqrt(variance + 1e-8)
    np.testing.assert_allclose(
        np.concatenate([t for episode in found for t in episode]), expected, atol=1e-6, rtol=1e-6
    )


@given(batch=batches)
def test_an_action_of_one_token_is_a_token(batch: list[Any]) -> None:
    single = [([(reward, values[:1]) for reward, values in steps], final) for steps, final in batch]
    decays: Any = {"discount": 0.9, "gae_lambda": 0.7}

    by_step, by_token = (
        gae_credit(*arrays(single), level=level, **decays) for level in ("step", "token")
    )

    for one, other in zip(by_step, by_token, strict=True):
        assert one.advantages == pytest.approx(other.advantages, abs=1e-9)
        assert one.value_targets == pytest.approx(other.value_targets, abs=1e-12)


def test_a_step_without_a_value_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one"):
        gae_credit(
            [np.array([1.0])], [[np.array([])]], [None], level="step", discount=1, gae_lambda=1
        )
