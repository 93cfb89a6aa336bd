"""Tests for `longhaul_trainer.training.credit`: from rows to each step's advantages and weights."""

from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longhaul_trainer.config import AlgorithmConfig
from longhaul_trainer.training.credit import StepCredit, credit_training_step
from longhaul_trainer.training.estimators import ESTIMATORS
from longhaul_trainer.training.step_metadata import RowKey, StepMetadata

Step = dict[str, Any]
Notes = dict[str, tuple[StepMetadata, ...]]
Settings = dict[str, Any]


def episode(group: int, sample_index: int, steps: list[Step], *, retry: int = 0) -> Notes:
    """Notes of one episode, a row per step; a step says its reward and whatever else matters."""
    total = sum(step["reward"] for step in steps)
    return {
        f"train-3-{group}_{sample_index}_{index}": (
            StepMetadata(
                environment="fakes/Counting-v0",
                task_id=f"task {group}",
                training_step=3,
                group_index=group,
                policy_version=0,
                sample_index=sample_index,
                retry=retry,
                horizon=20,
                step=index,
                num_steps=len(steps),
                reward=step["reward"],
                action_valid=step.get("valid", True),
                anchor=step.get("anchor", f"{group}/{sample_index}/{index}"),
                success=total > 0,
                episode_return=total,
                prompt_tokens=50,
                action_tokens=step.get("tokens", 2),
                start=0,
                split_reason="one_row_per_step",
                final_anchor=step.get("final", ""),
            ),
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
        groups=[f"train-3-{group}" for group in range(num_groups)],
        greedy=greedy_of(notes) if algorithm.get("name") == "remax" else None,
    )


def greedy_of(notes: Notes) -> dict[str, tuple[StepMetadata, ...]]:
    """For each group, a greedy episode of one step, paid as the group's first step was."""
    return {RowKey.parse(key).group: notes[key][:1] for key in sorted(notes, reverse=True)}


def advantages_of(credit: StepCredit) -> dict[str, float]:
    return {
        key: advantage
        for episode in credit.episodes
        for key, advantage in zip(episode.row_keys, episode.credit.advantages, strict=True)
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


def test_a_reply_that_is_too_long_costs_its_episode() -> None:
    notes = episode(0, 0, [{"reward": 1.0, "tokens": 9}]) | episode(0, 1, rewards(1.0))

    credit = credit_of(
        notes,
        num_groups=1,
        overlong_penalty=1.0,
        overlong_start_tokens=8,
        overlong_end_tokens=12,
    )

    # returns 1 - 1/4 and 1: mean 7/8
    assert list(advantages_of(credit).values()) == pytest.approx([-0.125, 0.125])


def test_the_divergence_in_the_reward_costs_its_episode() -> None:
    notes = episode(0, 0, rewards(1.0, 0.0)) | episode(0, 1, rewards(1.0))
    key = "train-3-0_0_1"
    notes[key] = tuple(note._replace(reference_kl=2.0) for note in notes[key])

    credit = credit_of(notes, num_groups=1, reward_kl_coefficient=0.25)

    # returns 1 - 1/2 and 1: mean 3/4
    assert list(advantages_of(credit).values()) == pytest.approx([-0.25, -0.25, 0.25])
    assert credit.groups_without_signal == 0


def test_a_task_with_one_episode_left_is_left_out_and_counted() -> None:
    notes = episode(0, 0, rewards(1)) | episode(0, 3, rewards(0)) | episode(2, 1, rewards(1.0, 1.0))

    credit = credit_of(notes, num_groups=4)

    assert {key for e in credit.episodes for key in e.rows} == {"train-3-0_0_0", "train-3-0_3_0"}
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
        for sample_index in range(3):
            steps = [{"reward": 1.0, "tokens": 1 + group + i} for i in range(1 + sample_index)]
            notes |= episode(group, sample_index, steps)

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
    assert credit.episodes[0].rows == tuple(f"train-3-0_0_{i}" for i in range(12))


def merged(notes: Notes, *, into: int) -> Notes:
    """The same steps, `into` of them a row, with gaps of three tokens."""
    episodes: dict[tuple[str, int], list[StepMetadata]] = {}
    for key, of_row in notes.items():
        episodes.setdefault(RowKey.parse(key)[:2], []).extend(of_row)
    rows: Notes = {}
    for (group, sample_index), steps in episodes.items():
        for row, first in enumerate(range(0, len(steps), into)):
            start, of_row = 0, list[StepMetadata]()
            for note in steps[first : first + into]:
                of_row.append(note._replace(start=start))
                start = of_row[-1].stop + 3
            rows[f"{group}_{sample_index}_{row}"] = tuple(of_row)
    return rows


@pytest.mark.parametrize("loss_unit", ["token", "step", "episode"])
@pytest.mark.parametrize("name", ESTIMATORS)
def test_how_episodes_are_cut_into_rows_changes_no_credit(name: str, loss_unit: str) -> None:
    if name == "drgrpo":
        loss_unit = "token"  # it refuses to divide by lengths
    notes = (
        episode(0, 0, [{"reward": r, "tokens": 1 + r, "anchor": f"{r % 2}"} for r in range(5)])
        | episode(0, 1, [{"reward": 3, "tokens": 7, "anchor": "0"}])
        | episode(1, 0, rewards(0, 1, 0))
        | episode(1, 1, rewards(2, 2))
    )

    algorithm: Settings = {"name": name, "loss_unit": loss_unit, "scale_by_std": True}

    by_step = credit_of(notes, num_groups=2, num_optimizer_steps=2, **algorithm)
    by_row = credit_of(merged(notes, into=2), num_groups=2, num_optimizer_steps=2, **algorithm)

    for one, other in zip(by_step.episodes, by_row.episodes, strict=True):
        assert other.credit == one.credit
        assert other.loss_weights == one.loss_weights
        assert other.optimizer_step == one.optimizer_step
    assert by_row.keys_of(0) == [
        "train-3-0_0_0", "train-3-0_0_1", "train-3-0_0_2", "train-3-0_1_0"
    ]  # fmt: skip
    assert by_row.episodes[0].row_keys == (
        "train-3-0_0_0", "train-3-0_0_0", "train-3-0_0_1", "train-3-0_0_1", "train-3-0_0_2"
    )  # fmt: skip
    assert [s.note.step for s in by_row.steps_by_row()["train-3-0_0_1"]] == [2, 3]


def test_every_token_of_an_action_has_the_advantage_of_its_step() -> None:
    notes = episode(0, 0, [{"reward": 1.0, "tokens": 3}]) | episode(0, 1, rewards(0.0))

    (step,) = credit_of(notes, num_groups=1).episodes[0].steps

    assert step.token_advantages.tolist() == [0.5, 0.5, 0.5]
    assert step.loss_weight == 1 / 5


def test_rows_that_are_left_out_are_named_once() -> None:
    notes = episode(0, 0, rewards(1, 1)) | episode(1, 0, rewards(1)) | episode(1, 1, rewards(0))

    credit = credit_of(merged(notes, into=2), num_groups=2)

    assert credit.left_out == ("train-3-0_0_0",)


def test_a_step_that_is_in_two_rows_is_refused() -> None:
    notes = episode(0, 0, rewards(0, 1)) | episode(0, 1, rewards(0))
    notes["train-3-0_0_2"] = notes["train-3-0_0_1"]

    with pytest.raises(ValueError, match=r"should have steps 0 to 1, has \[0, 1, 1\]"):
        credit_of(notes, num_groups=1)


def test_nothing_to_compare_leaves_nothing_to_train() -> None:
    credit = credit_of(episode(0, 0, rewards(1)), num_groups=2)

    assert credit.episodes == ()
    assert credit.left_out == ("train-3-0_0_0",)


@pytest.mark.parametrize(
    ("algorithm", "expected"),
    [
        # returns 4, 0, 2 | 3, 0: means 2, 3/2
        ({"name": "grpo"}, [2.0, -2.0, 0.0, 1.5, -1.5]),
        ({"name": "drgrpo"}, [2.0, -2.0, 0.0, 1.5, -1.5]),
        # means of the others 1, 3, 2 | 0, 3
        ({"name": "rloo"}, [3.0, -3.0, 0.0, 3.0, -3.0]),
        # leads over each of the others: 4, 2 | none | 2 over one of two | 3 | none
        ({"name": "pass_at_k", "pass_k": 2}, [3.0, 0.0, 1.0, 3.0, 0.0]),
        # over all the others
        ({"name": "pass_at_k"}, [2.0, 0.0, 0.0, 3.0, 0.0]),
        # four tokens each but two in the last: 4 0 2 3 twice as often as 0, mean 18/9 = 2,
        # squares (2 * (4 + 4 + 0 + 1) + 4) / (9 - 1) = 11/4
        (
            {"name": "reinforce_plus_plus", "scale_by_std": True},
            np.array([2.0, -2.0, 0.0, 1.0, -2.0]) / 2.75**0.5,
        ),
        # every episode once: mean 9/5, squares (4.84 + 3.24 + 0.04 + 1.44 + 3.24) / 4 = 3.2
        (
            {"name": "reinforce_plus_plus", "scale_by_std": True, "whiten": "episode"},
            np.array([2.2, -1.8, 0.2, 1.2, -1.8]) / 3.2**0.5,
        ),
        # less the task's mean 2 -2 0 3/2 -3/2: squares (4 + 4 + 9/4 + 9/4) / 4 = 25/8
        (
            {
                "name": "reinforce_plus_plus_baseline",
                "scale_by_std": True,
                "whiten": "episode",
            },
            np.array([2.0, -2.0, 0.0, 1.5, -1.5]) / 3.125**0.5,
        ),
        # against 4 and 3, what the first episode of each was paid
        ({"name": "remax"}, [0.0, -4.0, -2.0, 0.0, -3.0]),
        # the same state everywhere: the step part says what the episode part says
        ({"name": "gigpo"}, [4.0, -4.0, 0.0, 3.0, -3.0]),
        ({"name": "hgpo"}, [2.0, -2.0, 0.0, 1.5, -1.5]),
        # the goal is worth 10 and, two steps from it, no success 0.1: means 6.7 and 5.05
        ({"name": "graphgpo"}, [5.3, -8.6, 3.3, 6.45, -6.45]),
        # a critic that expected nothing yet: as REINFORCE++ above
        (
            {"name": "gae", "scale_by_std": True},
            np.array([2.0, -2.0, 0.0, 1.0, -2.0]) / 2.75**0.5,
        ),
    ],
    ids=str,
)
def test_the_estimator_is_the_one_that_is_named(algorithm: Settings, expected: list[float]) -> None:
    notes: Notes = {}
    for group, returns in enumerate([(4.0, 0.0, 2.0), (3.0, 0.0)]):
        for sample_index, value in enumerate(returns):
            tokens = 1 if (group, sample_index) == (1, 1) else 2
            notes |= episode(
                group, sample_index, [{"reward": value, "anchor": "start", "tokens": tokens}]
            )

    found = advantages_of(credit_of(notes, num_groups=2, **algorithm))

    np.testing.assert_allclose(list(found.values()), expected, rtol=1e-6)


PARAMETERS: list[tuple[Settings, Settings]] = [
    ({"name": "grpo"}, {"scale_by_std": True}),
    ({"name": "grpo"}, {"statistics": "row"}),
    ({"name": "gigpo"}, {"scale_by_std": True}),
    ({"name": "gigpo"}, {"statistics": "row"}),
    ({"name": "gigpo"}, {"discount": 0.5}),
    ({"name": "gigpo"}, {"step_advantage_weight": 0.5}),
    ({"name": "gigpo"}, {"anchor_similarity": 0.5}),
    ({"name": "graphgpo"}, {"scale_by_std": True}),
    ({"name": "graphgpo"}, {"statistics": "row"}),
    ({"name": "graphgpo"}, {"step_advantage_weight": 0.5}),
    ({"name": "graphgpo"}, {"episode_advantage_weight": 0.5}),
    ({"name": "graphgpo"}, {"anchor_similarity": 0.5}),
    ({"name": "graphgpo"}, {"distance_decay": 0.5}),
    ({"name": "graphgpo"}, {"distance_form": "progress"}),
    ({"name": "hgpo"}, {"scale_by_std": True}),
    ({"name": "hgpo"}, {"discount": 0.5}),
    ({"name": "hgpo"}, {"history_length": 0}),
    ({"name": "hgpo"}, {"history_weight_exponent": 3.0}),
    ({"name": "pass_at_k"}, {"scale_by_std": True}),
    ({"name": "pass_at_k"}, {"pass_k": 2}),
    ({"name": "reinforce_plus_plus", "scale_by_std": True}, {"discount": 0.5}),
    ({"name": "reinforce_plus_plus", "scale_by_std": True}, {"whiten": "episode"}),
    ({"name": "reinforce_plus_plus_baseline", "scale_by_std": True}, {"whiten": "episode"}),
]


@pytest.mark.parametrize(("algorithm", "change"), PARAMETERS, ids=str)
def test_every_setting_reaches_its_estimator(algorithm: Settings, change: Settings) -> None:
    walks = [
        [(0.0, "start"), (1.0, "hall 1"), (5.0, "door")],
        [(0.0, "start"), (0.0, "hall 1"), (2.0, "door")],
        [(0.0, "start"), (0.0, "door"), (-1.0, "hall 2"), (0.0, "start")],
    ]
    notes: Notes = {}
    for sample_index, walk in enumerate(walks):
        notes |= episode(
            0,
            sample_index,
            [{"reward": r, "anchor": a, "tokens": 2 + sample_index} for r, a in walk],
        )

    before = credit_of(notes, num_groups=1, **algorithm)
    after = credit_of(notes, num_groups=1, **(algorithm | change))

    assert advantages_of(after) != advantages_of(before)


def test_where_an_episode_ended_is_part_of_the_graph() -> None:
    walk = [{"reward": 0.0, "anchor": "start"}, {"reward": 1.0, "anchor": "door"}]

    def cut_short(seen_last: str) -> float:
        lost = [{"reward": 0.0, "anchor": "start", "final": seen_last}]
        notes = episode(0, 0, walk) | episode(0, 1, lost)
        found = credit_of(notes, num_groups=1, name="graphgpo", distance_decay=0.5)
        return found.episodes[1].credit.step_advantages[0]

    assert cut_short("door") == 0.0
    # the door is worth 5; a pond without a way, 3 steps from the goal, 1.25
    assert cut_short("pond") == -1.875


@pytest.mark.parametrize(
    "name", ["grpo", "drgrpo", "rloo", "pass_at_k", "gigpo", "hgpo", "graphgpo"]
)
def test_another_task_changes_nothing_even_from_the_same_state(name: str) -> None:
    walk = [{"reward": 1.0, "anchor": "start"}, {"reward": 2.0, "anchor": "door"}]
    notes = episode(0, 0, walk) | episode(0, 1, walk[:1])
    other = episode(1, 0, [{"reward": 9.0, "anchor": "start"}]) | episode(1, 1, walk[::-1])

    alone = advantages_of(credit_of(notes, num_groups=2, name=name))
    among = advantages_of(credit_of(notes | other, num_groups=2, name=name))

    assert alone == {key: among[key] for key in alone}


def test_reinforce_plus_plus_compares_over_the_whole_training_step() -> None:
    notes = episode(0, 0, rewards(1)) | episode(0, 1, rewards(0))
    other = episode(1, 0, rewards(9)) | episode(1, 1, rewards(5))
    algorithm: Settings = {"name": "reinforce_plus_plus", "scale_by_std": True}

    alone = advantages_of(credit_of(notes, num_groups=2, **algorithm))
    among = advantages_of(
        credit_of(notes | other, num_groups=2, num_optimizer_steps=2, **algorithm)
    )

    assert alone["train-3-0_0_0"] > 0 > among["train-3-0_0_0"]


def test_a_group_too_small_for_pass_at_k_is_left_out() -> None:
    notes: Notes = {}
    for group, size in ((0, 3), (1, 2)):
        for sample_index in range(size):
            notes |= episode(group, sample_index, rewards(sample_index))

    credit = credit_of(notes, num_groups=2, name="pass_at_k", pass_k=3)

    assert set(credit.left_out) == {"train-3-1_0_0", "train-3-1_1_0"}
    assert {e.notes[0].group_index for e in credit.episodes} == {0}


def test_a_fixed_token_weighs_the_same_in_every_optimizer_step() -> None:
    notes: Notes = {}
    for group, tokens in ((0, 2), (1, 40)):
        for sample_index in range(2):
            notes |= episode(
                group, sample_index, [{"reward": float(sample_index), "tokens": tokens}]
            )

    credit = credit_of(
        notes,
        num_groups=2,
        num_optimizer_steps=2,
        name="drgrpo",
        loss_unit="fixed_token",
        tokens_per_episode=50,
    )

    # two episodes of nominally 50 tokens in each
    assert {e.optimizer_step for e in credit.episodes} == {0, 1}
    assert {weight for e in credit.episodes for weight in e.loss_weights} == {0.01}


groups = st.lists(
    st.lists(st.lists(st.integers(-8, 8), min_size=1, max_size=4), min_size=1, max_size=4),
    min_size=1,
    max_size=4,
)
"""Rewards of each step, episode and group."""


@given(groups, st.sampled_from([*ESTIMATORS]), st.randoms(use_true_random=False))
@settings(deadline=None, max_examples=100)
def test_the_order_of_rows_changes_nothing(
    returns: list[list[list[int]]], name: str, random: Random
) -> None:
    notes: Notes = {}
    for group, members in enumerate(returns):
        for sample_index, steps in enumerate(members):
            notes |= episode(group, sample_index, rewards(*steps))
    keys = list(notes)
    random.shuffle(keys)

    credits = [
        credit_of(rows, num_groups=len(returns), name=name, scale_by_std=True)
        for rows in (notes, {key: notes[key] for key in keys})
    ]

    assert advantages_of(credits[0]) == advantages_of(credits[1])
    assert set(credits[0].left_out) == set(credits[1].left_out)
    trained = {key for e in credits[0].episodes for key in e.rows}
    assert trained | set(credits[0].left_out) == set(notes)
    assert not trained & set(credits[0].left_out)
    if name not in ("grpo", "drgrpo", "rloo", "gigpo", "graphgpo"):
        return
    # one number per episode, and they cancel over each group
    by_group: dict[int, list[float]] = {}
    for e in credits[0].episodes:
        by_group.setdefault(e.notes[0].group_index, []).append(e.credit.episode_advantage)
    np.testing.assert_allclose([sum(group) for group in by_group.values()], 0.0, atol=1e-9)
