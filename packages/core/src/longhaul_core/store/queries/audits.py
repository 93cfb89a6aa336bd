"""Audits: whether what a run trained was what it was meant to train."""

import json
from dataclasses import dataclass, fields

from sqlalchemy import select
from sqlalchemy.orm import Session

from longhaul_core.store.models import AuditFindingRow, AuditRow
from longhaul_core.store.queries.base import Answer, columns
from longhaul_core.store.records import AuditFinding, AuditRule, AuditSkip

__all__ = ["AuditDetail", "list_audits"]


@dataclass(frozen=True, slots=True)
class AuditDetail(Answer):
    """An audit of a run."""

    audited_at: float
    """Unix time."""
    first_training_step: int | None
    """None if no training step was over."""
    last_training_step: int | None
    num_training_steps: int
    num_steps: int
    num_findings: int
    """0: every rule held wherever it could be checked."""
    rules: tuple[AuditRule, ...]
    not_checked: tuple[AuditSkip, ...]
    findings: tuple[AuditFinding, ...]
    """Those that were listed."""


def list_audits(session: Session, *, run_id: str) -> list[AuditDetail]:
    """Audits of a run, newest first."""
    findings: dict[float, list[AuditFinding]] = {}
    for row in session.execute(
        select(AuditFindingRow.audited_at, *columns(AuditFinding, AuditFindingRow))
        .where(AuditFindingRow.run_id == run_id)
        .order_by(AuditFindingRow.number)
    ):
        found = {field.name: getattr(row, field.name) for field in fields(AuditFinding)}
        findings.setdefault(row.audited_at, []).append(AuditFinding(**found))
    audits = session.execute(
        select(
            AuditRow.audited_at,
            AuditRow.first_training_step,
            AuditRow.last_training_step,
            AuditRow.num_training_steps,
            AuditRow.num_steps,
            AuditRow.num_findings,
            AuditRow.rules_json,
            AuditRow.not_checked_json,
        )
        .where(AuditRow.run_id == run_id)
        .order_by(AuditRow.audited_at.desc())
    )
    return [
        AuditDetail(
            *row[:6],
            rules=tuple(AuditRule(**rule) for rule in json.loads(row.rules_json)),
            not_checked=tuple(AuditSkip(**skip) for skip in json.loads(row.not_checked_json)),
            findings=tuple(findings.get(row.audited_at, ())),
        )
        for row in audits
    ]
