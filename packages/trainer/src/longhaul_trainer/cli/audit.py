"""`trainer audit`: was what a run trained what it was meant to train?

SQLAlchemy takes a while to import, so it is imported by what reads the store.
"""

import time
from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table

from longhaul_core.errors import ConfigError
from longhaul_trainer.cli.arguments import RunInStore, Store, console_of
from longhaul_trainer.cli.exit_codes import ExitCode
from longhaul_trainer.cli.runs import DEFAULT_STORE

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from longhaul_core.audit import AuditReport


def audit(
    reference: RunInStore,
    *,
    store: Store = None,
    training_step: Annotated[
        list[int] | None,
        typer.Option(min=1, help="Only this training step; may be given several times."),
    ] = None,
) -> None:
    """Recompute from the store alone whether what was trained is what was meant.

    Exits with 1 if it is not.
    """
    audit_in_store(store or DEFAULT_STORE, reference, training_steps=training_step)


def audit_in_store(store: str, reference: str, *, training_steps: list[int] | None) -> None:
    """Audit a run, show what was checked and found, and keep the result in the store.

    Args:
        store: Path or URL.
        reference: The run, as a person names it.
        training_steps: Only these; None means all that are over.

    Raises:
        ConfigError: If there is no such run or training step.
        typer.Exit: With 1 if something is not as it was meant.
    """
    from longhaul_core.store.session import open_store
    from longhaul_core.store.writer import StoreWriter
    from longhaul_trainer.cli.stored_runs import find_in_store

    engine = open_store(store, create=False)
    try:
        run_id = find_in_store(engine, reference, store)
        started = time.perf_counter()
        report = _audited(engine, run_id, training_steps)
        seconds = time.perf_counter() - started
    finally:
        engine.dispose()
    show_report(report, seconds=seconds)
    with StoreWriter(store) as writer:
        writer.write([report.to_record(audited_at=time.time())])
    if not report.clean:
        raise typer.Exit(ExitCode.FINDINGS)


def show_report(report: "AuditReport", *, seconds: float) -> None:
    """Print the rules with their counts, what was not checked, and the findings."""
    from longhaul_core.audit import one_line

    console = console_of("stdout")
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("rule", no_wrap=True)
    table.add_column("claims that")
    table.add_column("checked", justify="right")
    table.add_column("findings", justify="right")
    for rule in report.rules:
        findings = f"[red]{rule.num_findings:,}[/]" if rule.num_findings else "0"
        table.add_row(rule.name, rule.claim, f"{rule.num_checked:,}", findings)
    console.print(table)
    for skip in report.not_checked:
        console.print(
            f"[yellow]not checked:[/] {skip.rule or 'every rule'}, {skip.num_subjects:,} times: "
            f"{escape(skip.reason)}",
        )
    for finding in report.findings:
        console.print(f"[red]found:[/] {escape(one_line(finding))}")
    unlisted = report.num_findings - len(report.findings)
    if unlisted:
        console.print(f"and {unlisted:,} more findings of the same rules")
    verdict = "as it was meant" if report.clean else f"not as it was meant: {report.num_findings:,}"
    if not report.clean:
        verdict += " findings"
    console.print(
        f"{report.run_id}: {len(report.training_steps)} training steps, "
        f"{report.num_episodes:,} episodes and {report.num_steps:,} steps in {seconds:.1f} s; "
        f"what was checked is {verdict}",
    )


def _audited(engine: "Engine", run_id: str, training_steps: list[int] | None) -> "AuditReport":
    from sqlalchemy.orm import Session

    from longhaul_core.audit import audit_run

    bar = Progress(
        TextColumn("[bold]audit, training steps"),
        BarColumn(bar_width=30),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=console_of("stderr"),
        transient=True,
    )
    with Session(engine) as session, bar:
        task = bar.add_task("", total=None)
        try:
            return audit_run(
                session,
                run_id,
                training_steps=training_steps,
                on_training_step=lambda done, total: bar.update(task, completed=done, total=total),
            )
        except LookupError as error:
            raise ConfigError(str(error.args[0])) from None
