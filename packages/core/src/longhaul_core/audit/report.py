"""What an audit reports: rules, how much each was checked on, and its findings."""

from collections import Counter
from dataclasses import dataclass, field

from longhaul_core.store.records import Audit, AuditFinding, AuditRule, AuditSkip

__all__ = ["AuditReport", "RuleResult", "Tally", "one_line", "subject_of"]


def subject_of(finding: AuditFinding) -> str:
    """What a finding is about, for people, e.g. `run/0/train/3/1/0/0, step 4, call 1`."""
    where = finding.episode_id or f"training step {finding.training_step}"
    if finding.step_index is not None:
        where += f", step {finding.step_index}"
    return where if finding.call_index is None else f"{where}, call {finding.call_index}"


def one_line(finding: AuditFinding) -> str:
    """A finding in one line, for people."""
    return (
        f"{finding.rule}: {subject_of(finding)}: found {finding.found}, expected {finding.expected}"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleResult:
    """One rule over all that was audited."""

    name: str
    claim: str
    """What is true of a run that keeps the rule."""
    num_checked: int
    """Things that the rule was held to."""
    num_findings: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditReport:
    """Whether what was trained is what was configured, as far as the store shows."""

    run_id: str
    training_steps: tuple[int, ...]
    """Those that were audited, rising."""
    num_episodes: int
    """Trained ones among them."""
    num_steps: int
    """Of the trained episodes."""
    rules: tuple[RuleResult, ...]
    findings: tuple[AuditFinding, ...]
    """The first ones of each rule; `RuleResult.num_findings` counts all of them."""
    not_checked: tuple[AuditSkip, ...]

    @property
    def num_findings(self) -> int:
        """All of them, those that are not listed included."""
        return sum(rule.num_findings for rule in self.rules)

    @property
    def clean(self) -> bool:
        """Whether every rule held wherever it could be checked."""
        return self.num_findings == 0

    def to_record(self, *, audited_at: float) -> Audit:
        """The report as the store keeps it.

        Args:
            audited_at: Unix time.
        """
        return Audit(
            run_id=self.run_id,
            audited_at=audited_at,
            training_steps=self.training_steps,
            num_steps=self.num_steps,
            rules=tuple(
                AuditRule(
                    name=rule.name, num_checked=rule.num_checked, num_findings=rule.num_findings
                )
                for rule in self.rules
            ),
            not_checked=self.not_checked,
            findings=self.findings,
        )


@dataclass(slots=True, kw_only=True)
class Tally:
    """Counts and findings of one rule so far; they grow with each training step."""

    rule: str
    max_listed: int
    """Findings that are kept; further ones are counted."""
    training_step: int = 0
    """The one that is held to the rule now."""
    num_checked: int = 0
    num_findings: int = 0
    findings: list[AuditFinding] = field(default_factory=list[AuditFinding])
    skipped: Counter[str] = field(default_factory=Counter[str])
    """Subjects that were not checked, by reason."""

    def checked(self, number: int = 1) -> None:
        """Count things that the rule was held to."""
        self.num_checked += number

    def skip(self, reason: str, number: int = 1) -> None:
        """Count things that the rule could not be held to."""
        if number:
            self.skipped[reason] += number

    def found(
        self,
        found: object,
        episode_id: str | None = None,
        step_index: int | None = None,
        call_index: int | None = None,
        /,
        *,
        expected: object,
    ) -> None:
        """Note what breaks the rule, in the training step, an episode, a step or a call."""
        self.num_findings += 1
        if len(self.findings) < self.max_listed:
            self.findings.append(
                AuditFinding(
                    rule=self.rule,
                    training_step=self.training_step,
                    episode_id=episode_id,
                    step_index=step_index,
                    call_index=call_index,
                    found=_shown(found),
                    expected=_shown(expected),
                )
            )


def _shown(value: object) -> str:
    """Numbers with nine digits, which tell float32 apart; all else as it is."""
    return f"{value:.9g}" if isinstance(value, float) else str(value)
