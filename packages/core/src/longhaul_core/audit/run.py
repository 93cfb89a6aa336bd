"""Audits a run: each training step is read from the store and held to every rule."""

from collections.abc import Callable, Collection

from sqlalchemy.orm import Session

from longhaul_core.audit.horizons import scheduled_horizons
from longhaul_core.audit.intent import Intent
from longhaul_core.audit.loader import METRICS, read_evidence
from longhaul_core.audit.report import AuditReport, RuleResult, Tally
from longhaul_core.audit.rules import RULES, RULES_OF_DEMONSTRATIONS
from longhaul_core.audit.spelled import RunMarks
from longhaul_core.store import queries
from longhaul_core.store.records import AuditSkip

__all__ = ["audit_run"]

NOTHING_TRAINED = "the run has no training episodes"
UNFINISHED = "the training step is not over: it has no metrics and is the last one"


def audit_run(
    session: Session,
    run_id: str,
    *,
    training_steps: Collection[int] | None = None,
    max_listed: int = 20,
    on_training_step: Callable[[int, int], None] | None = None,
) -> AuditReport:
    """Recompute, from the store alone, whether what a run trained is what it was meant to train.

    Memory holds one training step at a time.

    Args:
        session: Of a store; only read from.
        run_id: A training run.
        training_steps: Only these; None means all that are over. One that the run does not have
            is an error.
        max_listed: Findings that are listed for each rule; further ones are counted.
        on_training_step: Called before each training step with how many are done and how many
            there are.

    Raises:
        LookupError: There is no such run, or no such training step.
        StoreError: The run's configuration lacks settings that say what was meant.
    """
    run = queries.get_run(session, run_id=run_id)
    intent = Intent.from_json(run.config_json, run_id=run_id)
    there = queries.training_steps(session, run_id=run_id)
    wanted = there if training_steps is None else sorted(set(training_steps))
    unknown = [number for number in wanted if number not in set(there)]
    if unknown:
        raise LookupError(f"run {run_id!r} has no episodes of training step {unknown[0]}")
    tallies = [Tally(rule=rule.name, max_listed=max_listed) for rule in RULES]
    marks = RunMarks(session, run_id=run_id)
    loss_inputs_recorded = queries.has_loss_inputs(session, run_id=run_id)
    horizons = scheduled_horizons(
        intent.horizons,
        queries.horizon_outcomes(
            session, run_id=run_id, of_played=intent.chooses and not intent.plays_ahead
        )
        if intent.horizons.kind == "success_gated"
        else (),
        num_training_steps=there[-1] if there else 0,
    )
    not_checked: list[AuditSkip] = []
    if not there:
        not_checked.append(AuditSkip(rule=None, reason=NOTHING_TRAINED, num_subjects=1))
    done: list[int] = []
    num_episodes = num_steps = 0
    for number in wanted:
        if on_training_step is not None:
            on_training_step(len(done), len(wanted))
        if number == there[-1] and not _is_over(session, run_id=run_id, training_step=number):
            not_checked.append(AuditSkip(rule=None, reason=UNFINISHED, num_subjects=1))
            continue
        evidence = read_evidence(
            session,
            intent,
            run_id=run_id,
            training_step=number,
            horizons=horizons,
            marks=marks,
            loss_inputs_recorded=loss_inputs_recorded,
        )
        for rule, tally in zip(RULES, tallies, strict=True):
            tally.training_step = number
            rule.check(evidence, tally)
            beside = evidence.demonstrations
            if beside and beside.intent.loss_factor and rule.name in RULES_OF_DEMONSTRATIONS:
                rule.check(beside, tally)
        done.append(number)
        num_episodes += len(evidence.trained)
        num_steps += sum(len(episode.steps) for episode in evidence.trained)
    return AuditReport(
        run_id=run_id,
        training_steps=tuple(done),
        num_episodes=num_episodes,
        num_steps=num_steps,
        rules=tuple(
            RuleResult(
                name=rule.name,
                claim=rule.claim,
                num_checked=tally.num_checked,
                num_findings=tally.num_findings,
            )
            for rule, tally in zip(RULES, tallies, strict=True)
        ),
        findings=tuple(finding for tally in tallies for finding in tally.findings),
        not_checked=(
            *not_checked,
            *(
                AuditSkip(rule=tally.rule, reason=reason, num_subjects=number)
                for tally in tallies
                for reason, number in sorted(tally.skipped.items())
            ),
        ),
    )


def _is_over(session: Session, *, run_id: str, training_step: int) -> bool:
    """Metrics are the last that a training step leaves."""
    return bool(
        queries.metrics_of_training_step(
            session, run_id=run_id, training_step=training_step, names=METRICS
        )
    )
