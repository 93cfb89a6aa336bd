"""Tests of greedy episodes: told apart from what was sampled, and a baseline for it alone."""

import pytest

from longhaul_core.advantages.estimators import Group
from longhaul_core.errors import GroupError
from longhaul_trainer.config import AlgorithmConfig
from longhaul_trainer.training.estimate import estimate
from longhaul_trainer.training.step_metadata import GroupName, episodes_in, without_greedy
from longhaul_trainer.training.training_step import TrainingStep
from row_metadata import MadeUpStep, rows_of
from trainer.training.test_credit import Rows, episode, rewards


def greedy_episode(group: int, *values: float, valid: bool = True) -> Rows:
    steps: list[MadeUpStep] = [{"reward": value, "valid": valid} for value in values]
    return rows_of(GroupName(3, group), 0, steps, session=9, greedy=True)


def credited(rows: Rows, *, num_groups: int = 1, **algorithm: object) -> TrainingStep:
    step = TrainingStep.of(
        rows,
        number=3,
        algorithm=AlgorithmConfig.model_validate({"name": "remax"} | algorithm),
        num_optimizer_steps=1,
        groups=[f"train-3-{group}" for group in range(num_groups)],
    )
    return step.with_reported(step.episodes).credited()


def episode_advantages(step: TrainingStep) -> list[float]:
    return [episode.credit.episode_advantage for episode in step.credit]


def test_greedy_rows_are_neither_trained_nor_counted() -> None:
    rows = episode(0, 0, rewards(1.0)) | greedy_episode(0, 5.0, 0.0)

    sampled, greedy = without_greedy(rows)

    assert set(sampled) == {"train-3-0_0_0"}
    assert [step.reward for step in greedy["train-3-0"].metadata.steps] == [5.0, 0.0]
    step = credited(rows)
    assert [outcome.num_episodes for outcome in step.outcomes] == [1]
    assert {call.row for call in step.calls} == set(sampled)
    assert set(step.unread) == set(rows) - set(sampled)


def test_a_greedy_episode_among_what_is_reported_is_not_counted() -> None:
    """Buffers that look at whole groups see the greedy episode beside them."""
    rows = episode(0, 0, rewards(1.0)) | greedy_episode(0, 0.0)

    step = credited(rows).with_reported(episodes_in(rows))

    assert [outcome.num_episodes for outcome in step.outcomes] == [1]


def test_the_steps_of_a_greedy_episode_are_in_order_whatever_order_its_rows_came_in() -> None:
    rows = dict(reversed(greedy_episode(0, 1.0, 2.0, 3.0).items()))

    greedy = without_greedy(rows)[1]["train-3-0"]

    assert [call.row for call in greedy.calls] == [f"train-3-0_9_{row}" for row in range(3)]


def test_each_task_is_compared_with_its_own_greedy_episode() -> None:
    rows = (
        episode(0, 0, rewards(1.0, 2.0))
        | greedy_episode(0, 2.0, 2.0)
        | episode(1, 0, rewards(4.0))
        | episode(1, 1, rewards(0.0))
        | greedy_episode(1, 1.0)
    )

    assert episode_advantages(credited(rows, num_groups=2)) == [-1.0, 3.0, -1.0]


def test_a_greedy_episode_pays_the_penalties_that_others_pay() -> None:
    rows = episode(0, 0, rewards(1.0)) | greedy_episode(0, 1.0, 1.0, valid=False)

    # 1 against 2 - 2 * 0.25
    found = credited(rows, invalid_action_penalty=0.25, invalid_action_penalty_on="return")

    assert episode_advantages(found) == [-0.5]


def test_a_task_whose_greedy_episode_failed_is_left_out() -> None:
    rows = episode(0, 0, rewards(1.0)) | episode(1, 0, rewards(1.0)) | greedy_episode(1, 0.0)

    credit = credited(rows, num_groups=2)

    assert credit.selection.left_out == ("train-3-0_0_0",)
    assert [e.metadata.group_index for e in credit.credit] == [1]


def test_there_is_no_baseline_to_make_up() -> None:
    group = Group(
        name="train-3-0",
        step_rewards=[],
        anchor_states=[["start"]],
        final_states=["end"],
        num_action_tokens=[[2]],
    )

    with pytest.raises(GroupError, match="'train-3-0' has no greedy episode"):
        estimate([group], AlgorithmConfig(name="remax"))
