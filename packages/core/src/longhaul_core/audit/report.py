"""What an audit says: rules, how much each was checked on, and what broke them."""

from collections import Counter
from dataclasses import dataclass, field

__all__ = ["AuditReport", "Finding", "NotChecked", "RuleResult", "Tally"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something that is not as it was meant."""

    rule: str
    training_step: int
    episode_id: str | None
    """None where the whole training step is at fault, or an episode that is not there."""
    step_index: int | None
    """None where no single step is at fault."""
    found: str
    expected: str

    @property
    def subject(self) -> str:
        """What it is about, for people, e.g. `run/0/train/3/1/0/0, step 4`."""
        where = self.episode_id or f"training step {self.training_step}"
        return where if self.step_index is None else f"{where}, step {self.step_index}"

    def __str__(self) -> str:
        return f"{self.rule}: {self.subject}: found {self.found}, expected {self.expected}"


@dataclass(frozen=True, slots=True, kw_only=True)
class NotChecked:
    """What a rule could not say anything about, and why."""

    rule: str | None
    """None: every rule."""
    reason: str
    num_subjects: int
    """Steps, episodes, groups or training steps, as the rule counts."""


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
    """Whether what was trained is what was meant, as far as the store can say."""

    run_id: str
    training_steps: tuple[int, ...]
    """Those that were audited, rising."""
    num_episodes: int
    """Trained ones among them."""
    num_steps: int
    """Of the trained episodes."""
    rules: tuple[RuleResult, ...]
    findings: tuple[Finding, ...]
    """The first ones of each rule; `RuleResult.num_findings` counts all of them."""
    not_checked: tuple[NotChecked, ...]

    @property
    def num_findings(self) -> int:
        """All of them, those that are not listed included."""
        return sum(rule.num_findings for rule in self.rules)

    @property
    def clean(self) -> bool:
        """Whether every rule held wherever it could be checked."""
        return self.num_findings == 0


@dataclass(slots=True, kw_only=True)
class Tally:
    """What one rule has come to so far; grows with each training step."""

    rule: str
    max_listed: int
    """Findings that are kept; further ones are counted."""
    num_checked: int = 0
    num_findings: int = 0
    findings: list[Finding] = field(default_factory=list[Finding])
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
        *,
        expected: object,
        training_step: int,
        episode_id: str | None = None,
        step_index: int | None = None,
    ) -> None:
        """Note something that breaks the rule."""
        self.num_findings += 1
        if len(self.findings) < self.max_listed:
            self.findings.append(
                Finding(
                    rule=self.rule,
                    training_step=training_step,
                    episode_id=episode_id,
                    step_index=step_index,
                    found=_told(found),
                    expected=_told(expected),
                )
            )


def _told(value: object) -> str:
    """Numbers with nine digits, which tell float32 apart; all else as it is."""
    return f"{value:.9g}" if isinstance(value, float) else str(value)
