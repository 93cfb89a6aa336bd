"""Tests for `longhaul_trainer.verl.credit`, from row notes to one advantage and weight per row."""

from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longhaul_trainer.config import AlgorithmConfig
from longhaul_trainer.verl.credit import StepCredit, credit_training_step
from longhaul_trainer.verl.notes import RowNote

Step = dict[str, Any]
Notes = dict[str, RowNote]


def episode(group: int, position: int, steps: list[Step], *, retry: int = 0) -> Notes:
    """Row key → note of one episode; a step says its reward and whatever else matters."""
    total = sum(step["reward"] for step in steps)
    return {
        f"train-3-{group}_{position}_{index}": RowNote(
            task_id=f"task {group}",
            group_index=group,
            position=position,
            retry=retry,
            horizon=20,
            step=index,
            num_steps=len(steps),
            reward=step["reward"],
            action_valid=step.get("valid", True),
            anchor=step.get("anchor", f"{group}/{position}/{index}"),
            success=total > 0,
            episode_return=total,
            prompt_tokens=50,
            action_tokens=step.get("tokens", 2),
        )
        for index, step in enumerate(steps)
    }


def rewards(*values: float) -> list[Step]:
    return [{"reward": value} for value in values]


def credit_of(
    notes: Notes, *, num_groups: int, num_optimizer_steps: int = 1, **algorithm: object
) -> StepCredit:
    return credit_training_step(
        notes,
        algorithm=AlgorithmConfig.model_validate(
            {"name": "grpo", "scale_by_std": False} | algorithm
        ),
        num_optimizer_steps=num_optimizer_steps,
        num_groups=num_groups,
    )


def advantages_of(credit: StepCredit) -> dict[str, float]:
    return {
        key: advantage
        for episode in credit.episodes
        for key, advantage in zip(episode.keys, episode.credit.advantages, strict=True)
    }


def test_grpo_compares_the_returns_of_a_task_with_each_other_alone() -> None:
    notes = (
        episode(0, 0, rewards(0, 1))
        | episode(0, 1, rewards(0, 0, 0))
        | episode(1, 0, rewards(4))
        | episode(1, 1, rewards(1, 1))
    )

    # Task 0: returns 1, 0, mean 1/2. Task 1: returns 4, 2, mean 3.
    assert advantages_of(credit_of(notes, num_groups=2)) == {
        "train-3-0_0_0": 0.5,
        "train-3-0_0_1": 0.5,
        "train-3-0_1_0": -0.5,
        "train-3-0_1_1": -0.5,
        "train-3-0_1_2": -0.5,
        "train-3-1_0_0": 1.0,
        "train-3-1_1_0": -1.0,
        "train-3-1_1_1": -1.0,
    }


def test_gigpo_adds_what_a_step_did_against_others_from_the_same_state() -> None:
    # discount 0.95; returns-to-go 9.5, 10 | 0, 0, 0; A^E 5 | -5
    # A^S start {9.5, 0}: ±4.75; door {10, 0}: ±5; the wall is met once: 0
    notes = episode(
        0, 0, [{"reward": 0.0, "anchor": "start"}, {"reward": 10.0, "anchor": "door"}]
    ) | episode(
        0,
        1,
        [
            {"reward": 0.0, "anchor": "start"},
            {"reward": 0.0, "anchor": "wall"},
            {"reward": 0.0, "anchor": "door"},
        ],
    )

    found = advantages_of(credit_of(notes, num_groups=1, name="gigpo", discount=0.95))

    assert list(found.values()) == pytest.approx([9.75, 10.0, -9.75, -5.0, -10.0])


def test_an_anchor_is_shared_inside_a_task_only() -> None:
    notes: Notes = {}
    for group, pay in ((0, 1.0), (1, 7.0)):
        notes |= episode(group, 0, [{"reward": pay, "anchor": "start"}])
        notes |= episode(group, 1, [{"reward": 0.0, "anchor": "start"}])

    found = advantages_of(credit_of(notes, num_groups=2, name="gigpo"))

    # per task: A^E ± pay / 2 and A^S ± pay / 2
    assert list(found.values()) == pytest.approx([1.0, -1.0, 7.0, -7.0])


def test_an_invalid_action_costs_its_episode_but_not_its_reward() -> None:
    notes = episode(0, 0, [{"reward": 1.0, "valid": False}, {"reward": 0.0}]) | episode(
        0, 1, rewards(1.0)
    )

    credit = credit_of(notes, num_groups=1, invalid_action_penalty=0.5)

    # returns 1 - 1/2 and 1: mean 3/4
    assert list(advantages_of(credit).values()) == pytest.approx([-0.25, -0.25, 0.25])
    assert [note.reward for note in credit.episodes[0].notes] == [1.0, 0.0]


def test_a_task_with_one_episode_left_is_left_out_and_counted() -> None:
    notes = episode(0, 0, rewards(1)) | episode(0, 3, rewards(0)) | episode(2, 1, rewards(1.0, 1.0))

    credit = credit_of(notes, num_groups=4)

    assert {key for e in credit.episodes for key in e.keys} == {"train-3-0_0_0", "train-3-0_3_0"}
    assert credit.left_out == ("train-3-2_1_0", "train-3-2_1_1")
    assert credit.num_groups == 4
    # the tokens of what is left out weigh nothing: those of the others add up to 1
    weight = sum(
        weight * note.action_tokens
        for e in credit.episodes
        for weight, note in zip(e.loss_weights, e.notes, strict=True)
    )
    assert weight == pytest.approx(1)


def test_groups_whose_episodes_are_alike_are_counted() -> None:
    notes: Notes = {}
    for group, (first, second) in enumerate([(1, 1), (0, 0), (1, 0)]):
        notes |= episode(group, 0, rewards(first)) | episode(group, 1, rewards(second))

    assert credit_of(notes, num_groups=3).groups_without_signal == 2


def test_parts_take_whole_groups_in_task_order_even_if_some_failed() -> None:
    notes: Notes = {}
    for group in (0, 1, 3, 5):  # of six tasks; 2 and 4 failed
        notes |= episode(group, 0, rewards(1, 0)) | episode(group, 1, rewards(0))

    credit = credit_of(notes, num_groups=6, num_optimizer_steps=3)

    # tasks 0 and 1, 2 and 3, 4 and 5
    part_of = {e.notes[0].group_index: e.optimizer_step for e in credit.episodes}
    assert part_of == {0: 0, 1: 0, 3: 1, 5: 2}
    assert credit.keys_of(1) == ["train-3-3_0_0", "train-3-3_0_1", "train-3-3_1_0"]


@pytest.mark.parametrize("loss_unit", ["token", "step", "episode"])
def test_the_weights_of_each_optimizer_step_add_up_to_one(loss_unit: str) -> None:
    notes: Notes = {}
    for group in range(4):
        for position in range(3):
            steps = [{"reward": 1.0, "tokens": 1 + group + i} for i in range(1 + position)]
            notes |= episode(group, position, steps)

    credit = credit_of(notes, num_groups=4, num_optimizer_steps=2, loss_unit=loss_unit)

    for part in range(2):
        total = sum(
            weight * note.action_tokens
            for e in credit.episodes
            if e.optimizer_step == part
            for weight, note in zip(e.loss_weights, e.notes, strict=True)
        )
        assert total == pytest.approx(1.0)


@pytest.mark.parametrize("missing", [0, 1, 2])
def test_an_episode_that_misses_a_step_is_refused(missing: int) -> None:
    notes = episode(0, 0, rewards(0, 0, 1)) | episode(0, 1, rewards(0))
    del notes[f"train-3-0_0_{missing}"]

    with pytest.raises(ValueError, match=r"should have steps 0 to 2, has \["):
        credit_of(notes, num_groups=1)


def test_steps_are_put_in_order_by_number() -> None:
    notes = episode(0, 0, rewards(*range(12))) | episode(0, 1, rewards(0))
    shuffled = {key: notes[key] for key in sorted(notes, reverse=True)}

    credit = credit_of(shuffled, num_groups=1, discount=0.0)

    # "…_10" sorts before "…_2" as text
    assert credit.episodes[0].credit.returns_to_go == tuple(float(i) for i in range(12))
    assert credit.episodes[0].keys == tuple(f"train-3-0_0_{i}" for i in range(12))


def test_nothing_to_compare_leaves_nothing_to_train() -> None:
    credit = credit_of(episode(0, 0, rewards(1)), num_groups=2)

    assert credit.episodes == ()
    assert credit.left_out == ("train-3-0_0_0",)


groups = st.lists(
    st.lists(st.lists(st.integers(-8, 8), min_size=1, max_size=4), min_size=1, max_size=4),
    min_size=1,
    max_size=4,
)
"""Rewards of each step, episode and group."""


@given(groups, st.booleans(), st.randoms(use_true_random=False))
@settings(deadline=None, max_examples=50)
def test_the_order_of_rows_changes_nothing(
    returns: list[list[list[int]]], scale_by_std: bool, random: Random
) -> None:
    notes: Notes = {}
    for group, members in enumerate(returns):
        for position, steps in enumerate(members):
            notes |= episode(group, position, rewards(*steps))
    keys = list(notes)
    random.shuffle(keys)

    credits = [
        credit_of(rows, num_groups=len(returns), scale_by_std=scale_by_std)
        for rows in (notes, {key: notes[key] for key in keys})
    ]

    assert advantages_of(credits[0]) == advantages_of(credits[1])
    assert set(credits[0].left_out) == set(credits[1].left_out)
    trained = {key for e in credits[0].episodes for key in e.keys}
    assert trained | set(credits[0].left_out) == set(notes)
    assert not trained & set(credits[0].left_out)
    # one number per episode, and they cancel over each group
    by_group: dict[int, list[float]] = {}
    for e in credits[0].episodes:
        by_group.setdefault(e.notes[0].group_index, []).append(e.credit.episode_advantage)
    np.testing.assert_allclose([sum(group) for group in by_group.values()], 0.0, atol=1e-9)
