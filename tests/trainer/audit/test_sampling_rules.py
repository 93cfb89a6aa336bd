"""Runs that choose their groups: clean as the trainer chooses them, and faults that are found."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy.orm import Session

from audited_run import (
    ONE_AHEAD,
    RUN,
    PlayedStep,
    consume,
    credit,
    make_config,
    play,
    play_ahead,
    run_started,
)
from longhaul_core.audit import AuditReport, one_line
from longhaul_core.store import (
    DiscardReason,
    EpisodeRecord,
    GroupDecision,
    StoreWriter,
    queries,
    read_only_engine,
)
from longhaul_core.types import FailedEpisode, FailureCause, Trajectory
from longhaul_trainer.config import RunConfig
from longhaul_trainer.training.sampling import Decision, PlayedGroup, SamplingRules, decide
from longhaul_trainer.training.step_metadata import GroupName
from trainer.audit.conftest import AuditOf

Audit = Callable[..., AuditReport]


@pytest.fixture
def audit(audit_of: AuditOf) -> Audit:
    """Of a run of several training steps."""

    def audited(config: RunConfig, steps: Sequence[PlayedStep], *statements: str) -> AuditReport:
        return audit_of([[run_started(config)], *(step.records() for step in steps)], *statements)

    return audited


def sampled_config(**settings: object) -> RunConfig:
    """Two optimizer steps of one group each, dynamic sampling."""
    table: dict[str, object] = {"tasks_per_training_step": 2, "sampling__dynamic": True}
    return make_config(**table | settings)


def records_of(name: GroupName, episodes: Sequence[EpisodeRecord]) -> list[EpisodeRecord]:
    return [r for r in episodes if (r.training_step, r.group_index) == name]


def flat(record: EpisodeRecord) -> EpisodeRecord:
    """The episode as it would be had it earned nothing."""
    steps = tuple(replace(step, reward=0.0) for step in record.outcome.steps)
    return replace(record, outcome=replace(record.outcome, steps=steps))


def stopped(record: EpisodeRecord) -> EpisodeRecord:
    """The episode as it would be had it been stopped before its last step."""
    ended = record.outcome
    return replace(
        record,
        outcome=FailedEpisode(
            task=ended.task,
            sample_index=ended.sample_index,
            seed=ended.seed,
            horizon=ended.horizon,
            cause=FailureCause.STOPPED_EARLY,
            message="enough other groups of the training step were whole",
            steps=ended.steps[:-1],
            started_at=ended.started_at,
            duration_seconds=ended.duration_seconds,
        ),
    )


def play_sampled(
    config: RunConfig,
    training_step: int,
    *,
    num_groups: int,
    without_signal: Sequence[int] = (),
    stopped_early: Sequence[int] = (),
    waiting: Sequence[EpisodeRecord] = (),
) -> tuple[PlayedStep, Decision]:
    """A training step that played `num_groups` and chose among them as the trainer does.

    Args:
        config: Of the run.
        training_step: Which.
        num_groups: Played in it.
        without_signal: Places of groups whose returns are all equal.
        stopped_early: Places of groups whose last episode was stopped.
        waiting: Episodes of groups that an earlier training step left.
    """
    rules = rules_of(config)
    episodes = [
        change(record, without_signal=without_signal, stopped_early=stopped_early)
        for record in play(
            config.model_copy(update={"tasks_per_training_step": num_groups}), training_step
        ).episodes
    ]
    stopped_names = [GroupName(training_step, place) for place in stopped_early]
    names = [GroupName(training_step, place) for place in range(num_groups)]
    decision = decide(
        rules,
        training_step=training_step,
        waiting=sorted({GroupName(r.training_step, r.group_index) for r in waiting}),
        played=[
            PlayedGroup(
                name,
                tuple(
                    r.outcome.episode_return
                    for r in records_of(name, episodes)
                    if isinstance(r.outcome, Trajectory)
                ),
            )
            for name in names
            if name not in stopped_names
        ],
        stopped=stopped_names,
    )
    played = PlayedStep(training_step, [*episodes, *waiting])
    played.decisions = [
        decided(name, training_step, place=place) for place, name in enumerate(decision.taken)
    ] + [decided(name, training_step, reason=why) for name, why in decision.thrown_away.items()]
    credit_update(config, played)
    return played, decision


def rules_of(config: RunConfig) -> SamplingRules:
    return SamplingRules(
        num_groups=config.tasks_per_training_step,
        smallest_group=2,
        dynamic=config.sampling.dynamic,
        max_refills=config.sampling.max_refills,
        extra_tasks=config.sampling.extra_tasks,
        max_staleness=config.trainer.max_staleness,
    )


def change(
    record: EpisodeRecord, *, without_signal: Sequence[int], stopped_early: Sequence[int]
) -> EpisodeRecord:
    if record.group_index in without_signal:
        return flat(record)
    if record.group_index in stopped_early and record.outcome.sample_index == 2:
        return stopped(record)
    return record


def decided(
    name: GroupName,
    training_step: int,
    *,
    place: int | None = None,
    reason: DiscardReason | None = None,
) -> GroupDecision:
    return GroupDecision(
        run_id=RUN,
        attempt=0,
        training_step=name.training_step,
        group_index=name.group_index,
        resolved_training_step=training_step,
        update_index=place,
        discard_reason=reason,
    )


def credit_update(config: RunConfig, played: PlayedStep) -> None:
    """Credit the groups that the update took, and let the loss read them."""
    credit(config, played)
    consume(config, played)


def rules_broken(report: AuditReport) -> set[str]:
    return {rule.name for rule in report.rules if rule.num_findings}


def assert_clean(report: AuditReport) -> None:
    assert report.clean, [one_line(finding) for finding in report.findings]
    checked = {rule.name: rule.num_checked for rule in report.rules}
    assert checked["group_fate"] > 0
    assert checked["refills"] > 0


def group_where(**values: int) -> str:
    return " AND ".join(f"{name} = {value}" for name, value in values.items())


def test_a_run_that_replaces_what_has_no_signal_is_clean(audit: Audit) -> None:
    config = sampled_config()
    played, decision = play_sampled(config, 1, num_groups=5, without_signal=(0, 2))
    assert decision.taken == (GroupName(1, 1), GroupName(1, 3))
    assert decision.thrown_away[GroupName(1, 4)] == "surplus"

    assert_clean(audit(config, [played]))


def test_an_update_with_fewer_groups_than_optimizer_steps_is_clean(audit: Audit) -> None:
    config = sampled_config(sampling__max_refills=1)
    played, decision = play_sampled(config, 1, num_groups=4, without_signal=(0, 1, 3))
    assert len(decision.taken) == 1

    assert_clean(audit(config, [played]))


def test_groups_that_waited_and_groups_that_were_stopped_are_clean(audit: Audit) -> None:
    config = sampled_config(sampling__extra_tasks=1, trainer__max_staleness=1)
    first, decision = play_sampled(config, 1, num_groups=4, stopped_early=(3,))
    assert decision.waiting == (GroupName(1, 2),)
    left = records_of(decision.waiting[0], first.episodes)
    second, later = play_sampled(config, 2, num_groups=2, without_signal=(0,), waiting=left)
    assert later.taken == (GroupName(1, 2), GroupName(2, 1))

    assert_clean(audit(config, [first, second]))


def test_a_group_left_out_for_a_signal_that_it_has_is_found(audit: Audit) -> None:
    config = sampled_config()
    played, _ = play_sampled(config, 1, num_groups=3)

    report = audit(
        config, [played], "UPDATE groups SET discard_reason = 'no_signal' WHERE group_index = 2"
    )

    assert rules_broken(report) == {"group_fate"}
    [finding] = report.findings
    assert finding.found == "group 2: no_signal"
    assert finding.expected == "taken or waiting or surplus or stale"


def test_a_trained_group_without_a_signal_is_found(audit: Audit) -> None:
    config = sampled_config()
    careless = sampled_config(sampling__dynamic=False, sampling__extra_tasks=1)
    played, _ = play_sampled(careless, 1, num_groups=3, without_signal=(0,))

    report = audit(config, [played])

    assert rules_broken(report) == {"group_fate"}
    assert report.findings[0].found == "group 0: taken"
    assert report.findings[0].expected == "no_signal"


def test_a_sampler_that_gives_up_too_early_is_found(audit: Audit) -> None:
    config = sampled_config()
    played, _ = play_sampled(config, 1, num_groups=3, without_signal=(0, 1))

    report = audit(config, [played])

    assert rules_broken(report) == {"refills"}
    assert report.findings[0].expected == "2 groups, or 3 refills: at least 5 played"


def test_a_younger_group_taken_before_an_older_one_is_found(audit: Audit) -> None:
    config = sampled_config()
    played, decision = play_sampled(config, 1, num_groups=3)
    swapped = (decision.taken[0], GroupName(1, 2))
    played.decisions = [
        *(decided(name, 1, place=place) for place, name in enumerate(swapped)),
        decided(GroupName(1, 1), 1, reason="surplus"),
    ]
    credit_update(config, played)

    report = audit(config, [played])

    assert rules_broken(report) == {"group_fate"}
    assert report.findings[0].found == "group 1: surplus"


def test_surplus_beside_an_update_that_is_not_full_is_found(audit: Audit) -> None:
    config = sampled_config(sampling__max_refills=1)
    played, decision = play_sampled(config, 1, num_groups=4, without_signal=(0, 1))
    taken = decision.taken[:1]
    played.decisions = [
        decided(taken[0], 1, place=0),
        decided(decision.taken[1], 1, reason="surplus"),
        *(decided(name, 1, reason=why) for name, why in decision.thrown_away.items()),
    ]
    credit_update(config, played)

    report = audit(config, [played])

    assert rules_broken(report) == {"group_fate"}
    assert report.findings[0].expected == "taken: the update has 1 groups of 2"


def test_episodes_that_were_stopped_without_leave_are_found(audit: Audit) -> None:
    config = sampled_config()
    played, _ = play_sampled(config, 1, num_groups=3, stopped_early=(2,))

    report = audit(config, [played])

    assert rules_broken(report) == {"group_fate"}
    assert "sampling.extra_tasks = 0" in report.findings[0].expected


def test_a_group_that_the_store_lost_is_found(audit: Audit) -> None:
    config = sampled_config()
    played, _ = play_sampled(config, 1, num_groups=4, without_signal=(0,))

    report = audit(
        config,
        [played],
        f"DELETE FROM episodes WHERE {group_where(training_step=1, group_index=0)}",
        f"DELETE FROM groups WHERE {group_where(training_step=1, group_index=0)}",
    )

    assert rules_broken(report) == {"refills"}
    assert report.findings[0].found == "groups [1, 2, 3]"


def test_a_group_in_the_wrong_optimizer_step_is_found(audit: Audit) -> None:
    config = sampled_config()
    played, decision = play_sampled(config, 1, num_groups=4, without_signal=(0, 1))
    assert decision.taken == (GroupName(1, 2), GroupName(1, 3))
    # By its number among all that were played, not by its place in the update.
    played.credits = [
        replace(one, optimizer_step_index=min(one.group_index // 2, 1)) for one in played.credits
    ]
    consume(config, played)

    report = audit(config, [played])

    assert rules_broken(report) >= {"optimizer_step_of_episode", "optimizer_steps"}


# Groups that were played ahead


def play_filtered() -> tuple[RunConfig, list[PlayedStep]]:
    """Three training steps with a batch ahead, the second of which left a group out."""
    config = make_config(sampling__dynamic=True, trainer=ONE_AHEAD)
    steps = play_ahead(config)
    late = steps[2]
    useless = GroupName(1, 6)
    steps[1].episodes += [flat(r) for r in records_of(useless, late.episodes)]
    late.episodes = [r for r in late.episodes if (r.training_step, r.group_index) != useless]
    decision = next(d for d in late.decisions if (d.training_step, d.group_index) == useless)
    late.decisions.remove(decision)
    steps[1].decisions.append(
        replace(decision, resolved_training_step=2, discard_reason="no_signal")
    )
    return config, steps


def test_a_group_that_was_played_ahead_and_left_out_is_looked_at(audit: Audit) -> None:
    config, steps = play_filtered()

    report = audit(config, steps)

    assert [one_line(finding) for finding in report.findings] == []
    checked = {rule.name: rule.num_checked for rule in report.rules}
    assert checked["group_fate"] == sum(len(step.decisions) for step in steps) == 14
    assert checked["refills"] == 3


def test_a_group_that_was_left_out_though_its_returns_differ_is_found(audit: Audit) -> None:
    config, steps = play_filtered()
    differing = next(
        d for d in steps[2].decisions if d.discard_reason == "stale" and d.group_index == 7
    )

    report = audit(
        config,
        steps,
        "UPDATE groups SET discard_reason = 'no_signal' "
        f"WHERE training_step = 1 AND group_index = {differing.group_index}",
    )

    assert [(f.rule, f.found, f.expected) for f in report.findings] == [
        ("group_fate", "group 7: no_signal", "taken or waiting or stale")
    ]


def test_a_group_without_a_signal_that_was_taken_is_found(audit: Audit) -> None:
    config, steps = play_filtered()
    step = steps[1]
    taken = records_of(GroupName(2, 0), step.episodes)
    step.episodes = [flat(record) if record in taken else record for record in step.episodes]
    step.consumed.clear()
    credit(config, step)
    consume(config, step)

    report = audit(config, steps)

    assert [(f.rule, f.found, f.expected) for f in report.findings] == [
        ("group_fate", "group 0: taken", "no_signal or waiting or stale")
    ]


def test_an_update_that_is_not_full_though_groups_could_be_replaced_is_found(
    audit: Audit,
) -> None:
    config, steps = play_filtered()
    lost = steps[1].decisions[3]

    report = audit(
        config,
        steps,
        "UPDATE groups SET resolved_training_step = NULL, update_index = NULL "
        f"WHERE training_step = {lost.training_step} AND group_index = {lost.group_index}",
    )

    [finding] = [f for f in report.findings if f.rule == "refills"]
    assert finding.training_step == 2
    assert finding.found == "an update of 3 groups, and 1 left out"


def test_the_outcomes_of_an_update_are_those_of_what_it_took_and_of_what_it_left_out(
    empty_store: Path, tmp_path: Path
) -> None:
    config, steps = play_filtered()
    store = shutil.copy(empty_store, tmp_path / "store.db")
    with StoreWriter(store) as writer:
        writer.write([run_started(config), *(r for step in steps for r in step.records())])
    engine = read_only_engine(store)

    with Session(engine) as session:
        outcomes = queries.horizon_outcomes(session, run_id=RUN)
    engine.dispose()

    ended = {
        step.training_step: sum(
            isinstance(record.outcome, Trajectory)
            for decision in step.decisions
            if decision.discard_reason != "stale"
            for record in records_of(
                GroupName(decision.training_step, decision.group_index), step.episodes
            )
        )
        for step in steps
    }
    assert {one.training_step: one.num_episodes for one in outcomes} == ended
