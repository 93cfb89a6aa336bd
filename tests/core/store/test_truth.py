"""What stored continuations say of a step: V, Q and Q - V."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.orm import Session

from longhaul_core.evaluation import bounded_mean_interval
from longhaul_core.store import StoreWriter, queries
from longhaul_core.store.queries import ContinuedBy, ContinuedStep, SampledTruth
from longhaul_core.store.records import EpisodeRecord, Record
from longhaul_core.store.session import read_only_engine
from store_samples import make_failure, make_record, make_trajectory, measured, run_started

EPISODE = make_record(make_trajectory())
ID = EPISODE.episode_id
STARTED = [run_started(), EPISODE]


def truth_of(folder: Path, records: Sequence[Record]) -> tuple[SampledTruth, ...]:
    store = folder / "longhaul.db"
    with StoreWriter(store) as writer:
        writer.write([*STARTED, *records])
    engine = read_only_engine(store)
    with Session(engine) as session:
        found = queries.sampled_truth(session, episode_id=ID)
    engine.dispose()
    return found


def test_value_and_advantage_of_a_step_by_hand(tmp_path: Path) -> None:
    # The first reward is replayed; from step 1 on: V (1 + 0) / 2, Q (0.5 * 1 + 1) / 2.
    records = measured(
        ID, choice=[(9.0, 1.0), (9.0, 0.0, 0.0)], taken=[(9.0, 0.0, 1.0), (9.0, 1.0)]
    )

    [truth] = truth_of(tmp_path, records)

    assert (truth.continued_by, truth.discount) == ("random", 0.5)
    [step] = truth.steps
    assert step.step_index == 1
    assert (step.value.estimate, step.value.num_continuations) == (0.5, 2)
    # Wilson: z² = 3.841459, centre 0.5, half = z / (1 + z² / 2) * √(0.125 + z² / 16) = 0.405469
    assert (step.value.low, step.value.high) == pytest.approx((0.094531, 0.905469), abs=1e-6)
    assert step.action_value.estimate == 0.75
    assert (step.advantage.estimate, step.advantage.num_continuations) == (0.25, 4)
    q = bounded_mean_interval([0.5, 1.0])
    low = 0.25 - ((0.75 - q.low) ** 2 + (step.value.high - 0.5) ** 2) ** 0.5
    assert step.advantage.low == pytest.approx(low)
    assert not step.has_effect


def test_returns_outside_0_to_1_are_scaled_by_what_was_seen(tmp_path: Path) -> None:
    records = measured(ID, choice=[(0.0, -3.0), (0.0, 0.0)], taken=[(0.0, 2.0), (0.0, 2.0)])

    [truth] = truth_of(tmp_path, records)

    [step] = truth.steps
    assert (step.value.estimate, step.action_value.estimate) == (-1.5, 2.0)
    scaled = bounded_mean_interval([0.0, 0.6])  # -3 and 0 on the way from -3 to 2
    assert (step.value.low, step.value.high) == pytest.approx(
        (-3 + 5 * scaled.low, -3 + 5 * scaled.high)
    )
    assert step.action_value.low < step.action_value.high == 2.0  # all alike, and no certainty


def test_a_draw_counts_once_and_other_seeds_and_branches_are_apart(tmp_path: Path) -> None:
    choice, taken = [(0.0, 1.0), (0.0, 0.0), (0.0, 0.0)], [(0.0, 1.0)]
    again = measured(ID, choice=choice, taken=taken, run_id="truth-again")
    other = measured(ID, choice=[(0.0, 1.0)], taken=taken, run_id="truth-other", seed=1)
    branch = measured(ID, choice=choice, taken=taken, run_id="branch", name="branch")

    found = truth_of(tmp_path, [*measured(ID, choice=choice, taken=taken), *again, *other, *branch])

    assert [each.steps[0].value.num_continuations for each in found] == [3, 1]
    assert [each.steps[0].value.estimate for each in found] == [pytest.approx(1 / 3), 1.0]


def test_a_step_without_one_of_its_sets_is_left_out(tmp_path: Path) -> None:
    only_choice = measured(ID, choice=[(0.0, 0.0, 1.0)], taken=[], step=2)
    failed = measured(ID, choice=[], taken=[(0.0, 1.0)], run_id="truth-failed")
    [record] = (one for one in failed if isinstance(one, EpisodeRecord))
    failed += [replace(record, group_index=9, branched_action=None, outcome=make_failure())]

    whole = measured(ID, choice=[(0.0, 1.0)], taken=[(0.0, 1.0)], run_id="truth-2", seed=2)

    [truth, other] = truth_of(tmp_path, [*only_choice, *failed, *whole])

    assert truth.steps == ()
    assert [step.step_index for step in other.steps] == [1]


def test_the_sets_of_several_episodes_are_read_at_once(tmp_path: Path) -> None:
    truth_of(tmp_path, measured(ID, choice=[(0.0, 1.0)], taken=[(0.0, 1.0), (0.0, 0.0)]))
    engine = read_only_engine(tmp_path / "longhaul.db")
    with Session(engine) as session:
        [(by, steps)] = queries.continued_steps(session, [ID, "another"]).items()
        assert queries.continued_steps(session, ["another"]) == {}
        with pytest.raises(LookupError, match="nobody"):
            queries.sampled_truth(session, episode_id="nobody")
    engine.dispose()
    assert by.name == "random"
    assert steps == {
        ContinuedStep(ID, 1, takes_stored_action=False): {0: 1.0},
        ContinuedStep(ID, 1, takes_stored_action=True): {0: 1.0, 1: 0.0},
    }


CONFIG: Mapping[str, Any] = {
    "name": "a",
    "seed": 0,
    "runs_directory": "runs",
    "num_training_steps": 8,
    "environment": {"id": "a/B-v0", "options": {"size": 3}, "num_workers": 8},
    "environments": [],
    "rollout": {"temperature": 1.0, "concurrent_episodes": 8},
    "memory": {"kind": "none"},
    "algorithm": {"discount": 0.95, "name": "gigpo"},
    "model": {"path": "/models/a", "engine_dtype": "float32"},
}


@pytest.mark.parametrize(
    ("section", "change", "is_another"),
    [
        (None, {"name": "b", "runs_directory": "elsewhere", "num_training_steps": 9}, False),
        ("environment", {"num_workers": 2, "server": "http://10.0.0.1:8300"}, False),
        ("rollout", {"concurrent_episodes": 64, "max_retries": 9}, False),
        ("algorithm", {"name": "grpo"}, False),
        ("model", {"path": "/moved/a"}, False),
        (None, {"seed": 1}, True),
        ("environment", {"options": {"size": 7}}, True),
        ("rollout", {"temperature": 0.5}, True),
        ("memory", {"kind": "window"}, True),
        ("algorithm", {"discount": 1.0}, True),
        ("model", {"engine_dtype": "bfloat16"}, True),
        (None, {"environments": [{"id": "a/B-v0", "memory": {"kind": "full"}}]}, True),
    ],
)
def test_continuations_are_of_one_policy_by_what_decides_them(
    section: str | None, change: dict[str, object], is_another: bool
) -> None:
    sections: dict[str, Any] = dict(CONFIG)
    changed = (
        sections | change if section is None else sections | {section: sections[section] | change}
    )

    assert (ContinuedBy.of("truth-a", changed) != ContinuedBy.of("truth-a", CONFIG)) == is_another
    assert ContinuedBy.of("truth-b", CONFIG) != ContinuedBy.of("truth-a", CONFIG)


def test_episodes_that_weights_of_one_version_sampled(tmp_path: Path) -> None:
    versions = {
        call.sampled.policy_version
        for step in make_trajectory().steps
        for call in step.calls
        if call.sampled is not None
    }
    (version,) = versions
    store = tmp_path / "longhaul.db"
    with StoreWriter(store) as writer:
        writer.write([*STARTED, make_record(make_failure())])
    engine = read_only_engine(store)
    with Session(engine) as session:

        def found(run_id: str, number: int, limit: int = 9) -> list[tuple[str, str]]:
            return queries.sampled_by(session, run_id, policy_version=number, limit=limit)

        assert found(EPISODE.run_id, version) == [(ID, EPISODE.phase)]
        assert found(EPISODE.run_id, version + 1) == []
        assert found("another", version) == []
        assert found(EPISODE.run_id, version, limit=0) == []
    engine.dispose()
