"""Stores that are written as the trainer writes them, changed by SQL, and audited."""

import shutil
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy.orm import Session

from audited_run import RUN
from longhaul_core.audit import AuditReport, audit_run
from longhaul_core.store import Record, StoreWriter, open_store, read_only_engine

AuditOf = Callable[..., AuditReport]


@pytest.fixture(scope="package")
def empty_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("empty") / "store.db"
    open_store(path).dispose()
    return path


@pytest.fixture
def audit_of(empty_store: Path, tmp_path: Path) -> AuditOf:
    """Writes batches of records, changes the store by SQL if asked, and audits it."""

    def audited(batches: Iterable[Sequence[Record]], *statements: str) -> AuditReport:
        store = shutil.copy(empty_store, tmp_path / "store.db")
        with StoreWriter(store) as writer:
            for records in batches:
                writer.write(records)
        with closing(sqlite3.connect(store)) as connection, connection:
            for statement in statements:
                assert connection.execute(statement).rowcount > 0, statement
        engine = read_only_engine(store)
        with Session(engine) as session:
            report = audit_run(session, RUN)
        engine.dispose()
        return report

    return audited
