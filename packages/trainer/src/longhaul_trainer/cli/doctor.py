"""`trainer doctor`: can this machine carry the run, and what to do where it cannot."""

from pathlib import Path

import typer
from rich.table import Table
from rich.text import Text

from longhaul_trainer.cli.arguments import DEFAULT_RUN, Further, RunFile, console_of
from longhaul_trainer.cli.exit_codes import ExitCode
from longhaul_trainer.cli.train import read_description

MARKS = {"good": "[green]good[/]", "warning": "[yellow]warning[/]", "bad": "[red]bad[/]"}


def doctor(
    file: RunFile = DEFAULT_RUN,
    further: Further = None,
) -> None:
    """Check this machine for a run: memory, processors, disk, packages, GPU, store."""
    from longhaul_trainer.preflight.doctor import (  # half a second that `check` need not wait
        Status,
        examine,
    )

    config = read_description(file, further).with_absolute_paths(Path.cwd())
    findings = examine(config)
    table = Table(show_header=False, box=None, pad_edge=False)
    for finding in findings:
        lines = [finding.found]
        if finding.status is not Status.GOOD and finding.advice:
            lines.append(f"→ {finding.advice}")
        table.add_row(MARKS[finding.status], finding.name, Text("\n".join(lines)))
    console = console_of("stdout")
    console.print(table)
    if any(finding.status is Status.BAD for finding in findings):
        console.print(f"[red]This machine cannot carry the run[/] {file}.")
        raise typer.Exit(ExitCode.MACHINE)
    console.print(f"[green]This machine can carry the run[/] {file}.")
