"""An audit: from the store alone, was what a run trained what it was meant to train?

A second implementation of everything that decides what is trained, by the definitions. It
shares no code with advantages, horizon schedules or the trainer, and reads what the store
holds: the resolved configuration, episodes, steps, replies' logprobs, and what the loss read.

    report = audit_run(session, run_id)
    report.clean, report.findings, report.not_checked
"""

from longhaul_core.audit.report import AuditReport, one_line
from longhaul_core.audit.rules import RULES
from longhaul_core.audit.run import audit_run

__all__ = ["RULES", "AuditReport", "audit_run", "one_line"]
