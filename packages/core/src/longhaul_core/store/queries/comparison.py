"""Two results on one panel: which tasks flipped, and whether the difference is more than luck.

A result is what the weights of one training step of a run did on a panel. Results are compared
task by task; see `longhaul_core.evaluation.paired`.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Literal, NamedTuple, Self

from sqlalchemy import select
from sqlalchemy.orm import Session

from longhaul_core.errors import ComparisonError
from longhaul_core.evaluation import paired_difference, paired_t_p_value, sign_test_p_value
from longhaul_core.store.models import EpisodeRow, EvaluationRow, PanelRow, PanelTaskRow, TaskRow
from longhaul_core.store.queries.base import Answer
from longhaul_core.store.queries.runs import newest_attempt

__all__ = [
    "Checkpoint",
    "ComparedResult",
    "Comparison",
    "PairedEstimate",
    "PanelResult",
    "TaskComparison",
    "compare",
    "panel_results",
]

CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class Checkpoint(Answer):
    """The weights behind a result."""

    run_id: str
    training_step: int
    """Training steps behind them; 0 before training."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """The one that `RUN@TRAINING_STEP` names.

        Raises:
            ComparisonError: It does not have this form.
        """
        run_id, _, step = text.rpartition("@")
        if not run_id or not (step.isascii() and step.isdigit() and len(step) < 10):
            raise ComparisonError(
                "a result is named by its run and its training step, "
                f"such as myrun@80, got {text!r}"
            )
        return cls(run_id, int(step))

    def __str__(self) -> str:
        return f"{self.run_id}@{self.training_step}"


@dataclass(frozen=True, slots=True)
class PanelResult(Answer):
    """A result that can be compared with others on the same panel."""

    run_id: str
    training_step: int
    panel: str
    split: str
    panel_hash: str
    """Equal for results on the same tasks."""
    num_tasks: int
    success_rate: float
    """In [0, 1]."""
    mean_return: float


@dataclass(frozen=True, slots=True)
class ComparedResult(Answer):
    """One side, over its episodes on the panel that ended."""

    run_id: str
    training_step: int
    num_episodes: int
    num_failed_episodes: int
    """Of tasks that have no result here, or have it from other episodes."""
    success_rate: float | None
    """In [0, 1], the mean over the tasks; None if every episode failed, as is the other."""
    mean_return: float | None


@dataclass(frozen=True, slots=True)
class TaskComparison(Answer):
    """One task on both sides."""

    environment: str
    task_id: str
    goal: str
    a_success: float | None
    """Share of its episodes that solved it, in [0, 1]; None where every one failed."""
    b_success: float | None
    a_return: float | None
    """Mean of its episodes."""
    b_return: float | None
    a_episode_ids: tuple[str, ...]
    """Those that ended; the failed ones where none did."""
    b_episode_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PairedEstimate(Answer):
    """The mean over the tasks of b less a."""

    difference: float
    low: float
    """Of the interval, by the t distribution over tasks."""
    high: float
    confidence: float
    """E.g. 0.95."""
    p_value: float
    """Two-sided."""
    test: Literal["paired t", "McNemar's exact test"]
    """McNemar's for successes, of gained against lost tasks; t for returns."""
    num_tasks: int


@dataclass(frozen=True, slots=True)
class Comparison(Answer):
    """Two results on one panel, a before b."""

    panel: str
    """Its name in the run of a."""
    split: str
    num_tasks: int
    a: ComparedResult
    b: ComparedResult
    success: PairedEstimate | None
    """None where fewer than two tasks have a result on both sides, as is the other."""
    episode_return: PairedEstimate | None
    num_gained: int
    """Tasks that b solves more often than a."""
    num_lost: int
    num_unpaired: int
    """Tasks without a result on one side, because every episode failed there: in no difference."""
    tasks: tuple[TaskComparison, ...]
    """Those that b lost, those that it gained, the unpaired, then the others; each by their
    places in the panel."""


def panel_results(session: Session, *, run_id: str) -> list[PanelResult]:
    """The results of a run on its panels, by training step; the lineage.

    Args:
        session: Only read from.
        run_id: The run asked about.
    """
    rows = session.execute(
        select(
            EvaluationRow.run_id,
            EvaluationRow.training_step,
            EvaluationRow.panel,
            EvaluationRow.split,
            PanelRow.content_hash,
            PanelRow.num_tasks,
            EvaluationRow.success_rate,
            EvaluationRow.mean_return,
        )
        .join(
            PanelRow,
            (PanelRow.run_id == EvaluationRow.run_id)
            & (PanelRow.name == EvaluationRow.panel)
            & (PanelRow.split == EvaluationRow.split),
        )
        .where(EvaluationRow.run_id == run_id, ~EvaluationRow.rolled_back)
        .order_by(EvaluationRow.training_step, EvaluationRow.split.desc(), EvaluationRow.panel)
    )
    return [PanelResult(*row) for row in rows]


def compare(
    session: Session,
    *,
    a: Checkpoint,
    b: Checkpoint,
    panel: str | None = None,
    split: str | None = None,
) -> Comparison:
    """Two results task by task.

    Args:
        session: Only read from.
        a: What b is measured from.
        b: The other, of the same run or of another.
        panel: Name of the panel in the run of a; None means one that both have a result on,
            validation before test, and the whole panel before its part of an environment.
        split: Of the panel; None means any.

    Raises:
        LookupError: There is no such run, or no result of it at that training step.
        ComparisonError: Both are the same, or they have no result on one panel; the message says
            in what the panels differ.
    """
    if a == b:
        raise ComparisonError(
            f"both sides are run {a.run_id!r} at training step {a.training_step}; name two results"
        )
    of_a, of_b = _results_at(session, a), _results_at(session, b)
    chosen = _common_panel(session, of_a, of_b, panel=panel, split=split)
    tasks = _tasks(session, chosen.panel_hash)
    a_played = _episodes(session, a, chosen, tasks)
    b_played = _episodes(session, b, chosen, tasks)
    compared = [_task(task, a_played[key], b_played[key]) for key, task in tasks.items()]
    by_task = dict(zip(tasks, compared, strict=True))
    paired = {key: each for key, each in by_task.items() if _is_paired(each)}
    gained = [each for each in paired.values() if _gain(each) > 0]
    lost = [each for each in paired.values() if _gain(each) < 0]
    unpaired = [each for each in compared if not _is_paired(each)]
    flipped = {id(each) for each in (*gained, *lost, *unpaired)}
    return Comparison(
        panel=chosen.panel,
        split=chosen.split,
        num_tasks=len(tasks),
        a=_side(a, a_played, [each.a_success for each in compared], [t.a_return for t in compared]),
        b=_side(b, b_played, [each.b_success for each in compared], [t.b_return for t in compared]),
        success=_estimate(
            {key: each.a_success or 0.0 for key, each in paired.items()},
            {key: each.b_success or 0.0 for key, each in paired.items()},
            flips=(len(gained), len(lost)),
        ),
        episode_return=_estimate(
            {key: each.a_return or 0.0 for key, each in paired.items()},
            {key: each.b_return or 0.0 for key, each in paired.items()},
        ),
        num_gained=len(gained),
        num_lost=len(lost),
        num_unpaired=len(unpaired),
        tasks=(*lost, *gained, *unpaired, *(e for e in compared if id(e) not in flipped)),
    )


def _results_at(session: Session, checkpoint: Checkpoint) -> list[PanelResult]:
    """Not empty."""
    if newest_attempt(session, run_id=checkpoint.run_id) is None:
        raise LookupError(f"there is no run {checkpoint.run_id!r} in the store")
    results = panel_results(session, run_id=checkpoint.run_id)
    found = [each for each in results if each.training_step == checkpoint.training_step]
    if found:
        return found
    steps = sorted({each.training_step for each in results})
    raise LookupError(
        f"run {checkpoint.run_id!r} has no result on a panel at training step "
        f"{checkpoint.training_step}; it has them at {', '.join(map(str, steps)) or 'none'}"
    )


def _common_panel(
    session: Session,
    of_a: Sequence[PanelResult],
    of_b: Sequence[PanelResult],
    *,
    panel: str | None,
    split: str | None,
) -> PanelResult:
    """The result of a on the panel to compare on."""
    wanted = [each for each in of_a if panel in (None, each.panel) and split in (None, each.split)]
    if not wanted:
        names = ", ".join(f"{each.panel!r}" for each in of_a)
        raise LookupError(f"the first result is on no panel {panel or split!r}; it is on {names}")
    hashes = {each.panel_hash for each in of_b}
    common = [each for each in wanted if each.panel_hash in hashes]
    if common:
        ranks = {"validation": 0, "test": 1}
        return min(
            common, key=lambda e: (ranks.get(e.split, 2), e.panel != e.split, -e.num_tasks, e.panel)
        )
    mine = wanted[0]
    other = next((each for each in of_b if each.split == mine.split), of_b[0])
    tasks = [
        set(
            session.scalars(
                select(PanelTaskRow.task_hash).where(PanelTaskRow.content_hash == each.panel_hash)
            )
        )
        for each in (mine, other)
    ]
    raise ComparisonError(
        f"the panels differ, so the results cannot be paired task by task: {mine.panel!r} of run "
        f"{mine.run_id!r} has {len(tasks[0])} tasks, {other.panel!r} of run {other.run_id!r} has "
        f"{len(tasks[1])}, and {len(tasks[0] & tasks[1])} are in both; evaluate both runs on one "
        "panel (`trainer evaluate` plays a panel with any checkpoint)"
    )


class _Task(NamedTuple):
    """A task of the panel."""

    environment: str
    task_id: str
    goal: str


class _Played(NamedTuple):
    """An episode on the panel."""

    episode_id: str
    failed: bool
    success: bool | None
    episode_return: float | None


def _tasks(session: Session, panel_hash: str) -> dict[str, _Task]:
    """The tasks of the panel by their hashes, in its order."""
    rows = session.execute(
        select(TaskRow.hash, TaskRow.environment, TaskRow.task_id, TaskRow.goal)
        .join(PanelTaskRow, PanelTaskRow.task_hash == TaskRow.hash)
        .where(PanelTaskRow.content_hash == panel_hash)
        .order_by(PanelTaskRow.position)
    )
    return {key: _Task(*task) for key, *task in rows}


def _episodes(
    session: Session, checkpoint: Checkpoint, panel: PanelResult, tasks: Mapping[str, _Task]
) -> dict[str, list[_Played]]:
    """The episodes of each task, failed ones too."""
    rows = session.execute(
        select(
            EpisodeRow.task_hash,
            EpisodeRow.id,
            EpisodeRow.failed,
            EpisodeRow.success,
            EpisodeRow.episode_return,
        )
        .where(
            EpisodeRow.run_id == checkpoint.run_id,
            EpisodeRow.phase == panel.split,
            EpisodeRow.training_step == checkpoint.training_step,
            ~EpisodeRow.rolled_back,
        )
        .order_by(EpisodeRow.group_index, EpisodeRow.sample_index, EpisodeRow.retry)
    )
    found: dict[str, list[_Played]] = defaultdict(list)
    for task_hash, episode_id, failed, success, episode_return in rows:
        if task_hash in tasks:
            found[task_hash].append(_Played(episode_id, failed, success, episode_return))
    return defaultdict(list, found)


def _task(task: _Task, a: Sequence[_Played], b: Sequence[_Played]) -> TaskComparison:
    return TaskComparison(
        environment=task.environment,
        task_id=task.task_id,
        goal=task.goal,
        a_success=_mean([float(bool(each.success)) for each in a if not each.failed]),
        b_success=_mean([float(bool(each.success)) for each in b if not each.failed]),
        a_return=_mean([each.episode_return or 0.0 for each in a if not each.failed]),
        b_return=_mean([each.episode_return or 0.0 for each in b if not each.failed]),
        a_episode_ids=_shown(a),
        b_episode_ids=_shown(b),
    )


def _mean(values: Sequence[float]) -> float | None:
    return fmean(values) if values else None


def _shown(played: Sequence[_Played]) -> tuple[str, ...]:
    ended = tuple(each.episode_id for each in played if not each.failed)
    return ended or tuple(each.episode_id for each in played)


def _is_paired(task: TaskComparison) -> bool:
    return task.a_success is not None and task.b_success is not None


def _gain(task: TaskComparison) -> float:
    return (task.b_success or 0.0) - (task.a_success or 0.0)


def _side(
    checkpoint: Checkpoint,
    played: Mapping[str, Sequence[_Played]],
    successes: Sequence[float | None],
    returns: Sequence[float | None],
) -> ComparedResult:
    episodes = [each for of_task in played.values() for each in of_task]
    return ComparedResult(
        run_id=checkpoint.run_id,
        training_step=checkpoint.training_step,
        num_episodes=sum(not each.failed for each in episodes),
        num_failed_episodes=sum(each.failed for each in episodes),
        success_rate=_mean([value for value in successes if value is not None]),
        mean_return=_mean([value for value in returns if value is not None]),
    )


def _estimate(
    before: Mapping[str, float],
    after: Mapping[str, float],
    *,
    flips: tuple[int, int] | None = None,
) -> PairedEstimate | None:
    if len(before) < 2:
        return None
    interval = paired_difference(before, after, confidence=CONFIDENCE)
    return PairedEstimate(
        difference=interval.estimate,
        low=interval.low,
        high=interval.high,
        confidence=interval.confidence,
        p_value=paired_t_p_value(before, after) if flips is None else sign_test_p_value(*flips),
        test="paired t" if flips is None else "McNemar's exact test",
        num_tasks=interval.num_units,
    )
