"""Metrics, evaluations, policy versions, panels, token pieces, labels, audits and leases."""

import json
import math
from collections.abc import Sequence
from dataclasses import asdict

from sqlalchemy import Connection, update

from longhaul_core.errors import StoreError
from longhaul_core.store import rows
from longhaul_core.store.models import (
    AuditFindingRow,
    AuditRow,
    EvaluationRow,
    LabelRow,
    LeaseRow,
    MetricRow,
    PanelRow,
    PanelTaskRow,
    PolicyVersionRow,
    TokenPieceRow,
)
from longhaul_core.store.packing import content_hash
from longhaul_core.store.records import (
    Audit,
    Evaluation,
    Label,
    LeaseRecord,
    Metrics,
    PanelTasks,
    PolicyVersion,
    TokenPieces,
)
from longhaul_core.store.rows import Row, row_of
from longhaul_core.store.writing.episodes import episode_lengths, write_tasks
from longhaul_core.store.writing.runs import Lineages
from longhaul_core.store.writing.statements import insert_new
from longhaul_core.text import storable_text

__all__ = [
    "write_audits",
    "write_evaluations",
    "write_labels",
    "write_leases",
    "write_metrics",
    "write_panels",
    "write_policy_versions",
    "write_token_pieces",
]


def write_metrics(connection: Connection, records: Sequence[Metrics], lineages: Lineages) -> None:
    """Put metrics in; NaN becomes null."""
    new: list[Row] = [
        row_of(
            MetricRow,
            record,
            name=storable_text(name),
            value=None if math.isnan(value) else float(value),
            rolled_back=lineages.rolled_back(record),
        )
        for record in records
        for name, value in record.values.items()
    ]
    insert_new(connection, MetricRow, new)


def write_evaluations(
    connection: Connection, records: Sequence[Evaluation], lineages: Lineages
) -> None:
    """Put results on panels in."""
    new = [
        row_of(EvaluationRow, record, rolled_back=lineages.rolled_back(record))
        for record in records
    ]
    insert_new(connection, EvaluationRow, new)


def write_policy_versions(
    connection: Connection, records: Sequence[PolicyVersion], lineages: Lineages
) -> None:
    """Put policy versions in."""
    new = [
        row_of(PolicyVersionRow, record, rolled_back=lineages.rolled_back(record))
        for record in records
    ]
    insert_new(connection, PolicyVersionRow, new)


def write_panels(connection: Connection, records: Sequence[PanelTasks]) -> None:
    """Put panels in with their tasks."""
    for record in records:
        write_tasks(connection, record.tasks)
        hashes = [rows.task_hash(task) for task in record.tasks]
        content = content_hash(*hashes)
        panel = row_of(PanelRow, record, content_hash=content, num_tasks=len(hashes))
        members: list[Row] = [
            {"content_hash": content, "position": position, "task_hash": task_hash}
            for position, task_hash in enumerate(hashes)
        ]
        insert_new(connection, PanelRow, [panel])
        insert_new(connection, PanelTaskRow, members)


def write_token_pieces(connection: Connection, records: Sequence[TokenPieces]) -> None:
    """Put the bytes of token ids in."""
    pieces: list[Row] = [
        {"run_id": record.run_id, "token_id": int(token_id), "piece": bytes(piece)}
        for record in records
        for token_id, piece in record.pieces.items()
    ]
    insert_new(connection, TokenPieceRow, pieces)


def write_labels(connection: Connection, records: Sequence[Label]) -> None:
    """Put labels in.

    Raises:
        StoreError: A label's episode is not in the store.
    """
    labels = [
        row_of(
            LabelRow, record, step_index=-1 if record.step_index is None else int(record.step_index)
        )
        for record in records
    ]
    known = episode_lengths(connection, sorted({record.episode_id for record in records}))
    for record in records:
        if record.episode_id not in known:
            raise StoreError(f"label for an episode that is not in the store: {record.episode_id}")
    insert_new(connection, LabelRow, labels)


def write_audits(connection: Connection, records: Sequence[Audit]) -> None:
    """Put audits in with what they found."""
    audits = [
        row_of(
            AuditRow,
            record,
            first_training_step=min(record.training_steps, default=None),
            last_training_step=max(record.training_steps, default=None),
            num_training_steps=len(record.training_steps),
            num_findings=sum(rule.num_findings for rule in record.rules),
            rules_json=json.dumps([asdict(rule) for rule in record.rules]),
            not_checked_json=storable_text(
                json.dumps([asdict(skip) for skip in record.not_checked])
            ),
        )
        for record in records
    ]
    findings = [
        row_of(AuditFindingRow, finding, record, number=number)
        for record in records
        for number, finding in enumerate(record.findings)
    ]
    insert_new(connection, AuditRow, audits)
    insert_new(connection, AuditFindingRow, findings)


def write_leases(connection: Connection, records: Sequence[LeaseRecord]) -> None:
    """Put leases in, or say how they stand; one that has ended stays as it is."""
    if not records:
        return
    new = [row_of(LeaseRow, record, ended_at=None, outcome=None) for record in records]
    insert_new(connection, LeaseRow, new)
    held = LeaseRow.ended_at.is_(None)
    for record in records:
        now: Row = {"heard_at": float(record.heard_at)}
        if record.ended_at is not None:
            now |= {"ended_at": float(record.ended_at), "outcome": record.outcome}
        key = (LeaseRow.run_id == record.run_id, LeaseRow.lease_id == record.lease_id)
        connection.execute(update(LeaseRow).where(*key, held).values(now))
