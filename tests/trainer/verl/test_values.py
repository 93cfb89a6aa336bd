"""Tests of a critic's values on their way: out of rows, into advantages, and back into rows."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longhaul_trainer.config import AlgorithmConfig
from longhaul_trainer.training.credit import CriticValues, StepCredit, credit_training_step
from longhaul_trainer.training.step_metadata import RowKey, StepMetadata, without_final

Notes = dict[str, tuple[StepMetadata, ...]]
Episodes = list[tuple[list[tuple[float, int]], bool]]
"""For each episode the reward and the tokens of its steps, and whether a limit cut it short."""


def notes_of(episodes: Episodes, *, gap: int | None = None) -> Notes:
    """Notes of a group's episodes: a row for each step, or one row with gaps of so many tokens."""
    notes: Notes = {}
    for sample_index, (steps, truncated) in enumerate(episodes):
        place = 0
        of_row: list[StepMetadata] = []
        for index, (reward, tokens) in enumerate(steps):
            note = StepMetadata(
                environment="fakes/Counting-v0",
                task_id="train/00000",
                training_step=1,
                policy_version=0,
                group_index=0,
                sample_index=sample_index,
                retry=0,
                horizon=9,
                step=index,
                num_steps=len(steps),
                reward=reward,
                action_valid=True,
                anchor=f"{sample_index}/{index}",
                success=False,
                episode_return=sum(reward for reward, _ in steps),
                prompt_tokens=7,
                action_tokens=tokens,
                start=0 if gap is None else place,
                split_reason=None,
                truncated=truncated,
            )
            place += tokens + (gap or 0)
            if gap is None:
                notes[f"train-1-0_{sample_index}_{index}"] = (note,)
            else:
                of_row.append(note)
        if gap is not None:
            notes[f"train-1-0_{sample_index}_0"] = tuple(of_row)
    return notes


def said_by(notes: Notes, tokens: dict[tuple[int, int], list[float]]) -> CriticValues:
    """Values of a row's response, from those of (sample_index, step); a gap's are 99."""
    rows: dict[str, Any] = {}
    for key, row in notes.items():
        values = np.full(row[-1].stop, 99.0)
        for note in row:
            values[note.start : note.stop] = tokens[note.sample_index, note.step]
        rows[key] = values
    finals = {
        RowKey.parse(key)[:2]: 10.0 * row[-1].sample_index + 5.0
        for key, row in notes.items()
        if row[-1].truncated
    }
    return CriticValues(rows, finals)


def credited(notes: Notes, values: CriticValues | None, **algorithm: object) -> StepCredit:
    return credit_training_step(
        notes,
        algorithm=AlgorithmConfig.model_validate(
            {"name": "gae", "discount": 1.0, "gae_lambda": 1.0} | algorithm
        ),
        num_optimizer_steps=1,
        groups=["train-1-0"],
        values=values,
    )


def test_a_step_is_valued_before_its_first_token_and_a_cut_episode_at_its_end() -> None:
    episodes: Episodes = [([(1.0, 2), (0.0, 1)], False), ([(2.0, 3)], True)]
    notes = notes_of(episodes)
    values = said_by(notes, {(0, 0): [0.5, 7.0], (0, 1): [0.25], (1, 0): [3.0, 8.0, 9.0]})

    first, second = credited(notes, values).episodes

    assert first.step_values == (0.5, 0.25)
    assert first.credit.value_targets == (1.0, 0.0)  # nothing comes after a task that ended
    assert second.credit.value_targets == (2.0 + 15.0,)  # and 15 after one that was cut
    assert first.values is not None
    assert second.values is not None
    assert (first.values.final, second.values.final) == (None, 15.0)
    assert first.token_values is None
    assert [step.value_weights.tolist() for step in first.steps] == [[1 / 3, 0.0], [1 / 3]]
    assert [step.token_values.tolist() for step in first.steps] == [[0.5, 0.5], [0.25]]


def test_each_token_is_valued_where_tokens_are_credited() -> None:
    notes = notes_of([([(1.0, 2), (0.0, 1)], False), ([(2.0, 3)], True)])
    values = said_by(notes, {(0, 0): [0.5, 7.0], (0, 1): [0.25], (1, 0): [3.0, 8.0, 9.0]})

    first, second = credited(notes, values, gae_level="token").episodes

    assert first.token_values == ((0.5, 7.0), (0.25,))
    assert [step.value_weights.tolist() for step in second.steps] == [[1 / 6] * 3]
    # targets 1, 0 | 17, less the values: 0.5, -6, -0.25 | 14, 9, 8, then whitened
    raw = np.array([0.5, -6.0, -0.25, 14.0, 9.0, 8.0])
    expected = (raw - raw.mean()) / np.sqrt(raw.var(ddof=1) + 1e-8)
    found = [a for episode in (first, second) for step in episode.token_advantages for a in step]
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
    notes = notes_of([([(0.0, 2), (0.0, 1)], False), ([(1.0, 3)], False)])
    fixed = {"tokens_per_episode": 50} if unit == "fixed_token" else {}

    credit = credited(notes, None, loss_unit=unit, gae_level=level, **fixed)

    steps = [step for episode in credit.episodes for step in episode.steps]
    assert [step.value_weights[0] for step in steps] == pytest.approx(expected)
    assert sum(step.value_weights.sum() for step in steps) == pytest.approx(1.0)


def test_a_cut_episode_without_the_value_of_its_end_is_refused() -> None:
    notes = notes_of([([(1.0, 2)], True), ([(1.0, 2)], False)])
    values = CriticValues(said_by(notes, {(0, 0): [0, 0], (1, 0): [0, 0]}).rows, {})

    with pytest.raises(ValueError, match=r"truncated episode \('train-1-0', 0\) has no value"):
        credited(notes, values)


def test_a_row_without_a_step_is_the_end_of_an_episode() -> None:
    notes = notes_of([([(1.0, 2)], True)])

    rows, finals = without_final({**notes, "train-1-0_0_1": ()})

    assert rows == notes
    assert finals == {("train-1-0", 0): "train-1-0_0_1"}


steps = st.lists(
    st.tuples(st.floats(-2, 2).map(lambda r: round(r, 2)), st.integers(1, 4)),
    min_size=1,
    max_size=4,
)


@settings(deadline=None, max_examples=60)
@given(
    episodes=st.lists(st.tuples(steps, st.booleans()), min_size=2, max_size=4),
    level=st.sampled_from(("step", "token")),
    gap=st.integers(0, 3),
    data=st.data(),
)
def test_rows_do_not_matter(episodes: Episodes, level: str, gap: int, data: st.DataObject) -> None:
    """Merged or not, an episode has the same values, advantages and weights."""
    value = st.floats(-3, 3).map(lambda v: round(v, 3))
    tokens = {
        (sample_index, index): data.draw(st.lists(value, min_size=number, max_size=number))
        for sample_index, (of_episode, _) in enumerate(episodes)
        for index, (_, number) in enumerate(of_episode)
    }

    apart, merged = (
        credited(notes, said_by(notes, tokens), gae_level=level, gae_lambda=0.8, discount=0.9)
        for notes in (notes_of(episodes), notes_of(episodes, gap=gap))
    )

    for one, other in zip(apart.episodes, merged.episodes, strict=True):
        assert one.credit == other.credit
        assert one.step_values == other.step_values
        for mine, theirs in zip(one.steps, other.steps, strict=True):
            assert mine.value_weights.tolist() == theirs.value_weights.tolist()
            assert mine.token_advantages.tolist() == theirs.token_advantages.tolist()
