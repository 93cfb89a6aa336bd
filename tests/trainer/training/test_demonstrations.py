"""Stored episodes that are imitated beside groups: their weights, their metrics, and what stays."""

from math import log

import pytest
import torch

from longhaul_trainer.config import AlgorithmConfig
from longhaul_trainer.training.demonstrations import Demonstrations
from longhaul_trainer.training.step_metadata import GroupName, Rows, without_demonstrations
from longhaul_trainer.training.training_step import TrainingStep
from row_metadata import rows_of

GROUPS = [GroupName(1, place) for place in range(4)]
SIZE = 2


def sampled() -> Rows:
    """Two episodes of each group, of which one succeeds."""
    return {
        key: row
        for group in GROUPS
        for place in range(SIZE)
        for key, row in rows_of(
            group, place, [{"reward": 0.0, "tokens": 3}, {"reward": float(place)}]
        ).items()
    }


def stored(*tokens: int, group: GroupName, weight: float = 1.0) -> Rows:
    """A demonstration beside a group, a step for each number of tokens."""
    return rows_of(
        group,
        0,
        [{"reward": 1.0, "tokens": number, "shares": [weight]} for number in tokens],
        session=SIZE,
        demonstration=True,
    )


def demonstrations(
    rows: Rows, *, coefficient: float = 0.5, unit: str = "token", updates: int = 2
) -> Demonstrations:
    return Demonstrations.of(
        rows,
        algorithm=AlgorithmConfig.model_validate({"name": "grpo", "loss_unit": unit}),
        num_optimizer_steps=updates,
        groups=[str(group) for group in GROUPS],
        purposes={},
        coefficient=coefficient,
    )


@pytest.mark.parametrize(
    ("unit", "expected"),
    [
        # 0.5 over eight tokens; over four steps; over two episodes of three tokens and of five
        ("token", [0.5 / 8] * 4),
        ("step", [0.5 / 4 / 1, 0.5 / 4 / 2, 0.5 / 4 / 4, 0.5 / 4 / 1]),
        ("episode", [0.5 / 2 / 3, 0.5 / 2 / 3, 0.5 / 2 / 5, 0.5 / 2 / 5]),
    ],
)
def test_the_tokens_of_an_optimizer_step_weigh_the_coefficient_together(
    unit: str, expected: list[float]
) -> None:
    rows = {**stored(1, 2, group=GROUPS[0]), **stored(4, 1, group=GROUPS[1])}
    other_step = stored(7, group=GROUPS[3], weight=3.0)

    found = demonstrations({**rows, **other_step}, unit=unit)

    assert [call.loss_weight for call in found.calls] == pytest.approx([*expected, 0.5 / 7])
    assert [call.advantage for call in found.calls] == [1, 1, 1, 1, 3]
    assert found.parts == {0: (*rows,), 1: (*other_step,)}


def test_what_reinforcement_learns_does_not_depend_on_how_many_there_are() -> None:
    def credited(rows: Rows) -> TrainingStep:
        played, imitated = without_demonstrations(rows)
        step = TrainingStep.of(
            played,
            number=1,
            algorithm=AlgorithmConfig(name="grpo"),
            num_optimizer_steps=2,
            groups=[str(group) for group in GROUPS],
        )
        return step.with_demonstrations(demonstrations(imitated)).credited()

    alone = credited(sampled())
    some = credited({**sampled(), **stored(9, group=GROUPS[0])})
    more = credited({**sampled(), **stored(9, 2, 5, group=GROUPS[0]), **stored(1, group=GROUPS[2])})

    keys = [*sampled()]
    lengths = [row.spans[-1].stop for row in sampled().values()]
    for other in (some, more):
        for name, column in alone.columns(keys, lengths).items():
            assert torch.equal(column.values(), other.columns(keys, lengths)[name].values())
        assert other.unread == alone.unread == ()
        assert other.played == alone.played
    assert alone.columns(keys, lengths)["advantages"].values().unique().numel() > 1


def test_metrics_are_of_the_loss_before_the_update_and_without_the_coefficient() -> None:
    rows = {**stored(2, 2, group=GROUPS[0]), **stored(1, group=GROUPS[2], weight=2.0)}
    policy = {
        key: torch.full((row.spans[-1].stop,), log(0.25 if "-0_" in key else 0.5))
        for key, row in rows.items()
    }

    found = demonstrations(rows)

    assert found.report() == {
        "imitation/coefficient": 0.5,
        "imitation/episodes": 2,
        "imitation/tokens": 5,
    }
    # log 4 in the first optimizer step, twice log 2 in the second
    assert found.loss_report(policy) == {"imitation/loss": pytest.approx(log(4), rel=1e-6)}


def test_nothing_is_imitated_without_a_coefficient() -> None:
    found = demonstrations(stored(3, group=GROUPS[0]), coefficient=0.0)

    assert found.episodes == ()
    assert found.parts == {}
    assert found.report() == found.loss_report({}) == {}
