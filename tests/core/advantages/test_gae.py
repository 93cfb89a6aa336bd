"""Tests for `longhaul_core.advantages.gae`."""

from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from longhaul_core.advantages import returns_to_go
from longhaul_core.advantages.credit import FloatArray
from longhaul_core.advantages.gae import gae_over_steps, gae_over_tokens

numbers = st.floats(-10, 10)
fractions = st.floats(0, 1)


class Action(NamedTuple):
    """One step: what it was paid, and of each token the critic's value and the penalty."""

    reward: float
    values: list[float]
    penalties: list[float]


@st.composite
def actions(draw: st.DrawFn, *, min_tokens: int = 1) -> Action:
    size = draw(st.integers(min_tokens, 4))
    column = st.lists(numbers, min_size=size, max_size=size)
    return Action(draw(numbers), draw(column), draw(column))


episodes = st.lists(actions(), min_size=1, max_size=6)
finals = st.none() | numbers


def over_steps(
    rewards: list[float],
    values: list[float],
    final: float | None,
    *,
    discount: float,
    gae_lambda: float,
) -> tuple[FloatArray, FloatArray]:
    (credit,) = gae_over_steps(
        [np.array(rewards)],
        [np.array(values)],
        [final],
        discount=discount,
        gae_lambda=gae_lambda,
    )
    return credit.advantages, credit.value_targets


def over_tokens(
    episode: list[Action], final: float | None, *, discount: float, gae_lambda: float
) -> tuple[list[FloatArray], list[FloatArray]]:
    (credit,) = gae_over_tokens(
        [np.array([action.reward for action in episode])],
        [[np.array(action.values) for action in episode]],
        [final],
        discount=discount,
        gae_lambda=gae_lambda,
    )
    return list(credit.advantages), list(credit.value_targets)


@pytest.mark.parametrize(
    ("final", "expected"),
    [
        # rewards 1, 0, 2; values 3, 1, 4; discount 1/2, decay 1/2 (product 1/4)
        # terminated: delta_2 = 2 - 4 = -2; delta_1 = 0 + 4/2 - 1 = 1; delta_0 = 1 + 1/2 - 3 = -3/2
        # A_2 = -2; A_1 = 1 - 2/4 = 1/2; A_0 = -3/2 + 1/8 = -11/8
        (None, [-1.375, 0.5, -2.0]),
        # truncated before a state worth 8: delta_2 = 2 + 8/2 - 4 = 2
        # A_2 = 2; A_1 = 1 + 2/4 = 3/2; A_0 = -3/2 + 3/8 = -9/8
        (8.0, [-1.125, 1.5, 2.0]),
    ],
)
def test_steps_match_the_hand_worked_episode(final: float | None, expected: list[float]) -> None:
    advantages, targets = over_steps(
        [1.0, 0.0, 2.0], [3.0, 1.0, 4.0], final, discount=0.5, gae_lambda=0.5
    )

    np.testing.assert_allclose(advantages, expected)
    np.testing.assert_allclose(targets - advantages, [3.0, 1.0, 4.0])


def test_tokens_match_the_hand_worked_episode() -> None:
    # One reward of 2 in the second action; discount 1/2 and decay 1/2 between the actions.
    # Second action, values 3, 5: both tokens lead to 2, so A = -1, -3.
    # First action, values 1, 0, 4: Q = 0 + 1/2 * (1/2 * 3 + 1/2 * 2) = 5/4, A = 1/4, 5/4, -11/4.
    advantages, targets = over_tokens(
        [Action(0.0, [1.0, 0.0, 4.0], [0.0] * 3), Action(2.0, [3.0, 5.0], [0.0] * 2)],
        None,
        discount=0.5,
        gae_lambda=0.5,
    )

    np.testing.assert_allclose(advantages[0], [0.25, 1.25, -2.75])
    np.testing.assert_allclose(advantages[1], [-1.0, -3.0])
    np.testing.assert_allclose(targets[0], [1.25] * 3)
    np.testing.assert_allclose(targets[1], [2.0] * 2)


@given(episodes, finals, fractions, fractions)
def test_steps_agree_with_the_definition(
    episode: list[Action], final: float | None, discount: float, decay: float
) -> None:
    rewards = [action.reward for action in episode]
    values = [action.values[0] for action in episode]
    found, targets = over_steps(rewards, values, final, discount=discount, gae_lambda=decay)

    # A_t is the sum of the later TD errors, each decayed once a step.
    following = [*values[1:], 0.0 if final is None else final]
    deltas = [
        reward + discount * after - value
        for reward, after, value in zip(rewards, following, values, strict=True)
    ]
    expected = [
        sum((discount * decay) ** k * delta for k, delta in enumerate(deltas[t:]))
        for t in range(len(deltas))
    ]
    np.testing.assert_allclose(found, expected, atol=1e-9)
    np.testing.assert_allclose(targets - found, values, atol=1e-9)


@given(episodes, finals, fractions, fractions)
def test_tokens_agree_with_the_definition(
    episode: list[Action], final: float | None, discount: float, decay: float
) -> None:
    found, targets = over_tokens(episode, final, discount=discount, gae_lambda=decay)

    expected = naive_token_gae(episode, final, discount, decay)
    np.testing.assert_allclose(np.concatenate(found), expected, atol=1e-8)
    values = [value for action in episode for value in action.values]
    np.testing.assert_allclose(np.concatenate(targets), np.array(expected) + values, atol=1e-8)


def naive_token_gae(
    episode: list[Action], final: float | None, discount: float, decay: float
) -> list[float]:
    """The recursion over one long chain of tokens, with discount and decay at its joints."""
    chain: list[tuple[float, float, float, float]] = []
    for action in episode:
        last = len(action.values) - 1
        for place, value in enumerate(action.values):
            if place < last:
                chain.append((value, 0.0, 1.0, 1.0))
            else:
                chain.append((value, action.reward, discount, decay))
    advantages: list[float] = []
    following = 0.0 if final is None else final
    advantage = 0.0
    for value, reward, gamma, trace in reversed(chain):
        advantage = reward + gamma * following - value + gamma * trace * advantage
        following = value
        advantages.append(advantage)
    return advantages[::-1]


@given(episodes, finals, fractions, fractions)
def test_a_step_is_an_action_of_one_token(
    episode: list[Action], final: float | None, discount: float, decay: float
) -> None:
    short = [Action(action.reward, action.values[:1], [0.0]) for action in episode]

    by_token, _ = over_tokens(short, final, discount=discount, gae_lambda=decay)
    by_step, _ = over_steps(
        [action.reward for action in short],
        [action.values[0] for action in short],
        final,
        discount=discount,
        gae_lambda=decay,
    )

    np.testing.assert_allclose(np.concatenate(by_token), by_step, atol=1e-9)


@given(episodes, fractions)
def test_without_a_critic_and_without_decay_it_is_the_return_to_go(
    episode: list[Action], discount: float
) -> None:
    rewards = [action.reward for action in episode]

    found, _ = over_steps(rewards, [0.0] * len(rewards), None, discount=discount, gae_lambda=1.0)

    (expected,) = returns_to_go([np.array(rewards)], discount=discount)
    np.testing.assert_allclose(found, expected, atol=1e-9)


@given(episodes, fractions, fractions)
def test_a_perfect_critic_leaves_nothing_to_learn(
    episode: list[Action], discount: float, decay: float
) -> None:
    rewards = [action.reward for action in episode]
    (values,) = returns_to_go([np.array(rewards)], discount=discount)

    found, _ = over_steps(rewards, values.tolist(), None, discount=discount, gae_lambda=decay)

    np.testing.assert_allclose(found, np.zeros(len(rewards)), atol=1e-9)


def test_terminated_is_not_truncated() -> None:
    # A step is charged 1 until a limit cuts the episode short; the critic knows the cost to come.
    cut, _ = over_steps([-1.0, -1.0], [-9.0, -8.0], -7.0, discount=1.0, gae_lambda=1.0)
    over, _ = over_steps([-1.0, -1.0], [-9.0, -8.0], None, discount=1.0, gae_lambda=1.0)

    np.testing.assert_allclose(cut, [0.0, 0.0])
    np.testing.assert_allclose(over, [7.0, 7.0])


def test_a_final_value_of_zero_is_as_good_as_the_end() -> None:
    cut, _ = over_steps([1.0], [0.5], 0.0, discount=0.9, gae_lambda=0.9)
    over, _ = over_steps([1.0], [0.5], None, discount=0.9, gae_lambda=0.9)

    np.testing.assert_array_equal(cut, over)


@given(st.integers(1, 20), st.integers(1, 20))
def test_credit_does_not_fade_with_the_length_of_a_reply(short: int, long: int) -> None:
    def first_advantage(num_tokens: int) -> float:
        advantages, _ = over_tokens(
            [
                Action(0.0, [0.0] * num_tokens, [0.0] * num_tokens),
                Action(1.0, [0.0] * num_tokens, [0.0] * num_tokens),
            ],
            None,
            discount=0.5,
            gae_lambda=0.5,
        )
        return float(advantages[0][0])

    assert first_advantage(short) == first_advantage(long) == 0.25


def test_a_step_without_tokens_is_passed_through_to_the_step_before() -> None:
    # discount and decay 1/2; the last action, worth 2, gets 0: A = -2
    # the empty step pays 4 before it: worth 4 + 2/2 = 5, and leads to 4 + (2/2 + 0/2)/2 = 9/2
    # the first action, worth 1, leads to (5/2 + 9/4)/2 = 19/8: A = 11/8
    advantages, targets = over_tokens(
        [Action(0.0, [1.0], [0.0]), Action(4.0, [], []), Action(0.0, [2.0], [0.0])],
        None,
        discount=0.5,
        gae_lambda=0.5,
    )

    np.testing.assert_allclose(advantages[0], [1.375])
    np.testing.assert_allclose(advantages[2], [-2.0])
    assert [len(array) for array in advantages] == [len(array) for array in targets] == [1, 0, 1]


@given(episodes, finals, fractions, fractions)
def test_one_episode_knows_nothing_of_another(
    episode: list[Action], final: float | None, discount: float, decay: float
) -> None:
    rewards = np.array([action.reward for action in episode])
    values = np.array([action.values[0] for action in episode])

    alone = gae_over_steps([rewards], [values], [final], discount=discount, gae_lambda=decay)
    among = gae_over_steps(
        [rewards, np.ones(3)],
        [values, np.zeros(3)],
        [final, None],
        discount=discount,
        gae_lambda=decay,
    )

    np.testing.assert_array_equal(among[0].advantages, alone[0].advantages)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"discount": 1.5}, r"discount must lie in \[0, 1\], got 1.5"),
        ({"gae_lambda": -0.1}, r"gae_lambda must lie in \[0, 1\], got -0.1"),
        ({"final_values": []}, "got 1 episodes and 0 final values"),
        ({"final_values": [float("nan")]}, "final value of episode 0 must be finite, got nan"),
        ({"values": [np.array([0.0, np.inf])]}, "values of episode 0, place 1 must be finite"),
        ({"step_rewards": [np.array([0.0, np.nan])]}, "reward of episode 0, step 1"),
    ],
)
def test_what_makes_no_sense_is_named(change: dict[str, object], message: str) -> None:
    given_to: dict[str, object] = {
        "step_rewards": [np.zeros(2)],
        "values": [np.zeros(2)],
        "final_values": [None],
        "discount": 1.0,
        "gae_lambda": 1.0,
    }

    with pytest.raises(ValueError, match=message):
        gae_over_steps(**(given_to | change))  # pyright: ignore[reportArgumentType]
