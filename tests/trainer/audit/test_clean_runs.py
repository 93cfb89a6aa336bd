"""Runs that the trainer's own credit is behind have nothing for `longhaul_core.audit` to find."""

import shutil
import sqlite3
import sys
import tempfile
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy.orm import Session

from audited_run import (
    ONE_AHEAD,
    RUN,
    PlayedStep,
    make_config,
    outcome_of,
    play,
    play_ahead,
    run_started,
)
from longhaul_core.advantages.estimators import ESTIMATORS
from longhaul_core.audit import AuditReport, audit_run, one_line
from longhaul_core.store import StoreWriter, open_store, read_only_engine
from longhaul_core.store.retention import Retention
from longhaul_core.types import Trajectory
from longhaul_trainer.config import RunConfig
from variation import assert_both_signs, assert_several, assert_some_vary_within


def audited(empty_store: Path, config: RunConfig, played: Sequence[PlayedStep]) -> AuditReport:
    with tempfile.TemporaryDirectory() as folder:
        store = shutil.copy(empty_store, Path(folder) / "store.db")
        with StoreWriter(store) as writer:
            writer.write([run_started(config)])
            for one in played:
                writer.write(one.records())
        engine = read_only_engine(store)
        with Session(engine) as session:
            report = audit_run(session, RUN)
        engine.dispose()
        return report


@st.composite
def algorithms(draw: st.DrawFn, *, name: str) -> dict[str, object]:
    """Settings of an estimator that mean something to it."""
    units = ("token", "fixed_token") if name == "drgrpo" else ("token", "step", "episode")
    unit = draw(st.sampled_from((*units, "fixed_token")))
    settings: dict[str, object] = {
        "algorithm__name": name,
        "algorithm__discount": draw(st.sampled_from((0.0, 0.9, 1.0))),
        "algorithm__loss_unit": unit,
        "algorithm__invalid_action_penalty": draw(st.sampled_from((0.0, 0.1))),
        "algorithm__invalid_action_penalty_on": draw(
            st.sampled_from(
                ("action", "return") if ESTIMATORS[name].penalises_actions else ("return",)
            )
        ),
    }
    if unit == "fixed_token":
        settings["algorithm__tokens_per_episode"] = 64
    if draw(st.booleans()):
        settings["algorithm__overlong_penalty"] = 0.5
        settings["algorithm__overlong_start_tokens"] = 1
        settings["algorithm__overlong_end_tokens"] = 4
        settings["algorithm__overlong_unit"] = draw(st.sampled_from(("step", "episode")))
    choices: dict[str, tuple[object, ...]] = {
        "scale_by_std": (True, False),
        "statistics": ("episode", "row"),
        "step_advantage_weight": (0.0, 1.0, 0.5),
        "episode_advantage_weight": (1.0, 0.5),
        "anchor_similarity": (None, 0.97),
        "distance_decay": (0.1, 0.7),
        "distance_form": ("proximity", "progress"),
        "history_length": (0, 1, 2),
        "history_weight_exponent": (0.0, 1.0),
        "history_form": ("paper", "code"),
        "whiten": ("token", "episode"),
        "pass_k": (None, 2, 3),
        "gae_level": ("step", "token"),
        "gae_lambda": (0.0, 0.7, 1.0),
    }
    for field, values in choices.items():
        if field in ESTIMATORS[name].reads:
            settings[f"algorithm__{field}"] = draw(st.sampled_from(values))
    return settings


@pytest.mark.parametrize("name", ESTIMATORS)
def test_what_the_pipeline_credits_is_clean(name: str, empty_store: Path) -> None:
    @settings(max_examples=12, deadline=None)
    @given(
        algorithm=algorithms(name=name),
        seed=st.integers(0, 1000),
        failure_rate=st.sampled_from((0.0, 0.3)),
    )
    def holds(algorithm: dict[str, object], seed: int, failure_rate: float) -> None:
        config = make_config(**algorithm)
        played = play(config, 1, seed=seed, failure_rate=failure_rate)

        report = audited(empty_store, config, [played])

        # Failures may leave an optimizer step without a group, which is told.
        few = len({credit.optimizer_step_index for credit in played.credits}) < 2
        kept = [one_line(f) for f in report.findings if not (few and f.rule == "optimizer_steps")]
        assert kept == []
        assert report.num_episodes == len(played.credits)

    holds()


@pytest.mark.parametrize(
    "algorithm",
    [
        pytest.param(
            {"algorithm__name": name} | more, id="-".join(map(str, (name, *more.values())))
        )
        for name in ESTIMATORS
        for more in (
            ({"algorithm__gae_level": "step"}, {"algorithm__gae_level": "token"})
            if name == "gae"
            else ({},)
        )
    ],
)
@pytest.mark.parametrize("rows", ["step", "merged"])
def test_steps_of_several_calls_are_clean(
    algorithm: dict[str, object], rows: str, empty_store: Path
) -> None:
    """Planned and acted, one with half of the credit; some untrained; some without tokens."""
    config = make_config(**algorithm, optimizer__rows=rows, memory__kind="full")

    report = audited(empty_store, config, [play(config, 1, program=True, failure_rate=0.1)])

    assert [one_line(finding) for finding in report.findings] == []
    counts = {rule.name: rule.num_checked for rule in report.rules}
    assert counts["pictures"] > 0
    assert counts["split_reasons"] > report.num_steps  # more calls than steps


@pytest.mark.parametrize("name", ["grpo", "gigpo", "graphgpo", "gae"])
def test_summaries_that_the_next_step_credits_are_clean(name: str, empty_store: Path) -> None:
    config = make_config(algorithm__name=name)
    played = play(config, 1, summaries=True, failure_rate=0.1)

    report = audited(empty_store, config, [played])

    assert [one_line(finding) for finding in report.findings] == []
    summaries = [c.advantage for one in played.credits for c in one.calls if c.call_index == 1]
    assert_several(summaries)
    counts = {rule.name: rule.num_checked for rule in report.rules}
    assert counts["call_advantage"] == 2 * report.num_steps


@pytest.mark.parametrize("name", ESTIMATORS)
def test_what_is_audited_differs_from_episode_to_episode_and_from_step_to_step(
    name: str,
) -> None:
    played = play(make_config(algorithm__name=name), 1)

    outcomes = [record.outcome for record in played.episodes]
    paid = [step.reward for outcome in outcomes for step in outcome.steps]
    assert_several(paid)
    assert_several(len(outcome.steps) for outcome in outcomes)
    assert_some_vary_within(
        (
            (one.group_index, one.outcome.episode_return)
            for one in played.episodes
            if isinstance(one.outcome, Trajectory)
        ),
        at_least=3,
    )
    advantages = [value for credit in played.credits for value in credit.advantages]
    assert_several(advantages, at_least=4)
    weights = [value for credit in played.credits for value in credit.loss_weights]
    assert_several(weights)
    read = [step for consumed in played.consumed for step in consumed.rows]
    lowest = [step.advantage_low for step in read if step.advantage_low is not None]
    assert_several(lowest, at_least=4)
    assert_several((step.old_logprob_sum or 0.0 for step in read), at_least=8)
    if name != "pass_at_k":  # there the best attempt is paid, and none is charged
        assert_both_signs(advantages)


def test_every_rule_is_held_to_something(empty_store: Path) -> None:
    config = make_config(trainer=ONE_AHEAD)
    ahead = audited(empty_store, config, play_ahead(config))
    assert [one_line(finding) for finding in ahead.findings] == []
    assert ahead.training_steps == (1, 2, 3)
    idle = {rule.name for rule in ahead.rules if rule.num_checked == 0}
    program = audited(empty_store, config, [play(make_config(), 1, program=True)])
    idle &= {rule.name for rule in program.rules if rule.num_checked == 0}
    conversing = audited(empty_store, config, [play(make_config(), 1, conversations=True)])
    idle &= {rule.name for rule in conversing.rules if rule.num_checked == 0}
    for algorithm in (
        {"algorithm__name": "gigpo"},
        {"algorithm__name": "remax"},
        {"algorithm__name": "gae", "algorithm__gae_level": "token"},
    ):
        config = make_config(**algorithm)

        report = audited(
            empty_store, config, [play(config, k, failure_rate=0.2) for k in (1, 2, 3)]
        )

        assert report.clean
        assert report.training_steps == (1, 2, 3)
        assert report.not_checked == ()
        idle &= {rule.name for rule in report.rules if rule.num_checked == 0}
    # of runs that choose (test_sampling_rules), and of those that imitate (training/test_imitation)
    assert idle == {"group_fate", "refills", "end_tokens"}


def test_a_group_of_one_has_its_greedy_episode_to_be_compared_with(empty_store: Path) -> None:
    config = make_config(algorithm__name="remax", rollout__group_size=1)

    report = audited(empty_store, config, [play(config, 1)])

    assert [one_line(finding) for finding in report.findings] == []
    assert report.num_episodes == config.tasks_per_training_step


def test_greedy_episodes_are_checked_where_their_group_was_learned_from(
    empty_store: Path,
) -> None:
    config = make_config(algorithm__name="remax", trainer=ONE_AHEAD)
    played = play_ahead(config)
    late = [r for r in played[1].greedy if r.training_step == 1]

    report = audited(empty_store, config, played)

    assert len(late) >= 2
    assert [one_line(finding) for finding in report.findings] == []
    checked = {rule.name: rule.num_checked for rule in report.rules}
    taken = [d.group_index for one in played for d in one.decisions if not d.discard_reason]
    assert checked["greedy_untrained"] >= len(taken) == 12


def test_training_steps_of_the_critic_alone_are_known(empty_store: Path) -> None:
    config = make_config(algorithm__name="gae", critic__warmup_training_steps=2)
    played = [play(config, k) for k in (1, 2, 3)]

    report = audited(empty_store, config, played)

    assert [one_line(finding) for finding in report.findings] == []
    assert report.num_episodes == len(played[2].credits)
    checked = {rule.name: rule.num_checked for rule in report.rules}
    assert checked["critic_loss_inputs"] == sum(
        len(c.advantages) for p in played for c in p.credits
    )


def test_what_was_played_ahead_is_checked_where_it_was_learned_from(empty_store: Path) -> None:
    config = make_config(
        trainer=ONE_AHEAD,
        horizon_schedule={"kind": "stepwise", "stages": [2, 4, 6], "training_steps_per_stage": 1},
    )
    played = play_ahead(config)

    report = audited(empty_store, config, played)

    assert [one_line(finding) for finding in report.findings] == []
    stale = [c for one in played for c in one.credits if c.training_step < one.training_step]
    [skipped] = report.not_checked
    assert skipped.rule == "logprob_agreement"
    assert "other weights than the update began with" in skipped.reason
    assert skipped.num_subjects == sum(len(c.advantages) for c in stale) > 0


@pytest.mark.parametrize(
    "schedule",
    [
        {"kind": "fixed"},
        {"kind": "stepwise", "stages": [2, 4, 6], "training_steps_per_stage": 2},
        {"kind": "linear", "start": 2, "end_training_step": 5},
    ],
    ids=lambda schedule: schedule["kind"],
)
def test_every_horizon_schedule_is_known(schedule: dict[str, object], empty_store: Path) -> None:
    config = make_config(horizon_schedule=schedule)

    report = audited(empty_store, config, [play(config, k) for k in range(1, 7)])

    assert [one_line(finding) for finding in report.findings] == []


MERGED: dict[str, object] = {"memory__kind": "full", "optimizer__rows": "merged"}


@pytest.mark.parametrize("max_row_tokens", [None, 20])
@pytest.mark.parametrize("unit", ["token", "step", "episode"])
def test_merged_rows_weigh_what_rows_of_one_step_weigh(
    empty_store: Path, unit: str, max_row_tokens: int | None
) -> None:
    config = make_config(
        **MERGED, algorithm__loss_unit=unit, optimizer__max_row_tokens=max_row_tokens
    )
    played = play(config, 1)
    as_steps = make_config(memory__kind="full", algorithm__loss_unit=unit)
    unmerged = play(as_steps, 1)

    assert audited(empty_store, config, [played]).clean
    assert audited(empty_store, as_steps, [unmerged]).clean
    reasons = {call.split_reason for credit in played.credits for call in credit.calls}
    assert reasons == {"first_step", "prompt_changed", None} | (
        {"row_full"} if max_row_tokens else set()
    )
    for one, other in zip(played.credits, unmerged.credits, strict=True):
        assert (one.advantages, one.loss_weights) == (other.advantages, other.loss_weights)
        reasons_of_one, reasons_of_other = (
            [call.split_reason for call in credit.calls] for credit in (one, other)
        )
        assert reasons_of_one != reasons_of_other or len(one.advantages) == 1


@pytest.mark.parametrize("rows", ["step", "merged"])
def test_conversations_of_a_program_that_take_turns_and_fork_are_clean(
    rows: str, empty_store: Path
) -> None:
    config = make_config(memory__kind="full", optimizer__rows=rows)
    played = play(config, 1, conversations=True)

    report = audited(empty_store, config, [played])

    assert [one_line(finding) for finding in report.findings] == []
    reasons = {call.split_reason for credit in played.credits for call in credit.calls}
    assert {"first_step", "forked", "new_conversation"} <= reasons
    if rows == "merged":
        resumed = [
            call for credit in played.credits for call in credit.calls if call.step_index == 4
        ]
        assert None in {call.split_reason for call in resumed}  # after another conversation's turn


def test_where_tokens_were_pruned_only_the_beginning_of_an_episode_is_known(
    empty_store: Path, tmp_path: Path
) -> None:
    config = make_config(**MERGED)
    store = shutil.copy(empty_store, tmp_path / "store.db")
    played = play(config, 1)
    with StoreWriter(store) as writer:
        writer.write([run_started(config), *played.records()])
    with closing(sqlite3.connect(store)) as connection, connection:
        connection.execute("DELETE FROM call_tokens")
    engine = read_only_engine(store)
    with Session(engine) as session:
        report = audit_run(session, RUN)
    engine.dispose()

    (rule,) = (rule for rule in report.rules if rule.name == "split_reasons")
    assert (rule.num_checked, rule.num_findings) == (len(played.credits), 0)
    num_later = sum(len(credit.advantages) - 1 for credit in played.credits)
    assert num_later in [one.num_subjects for one in report.not_checked]


@pytest.mark.parametrize(
    ("settings", "program"),
    [
        ({}, False),
        ({}, True),
        (MERGED, False),
        ({"algorithm__name": "gigpo", "algorithm__anchor_similarity": 0.97}, False),
    ],
)
def test_what_retention_removed_is_reported_as_not_checked_and_never_as_a_finding(
    settings: dict[str, object], program: bool, empty_store: Path, tmp_path: Path
) -> None:
    config = make_config(**settings)
    store = shutil.copy(empty_store, tmp_path / "store.db")
    with StoreWriter(store) as writer:
        writer.write([run_started(config)])
        for number in (1, 2, 3):
            writer.write(play(config, number, program=program).records())
    opened = open_store(store)
    with Session(opened) as session:
        before = audit_run(session, RUN)
    retention = Retention(opened, run_id=RUN, sampled_groups=1)
    while retention.remove_some(up_to=2):
        pass
    with Session(opened) as session:
        after = audit_run(session, RUN)
    opened.dispose()

    assert before.clean
    assert after.clean
    checked = {rule.name: rule.num_checked for rule in before.rules}
    fewer = {rule.name for rule in after.rules if rule.num_checked < checked[rule.name]}
    assert {"tokens", "logprobs", "logprob_agreement"} <= fewer
    assert fewer <= {one.rule for one in after.not_checked}
    assert ("pictures" in fewer) == program
    unchanged = {rule.name for rule in after.rules} - fewer
    assert {
        "loss_weights",
        "return_to_go",
    } <= unchanged  # of the advantage, states are compared by text


def test_a_loss_that_reads_every_row_is_known(empty_store: Path) -> None:
    config = make_config(loss__kl_coefficient=0.01, algorithm__name="grpo")

    assert audited(empty_store, config, [play(config, 1)]).clean


def test_what_a_resume_took_back_is_not_audited(empty_store: Path, tmp_path: Path) -> None:
    config = make_config()
    store = shutil.copy(empty_store, tmp_path / "store.db")
    with StoreWriter(store) as writer:
        writer.write([run_started(config)])
        for k in (1, 2, 3):
            writer.write(play(config, k).records())
        writer.write([run_started(config, attempt=1, resumes_after=1)])
        writer.write(play(config, 2, attempt=1, seed=9).records(attempt=1))
    engine = read_only_engine(store)
    with Session(engine) as session:
        report = audit_run(session, RUN)
    engine.dispose()

    assert report.clean
    assert report.training_steps == (1, 2)


def test_a_training_step_that_is_not_over_is_left_out_and_said_so(empty_store: Path) -> None:
    config = make_config()
    second = play(config, 2)
    second.credits, second.consumed, second.metrics = [], [], {}

    report = audited(empty_store, config, [play(config, 1), second])

    assert report.clean
    assert report.training_steps == (1,)
    assert ["is not over" in one.reason for one in report.not_checked] == [True]


def test_with_a_divergence_in_the_reward_all_but_the_reward_itself_is_checked(
    empty_store: Path,
) -> None:
    config = make_config(algorithm__reward_kl_coefficient=0.1)
    played = play(config, 1)

    report = audited(empty_store, config, [played])

    assert report.clean
    assert {one.rule for one in report.not_checked} == {"shaped_reward"}


def test_what_a_function_of_the_run_gives_is_taken_from_the_store(empty_store: Path) -> None:
    config = make_config(algorithm__reward_shaping="mine:shape", algorithm__discount=0.5)
    played = play(config, 1)
    assert any(
        shaped != step.reward
        for one in played.credits
        for shaped, step in zip(one.shaped_rewards, outcome_of(played, one).steps, strict=True)
    )

    report = audited(empty_store, config, [played])

    assert report.clean
    checked = {rule.name: rule.num_checked for rule in report.rules}
    assert checked["return_to_go"] > 0
    assert checked["shaped_reward"] == 0
    assert {one.rule for one in report.not_checked} == {"shaped_reward"}


MINE = """
from dataclasses import replace
from longhaul_core.advantages.grpo import grpo_credit

def doubled(groups, settings):
    return [
        tuple(
            replace(credit, advantages=tuple(2 * each for each in credit.advantages))
            for credit in grpo_credit(group.step_rewards, discount=settings.discount)
        )
        for group in groups
    ]
"""


def test_the_audit_of_an_estimator_of_ones_own_says_so_and_holds_it_to_all_else(
    empty_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "doubled_of_mine.py").write_text(MINE, encoding="utf-8")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delitem(sys.modules, "doubled_of_mine", raising=False)
    name = "doubled_of_mine:doubled"
    config = make_config(algorithm__name=name)
    played = play(config, 1, failure_rate=0.3)

    report = audited(empty_store, config, [played])
    usual = audited(empty_store, make_config(), [play(make_config(), 1, failure_rate=0.3)])

    assert report.clean
    unaudited = {"episode_part", "step_part", "advantage", "silent_zero"}
    reason = f"not audited: own estimator {name}"
    assert {(one.rule, one.reason) for one in report.not_checked} == {
        (rule, reason) for rule in unaudited
    }
    checked = {rule.name: rule.num_checked for rule in report.rules}
    for rule in usual.rules:
        assert checked[rule.name] == (0 if rule.name in unaudited else rule.num_checked)


def test_a_run_that_trained_nothing_is_said_to_be_so(empty_store: Path) -> None:
    report = audited(empty_store, make_config(), [])

    assert report.training_steps == ()
    assert [one.reason for one in report.not_checked] == ["the run has no training episodes"]
