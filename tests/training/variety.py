"""What a run must have left before its credit is compared with anything: rewards that differ."""

from collections.abc import Sequence

from training.launching import Launched
from variation import assert_both_signs, assert_several, assert_some_vary_within


def assert_rewards_vary(launched: Launched) -> None:
    """Returns differ within groups, rewards and shaped rewards within episodes."""
    returns = launched.query(
        "SELECT trained_training_step, group_index, episode_return FROM episodes WHERE trained"
    )
    assert_some_vary_within(((row[:2], row[2]) for row in returns), at_least=2)
    rewards = launched.query(
        "SELECT episode_id, reward, shaped_reward FROM steps JOIN episodes ON id = episode_id "
        "WHERE steps.trained AND NOT rolled_back"
    )
    assert_some_vary_within(((episode, paid) for episode, paid, _ in rewards), at_least=2)
    assert_some_vary_within(((episode, shaped) for episode, _, shaped in rewards), at_least=8)
    assert_several(shaped - paid for _, paid, shaped in rewards)


def assert_advantages_vary(launched: Launched, *, training_steps: Sequence[int]) -> None:
    """In each training step advantages and both their parts take several values of both signs."""
    steps = launched.query(
        "SELECT e.trained_training_step, e.group_index, s.anchor_hash, "
        "s.advantage, s.episode_advantage, s.step_advantage "
        "FROM steps s JOIN episodes e ON e.id = s.episode_id WHERE s.trained AND NOT e.rolled_back"
    )
    for number in training_steps:
        of_step = [row for row in steps if row[0] == number]
        for column in (3, 4, 5):
            values = [row[column] for row in of_step]
            assert_several(values, at_least=4)
            assert_both_signs(values)
        assert_some_vary_within(((row[:3], row[5]) for row in of_step), at_least=4)
