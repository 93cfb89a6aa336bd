"""Faults planted in a run that is otherwise right: `longhaul_core.audit` finds and names each."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from audited_run import (
    ONE_AHEAD,
    RUN,
    PlayedStep,
    consume,
    credit,
    logprobs_of,
    loss_input,
    make_config,
    play,
    play_ahead,
    run_started,
)
from longhaul_core.audit import AuditReport
from longhaul_core.store import (
    AuditFinding,
    CallCredit,
    EpisodeCredit,
    EpisodeRecord,
    LossInput,
    Record,
    TokenPieces,
)
from longhaul_core.types import (
    Continuation,
    FailedEpisode,
    Message,
    Observation,
    Picture,
    StopReason,
    Trajectory,
)
from longhaul_trainer.config import RunConfig
from pictures import png
from steps import sampled_of, with_call
from trainer.audit.conftest import AuditOf
from variation import assert_several

Audit = Callable[..., AuditReport]


@pytest.fixture
def audit(audit_of: AuditOf) -> Audit:
    """Of a run whose first record is written before the others."""

    def audited(records: Sequence[Record], *statements: str) -> AuditReport:
        return audit_of((records[:1], records[1:]), *statements)

    return audited


def rules_of(report: AuditReport) -> set[str]:
    return {rule.name for rule in report.rules if rule.num_findings}


def of_rule(report: AuditReport, rule: str) -> list[AuditFinding]:
    return [finding for finding in report.findings if finding.rule == rule]


def long_credit(played: PlayedStep, *, num_steps: int = 3) -> int:
    """Place of a credit with so many steps, tokens enough, and advantages that differ."""
    return next(
        place
        for place, one in enumerate(played.credits)
        if len(one.advantages) >= num_steps
        and len(set(one.advantages)) == len(one.advantages)
        and all(len(logprobs) > 1 for logprobs in logprobs_of(one)[:2])
    )


def change_read(
    played: PlayedStep, found: EpisodeCredit, step_index: int, **changes: object
) -> LossInput:
    """Let the loss have read something else of a step; returns what it read before."""
    for number, batch in enumerate(played.consumed):
        for place, row in enumerate(batch.rows):
            if batch.episode_id(row) == found.episode_id and row.step_index == step_index:
                changed = replace(row, **changes)
                rows = (*batch.rows[:place], changed, *batch.rows[place + 1 :])
                played.consumed[number] = replace(batch, rows=rows)
                return row
    raise AssertionError("the loss did not read that step")


def with_calls(found: EpisodeCredit, **changed: Sequence[object]) -> EpisodeCredit:
    """The credit with other values of its calls, one for each."""
    calls = list(found.calls)
    for name, values in changed.items():
        calls = [replace(call, **{name: value}) for call, value in zip(calls, values, strict=True)]
    return replace(found, calls=tuple(calls))


def reasons_of(found: EpisodeCredit) -> list[str | None]:
    return [call.split_reason for call in found.calls]


def test_a_mask_that_leaves_out_a_token_is_found(audit: Audit) -> None:
    config = make_config()
    played = play(config, 1)
    found = played.credits[long_credit(played)]
    logprobs = logprobs_of(found)[1]
    change_read(
        played,
        found,
        1,
        num_tokens=len(logprobs) - 1,
        old_logprob_sum=sum(logprobs[1:]),
    )

    report = audit([run_started(config), *played.records()])

    assert rules_of(report) == {"loss_input_tokens", "loss_input_logprobs"}
    [finding] = of_rule(report, "loss_input_tokens")
    assert (finding.episode_id, finding.step_index) == (found.episode_id, 1)
    assert finding.found == f"{len(logprobs) - 1} tokens in the loss"


def test_a_reward_on_a_prompt_token_is_found(audit: Audit) -> None:
    # As many tokens as the reply has, one place too early: other old logprobs.
    config = make_config()
    played = play(config, 1)
    found = played.credits[long_credit(played)]
    logprobs = logprobs_of(found)[0]
    change_read(played, found, 0, old_logprob_sum=-7.5 + sum(logprobs[:-1]))

    report = audit([run_started(config), *played.records()])

    assert rules_of(report) == {"loss_input_logprobs"}
    [finding] = report.findings
    assert (finding.episode_id, finding.step_index) == (found.episode_id, 0)


@pytest.mark.parametrize("name", ["grpo", "gigpo"])
def test_a_baseline_over_rows_is_found(name: str, audit: Audit) -> None:
    config = make_config(algorithm__name=name)
    played = play(config, 1)
    credit(config, played, as_if=make_config(algorithm__name=name, algorithm__statistics="row"))
    consume(config, played)

    report = audit([run_started(config), *played.records()])

    assert rules_of(report) == {"episode_part", "advantage"}
    assert all(finding.episode_id for finding in report.findings)


def a_zero(record: EpisodeRecord) -> EpisodeRecord:
    """The failed episode, as if it had ended without any reward."""
    failed = record.outcome
    assert isinstance(failed, FailedEpisode)
    step = replace(next(iter(failed.steps)), reward=0.0, action_valid=True)
    ended = Trajectory(
        task=failed.task,
        sample_index=failed.sample_index,
        seed=failed.seed,
        horizon=failed.horizon,
        steps=(step,),
        stop_reason=StopReason.TASK_FAILED,
        success=False,
        final_observation=Observation(text=""),
        started_at=failed.started_at,
        duration_seconds=failed.duration_seconds,
    )
    return replace(record, outcome=ended)


def with_a_failure(config: RunConfig) -> tuple[PlayedStep, EpisodeRecord]:
    """A training step with a place where both tries failed, the last one after some steps."""
    for seed in range(100):
        played = play(config, 1, seed=seed, failure_rate=0.3)
        ended = {
            (r.group_index, r.outcome.sample_index)
            for r in played.episodes
            if isinstance(r.outcome, Trajectory)
        }
        for record in played.episodes:
            place = (record.group_index, record.outcome.sample_index)
            siblings = sum(group == record.group_index for group, _ in ended)
            if record.retry and place not in ended and record.outcome.steps and siblings == 2:
                return played, record
    raise AssertionError("no seed plays such a training step")


def test_a_failed_episode_that_counts_as_zero_is_found(audit: Audit) -> None:
    config = make_config(algorithm__name="rloo", algorithm__scale_by_std=False)
    played, failed = with_a_failure(config)
    real = list(played.episodes)
    played.episodes = [a_zero(record) if record is failed else record for record in real]
    credit(config, played)
    played.credits = [one for one in played.credits if one.episode_id != failed.episode_id]
    consume(config, played)
    played.episodes = real

    report = audit([run_started(config), *played.records()])

    group = failed.episode_id.rsplit("/", 2)[0]
    assert {"episode_part", "advantage"} <= rules_of(report)
    assert {str(f.episode_id).rsplit("/", 2)[0] for f in of_rule(report, "episode_part")} == {group}


def test_a_failed_episode_that_is_trained_is_found(audit: Audit) -> None:
    config = make_config()
    played, failed = with_a_failure(config)

    report = audit(
        [run_started(config), *played.records()],
        f"UPDATE episodes SET trained = 1, episode_advantage = -1 WHERE id = '{failed.episode_id}'",
    )

    [finding] = of_rule(report, "failures")
    assert finding.episode_id == failed.episode_id
    assert finding.found == "a failed episode with trained, an advantage"


def test_a_lost_last_step_is_found(audit: Audit) -> None:
    config = make_config()
    played = play(config, 1)
    found = played.credits[long_credit(played)]
    last = len(found.advantages) - 1

    report = audit(
        [run_started(config), *played.records()],
        f"DELETE FROM steps WHERE episode_id = '{found.episode_id}' AND step_index = {last}",
    )

    [finding] = of_rule(report, "steps")
    assert (finding.episode_id, finding.step_index) == (found.episode_id, last)
    assert finding.expected == f"steps 0 to {last}"
    # What cannot be computed without it is said, not guessed.
    assert "episode_part" not in rules_of(report)
    assert "episode_part" in {one.rule for one in report.not_checked}


def test_a_doubled_row_is_found(audit: Audit) -> None:
    config = make_config()
    played = play(config, 1)
    found = played.credits[long_credit(played)]
    call = next(c for c in played.consumed if c.optimizer_step_index == found.optimizer_step_index)
    again = replace(call, rows=(loss_input(found, found.calls[1], row_index=0),), micro_batch=99)
    played.consumed.append(again)

    report = audit([run_started(config), *played.records()])

    assert rules_of(report) == {"loss_input_once"}
    [finding] = report.findings
    assert (finding.episode_id, finding.step_index) == (found.episode_id, 1)
    assert finding.found == "read 2 times"


def test_a_stale_logprob_is_found(audit: Audit) -> None:
    config = make_config()
    played = play(config, 1)
    place = long_credit(played)
    found = played.credits[place]
    old = logprobs_of(found)
    stale = (old[0], tuple(logprob - 0.01 for logprob in old[1]), *old[2:])
    played.credits[place] = with_calls(found, policy_logprobs=stale)
    consume(config, played)

    report = audit([run_started(config), *played.records()])

    assert rules_of(report) == {"logprob_agreement"}
    [finding] = report.findings
    assert (finding.episode_id, finding.step_index) == (found.episode_id, 1)
    assert finding.found.startswith("0.01 nats per token")


def test_a_logprob_that_changed_after_it_was_measured_is_found(audit: Audit) -> None:
    # In bfloat16 the bound is wide; the trainer's own measurement is not.
    config = make_config(model__engine_dtype="bfloat16")
    played = play(config, 1)
    place = long_credit(played)
    old = logprobs_of(played.credits[place])
    stale = ((old[0][0] - 0.2, *old[0][1:]), *old[1:])
    played.credits[place] = with_calls(played.credits[place], policy_logprobs=stale)

    report = audit([run_started(config), *played.records()])

    assert "agreement/logprob_difference_max" in of_rule(report, "logprob_agreement")[0].expected


@pytest.mark.parametrize(("capped", "wrong"), [("samples/Maze-v0", 0), ("other/Caves-v0", 12)])
def test_an_environments_own_cap_is_the_horizon_it_is_held_to(
    capped: str, wrong: int, audit: Audit
) -> None:
    """Its episodes are played at the cap of 4, those of another environment at the run's 6."""
    others = {"samples/Maze-v0", "other/Caves-v0"} - {capped}
    config = make_config(
        environments=[{"id": capped, "horizon": 4}, *({"id": other} for other in others)]
    )

    report = audit([run_started(config), *play(config, 1, horizon=4).records()])

    found = of_rule(report, "horizon")
    assert len(found) == wrong
    assert {(f.found, f.expected) for f in found} <= {("horizon 4", "horizon 6")}


def test_a_wrong_horizon_after_a_resume_is_found(audit: Audit) -> None:
    config = make_config(
        horizon_schedule={"kind": "stepwise", "stages": [2, 4, 6], "training_steps_per_stage": 1}
    )
    resumed = play(config, 3, attempt=1, horizon=2)

    report = audit(
        [
            run_started(config),
            run_started(config, attempt=1, resumes_after=2),
            *play(config, 1).records(),
            *play(config, 2).records(),
            *resumed.records(attempt=1),
        ]
    )

    assert rules_of(report) == {"horizon"}
    assert {finding.episode_id for finding in report.findings} == {
        record.episode_id for record in resumed.episodes
    }
    assert {(f.found, f.expected) for f in report.findings} == {("horizon 2", "horizon 6")}


@pytest.mark.parametrize(
    ("horizons", "wrong"),
    [
        pytest.param((2, 2, 4, 6), set[int](), id="right"),
        pytest.param((2, 4, 4, 2), {2, 3}, id="grown too early"),
        pytest.param((2, 2, 2, 6), {3, 4}, id="grown too late"),
        pytest.param((2, 2, 4, 2), {4}, id="fallen"),
        pytest.param((2, 2, 6, 6), {3, 4}, id="two stages at once"),
        pytest.param((4, 2, 4, 6), {1}, id="begun too far"),
    ],
)
def test_a_gated_horizon_grows_when_the_stored_outcomes_say_so(
    horizons: tuple[int, ...], wrong: set[int], audit: Audit
) -> None:
    """One success is enough, and training step 1 has none: the schedule is 2, 2, 4, 6.

    Episodes of another horizon do not count, so what follows a wrong one is held to the stage
    that the schedule is still in.
    """
    config = make_config(
        horizon_schedule={
            "kind": "success_gated",
            "stages": [2, 4, 6],
            "success_threshold": 0.01,
            "success_window": 1,
        }
    )
    played = [play(config, k, horizon=horizon) for k, horizon in enumerate(horizons, start=1)]
    unsolved = "UPDATE episodes SET success = 0 WHERE training_step = 1"

    report = audit([run_started(config), *(r for one in played for r in one.records())], unsolved)

    assert rules_of(report) == ({"horizon"} if wrong else set())
    assert {finding.training_step for finding in report.findings} == wrong


def test_a_success_that_was_not_one_makes_the_horizon_that_grew_on_it_wrong(audit: Audit) -> None:
    config = make_config(
        horizon_schedule={"kind": "success_gated", "stages": [4, 6], "success_window": 1}
    )
    records = [run_started(config)]
    for number, horizon in ((1, 4), (2, 6), (3, 6)):
        records += play(config, number, horizon=horizon).records()
    solved = "UPDATE episodes SET success = 1 WHERE training_step = 1"
    unsolved = "UPDATE episodes SET success = 0 WHERE training_step = 1 AND group_index > 1"

    half = audit(records, solved, unsolved)
    fewer = audit(
        records, solved, unsolved, f"{unsolved.replace('> 1', '= 1')} AND sample_index = 0"
    )

    assert rules_of(half) == set()
    assert rules_of(fewer) == {"horizon"}
    assert {(f.found, f.expected) for f in fewer.findings} == {("horizon 6", "horizon 4")}


def test_a_wrong_weight_is_found(audit: Audit) -> None:
    config = make_config()
    played = play(config, 1)
    place = long_credit(played)
    found = played.credits[place]
    doubled = tuple(2 * weight for weight in found.loss_weights)
    played.credits[place] = with_calls(replace(found, loss_weights=doubled), loss_weight=doubled)
    consume(config, played)

    report = audit([run_started(config), *played.records()])

    assert rules_of(report) == {"loss_weights", "loss_weight_sum"}
    assert {f.episode_id for f in of_rule(report, "loss_weights")} == {found.episode_id}


def test_a_weight_that_the_loss_read_otherwise_is_found(audit: Audit) -> None:
    config = make_config()
    played = play(config, 1)
    found = played.credits[long_credit(played)]
    change_read(played, found, 0, weight_high=found.loss_weights[0] * 1.001)

    report = audit([run_started(config), *played.records()])

    assert rules_of(report) == {"loss_input_weight"}


# Rows of several steps


def merged_run(**settings: object) -> tuple[RunConfig, PlayedStep]:
    """A training step whose rows are merged where prompts go on from each other."""
    config = make_config(memory__kind="full", optimizer__rows="merged", **settings)
    return config, play(config, 1)


def split_at(played: PlayedStep, reason: str | None) -> tuple[int, int]:
    """Place of a credit, and a later step of it with that reason and with an advantage."""
    return next(
        (place, index)
        for place, one in enumerate(played.credits)
        for index, found in enumerate(reasons_of(one))
        if index and found == reason and one.advantages[index] and one.advantages[index - 1]
    )


@pytest.mark.parametrize(
    ("is_reason", "claimed"),
    [
        ("prompt_changed", None),  # a row whose steps do not go on from each other
        (None, "prompt_changed"),  # a prompt that did not change
        (None, "row_full"),
        (None, "policy_changed"),
        (None, "first_step"),
        ("prompt_changed", "row_full"),
    ],
)
def test_a_reason_that_is_not_true_is_found(
    is_reason: str | None, claimed: str | None, audit: Audit
) -> None:
    config, played = merged_run()
    place, index = split_at(played, is_reason)
    found = played.credits[place]
    reasons = reasons_of(found)
    reasons[index] = claimed
    played.credits[place] = with_calls(found, split_reason=reasons)
    consume(config, played)

    report = audit([run_started(config), *played.records()])

    assert rules_of(report) == {"split_reasons"}
    [finding] = report.findings
    assert (finding.episode_id, finding.step_index) == (found.episode_id, index)
    told = "the call continues the row of the one before it"
    assert (finding.found, finding.expected) == (claimed or told, is_reason or told)


def with_first_token(record: EpisodeRecord, *, step_index: int, token: int) -> EpisodeRecord:
    """The episode as if a reply had begun with another token."""
    steps = list(record.outcome.steps)
    reply = sampled_of(steps[step_index]).action_tokens
    steps[step_index] = with_call(steps[step_index], action_tokens=(token, *reply[1:]))
    return replace(record, outcome=replace(record.outcome, steps=tuple(steps)))


def test_a_stored_token_that_breaks_a_row_is_found(audit: Audit) -> None:
    config, played = merged_run()
    place, index = split_at(played, None)
    episode_id = played.credits[place].episode_id

    for number, record in enumerate(played.episodes):
        if record.episode_id == episode_id:
            played.episodes[number] = with_first_token(record, step_index=index - 1, token=9_999)
    report = audit([run_started(config), *played.records()])

    [finding] = report.findings
    assert (finding.rule, finding.step_index) == ("split_reasons", index)
    assert finding.expected == "prompt_changed"


def test_a_row_that_goes_on_although_a_picture_was_taken_away_is_found(audit: Audit) -> None:
    """Pictures of one size have the same tokens, so that tokens alone do not show it."""
    config, played = program_run(memory__kind="full", optimizer__rows="merged")
    credit, call = next(
        (credit, call)
        for credit in played.credits
        for call in credit.calls
        if call.step_index and call.call_index == 1 and call.split_reason is None
    )
    for number, record in enumerate(played.episodes):
        if record.episode_id == credit.episode_id:
            steps = list(record.outcome.steps)
            step = steps[call.step_index]
            plan, act, *others = step.calls
            assert any(message.pictures for message in act.messages)
            blind = replace(act, messages=(Message(role="user", content="What now?"),))
            steps[call.step_index] = replace(step, calls=(plan, blind, *others))
            outcome = replace(record.outcome, steps=tuple(steps))
            played.episodes[number] = replace(record, outcome=outcome)

    report = audit([run_started(config), *played.records()])

    [finding] = report.findings
    assert (finding.rule, finding.step_index) == ("split_reasons", call.step_index)
    assert (finding.call_index, finding.expected) == (1, "prompt_changed")


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"conversation": 1, "continuation": Continuation.START}, "new_conversation"),
        ({"conversation": 1, "continuation": Continuation.FORKED}, "forked"),
    ],
)
def test_a_row_that_goes_on_with_a_call_of_another_conversation_is_found(
    changes: dict[str, object], expected: str, audit: Audit
) -> None:
    """Its tokens go on from the row's, and its agent and purpose are the row's."""
    config, played = merged_run()
    place, index = split_at(played, None)
    found = played.credits[place]
    for number, record in enumerate(played.episodes):
        if record.episode_id == found.episode_id:
            steps = [
                with_call(step, **changes) if step.index >= index else step
                for step in record.outcome.steps
            ]
            outcome = replace(record.outcome, steps=tuple(steps))
            played.episodes[number] = replace(record, outcome=outcome)

    report = audit([run_started(config), *played.records()])

    assert rules_of(report) == {"split_reasons", "loss_input_rows"}
    first, *_ = of_rule(report, "split_reasons")
    assert (first.episode_id, first.step_index) == (found.episode_id, index)
    assert first.expected == expected


def test_a_row_that_is_longer_than_it_may_be_is_found(audit: Audit) -> None:
    config, _ = merged_run(optimizer__max_row_tokens=20)
    _, played = merged_run()  # as if there were no limit

    report = audit([run_started(config), *played.records()])

    assert rules_of(report) == {"split_reasons"}
    assert {finding.expected for finding in report.findings} == {"row_full"}


def test_rows_that_are_merged_in_a_run_of_a_row_for_each_step_are_found(audit: Audit) -> None:
    config = make_config(memory__kind="full")
    _, played = merged_run()

    report = audit([run_started(config), *played.records()])

    assert rules_of(report) == {"split_reasons"}
    assert {finding.expected for finding in report.findings} == {"one_row_per_step"}


def test_weights_by_row_where_they_should_be_by_step_are_found(audit: Audit) -> None:
    """What a mean over rows does: merged steps share the weight of one row."""
    config, played = merged_run(algorithm__loss_unit="step")
    for place, one in enumerate(played.credits):
        members = len(one.advantages) / sum(r is not None for r in reasons_of(one))
        shared = tuple(weight / members for weight in one.loss_weights)
        played.credits[place] = with_calls(replace(one, loss_weights=shared), loss_weight=shared)
    consume(config, played)

    report = audit([run_started(config), *played.records()])

    assert rules_of(report) == {"loss_weights", "loss_weight_sum"}


def test_a_token_of_a_gap_in_the_loss_is_found(audit: Audit) -> None:
    config, played = merged_run()
    place, index = split_at(played, None)
    found = played.credits[place]
    logprobs = logprobs_of(found)[index - 1]
    change_read(
        played,
        found,
        index - 1,
        num_tokens=len(logprobs) + 1,
        old_logprob_sum=sum(logprobs) - 3.0,
    )

    report = audit([run_started(config), *played.records()])

    assert rules_of(report) == {"loss_input_tokens", "loss_input_logprobs"}
    assert report.findings[0].step_index == index - 1


def test_a_step_that_was_read_apart_from_its_row_is_found(audit: Audit) -> None:
    config, played = merged_run()
    place, index = split_at(played, None)
    found = played.credits[place]
    change_read(played, found, index, row_index=77)

    report = audit([run_started(config), *played.records()])

    assert rules_of(report) == {"loss_input_rows"}
    assert index in {finding.step_index for finding in report.findings}
    assert {finding.episode_id for finding in report.findings} == {found.episode_id}


def test_rows_that_were_read_as_one_are_found(audit: Audit) -> None:
    config, played = merged_run()
    call = next(c for c in played.consumed if len({row.row_index for row in c.rows}) > 1)
    number = played.consumed.index(call)
    last = call.rows[-1].row_index
    rows = tuple(replace(row, row_index=min(row.row_index, last - 1)) for row in call.rows)
    played.consumed[number] = replace(call, rows=rows)

    report = audit([run_started(config), *played.records()])

    assert rules_of(report) == {"loss_input_rows"}
    assert {f.found for f in report.findings} == {"read in a row with another one's calls"}


def test_a_silent_step_that_was_lost_from_its_row_is_found(audit: Audit) -> None:
    """Its advantage is 0, so that no other rule misses it."""
    config, played = merged_run(algorithm__name="hgpo", algorithm__history_length=0)
    call, lost = next(
        (call, row)
        for call in played.consumed
        for row in call.rows
        if not row.advantage_low and sum(r.row_index == row.row_index for r in call.rows) > 1
    )
    number = played.consumed.index(call)
    rows = tuple(row for row in call.rows if row is not lost)
    played.consumed[number] = replace(call, rows=rows)

    report = audit([run_started(config), *played.records()])

    assert rules_of(report) == {"loss_input_rows"}
    [finding] = report.findings
    assert (finding.step_index, finding.found) == (lost.step_index, "never read by the loss")


def test_an_advantage_shifted_by_one_step_is_found(audit: Audit) -> None:
    config = make_config()
    played = play(config, 1)
    place = long_credit(played)
    found = played.credits[place]
    shifted = (*found.advantages[1:], found.advantages[0])
    played.credits[place] = with_calls(replace(found, advantages=shifted), advantage=shifted)
    consume(config, played)

    report = audit([run_started(config), *played.records()])

    assert rules_of(report) == {"advantage"}
    assert [f.step_index for f in report.findings] == list(range(len(shifted)))
    assert {f.episode_id for f in report.findings} == {found.episode_id}


def test_an_advantage_that_reached_the_loss_one_step_late_is_found(audit: Audit) -> None:
    config = make_config()
    played = play(config, 1)
    found = played.credits[long_credit(played)]
    late = loss_input(found, found.calls[0], row_index=0)
    change_read(
        played, found, 1, advantage_low=late.advantage_low, advantage_high=late.advantage_high
    )

    report = audit([run_started(config), *played.records()])

    assert rules_of(report) == {"loss_input_advantage"}
    assert report.findings[0].step_index == 1


def test_a_step_that_never_reached_the_loss_is_found(audit: Audit) -> None:
    config = make_config()
    played = play(config, 1)
    call = played.consumed[0]
    lost = call.rows[0]
    played.consumed[0] = replace(call, rows=call.rows[1:])

    report = audit([run_started(config), *played.records()])

    assert rules_of(report) == {"loss_input_all"}
    [finding] = report.findings
    assert (finding.episode_id, finding.step_index) == (call.episode_id(lost), lost.step_index)


def test_an_episode_in_two_optimizer_steps_is_found(audit: Audit) -> None:
    config = make_config()
    played = play(config, 1)
    first = played.consumed[0]
    stray = replace(first, rows=first.rows[:1], optimizer_step_index=1, micro_batch=99)
    played.consumed[0] = replace(first, rows=first.rows[1:])
    played.consumed.append(stray)

    report = audit([run_started(config), *played.records()])

    assert rules_of(report) == {"loss_input_once"}
    assert report.findings[0].found == "read in optimizer step 1 of training step 1"


def test_a_weight_of_zero_where_there_is_an_advantage_is_found(audit: Audit) -> None:
    config = make_config()
    played = play(config, 1)
    place = long_credit(played)
    found = played.credits[place]
    weights = (0.0, *found.loss_weights[1:])
    played.credits[place] = with_calls(replace(found, loss_weights=weights), loss_weight=weights)

    report = audit([run_started(config), *played.records()])

    [finding] = of_rule(report, "silent_zero")
    assert (finding.episode_id, finding.step_index) == (found.episode_id, 0)


@pytest.mark.parametrize(
    ("statement", "rule"),
    [
        ("UPDATE steps SET trained = 0 WHERE {step}", "mask"),
        ("UPDATE calls SET policy_version = 1 WHERE {step}", "policy_version"),
        ("UPDATE steps SET return_to_go = return_to_go + 0.01 WHERE {step}", "return_to_go"),
        ("UPDATE steps SET step_advantage = step_advantage + 0.01 WHERE {step}", "step_part"),
        ("UPDATE call_tokens SET behavior_logprobs = x'01000000' WHERE {step}", "tokens"),
        (
            "UPDATE call_tokens SET behavior_logprobs = "
            "zeroblob(4 * (SELECT num_action_tokens FROM calls WHERE {step})) WHERE {step}",
            "logprob_agreement",
        ),
    ],
)
def test_a_step_that_the_store_has_otherwise_is_found(
    statement: str, rule: str, audit: Audit
) -> None:
    config = make_config()
    played = play(config, 1)
    found = played.credits[long_credit(played)]
    step = f"episode_id = '{found.episode_id}' AND step_index = 1"

    report = audit([run_started(config), *played.records()], statement.format(step=step))

    finding = of_rule(report, rule)[0]
    assert (finding.episode_id, finding.step_index) == (found.episode_id, 1)


@pytest.mark.parametrize(
    ("statement", "rule"),
    [
        ("UPDATE episodes SET episode_return = episode_return + 1 WHERE {it}", "episode_return"),
        ("UPDATE episodes SET trained = 0 WHERE {it}", "trained_episodes"),
        ("UPDATE episodes SET horizon = 7 WHERE {it}", "horizon"),
        ("UPDATE episodes SET optimizer_step_index = 5 WHERE {it}", "optimizer_step_of_episode"),
    ],
)
def test_an_episode_that_the_store_has_otherwise_is_found(
    statement: str, rule: str, audit: Audit
) -> None:
    config = make_config()
    played = play(config, 1)
    found = played.credits[0].episode_id

    report = audit([run_started(config), *played.records()], statement.format(it=f"id = '{found}'"))

    assert of_rule(report, rule)[0].episode_id == found


def test_a_last_step_that_led_elsewhere_is_found(audit: Audit) -> None:
    config = make_config(algorithm__name="graphgpo", algorithm__scale_by_std=False)
    played = play(config, 1, seed=4)

    report = audit(
        [run_started(config), *played.records()],
        "UPDATE episodes SET final_anchor_hash = 'elsewhere' WHERE NOT success",
    )

    assert rules_of(report) == {"step_part", "advantage"}
    ends = {(c.episode_id, len(c.advantages) - 1) for c in played.credits}
    assert ends & {(f.episode_id, f.step_index) for f in report.findings}


@pytest.mark.parametrize("similarity", [None, 0.97])
def test_where_an_end_is_not_in_the_store_its_group_is_not_checked_and_told(
    similarity: float | None, audit: Audit
) -> None:
    config = make_config(algorithm__name="graphgpo", algorithm__anchor_similarity=similarity)

    report = audit(
        [run_started(config), *play(config, 1, seed=4).records()],
        "UPDATE episodes SET final_anchor_hash = NULL, final_anchor_state = NULL, "
        "final_observation = NULL WHERE NOT success",
    )

    assert report.clean
    told = {one.reason for one in report.not_checked if one.rule == "step_part"}
    assert "the state that it ended in is not in the store" in told


def test_a_place_without_episode_or_failure_is_found(audit: Audit) -> None:
    config = make_config()
    played = play(config, 1)
    found = played.credits[0].episode_id

    report = audit(
        [run_started(config), *played.records()], f"DELETE FROM episodes WHERE id = '{found}'"
    )

    assert of_rule(report, "group_size")[0].found == "group 0 with places [1, 2]"


def test_too_few_optimizer_steps_are_found(audit: Audit) -> None:
    config = make_config()
    played = play(config, 1)
    played.metrics["actor/optimizer_steps"] = 1

    report = audit([run_started(config), *played.records()])

    assert rules_of(report) == {"optimizer_steps"}


def test_pruned_tokens_are_told_and_not_taken_for_a_fault(audit: Audit) -> None:
    config = make_config()

    report = audit(
        [run_started(config), *play(config, 1).records()],
        "DELETE FROM call_tokens",
    )

    assert report.clean
    assert {one.rule for one in report.not_checked} == {
        "tokens",
        "logprobs",
        "logprob_agreement",
        "loss_input_logprobs",
    }


def test_a_step_that_is_too_stale_is_found(audit: Audit) -> None:
    config = make_config(trainer=ONE_AHEAD)
    played = play_ahead(config)
    found = played[2].credits[0]  # of training step 3, whose update began with version 4
    assert found.training_step == 2

    report = audit(
        [run_started(config), *(r for one in played for r in one.records())],
        f"UPDATE calls SET policy_version = 0 WHERE episode_id = '{found.episode_id}'",
    )

    assert rules_of(report) == {"policy_version"}
    assert {f.episode_id for f in report.findings} == {found.episode_id}
    assert report.findings[0].expected == "policy version 4, or from 2 on"


def test_a_group_that_waited_too_long_is_found(audit: Audit) -> None:
    played = play_ahead(make_config(trainer=ONE_AHEAD))

    report = audit(
        [run_started(make_config()), *(r for one in played for r in one.records())],
    )

    assert rules_of(report) == {"policy_version", "trained_in"}
    late = of_rule(report, "trained_in")[0]
    assert (late.found, late.expected) == (
        "played in training step 1",
        "training step 2 to 2",
    )


def test_an_episode_that_is_trained_beside_its_group_is_found(audit: Audit) -> None:
    config = make_config(trainer=ONE_AHEAD)
    played = play_ahead(config)
    credit = played[1].credits[0]
    played[1].credits[0] = replace(credit, trained_training_step=3)

    report = audit([run_started(config), *(r for one in played for r in one.records())])

    assert rules_of(report) == {"trained_in"}
    [finding] = report.findings
    assert (finding.episode_id, finding.found) == (credit.episode_id, "trained in training step 3")


def test_a_step_that_another_update_read_as_well_is_found(audit: Audit) -> None:
    config = make_config(trainer=ONE_AHEAD)
    played = play_ahead(config)
    found = next(c for c in played[1].credits if all(c.advantages))
    again = replace(
        played[2].consumed[0],
        rows=(loss_input(found, found.calls[0], row_index=0),),
        micro_batch=99,
    )
    played[2].consumed.append(again)

    report = audit([run_started(config), *(r for one in played for r in one.records())])

    assert rules_of(report) == {"loss_input_once"}
    assert {f.training_step for f in report.findings} == {2}
    assert [f.found for f in report.findings] == [
        "read 2 times",
        f"read in optimizer step {again.optimizer_step_index} of training step 3",
    ]


def test_a_group_that_is_thrown_away_too_early_is_found(audit: Audit) -> None:
    config = make_config(trainer=ONE_AHEAD | {"max_staleness": 2})
    played = play_ahead(make_config(trainer=ONE_AHEAD))

    report = audit([run_started(config), *(r for one in played for r in one.records())])

    assert rules_of(report) == {"discarded"}
    assert [f.found for f in report.findings] == [
        f"group {group} of training step 1, discarded as stale after 2 training steps"
        for group in (6, 7)
    ]


def test_a_group_that_is_trained_although_it_was_thrown_away_is_found(audit: Audit) -> None:
    config = make_config(trainer=ONE_AHEAD)
    played = play_ahead(config)
    lost = next(r.episode_id for r in played[2].episodes if r.group_index == 6)

    report = audit(
        [run_started(config), *(r for one in played for r in one.records())],
        f"UPDATE episodes SET trained = 1 WHERE id = '{lost}'",
    )

    assert rules_of(report) == {"discarded"}
    assert "with 1 trained episodes" in report.findings[0].found


def test_findings_are_listed_up_to_a_limit_and_counted_beyond(audit: Audit) -> None:
    config = make_config()

    report = audit(
        [run_started(config), *play(config, 1).records()],
        "UPDATE calls SET policy_version = 99",
    )

    counted = next(rule for rule in report.rules if rule.name == "policy_version")
    assert (
        len(of_rule(report, "policy_version")) == 20 < counted.num_findings == counted.num_checked
    )


# Greedy episodes


def is_ended(record: EpisodeRecord) -> bool:
    return isinstance(record.outcome, Trajectory)


def remax_run() -> tuple[RunConfig, PlayedStep]:
    config = make_config(algorithm__name="remax")
    return config, play(config, 1)


def test_a_greedy_episode_that_is_trained_is_found(audit: Audit) -> None:
    config, played = remax_run()
    greedy = played.greedy[1].episode_id

    report = audit(
        [run_started(config), *played.records()],
        f"UPDATE episodes SET trained = 1 WHERE id = '{greedy}'",
    )

    assert rules_of(report) == {"greedy_untrained"}
    [finding] = report.findings
    assert (finding.episode_id, finding.found) == (greedy, "a greedy episode with trained")


def test_a_baseline_that_was_sampled_is_found(audit: Audit) -> None:
    config, played = remax_run()
    record = played.greedy[0]
    first, *others = record.outcome.steps
    sampled = with_call(first, behavior_logprobs=(-5.0,) * len(sampled_of(first).action_tokens))
    played.greedy[0] = replace(record, outcome=replace(record.outcome, steps=(sampled, *others)))

    report = audit([run_started(config), *played.records()])

    assert rules_of(report) == {"greedy_replies"}
    assert {f.episode_id for f in report.findings} == {record.episode_id}


def test_a_greedy_reply_is_compared_with_those_of_the_same_weights_alone(audit: Audit) -> None:
    config = make_config(algorithm__name="remax", trainer=ONE_AHEAD)
    played = play_ahead(config)
    place = next(
        place
        for place, record in enumerate(played[1].greedy)
        if record.training_step == 2 and is_ended(record) and len(record.outcome.steps) >= 2
    )
    record = played[1].greedy[place]
    first, *others = record.outcome.steps
    sampled = with_call(first, behavior_logprobs=(-5.0,) * len(sampled_of(first).action_tokens))
    played[1].greedy[place] = replace(
        record, outcome=replace(record.outcome, steps=(sampled, *others))
    )
    records = [run_started(config), *(r for one in played for r in one.records())]
    older = "UPDATE calls SET policy_version = 0 WHERE "

    found = audit(records)
    of_older_weights = audit(records, older + f"episode_id = '{record.episode_id}'")
    # The weights of the next step may have sampled the end of the first reply.
    group = (
        f"SELECT id FROM episodes WHERE training_step = 2 AND group_index = {record.group_index}"
    )
    across_an_update = audit(records, older + f"step_index = 0 AND episode_id IN ({group})")

    assert {(f.rule, f.episode_id) for f in found.findings} == {
        ("greedy_replies", record.episode_id)
    }
    for report in (of_older_weights, across_an_update):
        assert report.findings == ()
        [skipped] = [one for one in report.not_checked if one.rule == "greedy_replies"]
        assert "of different weights" in skipped.reason


def test_a_greedy_episode_of_another_task_or_older_weights_is_found(audit: Audit) -> None:
    config, played = remax_run()
    first, second = played.greedy[0].episode_id, played.greedy[1].episode_id

    report = audit(
        [run_started(config), *played.records()],
        "UPDATE episodes SET task_hash = (SELECT task_hash FROM episodes WHERE id = "
        f"'{second}') WHERE id = '{first}'",
        f"UPDATE calls SET policy_version = 7 WHERE episode_id = '{second}'",
    )

    assert rules_of(report) == {"greedy_episodes", "policy_version"}
    found = {f.episode_id: f.found for f in report.findings}
    assert "another task" in found[first]
    assert found[second] == "policy version 7"


def test_the_greedy_episode_of_a_group_that_was_played_ahead_is_looked_at(audit: Audit) -> None:
    config = make_config(algorithm__name="remax", trainer=ONE_AHEAD)
    played = play_ahead(config)
    early = [r for r in played[1].greedy if r.training_step == 1 and is_ended(r)]
    first, second = (record.episode_id for record in early[:2])

    report = audit(
        [run_started(config), *(r for one in played for r in one.records())],
        f"UPDATE episodes SET trained = 1 WHERE id = '{first}'",
        f"UPDATE episodes SET horizon = 99 WHERE id = '{second}'",
    )

    assert rules_of(report) == {"greedy_untrained", "greedy_episodes"}
    assert {(f.training_step, f.episode_id) for f in report.findings} == {(2, first), (2, second)}


def test_a_group_mean_in_the_place_of_the_greedy_return_is_found(audit: Audit) -> None:
    config, played = remax_run()
    credit(config, played, as_if=make_config(algorithm__name="drgrpo"))
    consume(config, played)

    report = audit([run_started(config), *played.records()])

    assert {"episode_part", "advantage"} <= rules_of(report)


def test_a_group_that_was_trained_without_its_greedy_episode_is_found(audit: Audit) -> None:
    config, played = remax_run()
    lost = played.greedy.pop(2)

    report = audit([run_started(config), *played.records()])

    assert {"greedy_episodes", "trained_episodes"} <= rules_of(report)
    group = lost.group_index
    assert of_rule(report, "greedy_episodes")[0].found == f"group {group} without a greedy episode"


# A critic


def critic_run(**settings: object) -> tuple[RunConfig, PlayedStep]:
    config = make_config(algorithm__name="gae", rollout__horizon=3, **settings)
    return config, play(config, 1)


def ended_by(played: PlayedStep, *, truncated: bool) -> EpisodeCredit:
    """The credit of an episode of several steps that a limit cut short, or none did."""
    return next(
        one
        for one in played.credits
        if len(one.advantages) >= 2 and (one.final_value is not None) == truncated
    )


def with_credit(played: PlayedStep, found: EpisodeCredit, changed: EpisodeCredit) -> None:
    played.credits = [changed if one is found else one for one in played.credits]


def as_if_cut(played: PlayedStep, episode_id: str) -> None:
    """Let an episode that terminated be credited as one that a limit cut short."""
    for place, record in enumerate(played.episodes):
        if record.episode_id == episode_id:
            cut = replace(record.outcome, stop_reason=StopReason.ENVIRONMENT_LIMIT)
            played.episodes[place] = replace(record, outcome=cut)


@pytest.mark.parametrize("level", ["step", "token"])
def test_a_terminated_episode_taken_as_truncated_is_found(level: str, audit: Audit) -> None:
    config, played = critic_run(algorithm__gae_level=level)
    found = ended_by(played, truncated=False)
    real = list(played.episodes)
    as_if_cut(played, found.episode_id)
    credit(config, played)
    consume(config, played)
    played.episodes = real

    report = audit([run_started(config), *played.records()])

    [finding] = of_rule(report, "values")
    assert finding.episode_id == found.episode_id
    assert "none: the task itself ended" in finding.expected
    assert found.episode_id in {f.episode_id for f in of_rule(report, "value_targets")}
    assert "advantage" in rules_of(report)


def test_a_truncated_episode_taken_as_terminated_is_found(audit: Audit) -> None:
    config, played = critic_run()
    found = ended_by(played, truncated=True)

    report = audit(
        [run_started(config), *played.records()],
        f"UPDATE episodes SET final_value = NULL WHERE id = '{found.episode_id}'",
    )

    assert rules_of(report) == {"values"}
    [finding] = report.findings
    assert (finding.episode_id, finding.found) == (found.episode_id, "no final value")


def test_gae_shifted_by_one_step_is_found(audit: Audit) -> None:
    config, played = critic_run()
    found = ended_by(played, truncated=False)
    shifted = (*found.advantages[1:], found.advantages[0])
    moved = replace(found, advantages=shifted, step_advantages=shifted)
    with_credit(played, found, with_calls(moved, advantage=shifted))
    consume(config, played)

    report = audit([run_started(config), *played.records()])

    assert rules_of(report) == {"step_part", "advantage"}
    assert {f.episode_id for f in report.findings} == {found.episode_id}


def test_token_advantages_shifted_by_one_token_are_found(audit: Audit) -> None:
    config, played = critic_run(algorithm__gae_level="token")
    found, call = next(
        (one, call)
        for one in played.credits
        for call in one.calls
        if len(set(call.token_advantages or ())) > 1
    )
    assert call.token_advantages is not None
    first, *others = call.token_advantages
    shifted = replace(call, token_advantages=(*others, first))
    calls = tuple(shifted if each is call else each for each in found.calls)
    with_credit(played, found, replace(found, calls=calls))
    consume(config, played)

    report = audit([run_started(config), *played.records()])

    assert rules_of(report) == {"token_advantages"}
    [finding] = report.findings
    assert (finding.episode_id, finding.step_index) == (found.episode_id, call.step_index)


def test_the_discount_of_another_run_is_found(audit: Audit) -> None:
    config, played = critic_run(algorithm__discount=0.9)
    credit(
        config,
        played,
        as_if=make_config(
            algorithm__name="gae", algorithm__discount=0.9, algorithm__gae_lambda=0.0
        ),
    )
    consume(config, played)

    report = audit([run_started(config), *played.records()])

    assert {"value_targets", "step_part", "advantage"} <= rules_of(report)


def test_values_that_the_critic_learnt_in_another_update_are_found(audit: Audit) -> None:
    config, played = critic_run()
    first, *others = played.critic_loss_inputs
    played.critic_loss_inputs = [replace(first, training_step=7), *others]

    report = audit([run_started(config), *played.records()])

    assert rules_of(report) == {"critic_loss_inputs"}
    assert all(f.found.endswith(" of training step 7") for f in report.findings)


def test_values_that_the_critic_learnt_of_a_group_that_was_thrown_away_are_found(
    audit: Audit,
) -> None:
    config = make_config(algorithm__name="gae", trainer=ONE_AHEAD)
    played = play_ahead(config)
    assert audit([run_started(config), *(r for one in played for r in one.records())]).clean
    lost = next(
        r for r in played[2].episodes if r.group_index == 6 and isinstance(r.outcome, Trajectory)
    )
    read = played[2].critic_loss_inputs[0]
    row = replace(
        read.rows[0],
        training_step=1,
        group_index=6,
        sample_index=lost.outcome.sample_index,
        step_index=0,
    )
    played[2].critic_loss_inputs.append(replace(read, micro_batch=99, rows=(row,)))

    report = audit([run_started(config), *(r for one in played for r in one.records())])

    assert rules_of(report) == {"critic_loss_inputs"}
    assert [f.episode_id for f in report.findings] == [lost.episode_id]


def test_values_that_the_critic_learnt_elsewhere_or_not_at_all_are_found(audit: Audit) -> None:
    config, played = critic_run()
    first, *others = played.critic_loss_inputs
    one, two, three, *rest = first.rows
    late = replace(one, first_token=1)
    heavy = replace(two, weight_low=0.9, weight_high=0.9)
    other_target = replace(three, target_low=9.0, target_high=9.0)
    lost = rest.pop()
    played.critic_loss_inputs = [
        replace(first, rows=(late, heavy, other_target, *rest)),
        *others,
    ]

    report = audit([run_started(config), *played.records()])

    assert rules_of(report) == {"critic_loss_inputs"}
    said = {(f.episode_id, f.step_index): f.found for f in report.findings}
    assert said == {
        (first.episode_id(late), late.step_index): "1 values from token 1 on",
        (first.episode_id(heavy), heavy.step_index): "weights 0.9 to 0.9",
        (first.episode_id(three), three.step_index): "targets 9.0 to 9.0",
        (first.episode_id(lost), lost.step_index): "read 0 times by the critic's loss",
    }


def test_a_policy_that_learns_while_the_critic_warms_up_is_found(audit: Audit) -> None:
    config = make_config(algorithm__name="gae", critic__warmup_training_steps=1)
    without = make_config(algorithm__name="gae")
    played = play(without, 1)

    report = audit([run_started(config), *played.records()])

    assert {"trained_episodes", "optimizer_steps"} <= rules_of(report)


# Several calls a step


def program_run(**settings: object) -> tuple[RunConfig, PlayedStep]:
    """A training step of a program that plans, acts, remembers and is judged, with pictures."""
    config = make_config(**settings)
    return config, play(config, 1, program=True)


def auxiliary(played: PlayedStep) -> tuple[EpisodeCredit, CallCredit]:
    """A call that plans, of a step that has an advantage, and the credit that it is in."""
    return next(
        (one, call)
        for one in played.credits
        for call in one.calls
        if call.call_index == 0 and call.advantage
    )


def test_an_auxiliary_call_that_is_credited_twice_is_found(audit: Audit) -> None:
    """Once by its share, and once as if it had acted."""
    config, played = program_run()
    found, plan = auxiliary(played)
    twice = replace(plan, advantage=3 * plan.advantage)  # half of the step's, and all of it
    calls = tuple(twice if call is plan else call for call in found.calls)
    with_credit(played, found, replace(found, calls=calls))
    consume(config, played)

    report = audit([run_started(config), *played.records()])

    assert rules_of(report) == {"call_advantage"}
    [finding] = report.findings
    assert (finding.episode_id, finding.step_index, finding.call_index) == (
        found.episode_id,
        plan.step_index,
        0,
    )
    assert finding.expected.endswith(f"0.5 of the advantage of step {plan.step_index}")


def test_an_auxiliary_call_that_the_loss_read_twice_is_found(audit: Audit) -> None:
    config, played = program_run()
    found, plan = auxiliary(played)
    read = next(c for c in played.consumed if c.optimizer_step_index == found.optimizer_step_index)
    again = replace(read, rows=(loss_input(found, plan, row_index=0),), micro_batch=99)
    played.consumed.append(again)

    report = audit([run_started(config), *played.records()])

    assert rules_of(report) == {"loss_input_once"}
    [finding] = report.findings
    assert (finding.step_index, finding.call_index) == (plan.step_index, 0)


def test_an_untrained_call_that_the_loss_read_or_credit_reached_is_found(audit: Audit) -> None:
    config, played = program_run()
    record, step = next(
        (record, step)
        for record in played.episodes
        if any(one.episode_id == record.episode_id for one in played.credits)
        for step in record.outcome.steps
        if len(step.calls) > 2
    )
    found = next(one for one in played.credits if one.episode_id == record.episode_id)
    act = next(
        call for call in found.calls if (call.step_index, call.call_index) == (step.index, 1)
    )
    stray = replace(act, call_index=2)
    place = found.calls.index(act) + 1
    with_credit(
        played, found, replace(found, calls=(*found.calls[:place], stray, *found.calls[place:]))
    )
    read = next(c for c in played.consumed if c.optimizer_step_index == found.optimizer_step_index)
    played.consumed.append(
        replace(read, rows=(loss_input(found, stray, row_index=0),), micro_batch=99)
    )

    report = audit([run_started(config), *played.records()])

    assert rules_of(report) == {"call_advantage", "loss_input_nothing_else"}
    assert {(f.episode_id, f.step_index, f.call_index) for f in report.findings} == {
        (record.episode_id, step.index, 2)
    }


def test_a_call_without_tokens_that_is_trained_is_found(audit: Audit) -> None:
    config, played = program_run()

    report = audit(
        [run_started(config), *played.records()],
        "UPDATE calls SET trained = 1 WHERE purpose = 'judge'",
    )

    assert {f.found for f in of_rule(report, "tokens")} == {"a call without tokens that is trained"}


def test_a_picture_of_another_step_is_found(audit: Audit) -> None:
    """A prompt that shows what the agent saw two steps later."""
    config, played = program_run()
    place, record = next(
        (place, record)
        for place, record in enumerate(played.episodes)
        if isinstance(record.outcome, Trajectory)
        and len(record.outcome.steps) > 2
        and record.outcome.steps[2].observation.pictures
        and not set(record.outcome.steps[2].observation.pictures)
        & {p for step in record.outcome.steps[:2] for p in step.observation.pictures}
    )
    first, *others = record.outcome.steps
    later = Message(role="user", content=("What now?", *others[1].observation.pictures))
    calls = (replace(first.calls[0], messages=(later,)), *first.calls[1:])
    steps = (replace(first, calls=calls), *others)
    played.episodes[place] = replace(record, outcome=replace(record.outcome, steps=steps))

    report = audit([run_started(config), *played.records()])

    assert rules_of(report) == {"pictures"}
    [finding] = report.findings
    assert (finding.episode_id, finding.step_index, finding.call_index) == (record.episode_id, 0, 0)


OWN_SAMPLING = (
    """'{"seed": 1, "temperature": 1.0, "top_p": 1.0, "max_tokens": 9, "stop": [], """
    """"altered": ALTERED}'"""
)


@pytest.mark.parametrize(
    ("purpose", "altered", "num_found"),
    [("plan", '{"top_k": "5"}', 1), ("plan", "{}", 0), ("remember", '{"top_k": "5"}', 0)],
)
def test_a_trained_call_with_altered_sampling_is_found_and_one_that_is_not_trained_is_not(
    purpose: str, altered: str, num_found: int, audit: Audit
) -> None:
    config, played = program_run()
    found, plan = auxiliary(played)
    place = f"episode_id = '{found.episode_id}' AND step_index = {plan.step_index}"
    if purpose == "remember":
        place = "purpose = 'remember'"

    report = audit(
        [run_started(config), *played.records()],
        f"UPDATE calls SET sampling_json = {OWN_SAMPLING.replace('ALTERED', altered)} "
        f"WHERE {place} AND purpose = '{purpose}'",
    )

    assert rules_of(report) == ({"altered_sampling"} if num_found else set())
    assert [(f.episode_id, f.step_index, f.call_index, f.found) for f in report.findings] == [
        (found.episode_id, plan.step_index, 0, "sampled with top_k = 5")
    ][:num_found]


def test_logprobs_of_a_call_that_was_sampled_at_another_temperature_are_not_compared(
    audit: Audit,
) -> None:
    config, played = program_run()

    report = audit(
        [run_started(config), *played.records()],
        "UPDATE calls SET sampling_json = "
        + OWN_SAMPLING.replace("ALTERED", "{}").replace('"temperature": 1.0', '"temperature": 0.5')
        + " WHERE purpose = 'plan'",
    )

    assert report.clean
    [skipped] = [skip for skip in report.not_checked if skip.rule == "logprob_agreement"]
    assert skipped.num_subjects == sum(
        call.call_index == 0 for one in played.credits for call in one.calls
    )


PIXEL = Picture.of(png("red", width=99))
PICTURE = 9_000
"""A token that stands for a picture."""
PICTURE_TEXT = TokenPieces(run_id=RUN, pieces={PICTURE: b"<|image_pad|>", 9_001: b"<|"})


def with_places(played: PlayedStep) -> list[tuple[str, int, int]]:
    """Let the trained calls that have pictures have places for them; which ones."""
    shown: list[tuple[str, int, int]] = []
    for number, record in enumerate(played.episodes):
        steps = list(record.outcome.steps)
        for index, step in enumerate(steps):
            calls = list(step.calls)
            for place, call in enumerate(calls):
                num_pictures = sum(len(message.pictures) for message in call.messages)
                if not num_pictures or not call.trained or call.sampled is None:
                    continue
                prompt = (*(num_pictures * (PICTURE, PICTURE, 1)), *call.sampled.prompt_tokens)
                calls[place] = replace(call, sampled=replace(call.sampled, prompt_tokens=prompt))
                if any(one.episode_id == record.episode_id for one in played.credits):
                    shown.append((record.episode_id, index, place))
            steps[index] = replace(step, calls=tuple(calls))
        outcome = replace(record.outcome, steps=tuple(steps))
        played.episodes[number] = replace(record, outcome=outcome)
    return shown


def test_a_trained_call_of_a_program_whose_pictures_have_no_places_is_found(audit: Audit) -> None:
    """One that an episode loop composed is not: its picture is for people."""
    config, played = program_run()
    shown = {
        (record.episode_id, step.index, place)
        for record in played.episodes
        for step in record.outcome.steps
        for place, call in enumerate(step.calls)
        if call.trained and any(message.pictures for message in call.messages)
        if any(one.episode_id == record.episode_id for one in played.credits)
    }

    report = audit(
        [run_started(config), PICTURE_TEXT, *played.records()],
        "UPDATE calls SET continuation = 'start'",
    )

    assert audit([run_started(config), PICTURE_TEXT, *played.records()]).clean
    assert rules_of(report) == {"unread_pictures"}
    assert {(f.episode_id, f.step_index, f.call_index) for f in report.findings} <= shown
    assert all(f.found.endswith("and places for 0 in its prompt's tokens") for f in report.findings)
    (rule,) = (rule for rule in report.rules if rule.name == "unread_pictures")
    assert rule.num_findings == len(shown)


def test_a_place_of_two_that_was_left_out_is_found(audit: Audit) -> None:
    config, played = program_run()
    shown = with_places(played)
    made = [run_started(config), PICTURE_TEXT]
    as_programs = "UPDATE calls SET continuation = 'start'"
    clean = audit([*made, *played.records()], as_programs)
    episode_id, index, place = shown[0]
    for number, record in enumerate(played.episodes):
        if record.episode_id == episode_id:
            step = record.outcome.steps[index]
            calls, steps = list(step.calls), list(record.outcome.steps)
            two = Message(role="user", content=(*step.observation.pictures, "and", PIXEL))
            calls[place] = replace(calls[place], messages=(two,))
            steps[index] = replace(step, calls=tuple(calls))
            outcome = replace(record.outcome, steps=tuple(steps))
            played.episodes[number] = replace(record, outcome=outcome)

    report = audit([*made, *played.records()], as_programs)

    assert clean.clean
    (rule,) = (rule for rule in clean.rules if rule.name == "unread_pictures")
    assert rule.num_checked >= len(shown) > 0
    [finding] = [f for f in report.findings if f.rule == "unread_pictures"]
    assert (finding.episode_id, finding.step_index, finding.call_index) == shown[0]
    assert finding.found == "2 pictures in its messages, and places for 1 in its prompt's tokens"


@pytest.mark.parametrize(("program", "found"), [(True, set[str]()), (False, {"pictures"})])
def test_a_program_may_show_a_judge_what_no_step_observed(
    program: bool, found: set[str], audit: Audit
) -> None:
    """An episode loop may not: it composes what its calls are shown of observations."""
    config, played = program_run()
    number, record, step = next(
        (number, record, step)
        for number, record in enumerate(played.episodes)
        if any(one.episode_id == record.episode_id for one in played.credits)
        for step in record.outcome.steps
        if len(step.calls) > 2
    )
    steps = list(record.outcome.steps)
    judged = replace(step.calls[2], messages=(Message(role="user", content=("Good?", PIXEL)),))
    steps[step.index] = replace(step, calls=(*step.calls[:2], judged, *step.calls[3:]))
    outcome = replace(record.outcome, steps=tuple(steps))
    played.episodes[number] = replace(record, outcome=outcome)
    kind = "'start'" if program else "NULL"

    report = audit(
        [run_started(config), *played.records()],
        f"UPDATE calls SET continuation = {kind} WHERE NOT trained",
    )

    assert rules_of(report) == found


def test_a_share_that_the_store_has_otherwise_is_found(audit: Audit) -> None:
    config, played = program_run()

    report = audit(
        [run_started(config), *played.records()],
        "UPDATE calls SET credit_share = 1 WHERE purpose = 'plan'",
    )

    assert rules_of(report) == {"call_advantage"}


def test_a_summary_that_is_credited_by_the_step_before_it_is_found(audit: Audit) -> None:
    """By the step that was over when it was written, as if it had not said which one."""
    config = make_config(algorithm__name="gigpo")
    played = play(config, 1, summaries=True)
    advantages = {one.episode_id: one.advantages for one in played.credits}
    wrong: set[tuple[str, int, int]] = set()
    for number, one in enumerate(played.credits):
        calls = list(one.calls)
        for place, call in enumerate(calls):
            own = 0.5 * advantages[one.episode_id][call.step_index]
            if call.call_index == 1 and call.advantage != own:
                calls[place] = replace(call, advantage=own)
                wrong.add((one.episode_id, call.step_index, 1))
        played.credits[number] = replace(one, calls=tuple(calls))
    consume(config, played)

    report = audit([run_started(config), *played.records()])

    assert rules_of(report) == {"call_advantage"}
    found = of_rule(report, "call_advantage")
    assert {(f.episode_id, f.step_index, f.call_index) for f in found} <= wrong
    for finding in found:
        assert finding.step_index is not None
        assert finding.expected.endswith(f"0.5 of the advantage of step {finding.step_index + 1}")
    (rule,) = (rule for rule in report.rules if rule.name == "call_advantage")
    assert rule.num_findings == len(wrong) > 5


def test_a_step_that_credits_and_that_the_store_has_otherwise_is_found(audit: Audit) -> None:
    config = make_config(algorithm__name="gigpo")
    played = play(config, 1, summaries=True)

    report = audit(
        [run_started(config), *played.records()],
        "UPDATE calls SET credited_by = 'step' WHERE purpose = 'remember'",
    )

    assert rules_of(report) == {"call_advantage"}


@pytest.mark.parametrize("level", ["step", "token"])
def test_a_summary_that_a_critics_next_step_credits_is_found(level: str, audit: Audit) -> None:
    """The next value has read it already."""
    config = make_config(algorithm__name="gae", algorithm__gae_level=level)
    played = play(config, 1, summaries=True)
    assert audit([run_started(config), *played.records()]).clean
    wrong = 0
    for number, one in enumerate(played.credits):
        calls = list(one.calls)
        for place, call in enumerate(calls):
            if call.call_index == 1 and call.step_index + 1 < len(one.advantages):
                later = 0.5 * one.advantages[call.step_index + 1]
                wrong += abs(call.advantage - later) > 1e-6
                calls[place] = replace(call, advantage=later)
        played.credits[number] = replace(one, calls=tuple(calls))
    if level == "step":  # by token, the loss reads each token's own
        consume(config, played)

    report = audit([run_started(config), *played.records()])

    assert rules_of(report) == {"call_advantage"}
    (rule,) = (rule for rule in report.rules if rule.name == "call_advantage")
    assert rule.num_findings == wrong > 5


def test_the_loss_unit_is_over_the_tokens_of_all_trained_calls(audit: Audit) -> None:
    config, played = program_run(algorithm__loss_unit="step")
    alone = play(config, 1)  # the same episodes, whose steps have the call that acts alone
    weights = {one.episode_id: one.loss_weights for one in alone.credits}
    played.credits = [
        with_calls(
            replace(one, loss_weights=weights[one.episode_id]),
            loss_weight=[weights[one.episode_id][call.step_index] for call in one.calls],
        )
        for one in played.credits
    ]
    consume(config, played)

    report = audit([run_started(config), *played.records()])

    assert rules_of(report) == {"loss_weights", "loss_weight_sum"}


SHARES = {"act": 0.8, "remember": 0.2}


@pytest.mark.parametrize("loss_unit", ["token", "step", "episode"])
def test_summaries_that_are_weighed_with_their_actions_are_found(
    loss_unit: str, audit: Audit
) -> None:
    """What a run does that does not know of shares."""
    config = make_config(loss__purposes=SHARES, algorithm__loss_unit=loss_unit)
    played = play(config, 1, summaries=True)
    assert audit([run_started(config), *played.records()]).clean
    weights = [call.loss_weight for one in played.credits for call in one.calls]
    assert_several(weights)
    credit(config, played, as_if=make_config(algorithm__loss_unit=loss_unit))
    consume(config, played)

    report = audit([run_started(config), *played.records()])

    assert rules_of(report) == {"loss_weights"}  # they add up all the same


def test_the_wrong_share_of_one_summary_is_found(audit: Audit) -> None:
    config = make_config(loss__purposes=SHARES)
    played = play(config, 1, summaries=True)
    found = played.credits[0]
    calls = list(found.calls)
    place = next(place for place, call in enumerate(calls) if call.call_index == 1)
    act = calls[place - 1].loss_weight
    assert calls[place].loss_weight != act
    calls[place] = replace(calls[place], loss_weight=act)
    played.credits[0] = replace(found, calls=tuple(calls))
    consume(config, played)

    report = audit([run_started(config), *played.records()])

    assert rules_of(report) == {"loss_weights", "loss_weight_sum"}
    [finding] = of_rule(report, "loss_weights")
    assert (finding.step_index, finding.call_index) == (calls[place].step_index, 1)


# Shaped rewards


def test_a_penalty_that_the_configuration_does_not_have_is_found(audit: Audit) -> None:
    config = make_config()
    played = play(config, 1)
    credit(
        config,
        played,
        as_if=make_config(
            algorithm__invalid_action_penalty=0.5, algorithm__invalid_action_penalty_on="return"
        ),
    )
    consume(config, played)

    report = audit([run_started(config), *played.records()])

    assert rules_of(report) == {"shaped_reward"}
    assert all(finding.step_index is not None for finding in report.findings)


@pytest.mark.parametrize(("meant", "credited"), [("action", "return"), ("return", "action")])
def test_a_penalty_in_another_place_than_the_configuration_has_it_is_found(
    audit: Audit, meant: str, credited: str
) -> None:
    config, other = (
        make_config(
            algorithm__invalid_action_penalty=0.5, algorithm__invalid_action_penalty_on=place
        )
        for place in (meant, credited)
    )
    played = play(config, 1)
    credit(config, played, as_if=other)
    consume(config, played)

    report = audit([run_started(config), *played.records()])

    assert {"shaped_reward", "advantage"} <= rules_of(report)


def test_a_reward_of_the_function_that_credit_did_not_see_is_found(audit: Audit) -> None:
    config = make_config(algorithm__reward_shaping="mine:shape")
    played = play(config, 1)
    changed = played.credits[long_credit(played)].episode_id

    report = audit(
        [run_started(config), *played.records()],
        f"UPDATE steps SET shaped_reward = shaped_reward + 1 "
        f"WHERE episode_id = '{changed}' AND step_index = 1",
    )

    assert rules_of(report) == {"return_to_go", "episode_part", "step_part", "advantage"}
    assert {f.step_index for f in of_rule(report, "return_to_go")} == {0, 1}


def test_a_trained_step_without_a_shaped_reward_is_found(audit: Audit) -> None:
    config = make_config(algorithm__reward_shaping="mine:shape")
    played = play(config, 1)
    changed = played.credits[long_credit(played)].episode_id

    report = audit(
        [run_started(config), *played.records()],
        f"UPDATE steps SET shaped_reward = NULL WHERE episode_id = '{changed}' AND step_index = 1",
    )

    assert "shaped_reward" in rules_of(report)
    [finding] = of_rule(report, "shaped_reward")
    assert (finding.episode_id, finding.step_index) == (changed, 1)


def pairs_of_episodes() -> RunConfig:
    """A run that trains up to two pairs of each group of three episodes, each step its own."""
    return make_config(
        imitation={"sources": [{"run": "stored"}], "loss": "dpo", "pairs_per_task": 2},
        optimizer={"optimizer_steps_per_training_step": 1},
    )


def test_pairs_of_episodes_are_clean(audit: Audit) -> None:
    config = pairs_of_episodes()
    played = [play(config, number, failure_rate=0.2) for number in (1, 2)]

    report = audit([run_started(config), *(r for one in played for r in one.records())])

    assert rules_of(report) == set()
    checked = {rule.name: rule.num_checked for rule in report.rules}
    assert checked["reference_logprobs"] >= checked["advantage"] > 30
    sizes = {round(abs(one.episode_advantage), 6) for step in played for one in step.credits}
    assert len(sizes) > 8


@pytest.mark.parametrize(
    ("change", "rules"),
    [
        ("reference_logprob_sum = reference_logprob_sum - 1", {"advantage", "episode_part"}),
        ("reference_logprob_sum = NULL", {"reference_logprobs", "advantage", "episode_part"}),
        ("reference_logprob_sum = 1", {"reference_logprobs", "advantage", "episode_part"}),
    ],
)
def test_advantages_of_pairs_that_do_not_follow_from_their_logprobs_are_found(
    audit: Audit, change: str, rules: set[str]
) -> None:
    config = pairs_of_episodes()
    played = play(config, 1)
    changed = next(one for one in played.credits if one.episode_advantage > 0).episode_id

    report = audit(
        [run_started(config), *played.records()],
        f"UPDATE calls SET {change} WHERE episode_id = '{changed}' AND step_index = 0",
    )

    assert rules_of(report) == rules
    # the episode's own pairs alone, not those of other groups
    group = changed.rsplit("/", 2)[0]
    assert {f.episode_id.rsplit("/", 2)[0] for f in report.findings if f.episode_id} == {group}


@pytest.mark.parametrize(
    "as_if", [{"beta": 0.2}, {"pairs_per_task": 1}, {"min_gap": 1.0}], ids=lambda each: str(each)
)
def test_pairs_of_other_settings_are_found(audit: Audit, as_if: dict[str, float]) -> None:
    config = pairs_of_episodes()
    played = play(config, 1)
    imitation = {"sources": [{"run": "stored"}], "loss": "dpo", "pairs_per_task": 2} | as_if
    other = make_config(imitation=imitation, optimizer={"optimizer_steps_per_training_step": 1})
    credit(config, played, as_if=other)
    consume(config, played)

    report = audit([run_started(config), *played.records()])

    assert rules_of(report) >= {"advantage", "episode_part"}


def test_a_reference_logprob_where_nothing_is_compared_is_found(audit: Audit) -> None:
    config = make_config()
    played = play(config, 1)
    changed = played.credits[long_credit(played)].episode_id

    report = audit(
        [run_started(config), *played.records()],
        f"UPDATE calls SET reference_logprob_sum = -1 WHERE episode_id = '{changed}'",
    )

    assert rules_of(report) == {"reference_logprobs"}


def beside_groups(**settings: object) -> RunConfig:
    """Reinforcement learning that imitates two stored episodes beside each group, for two steps."""
    imitation: dict[str, object] = {
        "sources": [{"run": "stored"}],
        "coefficient": 0.5,
        "decay_training_steps": 2,
        "demonstrations_per_group": 2,
    }
    return make_config(imitation=imitation | settings)


def test_demonstrations_beside_groups_are_clean(audit: Audit) -> None:
    config = beside_groups()
    played = [play(config, number, failure_rate=0.2) for number in (1, 2, 3)]

    report = audit([run_started(config), *(r for one in played for r in one.records())])

    assert rules_of(report) == set()
    checked = {rule.name: rule.num_checked for rule in report.rules}
    assert checked["demonstrations"] == 12
    assert checked["end_tokens"] == 0  # the store has no text of these tokens
    assert [len(one.demonstrations) > 0 for one in played] == [True, True, False]
    weights = {
        round(credit.loss_weights[0], 9)
        for one in played
        for credit in one.credits
        if credit.phase == "demonstration"
    }
    assert len(weights) == 4  # of two optimizer steps each, that have other numbers of tokens


@pytest.mark.parametrize(
    "as_if",
    [{"coefficient": 0.4}, {"decay_training_steps": 3}, {"final_coefficient": 0.1}],
    ids=lambda each: str(each),
)
def test_demonstrations_with_another_coefficient_are_found(
    audit: Audit, as_if: dict[str, object]
) -> None:
    config = beside_groups()
    played = play(config, 2)
    credit(config, played, as_if=beside_groups(**as_if))
    consume(config, played)

    report = audit([run_started(config), *played.records()])

    assert rules_of(report) == {"loss_weights", "loss_weight_sum"}
    assert {
        f.episode_id.split("/")[2] for f in of_rule(report, "loss_weights") if f.episode_id
    } == {"demonstration"}


def test_a_demonstration_in_the_denominator_of_reinforcement_is_found(audit: Audit) -> None:
    config = beside_groups()
    played = play(config, 1)
    [*found] = [place for place, one in enumerate(played.credits) if one.phase == "demonstration"]
    one = played.credits[found[0]]
    played.credits[found[0]] = with_calls(
        replace(one, loss_weights=tuple(weight / 2 for weight in one.loss_weights)),
        loss_weight=[call.loss_weight / 2 for call in one.calls],
    )
    consume(config, played)

    report = audit([run_started(config), *played.records()])

    assert rules_of(report) == {"loss_weights", "loss_weight_sum"}


@pytest.mark.parametrize(
    ("statement", "rules"),
    [
        (
            "UPDATE call_tokens SET behavior_logprobs = policy_logprobs WHERE episode_id = '{one}'",
            {"tokens"},
        ),
        (
            "UPDATE steps SET advantage = -1 WHERE episode_id = '{one}'",
            {"advantage", "call_advantage"},
        ),
        ("DELETE FROM loss_inputs WHERE episode_id = '{one}'", {"loss_input_all"}),
        (
            "UPDATE loss_inputs SET weight_high = 1 WHERE episode_id = '{one}'",
            {"loss_input_weight"},
        ),
        (
            "UPDATE episodes SET sample_index = 2 WHERE id = '{one}'",
            {"demonstrations"},
        ),
    ],
)
def test_a_fault_of_a_demonstration_beside_a_group_is_found(
    audit: Audit, statement: str, rules: set[str]
) -> None:
    config = beside_groups()
    played = play(config, 1)
    one = next(each.episode_id for each in played.credits if each.phase == "demonstration")

    report = audit([run_started(config), *played.records()], statement.format(one=one))

    assert rules_of(report) == rules


def test_a_demonstration_that_is_trained_without_a_coefficient_is_found(audit: Audit) -> None:
    config = beside_groups()
    played = play(beside_groups(decay_training_steps=0), 3)

    report = audit([run_started(config), *played.records()])

    assert rules_of(report) == {"demonstrations"}
    assert {finding.found for finding in report.findings} >= {"a trained demonstration"}


def pairs_of_steps() -> RunConfig:
    """A run that trains up to two pairs of each state that episodes of a group have in common."""
    return make_config(
        imitation={
            "sources": [{"run": "stored"}],
            "loss": "dpo",
            "pairs": "steps",
            "pairs_per_task": 2,
        },
        optimizer={"optimizer_steps_per_training_step": 1},
    )


def compared_step(played: PlayedStep) -> tuple[EpisodeCredit, int]:
    """A credit with a step that won a pair."""
    return next(
        (one, step)
        for one in played.credits
        for step, advantage in enumerate(one.advantages)
        if advantage > 0
    )


def test_pairs_of_steps_are_clean(audit: Audit) -> None:
    config = pairs_of_steps()
    played = [play(config, number, failure_rate=0.2) for number in (1, 2)]

    report = audit([run_started(config), *(r for one in played for r in one.records())])

    assert rules_of(report) == set()
    credits = [one for step in played for one in step.credits]
    sizes = {round(abs(each), 6) for one in credits for each in one.advantages}
    assert 0.0 in sizes  # of steps that are in no pair
    assert len(sizes) > 8
    assert {one.episode_advantage for one in credits} == {0.0}


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE calls SET reference_logprob_sum = reference_logprob_sum - 1 WHERE {one}",
        "UPDATE steps SET action = 'another' WHERE {one}",
        "UPDATE steps SET anchor_hash = 'elsewhere' WHERE {one}",
    ],
)
def test_a_pair_of_steps_that_does_not_follow_from_the_store_is_found(
    audit: Audit, statement: str
) -> None:
    config = pairs_of_steps()
    played = play(config, 1)
    changed, step = compared_step(played)
    one = f"episode_id = '{changed.episode_id}' AND step_index = {step}"

    report = audit([run_started(config), *played.records()], statement.format(one=one))

    assert rules_of(report) >= {"advantage", "step_part"}


def test_a_pair_of_steps_that_read_different_prompts_is_found(audit: Audit) -> None:
    config = pairs_of_steps()
    played = play(config, 1)
    changed, step = compared_step(played)
    for place, record in enumerate(played.episodes):
        if record.episode_id == changed.episode_id:
            steps = list(record.outcome.steps)
            read = sampled_of(steps[step]).prompt_tokens
            # As many tokens, of which one is another.
            steps[step] = with_call(steps[step], prompt_tokens=(*read[:-1], read[-1] + 1))
            outcome = replace(record.outcome, steps=tuple(steps))
            played.episodes[place] = replace(record, outcome=outcome)

    report = audit([run_started(config), *played.records()])

    assert rules_of(report) >= {"advantage", "step_part"}


@pytest.mark.parametrize("as_if", [{"pairs": "episodes"}, {"pairs_per_task": 1}])
def test_pairs_of_steps_by_other_settings_are_found(audit: Audit, as_if: dict[str, object]) -> None:
    config = pairs_of_steps()
    played = play(config, 1)
    imitation = config.imitation.model_dump() | as_if
    other = make_config(imitation=imitation, optimizer={"optimizer_steps_per_training_step": 1})
    credit(config, played, as_if=other)
    consume(config, played)

    report = audit([run_started(config), *played.records()])

    assert "advantage" in rules_of(report)
