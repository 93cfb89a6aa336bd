"""Tests of a critic's values on their way: out of rows, into advantages, and back into rows."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longhaul_trainer.config import AlgorithmConfig
from longhaul_trainer.training.credit import CriticValues
from longhaul_trainer.training.step_metadata import (
    Episode,
    GroupName,
    RowKey,
    RowMetadata,
    without_final,
)
from longhaul_trainer.training.training_step import TrainingStep
from row_metadata import MadeUpStep, beside, rows_of

Rows = dict[str, RowMetadata]
Episodes = list[tuple[list[tuple[float, int]], bool]]
"""For each episode the reward and the tokens of its steps, and whether a limit cut it short."""


def rows_of_group(episodes: Episodes, *, per_row: int = 1) -> Rows:
    """Rows of a group's episodes, with gaps between the calls of a row."""
    rows: Rows = {}
    for sample_index, (steps, truncated) in enumerate(episodes):
        made_up: list[MadeUpStep] = [{"reward": r, "tokens": tokens} for r, tokens in steps]
        rows |= rows_of(
            GroupName(1, 0), sample_index, made_up, per_row=per_row, truncated=truncated
        )
    return rows


def values_of(rows: Rows, tokens: dict[tuple[int, int], list[float]]) -> CriticValues:
    """Values of a row's response, from those of (sample_index, step); a gap's are 99."""
    found: dict[str, Any] = {}
    for key, row in rows.items():
        values = np.full(row.spans[-1].stop, 99.0)
        for span in row.spans:
            values[span.start : span.stop] = tokens[row.sample_index, span.step]
        found[key] = values
    finals = {
        RowKey.parse(key).episode: 10.0 * row.sample_index + 5.0
        for key, row in rows.items()
        if row.episode is not None and row.episode.truncated
    }
    return CriticValues(found, finals)


def credited(rows: Rows, values: CriticValues, **algorithm: object) -> TrainingStep:
    step = TrainingStep.of(
        rows,
        number=1,
        algorithm=AlgorithmConfig.model_validate(
            {"name": "gae", "discount": 1.0, "gae_lambda": 1.0} | algorithm
        ),
        num_optimizer_steps=1,
        groups=["train-1-0"],
    )
    return step.with_values(values).credited()


def test_a_step_is_valued_before_its_first_token_and_a_cut_episode_at_its_end() -> None:
    episodes: Episodes = [([(1.0, 2), (0.0, 1)], False), ([(2.0, 3)], True)]
    rows = rows_of_group(episodes)
    values = values_of(rows, {(0, 0): [0.5, 7.0], (0, 1): [0.25], (1, 0): [3.0, 8.0, 9.0]})

    first, second = credited(rows, values).credit

    assert first.step_values == (0.5, 0.25)
    assert first.credit.value_targets == (1.0, 0.0)  # nothing comes after a task that ended
    assert second.credit.value_targets == (2.0 + 15.0,)  # and 15 after one that was cut
    assert (first.final_value, second.final_value) == (None, 15.0)
    assert [step.value_weights.tolist() for step in first.calls] == [[1 / 3, 0.0], [1 / 3]]
    assert [step.token_values.tolist() for step in first.calls] == [[0.5, 0.5], [0.25]]


def test_each_token_is_valued_where_tokens_are_credited() -> None:
    rows = rows_of_group([([(1.0, 2), (0.0, 1)], False), ([(2.0, 3)], True)])
    values = values_of(rows, {(0, 0): [0.5, 7.0], (0, 1): [0.25], (1, 0): [3.0, 8.0, 9.0]})

    first, second = credited(rows, values, gae_level="token").credit

    assert [step.token_values.tolist() for step in first.calls] == [[0.5, 7.0], [0.25]]
    assert [step.value_weights.tolist() for step in second.calls] == [[1 / 6] * 3]
    # targets 1, 0 | 17, less the values: 0.5, -6, -0.25 | 14, 9, 8, then whitened
    raw = np.array([0.5, -6.0, -0.25, 14.0, 9.0, 8.0])
    expected = (raw - raw.mean()) / np.sqrt(raw.var(ddof=1) + 1e-8)
    found = [
        a for episode in (first, second) for call in episode.calls for a in call.token_advantages
    ]
    assert found == pytest.approx(expected.tolist())


@pytest.mark.parametrize(
    ("unit", "level", "expected"),
    [
        ("token", "step", [1 / 3, 1 / 3, 1 / 3]),
        ("fixed_token", "step", [1 / 3, 1 / 3, 1 / 3]),
        ("step", "step", [1 / 3, 1 / 3, 1 / 3]),
        ("episode", "step", [1 / 4, 1 / 4, 1 / 2]),
        ("token", "token", [1 / 6, 1 / 6, 1 / 6]),
        ("step", "token", [1 / 6, 1 / 3, 1 / 9]),
        ("episode", "token", [1 / 6, 1 / 6, 1 / 6]),
    ],
)
def test_values_weigh_as_tokens_do_and_add_up_to_one(
    unit: str, level: str, expected: list[float]
) -> None:
    rows = rows_of_group([([(0.0, 2), (0.0, 1)], False), ([(1.0, 3)], False)])
    fixed = {"tokens_per_episode": 50} if unit == "fixed_token" else {}

    nothing = CriticValues({key: np.zeros(row.spans[-1].stop) for key, row in rows.items()}, {})

    calls = credited(rows, nothing, loss_unit=unit, gae_level=level, **fixed).calls

    assert [call.value_weights[0] for call in calls] == pytest.approx(expected)
    assert sum(call.value_weights.sum() for call in calls) == pytest.approx(1.0)


@pytest.mark.parametrize("level", ["step", "token"])
def test_nothing_comes_after_the_score_of_a_cut_episode(level: str) -> None:
    steps: list[MadeUpStep] = [{"reward": 0.0, "tokens": 1}, {"reward": 2.0, "tokens": 1}]
    rows = {
        key: row
        for place, scored in enumerate((True, False))
        for key, row in rows_of(
            GroupName(1, 0), place, steps, truncated=True, scored=scored
        ).items()
    }
    tokens = {(place, step): [1.0] for place in range(2) for step in range(2)}
    values = values_of(rows, tokens)._replace(finals={Episode("train-1-0", 1): 8.0})

    scored, cut = credited(rows, values, gae_level=level, discount=0.5, gae_lambda=0.5).credit

    # errors: 0 + 0.5 x 1 - 1 = -0.5 and 2 + 0 - 1 = 1; targets: 1 - 0.5 + 0.25 x 1 and 1 + 1
    assert scored.final_value == 0
    assert scored.credit.value_targets == (0.75, 2.0)
    # with 8 to come: 2 + 0.5 x 8 - 1 = 5; targets: 1 - 0.5 + 0.25 x 5 and 1 + 5
    assert cut.final_value == 8
    assert cut.credit.value_targets == (1.75, 6.0)


def test_a_cut_episode_without_the_value_of_its_end_is_refused() -> None:
    rows = rows_of_group([([(1.0, 2)], True), ([(1.0, 2)], False)])
    values = CriticValues(values_of(rows, {(0, 0): [0, 0], (1, 0): [0, 0]}).rows, {})

    with pytest.raises(ValueError, match=r"truncated episode .*sample_index=0\) has no value"):
        credited(rows, values)


def test_a_row_without_a_call_is_the_end_of_an_episode() -> None:
    rows = rows_of_group([([(1.0, 2)], True)])

    of_calls, finals = without_final({**rows, "train-1-0_0_1": beside()})

    assert of_calls == rows
    assert finals == {Episode("train-1-0", 0): "train-1-0_0_1"}


steps = st.lists(
    st.tuples(st.floats(-2, 2).map(lambda r: round(r, 2)), st.integers(1, 4)),
    min_size=1,
    max_size=4,
)


@settings(deadline=None, max_examples=60)
@given(
    episodes=st.lists(st.tuples(steps, st.booleans()), min_size=2, max_size=4),
    level=st.sampled_from(("step", "token")),
    per_row=st.integers(2, 5),
    data=st.data(),
)
def test_rows_do_not_matter(
    episodes: Episodes, level: str, per_row: int, data: st.DataObject
) -> None:
    """Merged or not, an episode has the same values, advantages and weights."""
    value = st.floats(-3, 3).map(lambda v: round(v, 3))
    tokens = {
        (sample_index, index): data.draw(st.lists(value, min_size=number, max_size=number))
        for sample_index, (of_episode, _) in enumerate(episodes)
        for index, (_, number) in enumerate(of_episode)
    }

    apart, merged = (
        credited(rows, values_of(rows, tokens), gae_level=level, gae_lambda=0.8, discount=0.9)
        for rows in (rows_of_group(episodes), rows_of_group(episodes, per_row=per_row))
    )

    for one, other in zip(apart.credit, merged.credit, strict=True):
        assert one.credit == other.credit
        assert one.step_values == other.step_values
        for mine, theirs in zip(one.calls, other.calls, strict=True):
            assert mine.value_weights.tolist() == theirs.value_weights.tolist()
            assert mine.token_advantages.tolist() == theirs.token_advantages.tolist()


def test_a_step_is_valued_at_the_call_that_chose_its_action() -> None:
    rows = rows_of(GroupName(1, 0), 0, [{"reward": 1.0, "calls": (2, 3)}])
    rows |= rows_of(GroupName(1, 0), 1, [{"reward": 0.0, "calls": (1, 1)}])
    values = {"0_0": [8.0, 8.0], "0_1": [0.5, 9.0, 9.0], "1_0": [8.0], "1_1": [0.25]}

    first, second = credited(
        rows, CriticValues({f"train-1-0_{key}": np.array(v) for key, v in values.items()}, {})
    ).credit

    assert (first.step_values, second.step_values) == ((0.5,), (0.25,))
    assert [call.value_weights.tolist() for call in first.calls] == [[0.0, 0.0], [0.5, 0.0, 0.0]]


def test_the_tokens_of_a_steps_calls_are_one_reply_where_tokens_are_credited() -> None:
    whole = rows_of(GroupName(1, 0), 0, [{"reward": 1.0, "tokens": 5}])
    whole |= rows_of(GroupName(1, 0), 1, [{"reward": 0.0, "tokens": 2}])
    cut = rows_of(GroupName(1, 0), 0, [{"reward": 1.0, "calls": (2, 3)}])
    cut |= rows_of(GroupName(1, 0), 1, [{"reward": 0.0, "calls": (1, 1)}])
    values = [[0.1, 0.2, 0.3, 0.4, 0.5], [0.6, 0.7]]

    one = credited(
        whole,
        CriticValues({f"train-1-0_{n}_0": np.array(v) for n, v in enumerate(values)}, {}),
        gae_level="token",
    )
    parts = {"0_0": [0.1, 0.2], "0_1": [0.3, 0.4, 0.5], "1_0": [0.6], "1_1": [0.7]}
    other = credited(
        cut,
        CriticValues({f"train-1-0_{key}": np.array(v) for key, v in parts.items()}, {}),
        gae_level="token",
    )

    for name in ("token_advantages", "token_values", "value_weights"):
        (expected, found) = (
            [x for call in step.calls for x in getattr(call, name).tolist()]
            for step in (one, other)
        )
        assert found == expected


def test_a_step_whose_action_no_trained_call_chose_is_valued_at_its_last_trained_one() -> None:
    steps: list[MadeUpStep] = [{"reward": 1.0, "calls": (2, 2, 3), "trained": (True, True, False)}]
    rows = rows_of(GroupName(1, 0), 0, steps)

    (episode,) = credited(
        rows,
        CriticValues({key: np.array([n, 9.0]) for n, key in enumerate(rows, start=7)}, {}),
    ).credit

    assert episode.step_values == (8.0,)
    assert [call.value_weights.tolist() for call in episode.calls] == [[0.0, 0.0], [1.0, 0.0]]


def naive_advantages(
    rewards: list[float], values: list[float | None], final: float, discount: float, decay: float
) -> list[float]:
    """Sums of discounted errors, each from the values of the next states, as in the paper."""

    def value(step: int) -> float:
        if step == len(rewards):
            return final
        known = values[step]
        return rewards[step] + discount * value(step + 1) if known is None else known

    errors = [r + discount * value(t + 1) - value(t) for t, r in enumerate(rewards)]
    return [
        sum((discount * decay) ** (later - t) * errors[later] for later in range(t, len(rewards)))
        for t in range(len(rewards))
    ]


@settings(max_examples=60)
@given(
    steps=st.lists(
        st.tuples(st.integers(-4, 4).map(float), st.booleans(), st.integers(1, 3)),
        min_size=1,
        max_size=6,
    ).filter(lambda steps: any(trained for _, trained, _ in steps)),
    truncated=st.booleans(),
    per_row=st.integers(1, 3),
    level=st.sampled_from(["step", "token"]),
)
def test_a_step_without_a_trained_call_passes_on_what_follows(
    steps: list[tuple[float, bool, int]], truncated: bool, per_row: int, level: str
) -> None:
    """Advantages of the steps of a program that asks other models too, by their definition."""
    made_up: list[MadeUpStep] = [
        {"reward": reward, "calls": (tokens, 4), "trained": (trained, False)}
        for reward, trained, tokens in steps
    ]
    rows = rows_of(GroupName(1, 0), 0, made_up, per_row=per_row, truncated=truncated)
    tokens = {(0, step): [0.25 * step - 0.5] * size for step, (*_, size) in enumerate(steps)}
    values = values_of(rows, tokens)

    (episode,) = credited(rows, values, gae_level=level, discount=0.9, gae_lambda=0.5).credit

    expected = naive_advantages(
        [reward for reward, *_ in steps],
        [0.25 * step - 0.5 if trained else None for step, (_, trained, _) in enumerate(steps)],
        5.0 if truncated else 0.0,
        0.9,
        0.5,
    )
    assert episode.step_values is not None
    assert episode.credit.value_targets is not None
    found = np.subtract(episode.credit.value_targets, episode.step_values)
    assert found == pytest.approx(expected)
    assert sum(call.value_weights.sum() for call in episode.calls) == pytest.approx(1.0)
    counts = [size if trained else 0 for _, trained, size in steps]
    if sum(counts) > 1:
        raw = np.array(expected)
        mean = np.average(raw, weights=counts)
        variance = np.dot(counts, (raw - mean) ** 2) / (sum(counts) - 1)
        whitened = ((raw - mean) / np.sqrt(variance + 1e-8)).tolist()
        assert [call.advantage for call in episode.calls] == pytest.approx(
            [one for one, (_, trained, _) in zip(whitened, steps, strict=True) if trained],
            abs=1e-5,
        )
