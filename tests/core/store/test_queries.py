"""Tests for `longhaul_core.store.queries`: every one on SQLite and on PostgreSQL."""

from dataclasses import replace
from functools import partial

import pytest
from sqlalchemy import Connection, Engine, event, text
from sqlalchemy.orm import Session

from longhaul_core.store import (
    Evaluation,
    Label,
    Metrics,
    StoreWriter,
    TokenPieces,
    maintenance,
    open_store,
    queries,
)
from longhaul_core.store.queries import EpisodeFilter
from longhaul_core.types import Split, StopReason
from steps import with_call
from store_samples import (
    NO_SIGNAL,
    make_credit,
    make_decisions,
    make_failure,
    make_record,
    make_signals,
    make_task,
    make_training_step,
    make_trajectory,
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
    assert [run.run_id for run in queries.list_runs(session, limit=1, offset=1)] == ["run"]


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
        queries.liveness(session, run_id="nobody", now=0.0)
    with pytest.raises(LookupError, match="'nobody'"):
        queries.get_episode(session, episode_id="nobody")
    with pytest.raises(LookupError, match="'nobody'"):
        queries.get_group(session, run_id="nobody", phase="train", training_step=1, group_index=0)


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


@pytest.mark.parametrize(
    ("where", "total"),
    [
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
        (EpisodeFilter(max_return=0.5), 8),
        (EpisodeFilter(task_id="train/00100"), 4),
        (EpisodeFilter(environment="samples/Maze-v0", trained=True), 16),
        (EpisodeFilter(rolled_back=None), 17),
        (EpisodeFilter(rolled_back=True), 0),
    ],
)
def test_episodes_are_filtered(session: Session, where: EpisodeFilter, total: int) -> None:
    page = queries.list_episodes(session, where=where, limit=5)
    assert page.total == total
    assert len(page.rows) == min(5, total)


@pytest.mark.parametrize("descending", [True, False])
def test_a_failed_episode_sorts_last_by_return(session: Session, descending: bool) -> None:
    page = queries.list_episodes(session, sort="episode_return", descending=descending, limit=100)

    returns = [row.episode_return for row in page.rows[:-1] if row.episode_return is not None]
    assert len(returns) == 16
    assert returns == sorted(returns, reverse=descending)
    assert page.rows[-1].failed


def test_pages_do_not_overlap_and_miss_nothing(session: Session) -> None:
    pages = [
        queries.list_episodes(session, sort="num_steps", limit=5, offset=offset).rows
        for offset in range(0, 20, 5)
    ]
    ids = [row.episode_id for page in pages for row in page]
    assert len(ids) == len(set(ids)) == 17


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
    page = queries.list_groups(session, run_id="run", phase="train", training_step=2)
    assert page.total == 2
    assert [row.group_index for row in page.rows] == [0, 1]

    group = queries.get_group(session, run_id="run", phase="train", training_step=2, group_index=1)
    assert group.summary == page.rows[1]
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

    groups = queries.list_groups(session, run_id="run", training_step=3).rows
    of_a_step = {
        index: max(abs(a) for c in credits if c.group_index == index for a in c.advantages)
        for index in range(len(groups))
    }
    assert [group.max_abs_advantage for group in groups] == pytest.approx(list(of_a_step.values()))
    assert tuple(g.group_index for g in groups if g.max_abs_advantage == 0.0) == NO_SIGNAL
    # Returns alone would name the wrong ones.
    assert [g.group_index for g in groups if g.min_return == g.max_return] == [0, 1, 2]
    (waiting,) = queries.list_groups(session, run_id="run", training_step=4).rows
    assert waiting.max_abs_advantage is None


def test_a_page_of_groups_is_part_of_the_whole_list(session: Session) -> None:
    ask = partial(queries.list_groups, session, run_id="run")
    whole = ask()
    assert [(row.training_step, row.group_index) for row in whole.rows] == [
        (2, 0),
        (2, 1),
        (1, 0),
        (1, 1),
    ]
    assert ask(limit=2, offset=1).rows == whole.rows[1:3]
    assert ask(limit=2, offset=1).total == 4


def test_a_group_of_a_resumed_run_is_the_surviving_one(
    writer: StoreWriter, session: Session
) -> None:
    writer.write([run_started(attempt=1, resumes_after=1), *make_training_step(2, attempt=1)])

    ask = partial(
        queries.get_group, session, run_id="run", phase="train", training_step=2, group_index=0
    )
    group, old = ask(), ask(attempt=0)
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
    [failure] = queries.failures(session, run_id="run")
    assert failure.cause == "environment_timeout"
    assert failure.message == "environment.step: no answer within 5 s"
    assert (failure.training_step, failure.group_index, failure.retry) == (2, 1, 1)
    assert queries.failures(session, run_id="run", cause="policy_error") == []


def test_token_pieces_are_bytes_and_unknown_ids_are_absent(
    writer: StoreWriter, session: Session
) -> None:
    writer.write([TokenPieces(run_id="run", pieces={n: bytes([n % 256]) for n in range(1_200)})])
    writer.write([TokenPieces(run_id="run", pieces={0: b"other"})])

    pieces = queries.token_pieces(session, run_id="run", token_ids=[*range(1_100), 5_000])
    assert len(pieces) == 1_100
    assert pieces[0] == b"\x00"
    assert pieces[255] == b"\xff"


def test_liveness_counts_from_the_last_heartbeat(session: Session) -> None:
    alive = queries.liveness(session, run_id="run", now=1_760_000_030.0)
    assert alive == queries.Liveness("running", 30.0, "host", 4711)


def test_the_newest_attempt_of_a_run_is_found(writer: StoreWriter, session: Session) -> None:
    writer.write([run_started("other"), run_started("other", attempt=4)])

    assert queries.newest_attempt(session, run_id="run") == 0
    assert queries.newest_attempt(session, run_id="other") == 4
    assert queries.newest_attempt(session, run_id="nobody") is None


def test_storage_is_measured_per_episode(session: Session) -> None:
    stats = queries.storage_stats(session)
    assert (stats.num_runs, stats.num_episodes, stats.num_steps) == (1, 17, 57)
    assert stats.bytes_per_episode == stats.num_bytes / 17


def test_text_is_found_after_it_was_indexed(
    store: str, writer: StoreWriter, session: Session
) -> None:
    step = replace(
        with_call(make_trajectory().steps[0], reply='The LANTERN "flickers" — à gauche'), reward=0.0
    )
    trajectory = replace(make_trajectory(task=make_task(77)), steps=(step,))
    writer.write([make_record(trajectory, training_step=3)])
    assert queries.search_steps(session, words="lantern") == []
    session.rollback()

    engine = open_store(store)
    assert maintenance.index_text(engine) == 58
    assert maintenance.index_text(engine) == 0

    [hit] = queries.search_steps(session, words='lantern" OR flickers"')[:1] or [None]
    assert hit is None  # "or" is a word like any other, and it is not there
    [hit] = queries.search_steps(session, words="flickers lantern", run_id="run")
    assert hit.episode_id == "run/0/train/3/0/0/0"
    assert hit.step_index == 0
    assert "\ue000LANTERN\ue001" in hit.snippet
    assert queries.search_steps(session, words="lantern", run_id="other") == []
    assert queries.search_steps(session, words=" ") == []
    engine.dispose()


@pytest.mark.parametrize("words", ["\x00", "see \x00", "\ud800", "'", "&|!", "*"])
def test_a_search_takes_all_that_a_person_can_type(
    store: str, session: Session, words: str
) -> None:
    engine = open_store(store)
    maintenance.index_text(engine)
    engine.dispose()
    assert len(queries.search_steps(session, words=words)) in {0, 50}


def test_a_search_gives_first_what_was_written_last_and_ranks_nothing(
    store: str, engine: Engine, session: Session
) -> None:
    writable = open_store(store)
    maintenance.index_text(writable)
    writable.dispose()
    plans: list[str] = []

    def note(
        connection: Connection, _: object, statement: str, given: tuple[str, ...], *_more: object
    ) -> None:
        if "step_search" in statement and not statement.startswith("EXPLAIN"):
            plan = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", given)
            plans.extend(row.detail for row in plan)

    if engine.dialect.name == "sqlite":
        event.listen(engine, "before_cursor_execute", note)
    hits = queries.search_steps(session, words="see", limit=30)

    assert [hit.training_step for hit in hits] == [2] * 29 + [1]
    assert len(plans) == (4 if engine.dialect.name == "sqlite" else 0)
    assert not [plan for plan in plans if "TEMP B-TREE" in plan]


BREAKAGES = {
    "steps_match_episode_length": "DELETE FROM steps WHERE step_index = 1",
    "every_step_has_its_observation": "DELETE FROM observations WHERE step_index = 1",
    "calls_are_of_a_step_and_numbered": "UPDATE calls SET call_index = 3 WHERE step_index = 1",
    "every_trained_call_has_credit": "UPDATE calls SET advantage = NULL",
    "only_trained_calls_have_credit": "UPDATE calls SET trained = false",
    "every_trained_token_has_a_logprob": "UPDATE calls SET behavior_logprobs = NULL",
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


@pytest.mark.parametrize("invariant", sorted(BREAKAGES))
def test_a_broken_store_violates_the_invariant(store: str, engine: Engine, invariant: str) -> None:
    broken = open_store(store)
    with broken.begin() as connection:
        connection.execute(text(BREAKAGES[invariant]))
    broken.dispose()

    with Session(engine) as session:
        found = queries.violations(session, run_id="run")
    assert invariant in {violation.invariant for violation in found}
