"""The trajectory store: what happened in every episode of every run.

A run writes, and everybody may read meanwhile:

    with StoreWriter("longhaul.db") as writer:
        writer.write(records)

    with Session(read_only_engine("longhaul.db")) as session:
        queries.list_runs(session)
"""

from longhaul_core.store.records import (
    Audit,
    AuditFinding,
    AuditRule,
    AuditSkip,
    CallCredit,
    CriticLossInput,
    CriticLossInputs,
    DiscardReason,
    EpisodeCredit,
    EpisodeRecord,
    Evaluation,
    GroupDecision,
    Heartbeat,
    Label,
    LeaseRecord,
    LossInput,
    LossInputs,
    Metrics,
    PanelTasks,
    PolicyVersion,
    Record,
    RunEnded,
    RunStarted,
    TokenPieces,
)
from longhaul_core.store.session import check_store, open_store, read_only_engine
from longhaul_core.store.writer import StoreWriter

__all__ = [
    "Audit",
    "AuditFinding",
    "AuditRule",
    "AuditSkip",
    "CallCredit",
    "CriticLossInput",
    "CriticLossInputs",
    "DiscardReason",
    "EpisodeCredit",
    "EpisodeRecord",
    "Evaluation",
    "GroupDecision",
    "Heartbeat",
    "Label",
    "LeaseRecord",
    "LossInput",
    "LossInputs",
    "Metrics",
    "PanelTasks",
    "PolicyVersion",
    "Record",
    "RunEnded",
    "RunStarted",
    "StoreWriter",
    "TokenPieces",
    "check_store",
    "open_store",
    "read_only_engine",
]
