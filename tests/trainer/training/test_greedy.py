"""Tests of greedy episodes: told apart from what was sampled, and a baseline for it alone."""

import pytest

from longhaul_core.errors import GroupError
from longhaul_trainer.config import AlgorithmConfig
from longhaul_trainer.training.credit import StepCredit, credit_training_step
from longhaul_trainer.training.estimators import Group, estimate
from longhaul_trainer.training.step_metadata import StepMetadata, group_outcomes, without_greedy
from trainer.training.test_credit import Notes, episode, rewards


def greedy_episode(group: int, *values: float, valid: bool = True) -> Notes:
    steps = [{"reward": value, "valid": valid} for value in values]
    return {
        key: tuple(note._replace(greedy=True) for note in row)
        for key, row in episode(group, 9, steps).items()
    }


def credited(notes: Notes, *, num_groups: int = 1, **algorithm: object) -> StepCredit:
    sampled, greedy = without_greedy(notes)
    return credit_training_step(
        sampled,
        algorithm=AlgorithmConfig.model_validate({"name": "remax"} | algorithm),
        num_optimizer_steps=1,
        groups=[f"train-3-{group}" for group in range(num_groups)],
        greedy=greedy,
    )


def episode_advantages(credit: StepCredit) -> list[float]:
    return [episode.credit.episode_advantage for episode in credit.episodes]


def test_greedy_rows_are_neither_trained_nor_counted() -> None:
    notes = episode(0, 0, rewards(1.0)) | greedy_episode(0, 5.0, 0.0)

    sampled, greedy = without_greedy(notes)

    assert set(sampled) == {"train-3-0_0_0"}
    assert [note.reward for note in greedy["train-3-0"]] == [5.0, 0.0]
    assert [outcome.num_episodes for outcome in group_outcomes(sampled)] == [1]
    assert {key for e in credited(notes).episodes for key in e.rows} == set(sampled)


def test_the_steps_of_a_greedy_episode_are_in_order_whatever_order_its_rows_came_in() -> None:
    notes = dict(reversed(greedy_episode(0, 1.0, 2.0, 3.0).items()))

    assert [note.reward for note in without_greedy(notes)[1]["train-3-0"]] == [1.0, 2.0, 3.0]


def test_each_task_is_compared_with_its_own_greedy_episode() -> None:
    notes = (
        episode(0, 0, rewards(1.0, 2.0))
        | greedy_episode(0, 2.0, 2.0)
        | episode(1, 0, rewards(4.0))
        | episode(1, 1, rewards(0.0))
        | greedy_episode(1, 1.0)
    )

    assert episode_advantages(credited(notes, num_groups=2)) == [-1.0, 3.0, -1.0]


def test_a_greedy_episode_pays_the_penalties_that_others_pay() -> None:
    notes = episode(0, 0, rewards(1.0)) | greedy_episode(0, 1.0, 1.0, valid=False)

    # 1 against 2 - 2 * 0.25
    assert episode_advantages(credited(notes, invalid_action_penalty=0.25)) == [-0.5]


def test_a_task_whose_greedy_episode_failed_is_left_out() -> None:
    notes = episode(0, 0, rewards(1.0)) | episode(1, 0, rewards(1.0)) | greedy_episode(1, 0.0)

    credit = credited(notes, num_groups=2)

    assert credit.left_out == ("train-3-0_0_0",)
    assert [e.notes[0].group_index for e in credit.episodes] == [1]


def test_there_is_no_baseline_to_make_up() -> None:
    note: StepMetadata = episode(0, 0, rewards(1.0))["train-3-0_0_0"][0]
    group = Group(
        name="train-3-0",
        step_rewards=[],
        anchor_states=[[note.anchor]],
        final_states=[note.final_anchor],
        num_action_tokens=[[note.action_tokens]],
    )

    with pytest.raises(GroupError, match="'train-3-0' has no greedy episode"):
        estimate([group], AlgorithmConfig(name="remax"))
