"""Tests for `longhaul_core.store.queries`."""

from dataclasses import replace
from functools import partial

import pytest
from sqlalchemy import Engine, func, select, text
from sqlalchemy.orm import Session

from core.store.conftest import ON_BOTH
from longhaul_core.store import (
    Evaluation,
    Label,
    Metrics,
    StoreWriter,
    TokenPieces,
    open_store,
    queries,
)
from longhaul_core.store.maintenance import drop_tokens, index_text
from longhaul_core.store.models import MediaRow
from longhaul_core.store.queries import EpisodeFilter, GroupFilter, GroupSummary
from longhaul_core.types import Split, StopReason
from store_samples import (
    NO_SIGNAL,
    make_credit,
    make_decisions,
    make_failure,
    make_program,
    make_record,
    make_signals,
    make_training_step,
    run_started,
)


@pytest.fixture(autouse=True)
def _sample(writer: StoreWriter) -> None:
    """Two training steps of two groups of four; sample p has p + 2 steps and returns p % 2."""
    episodes = [*make_training_step(1), *make_training_step(2)]
    writer.write(
        [
            run_started(),
            *episodes,
            *make_decisions(episodes),
            *(make_credit(each) for each in episodes),
        ]
    )
    writer.write(
        [make_record(make_failure(sample_index=0), training_step=2, group_index=1, retry=1)]
    )


def test_a_run_counts_what_ended_and_what_failed(session: Session) -> None:
    [run] = queries.list_runs(session)

    assert (run.run_id, run.status, run.num_training_steps) == ("run", "running", 10)
    assert (run.num_episodes, run.num_failed_episodes) == (16, 1)
    assert run.num_steps == 2 * 2 * (2 + 3 + 4 + 5)
    assert run.last_mean_return == 0.5
    assert run.last_success_rate == 0.5
    assert not run.cancel_requested


def test_a_training_step_is_done_when_its_metrics_are_there_and_stand(
    writer: StoreWriter, session: Session
) -> None:
    def done() -> int:
        in_view = session.execute(text("SELECT num_training_steps_done FROM run_summary"))
        found = queries.get_run(session, run_id="run").summary.num_training_steps_done
        assert in_view.scalar_one() == found
        session.rollback()  # the next look is at what was written since
        return found

    def measured(training_step: int, *, attempt: int = 0) -> Metrics:
        return Metrics(
            run_id="run", attempt=attempt, training_step=training_step, values={"loss": 1.0}
        )

    assert done() == 0  # both have begun
    writer.write([measured(1)])
    assert done() == 1
    writer.write([measured(2), measured(3)])
    assert done() == 3
    writer.write([run_started(attempt=1, resumes_after=1)])
    assert done() == 1
    writer.write([measured(2, attempt=1)])
    assert done() == 2


def test_runs_come_newest_first_and_filtered(writer: StoreWriter, session: Session) -> None:
    later = replace(run_started("later"), kind="evaluate", started_at=1_800_000_000.0)
    writer.write([later])

    assert [run.run_id for run in queries.list_runs(session)] == ["later", "run"]
    assert [run.run_id for run in queries.list_runs(session, kind="train")] == ["run"]
    assert queries.list_runs(session, status="failed") == []
    assert [run.run_id for run in queries.list_runs(session, after="later")] == ["run"]


def test_a_run_without_episodes_has_zeros_and_no_means(
    writer: StoreWriter, session: Session
) -> None:
    writer.write([run_started("fresh")])

    run = queries.get_run(session, run_id="fresh").summary
    assert (run.num_episodes, run.num_steps, run.num_training_steps_done) == (0, 0, 0)
    assert run.last_mean_return is None


def test_what_is_not_there_is_a_lookup_error_that_names_it(session: Session) -> None:
    with pytest.raises(LookupError, match="'nobody'"):
        queries.get_run(session, run_id="nobody")
    with pytest.raises(LookupError, match="'nobody'"):
        queries.get_episode(session, episode_id="nobody")
    with pytest.raises(LookupError, match="'nobody'"):
        queries.get_group(session, queries.GroupId("nobody", "train", 1, 0))


def test_the_curve_is_over_ended_episodes(session: Session) -> None:
    first, second = queries.training_curve(session, run_id="run", phase="train")

    assert (first.training_step, first.num_episodes, first.num_failed_episodes) == (1, 8, 0)
    assert (second.num_episodes, second.num_failed_episodes) == (8, 1)
    assert second.mean_return == 0.5
    assert second.success_rate == 0.5
    assert second.mean_num_steps == 3.5
    # of 4 + 3 + 5 + 2 steps, the fourth of the two longer episodes is invalid, in two groups;
    # the failed episode adds one valid step
    assert second.invalid_action_rate == pytest.approx(4 / 29)
    assert queries.training_curve(session, run_id="run", phase="test") == []


def test_metric_series_keep_their_order_and_their_gaps(
    writer: StoreWriter, session: Session
) -> None:
    for training_step in (2, 1):
        writer.write(
            [
                Metrics(
                    run_id="run",
                    attempt=0,
                    training_step=training_step,
                    values={"b": 1.0, "a": 2.0},
                )
            ]
        )

    assert queries.metric_names(session, run_id="run") == ["a", "b"]
    series = queries.metric_series(session, run_id="run", names=["a", "missing"])
    assert series == {
        "a": [queries.MetricPoint(1, 2.0), queries.MetricPoint(2, 2.0)],
        "missing": [],
    }


FILTERED = [
    (EpisodeFilter(), 17),
    (EpisodeFilter(run_id="other"), 0),
    (EpisodeFilter(phase="train", failed=False), 16),
    (EpisodeFilter(failed=True), 1),
    (EpisodeFilter(success=True), 8),
    (EpisodeFilter(success=False), 8),
    (EpisodeFilter(min_training_step=2), 9),
    (EpisodeFilter(max_training_step=1, group_index=1), 4),
    (EpisodeFilter(stop_reason=StopReason.HORIZON_REACHED), 8),
    (EpisodeFilter(min_return=0.5), 8),
    (EpisodeFilter(min_steps=4), 8),
    (EpisodeFilter(min_steps=3, max_steps=3), 4),
    (EpisodeFilter(failure_cause="environment_timeout"), 1),
    (EpisodeFilter(failure_cause="policy_error"), 0),
    (EpisodeFilter(policy_version=7), 17),
    (EpisodeFilter(policy_version=6), 0),
    (EpisodeFilter(max_return=0.5), 8),
    (EpisodeFilter(task_id="train/00100"), 4),
    (EpisodeFilter(environment="samples/Maze-v0", trained=True), 16),
    (EpisodeFilter(rolled_back=None), 17),
    (EpisodeFilter(rolled_back=True), 0),
]
"""A filter, and how many of the episodes it lets through."""


def test_episodes_are_filtered(session: Session) -> None:
    for where, total in FILTERED:
        page = queries.list_episodes(session, where=where, limit=5, count_up_to=100)
        assert page.total == total == queries.count_episodes(session, where=where), where
        assert len(page.rows) == min(5, total)


@pytest.mark.parametrize("descending", [True, False])
def test_a_failed_episode_sorts_last_by_return(session: Session, descending: bool) -> None:
    page = queries.list_episodes(session, sort="episode_return", descending=descending, limit=100)

    returns = [row.episode_return for row in page.rows[:-1] if row.episode_return is not None]
    assert len(returns) == 16
    assert returns == sorted(returns, reverse=descending)
    assert page.rows[-1].failed


def test_labels_come_with_the_episode(writer: StoreWriter, session: Session) -> None:
    episode_id = "run/0/train/1/0/0/0"
    writer.write(
        [
            Label(
                episode_id=episode_id,
                step_index=step_index,
                name="verdict",
                value=value,
                author="reader",
                created_at=5.0,
            )
            for step_index, value in ((1, "wrong turn"), (None, "loops"))
        ]
    )

    labels = queries.get_episode(session, episode_id=episode_id).labels
    assert [(label.step_index, label.value) for label in labels] == [
        (None, "loops"),
        (1, "wrong turn"),
    ]


def test_a_group_shows_its_members_and_what_failed(session: Session) -> None:
    of_step = GroupFilter(phase="train", min_training_step=2, max_training_step=2)
    page = queries.list_groups(session, run_id="run", where=of_step)
    assert [row.group_index for row in page.rows] == [1, 0]

    group = queries.get_group(session, queries.GroupId("run", "train", 2, 1))
    assert group.summary == page.rows[0]
    assert (group.summary.num_episodes, group.summary.num_failed_episodes) == (4, 1)
    assert (group.summary.min_return, group.summary.max_return) == (0.0, 1.0)
    assert [(row.sample_index, row.retry) for row in group.members] == [
        (0, 0),
        (0, 1),
        (1, 0),
        (2, 0),
        (3, 0),
    ]


def test_a_group_teaches_nothing_if_no_step_has_an_advantage_whatever_its_returns(
    writer: StoreWriter, session: Session
) -> None:
    records, credits = make_signals(training_step=3)
    writer.write([*records, *credits, *make_training_step(4, num_groups=1)])

    def of_step(training_step: int, *, has_signal: bool | None = None) -> list[GroupSummary]:
        where = GroupFilter(
            min_training_step=training_step, max_training_step=training_step, has_signal=has_signal
        )
        page = queries.list_groups(session, run_id="run", where=where, descending=False)
        return list(page.rows)

    groups = of_step(3)
    of_a_step = {
        index: max(abs(a) for c in credits if c.group_index == index for a in c.advantages)
        for index in range(len(groups))
    }
    assert [group.max_abs_advantage for group in groups] == pytest.approx(list(of_a_step.values()))
    assert tuple(g.group_index for g in groups if g.max_abs_advantage == 0.0) == NO_SIGNAL
    assert tuple(g.group_index for g in of_step(3, has_signal=False)) == NO_SIGNAL
    assert of_step(3, has_signal=True) == [g for g in groups if g.group_index not in NO_SIGNAL]
    # Returns alone would name the wrong ones.
    assert [g.group_index for g in groups if g.min_return == g.max_return] == [0, 1, 2]
    (waiting,) = of_step(4)
    assert (waiting.max_abs_advantage, waiting.has_signal) == (None, None)


def test_a_page_of_groups_is_part_of_the_whole_list(session: Session) -> None:
    ask = partial(queries.list_groups, session, run_id="run")
    whole = ask()
    assert [(row.training_step, row.group_index) for row in whole.rows] == [
        (2, 1),
        (2, 0),
        (1, 1),
        (1, 0),
    ]
    first = ask(limit=2)
    assert first.rows + ask(limit=2, after=first.next_key).rows == whole.rows
    assert ask(limit=2, after=first.next_key).next_key is None is whole.next_key


def test_a_group_of_a_resumed_run_is_the_surviving_one(
    writer: StoreWriter, session: Session
) -> None:
    writer.write([run_started(attempt=1, resumes_after=1), *make_training_step(2, attempt=1)])

    wanted = queries.GroupId("run", "train", training_step=2, group_index=0)
    group = queries.get_group(session, wanted)
    old = queries.get_group(session, replace(wanted, attempt=0))
    assert (group.summary.attempt, group.summary.rolled_back) == (1, False)
    assert (old.summary.attempt, old.summary.rolled_back) == (0, True)
    assert len(group.members) == len(old.members) == 4


def test_evaluations_are_in_order_and_by_split(writer: StoreWriter, session: Session) -> None:
    writer.write(
        [
            Evaluation(
                run_id="run",
                attempt=0,
                training_step=training_step,
                panel="fixed",
                split=split,
                num_episodes=4,
                mean_return=training_step / 10,
                success_rate=0.5,
            )
            for training_step in (10, 0)
            for split in (Split.VALIDATION, Split.TEST)
        ]
    )

    results = queries.evaluations(session, run_id="run", split="validation")
    assert [(each.training_step, each.mean_return) for each in results] == [(0, 0.0), (10, 1.0)]
    assert len(queries.evaluations(session, run_id="run")) == 4


def test_failures_are_listed_with_their_cause(session: Session) -> None:
    [failure] = queries.failures(session, run_id="run").rows
    assert failure.cause == "environment_timeout"
    assert failure.message == "environment.step: no answer within 5 s"
    assert (failure.training_step, failure.group_index, failure.retry) == (2, 1, 1)
    assert queries.failures(session, run_id="run", cause="policy_error").rows == ()


@ON_BOTH
def test_token_pieces_are_bytes_and_unknown_ids_are_absent(
    writer: StoreWriter, session: Session
) -> None:
    writer.write([TokenPieces(run_id="run", pieces={n: bytes([n % 256]) for n in range(1_200)})])
    writer.write([TokenPieces(run_id="run", pieces={0: b"other"})])

    pieces = queries.token_pieces(session, run_id="run", token_ids=[*range(1_100), 5_000])
    assert len(pieces) == 1_100
    assert pieces[0] == b"\x00"
    assert pieces[255] == b"\xff"


def test_the_newest_attempt_of_a_run_is_found(writer: StoreWriter, session: Session) -> None:
    writer.write([run_started("other"), run_started("other", attempt=4)])

    assert queries.newest_attempt(session, run_id="run") == 0
    assert queries.newest_attempt(session, run_id="other") == 4
    assert queries.newest_attempt(session, run_id="nobody") is None


@ON_BOTH
def test_storage_is_measured_per_episode(session: Session) -> None:
    stats = queries.storage_stats(session)
    assert (stats.num_runs, stats.num_episodes, stats.num_steps) == (1, 17, 57)
    assert stats.bytes_per_episode == stats.num_bytes / 17


@ON_BOTH
def test_each_run_has_its_share_of_the_store(writer: StoreWriter, session: Session) -> None:
    writer.write([run_started("small"), run_started("empty")])
    writer.write(make_training_step(1, run_id="small", num_groups=1))

    large, small, empty = queries.run_sizes(session)
    assert (empty.run_id, empty.num_episodes, empty.num_bytes) == ("empty", 0, 0)
    assert (large.run_id, large.num_episodes, large.num_steps) == ("run", 17, 57)
    assert (small.run_id, small.num_episodes, small.num_steps) == ("small", 4, 14)
    whole = queries.storage_stats(session).num_bytes
    assert large.num_bytes + small.num_bytes == pytest.approx(whole, abs=8)
    assert 2 < large.num_bytes / small.num_bytes < 7
    for size in (large, small):
        parts = (size.text_bytes, size.token_bytes, size.picture_bytes, size.index_bytes)
        assert size.num_bytes == sum(parts)


@ON_BOTH
def test_what_is_dropped_or_indexed_changes_the_part_of_its_kind(
    opened: Engine, session: Session
) -> None:
    (before,) = queries.run_sizes(session)
    assert before.text_bytes > before.token_bytes > 0
    index_text(opened)
    session.rollback()
    (indexed,) = queries.run_sizes(session)
    assert indexed.index_bytes > before.index_bytes
    drop_tokens(opened, run_id="run")
    session.rollback()
    (dropped,) = queries.run_sizes(session)
    assert dropped.token_bytes < before.token_bytes / 2


@ON_BOTH
def test_runs_share_the_bytes_of_a_picture_that_both_show(
    writer: StoreWriter, session: Session
) -> None:
    writer.write([run_started("one"), run_started("two")])
    for run_id in ("one", "two"):
        record = make_record(make_program(), run_id=run_id)
        writer.write([record, *make_decisions([record])])
    sizes = {size.run_id: size for size in queries.run_sizes(session)}
    num_bytes = session.scalar(select(func.sum(MediaRow.num_bytes)))
    assert num_bytes
    shown = sum(size.picture_bytes for size in sizes.values())
    assert shown == pytest.approx(num_bytes, abs=3)
    assert sizes["one"].picture_bytes == sizes["two"].picture_bytes > 0


BREAKAGES = {
    "steps_match_episode_length": "DELETE FROM steps WHERE step_index = 1",
    "every_step_has_its_observation": "DELETE FROM observations WHERE step_index = 1",
    "calls_are_of_a_step_and_numbered": "UPDATE calls SET call_index = 3 WHERE step_index = 1",
    "every_list_of_tools_is_there": "UPDATE calls SET tools_number = 7",
    "every_trained_call_has_credit": "UPDATE calls SET advantage = NULL",
    "only_trained_calls_have_credit": "UPDATE calls SET trained = false",
    "every_trained_token_has_a_logprob": "UPDATE call_tokens SET behavior_logprobs = tokens",
    "an_entropy_for_each_token_or_for_none": "UPDATE call_tokens SET policy_entropies = tokens",
    "every_trained_step_has_credit": "UPDATE steps SET advantage = NULL",
    "groups_are_whole_or_say_why": "DELETE FROM episodes WHERE sample_index = 3",
    "failures_have_causes_and_no_return": "DELETE FROM failures",
    "a_place_of_the_lineage_holds_one_ended_episode": "UPDATE episodes SET sample_index = 2",
    "training_follows_the_decision_on_the_group": "UPDATE groups SET resolved_training_step = 7",
    "nothing_rolled_back_is_trained": "UPDATE episodes SET rolled_back = (1 = 1)",
}


def test_a_sound_store_violates_nothing(session: Session) -> None:
    assert queries.violations(session, run_id="run") == []
    assert set(BREAKAGES) == set(queries.INVARIANTS)


def test_a_step_without_the_call_that_chose_its_action_is_a_violation(
    store: str, engine: Engine
) -> None:
    broken = open_store(store)
    with broken.begin() as connection:
        gone = connection.execute(text("DELETE FROM calls WHERE step_index = 0"))
    broken.dispose()

    with Session(engine) as session:
        found = queries.violations(session, run_id="run")
    of_calls = [each for each in found if each.invariant == "calls_are_of_a_step_and_numbered"]
    assert len(of_calls) == gone.rowcount > 0
    assert {each.subject.split("#")[1] for each in of_calls} == {"0"}


@ON_BOTH
def test_a_broken_store_violates_the_invariant(store: str, engine: Engine) -> None:
    broken = open_store(store)
    for invariant, breakage in BREAKAGES.items():
        with broken.connect() as writing, Session(bind=writing) as session:
            writing.execute(text(breakage))
            found = {one.invariant for one in queries.violations(session, run_id="run")}
            writing.rollback()
        assert invariant in found
    broken.dispose()
    with Session(engine) as session:
        assert queries.violations(session, run_id="run") == []
