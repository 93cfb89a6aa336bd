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
from longhaul_core.store.packing import content_hash, storable_text
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
from longhaul_core.store.rows import Row
from longhaul_core.store.writing.episodes import episode_lengths, write_tasks
from longhaul_core.store.writing.runs import Lineages
from longhaul_core.store.writing.statements import insert_new

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
        {
            "run_id": record.run_id,
            "attempt": int(record.attempt),
            "training_step": int(record.training_step),
            "name": storable_text(name),
            "value": None if math.isnan(value) else float(value),
            "rolled_back": lineages.rolled_back(record),
        }
        for record in records
        for name, value in record.values.items()
    ]
    insert_new(connection, MetricRow, new, key=("run_id", "attempt", "training_step", "name"))


def write_evaluations(
    connection: Connection, records: Sequence[Evaluation], lineages: Lineages
) -> None:
    """Put results on panels in."""
    new: list[Row] = [
        {
            "run_id": record.run_id,
            "attempt": int(record.attempt),
            "training_step": int(record.training_step),
            "panel": storable_text(record.panel),
            "split": record.split.value,
            "num_episodes": int(record.num_episodes),
            "mean_return": float(record.mean_return),
            "success_rate": float(record.success_rate),
            "rolled_back": lineages.rolled_back(record),
        }
        for record in records
    ]
    key = ("run_id", "attempt", "training_step", "panel", "split")
    insert_new(connection, EvaluationRow, new, key=key)


def write_policy_versions(
    connection: Connection, records: Sequence[PolicyVersion], lineages: Lineages
) -> None:
    """Put policy versions in."""
    new: list[Row] = [
        {
            "run_id": record.run_id,
            "attempt": int(record.attempt),
            "version": int(record.version),
            "training_step": int(record.training_step),
            "created_at": float(record.created_at),
            "rolled_back": lineages.rolled_back(record),
        }
        for record in records
    ]
    insert_new(connection, PolicyVersionRow, new, key=("run_id", "attempt", "version"))


def write_panels(connection: Connection, records: Sequence[PanelTasks]) -> None:
    """Put panels in with their tasks."""
    for record in records:
        write_tasks(connection, record.tasks)
        hashes = [rows.task_hash(task) for task in record.tasks]
        content = content_hash(*hashes)
        panel: Row = {
            "run_id": record.run_id,
            "name": storable_text(record.name),
            "split": record.split.value,
            "content_hash": content,
            "num_tasks": len(hashes),
        }
        members: list[Row] = [
            {"content_hash": content, "position": position, "task_hash": task_hash}
            for position, task_hash in enumerate(hashes)
        ]
        insert_new(connection, PanelRow, [panel], key=("run_id", "name", "split"))
        insert_new(connection, PanelTaskRow, members, key=("content_hash", "position"))


def write_token_pieces(connection: Connection, records: Sequence[TokenPieces]) -> None:
    """Put the bytes of token ids in."""
    pieces: list[Row] = [
        {"run_id": record.run_id, "token_id": int(token_id), "piece": bytes(piece)}
        for record in records
        for token_id, piece in record.pieces.items()
    ]
    insert_new(connection, TokenPieceRow, pieces, key=("run_id", "token_id"))


def write_labels(connection: Connection, records: Sequence[Label]) -> None:
    """Put labels in.

    Raises:
        StoreError: A label's episode is not in the store.
    """
    labels: list[Row] = [
        {
            "episode_id": record.episode_id,
            "step_index": -1 if record.step_index is None else int(record.step_index),
            "name": storable_text(record.name),
            "author": storable_text(record.author),
            "value": storable_text(record.value),
            "created_at": float(record.created_at),
        }
        for record in records
    ]
    known = episode_lengths(connection, sorted({record.episode_id for record in records}))
    for record in records:
        if record.episode_id not in known:
            raise StoreError(f"label for an episode that is not in the store: {record.episode_id}")
    insert_new(connection, LabelRow, labels, key=("episode_id", "step_index", "name", "author"))


def write_audits(connection: Connection, records: Sequence[Audit]) -> None:
    """Put audits in with what they found."""
    audits: list[Row] = [
        {
            "run_id": record.run_id,
            "audited_at": float(record.audited_at),
            "first_training_step": min(record.training_steps, default=None),
            "last_training_step": max(record.training_steps, default=None),
            "num_training_steps": len(record.training_steps),
            "num_steps": int(record.num_steps),
            "num_findings": sum(rule.num_findings for rule in record.rules),
            "rules_json": json.dumps([asdict(rule) for rule in record.rules]),
            "not_checked_json": storable_text(
                json.dumps([asdict(skip) for skip in record.not_checked])
            ),
        }
        for record in records
    ]
    findings: list[Row] = [
        {
            "run_id": record.run_id,
            "audited_at": float(record.audited_at),
            "number": number,
            "rule": finding.rule,
            "training_step": int(finding.training_step),
            "episode_id": finding.episode_id,
            "step_index": finding.step_index,
            "call_index": finding.call_index,
            "found": storable_text(finding.found),
            "expected": storable_text(finding.expected),
        }
        for record in records
        for number, finding in enumerate(record.findings)
    ]
    insert_new(connection, AuditRow, audits, key=("run_id", "audited_at"))
    insert_new(connection, AuditFindingRow, findings, key=("run_id", "audited_at", "number"))


def write_leases(connection: Connection, records: Sequence[LeaseRecord]) -> None:
    """Put leases in, or say how they stand; one that has ended stays as it is."""
    if not records:
        return
    new: list[Row] = [
        {
            "run_id": record.run_id,
            "lease_id": storable_text(record.lease_id),
            "attempt": int(record.attempt),
            "episode_id": storable_text(record.episode_id),
            "task_id": storable_text(record.task_id),
            "runner": storable_text(record.runner),
            "leased_at": float(record.leased_at),
            "heard_at": float(record.heard_at),
            "ended_at": None,
            "outcome": None,
        }
        for record in records
    ]
    insert_new(connection, LeaseRow, new, key=("run_id", "lease_id"))
    held = LeaseRow.ended_at.is_(None)
    for record in records:
        now: Row = {"heard_at": float(record.heard_at)}
        if record.ended_at is not None:
            now |= {"ended_at": float(record.ended_at), "outcome": record.outcome}
        key = (LeaseRow.run_id == record.run_id, LeaseRow.lease_id == record.lease_id)
        connection.execute(update(LeaseRow).where(*key, held).values(now))
