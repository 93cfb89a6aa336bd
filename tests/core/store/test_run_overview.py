"""What a list of runs shows, histograms of episodes, and labels that are put right."""

import json
from collections import Counter
from dataclasses import replace

import pytest
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from core.store.conftest import ON_BOTH
from longhaul_core.errors import StoreError
from longhaul_core.store import StoreWriter, queries
from longhaul_core.store.labelling import put_label, remove_label
from longhaul_core.store.queries import EpisodeFilter, PanelScore, RunSettings
from longhaul_core.store.records import Evaluation, Label, Metrics, PanelTasks
from longhaul_core.types import Split
from store_samples import (
    make_audit,
    make_failure,
    make_record,
    make_task,
    make_trajectory,
    run_started,
)

COLLAPSED = {"groups/without_signal": 9.0, "groups/count": 10.0, "actor/entropy": 0.9}


def test_settings_are_read_from_the_stored_configuration(
    writer: StoreWriter, session: Session
) -> None:
    config = {
        "seed": 3,
        "model": {"path": "tiny"},
        "environment": {"id": "longhaul/Sokoban-v0"},
        "algorithm": {"name": "gigpo"},
    }
    mixed = {"environments": [{"id": "a"}, {"id": "b"}]}
    program = {"agent": {"kind": "command", "command": ["python", "agent.py"]}}
    for run_id, settings in (("one", config), ("two", mixed), ("three", program), ("four", {})):
        writer.write([replace(run_started(run_id), config_json=json.dumps(settings))])

    assert queries.run_settings(session, run_ids=["one", "two", "three", "four"]) == {
        "one": RunSettings("tiny", "longhaul/Sokoban-v0", "gigpo", 3),
        "two": RunSettings("", "a, b", "", None),
        "three": RunSettings("", "python agent.py", "", None),
        "four": RunSettings("", "", "", None),
    }


def test_the_newest_training_step_of_each_run_is_judged(
    writer: StoreWriter, session: Session
) -> None:
    well = COLLAPSED | {"groups/without_signal": 1.0}
    for run_id, values in (("bad", [well, COLLAPSED]), ("good", [COLLAPSED, well])):
        writer.write([run_started(run_id)])
        writer.write(
            [
                Metrics(run_id=run_id, attempt=0, training_step=at, values=value)
                for at, value in enumerate(values, 1)
            ]
        )
    found = queries.health_warnings(session, run_ids=["bad", "good", "none"])
    assert set(found) == {"bad", "good"}
    training_step, (warning,) = found["bad"]
    assert (training_step, warning.metric, warning.value) == (2, "groups/without_signal", 0.9)
    assert found["good"] == (2, [])


def test_a_panel_has_its_newest_score_beside_its_first(
    writer: StoreWriter, session: Session
) -> None:
    config = {"validation": {"samples_per_task": 4}}
    writer.write([replace(run_started(), config_json=json.dumps(config))])
    tasks = tuple(make_task(number) for number in range(3))
    writer.write([PanelTasks(run_id="run", name="fixed", split=Split.VALIDATION, tasks=tasks)])
    scores = {0: 0.1, 4: 0.4, 8: 0.3}
    writer.write(
        [
            Evaluation(
                run_id="run",
                attempt=0,
                training_step=step,
                panel="fixed",
                split=split,
                num_episodes=10,
                mean_return=0.0,
                success_rate=rate if split is Split.VALIDATION else 0.9,
            )
            for step, rate in scores.items()
            for split in (Split.VALIDATION, Split.TEST)
        ]
    )
    assert queries.panel_scores(session, run_ids=["run"]) == {
        "run": PanelScore("fixed", 8, 0.3, 0.1, num_episodes=10, num_unplayed=2)
    }
    for score in queries.evaluations(session, run_id="run"):
        assert score.num_unplayed == (2 if score.split == "validation" else None)


def test_a_panel_of_several_environments_has_the_score_of_the_whole(
    writer: StoreWriter, session: Session
) -> None:
    scores = {"validation": 0.5, "validation/a/A-v0": 0.9, "validation/z/Z-v0": 0.1}
    writer.write([run_started()])
    writer.write(
        [
            Evaluation(
                run_id="run",
                attempt=0,
                training_step=step,
                panel=panel,
                split=Split.VALIDATION,
                num_episodes=10,
                mean_return=0.0,
                success_rate=rate,
            )
            for step in (0, 4)
            for panel, rate in scores.items()
        ]
    )
    assert queries.panel_scores(session, run_ids=["run"]) == {
        "run": PanelScore("validation", 4, 0.5, 0.5, num_episodes=10, num_unplayed=None)
    }


def test_findings_are_those_of_the_newest_audit(writer: StoreWriter, session: Session) -> None:
    clean = replace(make_audit(audited_at=2_000_000_000.0), findings=(), rules=())
    writer.write([run_started()])
    writer.write([make_audit()])
    before = queries.audit_findings(session, run_ids=["run"])
    session.rollback()
    writer.write([clean])
    assert (before, queries.audit_findings(session, run_ids=["run"])) == ({"run": 1}, {"run": 0})


def test_failures_are_counted_by_cause_and_environments_named(
    writer: StoreWriter, session: Session
) -> None:
    records = [make_record(make_failure(sample_index=at), group_size=4) for at in range(3)]
    writer.write([run_started(), *records, make_record(make_trajectory(sample_index=3))])
    (cause,) = {str(record.outcome.cause) for record in records}  # type: ignore[union-attr]
    assert queries.failure_causes(session, run_id="run") == {cause: 3}
    assert queries.environments(session, run_id="run") == [make_task().environment]


RETURNS = [0.0, 0.0, 0.5, 1.0, 1.0, 1.0]


def write_episodes(writer: StoreWriter, returns: list[float]) -> None:
    writer.write(
        [
            run_started(),
            *(
                make_record(
                    make_trajectory(sample_index=at, rewards=(value,) * 2, success=value > 0.9),
                    group_size=len(returns) + 1,
                )
                for at, value in enumerate(returns)
            ),
            make_record(make_failure(sample_index=len(returns)), group_size=len(returns) + 1),
        ]
    )


def test_few_values_have_a_bar_each(writer: StoreWriter, session: Session) -> None:
    write_episodes(writer, RETURNS)
    bars = queries.episode_histogram(
        session, where=EpisodeFilter(run_id="run"), column="episode_return"
    )
    assert [(b.least, b.most, b.num_episodes, b.num_solved) for b in bars] == [
        (0.0, 0.0, 2, 0),
        (1.0, 1.0, 1, 0),
        (2.0, 2.0, 3, 3),
    ]


@ON_BOTH
@pytest.mark.parametrize("max_bars", [1, 3, 7])
def test_a_bar_is_what_a_filter_on_its_ends_finds(
    writer: StoreWriter, session: Session, max_bars: int
) -> None:
    values = [((at * 37) % 100) / 9 - 4 for at in range(60)]
    write_episodes(writer, values)
    for column in ("episode_return", "num_steps", "training_step"):
        bars = queries.episode_histogram(
            session, where=EpisodeFilter(run_id="run"), column=column, max_bars=max_bars
        )
        assert len(bars) <= max_bars
        failed = column != "episode_return"
        assert sum(bar.num_episodes for bar in bars) == len(values) + failed
        if column == "episode_return":
            for bar in bars:
                where = EpisodeFilter(run_id="run", min_return=bar.least, max_return=bar.most)
                assert queries.count_episodes(session, where=where) == bar.num_episodes


def label(name: str = "note", value: str = "odd", **changed: object) -> Label:
    made = Label(
        episode_id="run/0/train/1/0/0/0",
        step_index=1,
        name=name,
        value=value,
        author="ada",
        created_at=1.0,
    )
    return replace(made, **changed)  # type: ignore[arg-type]


def test_a_label_is_put_changed_and_removed(
    writer: StoreWriter, opened: Engine, session: Session
) -> None:
    write_episodes(writer, [1.0])
    episode_id = label().episode_id

    def stored() -> list[tuple[int | None, str, str, str]]:
        session.rollback()
        found = queries.labels_of(session, episode_ids=[episode_id, "none"])
        assert found["none"] == []
        return [(one.step_index, one.name, one.value, one.author) for one in found[episode_id]]

    before = queries.changes_since(session, run_id="run").cursor
    put_label(opened, label())
    put_label(opened, label(author="bob", value="fine"))
    put_label(opened, label(step_index=None, value="whole"))
    put_label(opened, label(value="on second thoughts"))
    assert Counter(stored()) == Counter(
        [
            (None, "note", "whole", "ada"),
            (1, "note", "on second thoughts", "ada"),
            (1, "note", "fine", "bob"),
        ]
    )
    remove_label(opened, label())
    remove_label(opened, label())
    assert (1, "note", "on second thoughts", "ada") not in stored()
    assert len(stored()) == 2
    changes = queries.changes_since(session, run_id="run", cursor=before)
    assert {change.kind for change in changes.rows} == {"label"}


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (label(name=" "), "needs a name and an author"),
        (label(episode_id="run/0/train/9/0/0/0"), "not in the store"),
        (label(name="n" * 10_000), "may have"),
    ],
)
def test_a_label_that_cannot_be_kept_is_refused(
    writer: StoreWriter, opened: Engine, session: Session, wrong: Label, words: str
) -> None:
    write_episodes(writer, [1.0])
    with pytest.raises(StoreError, match=words):
        put_label(opened, wrong)
    assert queries.labels_of(session, episode_ids=[label().episode_id]) == {label().episode_id: []}
