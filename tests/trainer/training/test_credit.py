"""Tests for `longhaul_trainer.training.credit`: from rows to each step's advantages and weights."""

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longhaul_core.advantages.estimators import ESTIMATORS
from longhaul_core.errors import ConfigError
from longhaul_trainer.config import AlgorithmConfig
from longhaul_trainer.training.credit import CriticValues
from longhaul_trainer.training.step_metadata import Episode, GroupName, RowKey, RowMetadata
from longhaul_trainer.training.training_step import TrainingStep
from row_metadata import MadeUpStep, rows_of

Rows = dict[str, RowMetadata]
Settings = dict[str, Any]


def episode(
    group: int, sample_index: int, steps: Sequence[MadeUpStep], *, final_anchor: str = ""
) -> Rows:
    """Rows of one episode, one for each call."""
    return rows_of(GroupName(3, group), sample_index, steps, final_anchor=final_anchor)


def rewards(*values: float) -> list[MadeUpStep]:
    return [{"reward": value} for value in values]


def credit_of(
    rows: Rows, *, num_groups: int, num_optimizer_steps: int = 1, **algorithm: object
) -> TrainingStep:
    """The training step of rows; its critic, where there is one, expects nothing."""
    settings = AlgorithmConfig.model_validate({"name": "grpo", "scale_by_std": False} | algorithm)
    step = TrainingStep.of(
        rows | greedy_of(rows) if settings.name == "remax" else rows,
        number=3,
        algorithm=settings,
        num_optimizer_steps=num_optimizer_steps,
        groups=[f"train-3-{group}" for group in range(num_groups)],
    )
    if settings.uses_critic:
        nothing = {key: np.zeros(row.spans[-1].stop) for key, row in rows.items()}
        step = step.with_values(CriticValues(nothing, {}))
    return step.credited()


def greedy_of(rows: Rows) -> Rows:
    """For each group, a greedy episode of one step, paid as the group's first step was."""
    greedy: Rows = {}
    for key, row in sorted(rows.items(), reverse=True):
        if row.episode is not None:
            first = row.episode.steps[0].reward
            group = GroupName.parse(RowKey.parse(key).group)
            greedy |= rows_of(group, 0, rewards(first), session=99, greedy=True)
    return greedy


def advantages_of(step: TrainingStep) -> dict[str, float]:
    """Of each call, by the key of its row."""
    return {call.row: call.advantage for call in step.calls}


def test_grpo_compares_the_returns_of_a_task_with_each_other_alone() -> None:
    rows = (
        episode(0, 0, rewards(0, 1))
        | episode(0, 1, rewards(0, 0, 0))
        | episode(1, 0, rewards(4))
        | episode(1, 1, rewards(1, 1))
    )

    # Task 0: returns 1, 0, mean 1/2. Task 1: returns 4, 2, mean 3.
    assert advantages_of(credit_of(rows, num_groups=2)) == {
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
    rows = episode(
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

    found = advantages_of(credit_of(rows, num_groups=1, name="gigpo", discount=0.95))

    assert list(found.values()) == pytest.approx([9.75, 10.0, -9.75, -5.0, -10.0])


def test_an_anchor_is_shared_inside_a_task_only() -> None:
    rows: Rows = {}
    for group, pay in ((0, 1.0), (1, 7.0)):
        rows |= episode(group, 0, [{"reward": pay, "anchor": "start"}])
        rows |= episode(group, 1, [{"reward": 0.0, "anchor": "start"}])

    found = advantages_of(credit_of(rows, num_groups=2, name="gigpo"))

    # per task: A^E ± pay / 2 and A^S ± pay / 2
    assert list(found.values()) == pytest.approx([1.0, -1.0, 7.0, -7.0])


def test_an_invalid_action_costs_its_episode_but_not_its_reward() -> None:
    rows = episode(0, 0, [{"reward": 1.0, "valid": False}, {"reward": 0.0}]) | episode(
        0, 1, rewards(1.0)
    )

    credit = credit_of(
        rows, num_groups=1, invalid_action_penalty=0.5, invalid_action_penalty_on="return"
    )

    # returns 1 - 1/2 and 1: mean 3/4
    assert list(advantages_of(credit).values()) == pytest.approx([-0.25, -0.25, 0.25])
    assert [step.reward for step in credit.credit[0].metadata.steps] == [1.0, 0.0]


def test_an_invalid_action_costs_itself_alone() -> None:
    rows = episode(0, 0, [{"reward": 1.0, "valid": False}, {"reward": 0.0}]) | episode(
        0, 1, rewards(1.0)
    )

    credit = credit_of(rows, num_groups=1, invalid_action_penalty=0.5)

    # copies of the returns 1 - 1/2, 1 and, of the other episode, 1: mean (3/4 + 1) / 2
    assert list(advantages_of(credit).values()) == pytest.approx([-0.375, 0.125, 0.125])
    assert [one.shaped_rewards for one in credit.credit] == [(1.0, 0.0), (1.0,)]


def test_a_reply_that_is_too_long_costs_its_episode() -> None:
    rows = episode(0, 0, [{"reward": 1.0, "tokens": 9}]) | episode(0, 1, rewards(1.0))

    credit = credit_of(
        rows,
        num_groups=1,
        overlong_penalty=1.0,
        overlong_start_tokens=8,
        overlong_end_tokens=12,
    )

    # returns 1 - 1/4 and 1: mean 7/8
    assert list(advantages_of(credit).values()) == pytest.approx([-0.125, 0.125])


def test_the_divergence_in_the_reward_costs_its_episode() -> None:
    rows = episode(0, 0, rewards(1.0, 0.0)) | episode(0, 1, rewards(1.0))
    step = credit_of(rows, num_groups=1, reward_kl_coefficient=0.25)

    group = "train-3-0"
    divergences = {Episode(group, 0): np.array([0.0, 2.0]), Episode(group, 1): np.array([0.0])}
    step = replace(step, reference_kl=divergences).credited()

    # returns 1 - 1/2 and 1: mean 3/4
    assert list(advantages_of(step).values()) == pytest.approx([-0.25, -0.25, 0.25])
    assert step.groups_without_signal == 0


def test_a_task_with_one_episode_left_is_left_out_and_counted() -> None:
    rows = episode(0, 0, rewards(1)) | episode(0, 3, rewards(0)) | episode(2, 1, rewards(1.0, 1.0))

    credit = credit_of(rows, num_groups=4)

    assert {call.row for call in credit.calls} == {"train-3-0_0_0", "train-3-0_3_0"}
    assert credit.unread == ("train-3-2_1_0", "train-3-2_1_1")
    assert credit.report()["groups/left_out"] == 3
    # the tokens of what is left out weigh nothing: those of the others add up to 1
    weight = sum(call.loss_weight * call.span.action_tokens for call in credit.calls)
    assert weight == pytest.approx(1)


def test_groups_whose_episodes_are_alike_are_counted() -> None:
    rows: Rows = {}
    for group, (first, second) in enumerate([(1, 1), (0, 0), (1, 0)]):
        rows |= episode(group, 0, rewards(first)) | episode(group, 1, rewards(second))

    assert credit_of(rows, num_groups=3).groups_without_signal == 2


def test_parts_take_whole_groups_in_task_order_even_if_some_failed() -> None:
    rows: Rows = {}
    for group in (0, 1, 3, 5):  # of six tasks; 2 and 4 failed
        rows |= episode(group, 0, rewards(1, 0)) | episode(group, 1, rewards(0))

    credit = credit_of(rows, num_groups=6, num_optimizer_steps=3)

    # tasks 0 and 1, 2 and 3, 4 and 5
    part_of = {e.metadata.group_index: e.optimizer_step for e in credit.credit}
    assert part_of == {0: 0, 1: 0, 3: 1, 5: 2}
    assert credit.selection.keys_of(1) == ["train-3-3_0_0", "train-3-3_0_1", "train-3-3_1_0"]


@pytest.mark.parametrize("loss_unit", ["token", "step", "episode"])
def test_the_weights_of_each_optimizer_step_add_up_to_one(loss_unit: str) -> None:
    rows: Rows = {}
    for group in range(4):
        for sample_index in range(3):
            steps: list[MadeUpStep] = [
                {"reward": 1.0, "tokens": 1 + group + i} for i in range(1 + sample_index)
            ]
            rows |= episode(group, sample_index, steps)

    credit = credit_of(rows, num_groups=4, num_optimizer_steps=2, loss_unit=loss_unit)

    for part in range(2):
        total = sum(
            call.loss_weight * call.span.action_tokens
            for e in credit.credit
            if e.optimizer_step == part
            for call in e.calls
        )
        assert total == pytest.approx(1.0)


@pytest.mark.parametrize("missing", [0, 1, 2])
def test_an_episode_that_misses_a_step_is_refused(missing: int) -> None:
    rows = episode(0, 0, rewards(0, 0, 1)) | episode(0, 1, rewards(0))
    del rows[f"train-3-0_0_{missing}"]

    problem = r"first row of .* is missing" if missing == 0 else rf"\({missing}, 0\)\] are missing"
    with pytest.raises(ValueError, match=problem):
        credit_of(rows, num_groups=1)


def test_steps_are_put_in_order_by_number() -> None:
    rows = episode(0, 0, rewards(*range(12))) | episode(0, 1, rewards(0))
    shuffled = {key: rows[key] for key in sorted(rows, reverse=True)}

    credit = credit_of(shuffled, num_groups=1, discount=0.0)

    # "…_10" sorts before "…_2" as text
    assert credit.credit[0].credit.returns_to_go == tuple(float(i) for i in range(12))
    assert tuple(call.row for call in credit.credit[0].calls) == tuple(
        f"train-3-0_0_{i}" for i in range(12)
    )


@pytest.mark.parametrize("loss_unit", ["token", "step", "episode"])
@pytest.mark.parametrize("name", ESTIMATORS)
def test_how_episodes_are_cut_into_rows_changes_no_credit(name: str, loss_unit: str) -> None:
    if name == "drgrpo":
        loss_unit = "token"  # it refuses to divide by lengths
    played: list[list[list[MadeUpStep]]] = [
        [
            [{"reward": r, "tokens": 1 + r, "anchor": f"{r % 2}"} for r in range(5)],
            [{"reward": 3, "tokens": 7, "anchor": "0"}],
        ],
        [rewards(0, 1, 0), rewards(2, 2)],
    ]

    def credited(per_row: int) -> TrainingStep:
        rows: Rows = {}
        for group, members in enumerate(played):
            for sample_index, steps in enumerate(members):
                rows |= rows_of(GroupName(3, group), sample_index, steps, per_row=per_row)
        settings: Settings = {"name": name, "loss_unit": loss_unit, "scale_by_std": True}
        return credit_of(rows, num_groups=2, num_optimizer_steps=2, **settings)

    by_call, by_row = credited(1), credited(2)

    for one, other in zip(by_call.credit, by_row.credit, strict=True):
        assert other.credit == one.credit
        assert other.loss_weights == one.loss_weights
        assert other.optimizer_step == one.optimizer_step
    assert by_row.selection.keys_of(0) == [
        "train-3-0_0_0", "train-3-0_0_1", "train-3-0_0_2", "train-3-0_1_0"
    ]  # fmt: skip
    assert [call.row for call in by_row.credit[0].calls] == [
        "train-3-0_0_0", "train-3-0_0_0", "train-3-0_0_1", "train-3-0_0_1", "train-3-0_0_2"
    ]  # fmt: skip
    assert [[c.span.step for c in row] for row in by_row.calls_of(["train-3-0_0_1", "pad"])] == [
        [2, 3], []
    ]  # fmt: skip


def test_every_token_of_an_action_has_the_advantage_of_its_step() -> None:
    rows = episode(0, 0, [{"reward": 1.0, "tokens": 3}]) | episode(0, 1, rewards(0.0))

    (call,) = credit_of(rows, num_groups=1).credit[0].calls

    assert call.token_advantages.tolist() == [0.5, 0.5, 0.5]
    assert call.loss_weight == 1 / 5


def test_rows_that_are_left_out_are_named_once() -> None:
    rows = rows_of(GroupName(3, 0), 0, rewards(1, 1), per_row=2)
    rows |= episode(1, 0, rewards(1)) | episode(1, 1, rewards(0))

    assert credit_of(rows, num_groups=2).unread == ("train-3-0_0_0",)


def test_a_call_that_is_in_two_rows_is_refused() -> None:
    rows = episode(0, 0, rewards(0, 1)) | episode(0, 1, rewards(0))
    rows["train-3-0_0_2"] = rows["train-3-0_0_1"]

    with pytest.raises(ValueError, match=r"\[\(1, 0\)\] are there too often"):
        credit_of(rows, num_groups=1)


def test_nothing_to_compare_leaves_nothing_to_train() -> None:
    credit = credit_of(episode(0, 0, rewards(1)), num_groups=2)

    assert credit.credit == ()
    assert credit.unread == ("train-3-0_0_0",)


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
    rows: Rows = {}
    for group, returns in enumerate([(4.0, 0.0, 2.0), (3.0, 0.0)]):
        for sample_index, value in enumerate(returns):
            tokens = 1 if (group, sample_index) == (1, 1) else 2
            rows |= episode(
                group, sample_index, [{"reward": value, "anchor": "start", "tokens": tokens}]
            )

    found = advantages_of(credit_of(rows, num_groups=2, **algorithm))

    np.testing.assert_allclose(list(found.values()), expected, rtol=1e-6)


PARAMETERS: list[tuple[Settings, Settings]] = [
    ({"name": "grpo"}, {"scale_by_std": True}),
    ({"name": "grpo"}, {"statistics": "row"}),
    ({"name": "gigpo"}, {"scale_by_std": True}),
    ({"name": "gigpo"}, {"statistics": "row"}),
    ({"name": "gigpo"}, {"discount": 0.5}),
    ({"name": "gigpo"}, {"step_advantage_weight": 0.5}),
    ({"name": "gigpo"}, {"anchor_similarity": 0.5}),
    ({"name": "grpo", "statistics": "row"}, {"baseline_per_agent": True}),
    ({"name": "grpo", "baseline_per_agent": True}, {"scale_by_std": True}),
    ({"name": "grpo", "baseline_per_agent": True}, {"statistics": "row"}),
    ({"name": "gigpo", "statistics": "row"}, {"baseline_per_agent": True}),
    ({"name": "gigpo", "baseline_per_agent": True}, {"scale_by_std": True}),
    ({"name": "gigpo", "baseline_per_agent": True}, {"statistics": "row"}),
    ({"name": "gigpo", "baseline_per_agent": True}, {"discount": 0.5}),
    ({"name": "gigpo", "baseline_per_agent": True}, {"step_advantage_weight": 0.5}),
    ({"name": "gigpo", "baseline_per_agent": True}, {"anchor_similarity": 0.5}),
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
    ({"name": "hgpo"}, {"history_form": "code"}),
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
    rows: Rows = {}
    for sample_index, walk in enumerate(walks):
        rows |= episode(
            0,
            sample_index,
            [
                {
                    "reward": r,
                    "anchor": a,
                    "tokens": 2 + sample_index,
                    "agents": ("guide",) if a.startswith("hall") else ("walker",),
                }
                for r, a in walk
            ],
        )

    before = credit_of(rows, num_groups=1, **algorithm)
    after = credit_of(rows, num_groups=1, **(algorithm | change))

    assert advantages_of(after) != advantages_of(before)


def test_each_agent_of_a_program_may_have_a_baseline_of_its_own() -> None:
    # The searcher is in both episodes of returns 2 and 0, the writer in the one of 2 and that of 1.
    rows = (
        episode(
            0, 0, [of_agent("searcher", 0.0), of_agent("searcher", 0.0), of_agent("writer", 2.0)]
        )
        | episode(0, 1, [of_agent("searcher", 0.0)])
        | episode(
            0, 2, [{"reward": 0.0, "trained": [False], "agents": ()}, of_agent("writer", 1.0)]
        )
    )

    found = credit_of(rows, num_groups=1, baseline_per_agent=True, statistics="row")

    # searcher {2, 2, 0}: mean 4/3. writer {2, 1}: mean 3/2.
    assert advantages_of(found) == pytest.approx(
        {
            "train-3-0_0_0": 2 / 3,
            "train-3-0_0_1": 2 / 3,
            "train-3-0_0_2": 0.5,
            "train-3-0_1_0": -4 / 3,
            "train-3-0_2_0": -0.5,
        }
    )


def test_a_step_of_two_agents_has_no_baseline_of_either() -> None:
    rows = episode(0, 0, [{"reward": 0.0, "calls": (1, 2), "agents": ("", "planner")}])
    rows |= episode(0, 1, rewards(1))
    with pytest.raises(ConfigError, match=r"step 0 of .* has trained calls of '', 'planner'"):
        credit_of(rows, num_groups=1, baseline_per_agent=True)


def of_agent(name: str, reward: float) -> MadeUpStep:
    return {"reward": reward, "agents": (name,)}


def test_where_an_episode_ended_is_part_of_the_graph() -> None:
    walk: list[MadeUpStep] = [{"reward": 0.0, "anchor": "start"}, {"reward": 1.0, "anchor": "door"}]

    def cut_short(seen_last: str) -> float:
        lost: list[MadeUpStep] = [{"reward": 0.0, "anchor": "start"}]
        rows = episode(0, 0, walk) | episode(0, 1, lost, final_anchor=seen_last)
        found = credit_of(rows, num_groups=1, name="graphgpo", distance_decay=0.5)
        return found.credit[1].credit.step_advantages[0]

    assert cut_short("door") == 0.0
    # the door is worth 5; a pond without a way, 3 steps from the goal, 1.25
    assert cut_short("pond") == -1.875


@pytest.mark.parametrize(
    "name", ["grpo", "drgrpo", "rloo", "pass_at_k", "gigpo", "hgpo", "graphgpo"]
)
def test_another_task_changes_nothing_even_from_the_same_state(name: str) -> None:
    walk: list[MadeUpStep] = [{"reward": 1.0, "anchor": "start"}, {"reward": 2.0, "anchor": "door"}]
    rows = episode(0, 0, walk) | episode(0, 1, walk[:1])
    other = episode(1, 0, [{"reward": 9.0, "anchor": "start"}]) | episode(1, 1, walk[::-1])

    alone = advantages_of(credit_of(rows, num_groups=2, name=name))
    among = advantages_of(credit_of(rows | other, num_groups=2, name=name))

    assert alone == {key: among[key] for key in alone}


def test_reinforce_plus_plus_compares_over_the_whole_training_step() -> None:
    rows = episode(0, 0, rewards(1)) | episode(0, 1, rewards(0))
    other = episode(1, 0, rewards(9)) | episode(1, 1, rewards(5))
    algorithm: Settings = {"name": "reinforce_plus_plus", "scale_by_std": True}

    alone = advantages_of(credit_of(rows, num_groups=2, **algorithm))
    among = advantages_of(credit_of(rows | other, num_groups=2, num_optimizer_steps=2, **algorithm))

    assert alone["train-3-0_0_0"] > 0 > among["train-3-0_0_0"]


def test_a_group_too_small_for_pass_at_k_is_left_out() -> None:
    rows: Rows = {}
    for group, size in ((0, 3), (1, 2)):
        for sample_index in range(size):
            rows |= episode(group, sample_index, rewards(sample_index))

    credit = credit_of(rows, num_groups=2, name="pass_at_k", pass_k=3)

    assert set(credit.unread) == {"train-3-1_0_0", "train-3-1_1_0"}
    assert {e.metadata.group_index for e in credit.credit} == {0}


def test_a_fixed_token_weighs_the_same_in_every_optimizer_step() -> None:
    rows: Rows = {}
    for group, tokens in ((0, 2), (1, 40)):
        for sample_index in range(2):
            rows |= episode(
                group, sample_index, [{"reward": float(sample_index), "tokens": tokens}]
            )

    credit = credit_of(
        rows,
        num_groups=2,
        num_optimizer_steps=2,
        name="drgrpo",
        loss_unit="fixed_token",
        tokens_per_episode=50,
    )

    # two episodes of nominally 50 tokens in each
    assert {e.optimizer_step for e in credit.credit} == {0, 1}
    assert {weight for e in credit.credit for weight in e.loss_weights} == {0.01}


def left_out(step: TrainingStep) -> set[str]:
    """Rows of groups that cannot be compared."""
    return set(step.selection.left_out)


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
    rows: Rows = {}
    for group, members in enumerate(returns):
        for sample_index, steps in enumerate(members):
            rows |= episode(group, sample_index, rewards(*steps))
    keys = list(rows)
    random.shuffle(keys)

    credits = [
        credit_of(given, num_groups=len(returns), name=name, scale_by_std=True)
        for given in (rows, {key: rows[key] for key in keys})
    ]

    assert advantages_of(credits[0]) == advantages_of(credits[1])
    assert left_out(credits[0]) == left_out(credits[1])
    trained = {call.row for call in credits[0].calls}
    assert trained | left_out(credits[0]) == set(rows)
    assert not trained & left_out(credits[0])
    if name not in ("grpo", "drgrpo", "rloo", "gigpo", "graphgpo"):
        return
    # one number per episode, and they cancel over each group
    by_group: dict[int, list[float]] = {}
    for e in credits[0].credit:
        by_group.setdefault(e.metadata.group_index, []).append(e.credit.episode_advantage)
    np.testing.assert_allclose([sum(group) for group in by_group.values()], 0.0, atol=1e-9)


# Steps of several calls, and of none


def test_a_call_gets_its_share_of_the_advantage_of_its_step() -> None:
    rows = episode(0, 0, [{"reward": 1.0, "calls": (3, 2), "shares": (0.5, 1.0)}])
    rows |= episode(0, 1, [{"reward": 0.0, "calls": (1, 1), "shares": (-1.0, 0.0)}])

    step = credit_of(rows, num_groups=1)

    # returns 1, 0: mean 1/2
    assert [call.token_advantages.tolist() for call in step.calls] == [
        [0.25] * 3, [0.5] * 2, [0.5], [0.0]
    ]  # fmt: skip
    assert [call.advantage for call in step.calls] == [0.25, 0.5, 0.5, 0.0]
    assert [call.loss_weight for call in step.calls] == [1 / 7] * 4
    assert step.rows_with_advantage() == {"train-3-0_0_0", "train-3-0_0_1", "train-3-0_1_0"}


def test_a_step_without_a_trained_call_counts_and_is_not_trained() -> None:
    untrained: MadeUpStep = {"reward": 4.0, "calls": (9,), "trained": (False,), "anchor": "start"}
    rows = episode(0, 0, [{"reward": 0.0, "anchor": "door"}, untrained])
    rows |= episode(0, 1, [{"reward": 2.0, "anchor": "start"}])

    step = credit_of(rows, num_groups=1, name="gigpo", discount=0.5)

    first, second = step.credit
    assert first.credit.returns_to_go == (2.0, 4.0)
    assert first.credit.episode_advantage == 1.0  # returns 4 and 2
    # of the state that both were in, by what came after: 4 and 2
    assert (first.credit.step_advantages, second.credit.step_advantages) == ((0.0, 1.0), (-1.0,))
    assert [(call.span.step, call.row) for call in first.calls] == [(0, "train-3-0_0_0")]
    assert first.loss_weights == (0.25, 0.0)
    assert sum(call.loss_weight * call.span.action_tokens for call in step.calls) == 1.0


cuts = st.lists(st.integers(1, 5), min_size=1, max_size=3)
"""Tokens of the calls that a step is cut into."""


@given(
    st.lists(
        st.lists(st.lists(st.tuples(st.integers(-8, 8), cuts), min_size=1, max_size=3), min_size=2),
        min_size=1,
        max_size=3,
    ),
    st.sampled_from([*ESTIMATORS]),
    st.sampled_from(["token", "step", "episode"]),
)
@settings(deadline=None, max_examples=100)
def test_cutting_a_step_into_calls_changes_nothing_that_its_tokens_are_trained_with(
    played: list[list[list[tuple[int, list[int]]]]], name: str, loss_unit: str
) -> None:
    whole, cut = Rows(), Rows()
    for group, members in enumerate(played):
        for sample_index, steps in enumerate(members):
            anchors = [f"state {index % 2}" for index in range(len(steps))]
            whole |= episode(
                group,
                sample_index,
                [
                    {"reward": reward, "tokens": sum(calls), "anchor": anchor}
                    for (reward, calls), anchor in zip(steps, anchors, strict=True)
                ],
            )
            cut |= episode(
                group,
                sample_index,
                [
                    {"reward": reward, "calls": calls, "anchor": anchor}
                    for (reward, calls), anchor in zip(steps, anchors, strict=True)
                ],
            )
    algorithm: Settings = {"name": name, "scale_by_std": True}
    if name != "drgrpo":  # which refuses to divide by lengths
        algorithm["loss_unit"] = loss_unit

    one, other = (credit_of(rows, num_groups=len(played), **algorithm) for rows in (whole, cut))

    assert tokens_of(one) == tokens_of(other)
    for before, after in zip(one.credit, other.credit, strict=True):
        assert before.credit == after.credit
        assert before.loss_weights == after.loss_weights


def tokens_of(step: TrainingStep) -> dict[tuple[Episode, int], list[tuple[float, float]]]:
    """Advantage and weight of each token of each step."""
    found: dict[tuple[Episode, int], list[tuple[float, float]]] = {}
    for one in step.credit:
        for call in one.calls:
            found.setdefault((one.name, call.span.step), []).extend(
                (advantage, call.loss_weight) for advantage in call.token_advantages.tolist()
            )
    return found


@pytest.mark.parametrize("name", sorted(ESTIMATORS))
def test_every_estimator_takes_steps_that_are_not_trained(name: str) -> None:
    untrained: MadeUpStep = {"reward": 1.0, "calls": (3,), "trained": (False,)}
    none: MadeUpStep = {"reward": 1.0, "calls": ()}
    rows = episode(0, 0, [*rewards(0.0), untrained, none]) | episode(0, 1, [none, *rewards(0.0)])
    rows |= episode(0, 2, rewards(0.0, 0.0, 5.0))

    step = credit_of(rows, num_groups=1, name=name, scale_by_std=True)

    assert [len(e.credit.advantages) for e in step.credit] == [3, 2, 3]
    assert all(np.isfinite(e.credit.advantages).all() for e in step.credit)
    assert [call.span.step for call in step.calls] == [0, 1, 0, 1, 2]
