"""What `trainer credit-truth` does: plays what is missing, judges, and shows it.

Apart from the command, because SQLAlchemy takes a while to import.
"""

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from rich.markup import escape
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from longhaul_core.errors import AllFailedError, ConfigError
from longhaul_core.redaction import redacted
from longhaul_core.store import queries
from longhaul_core.store.addresses import describe_store, store_errors
from longhaul_core.store.queries import TRUTH, ContinuedBy, RunDetail
from longhaul_core.store.session import read_only_engine
from longhaul_core.text import storable_text
from longhaul_core.truth.tables import table_of
from longhaul_trainer.cli.arguments import console_of
from longhaul_trainer.cli.branch import continuing_config, played_continuations, to_go_on
from longhaul_trainer.cli.evaluate import Weights, path_of_weights, with_model
from longhaul_trainer.cli.exit_codes import ExitCode
from longhaul_trainer.cli.stored_runs import find_in_store, folder_of
from longhaul_trainer.cli.train import EXIT_CODE_OF_STATUS, check_machine
from longhaul_trainer.config import RunConfig
from longhaul_trainer.models.prepare import hash_model, prepare_model
from longhaul_trainer.play.branches import GoesOn, max_retries_of, require_continuable
from longhaul_trainer.play.episode_run import Plan
from longhaul_trainer.play.hosted_evaluation import Spent
from longhaul_trainer.play.truth.continuations import Missing, Stored
from longhaul_trainer.play.truth.report import Report, report_of
from longhaul_trainer.play.truth.selection import Selection, select_steps

if TYPE_CHECKING:
    from longhaul_core.store.records import RunKind

_LONGEST_NAME = 40 - len(TRUTH)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measuring:
    """What the command was asked."""

    store: str
    run: str
    training_steps: tuple[int, int] | None
    num_groups: int
    num_steps: int
    seed: int
    half_width: float
    most: int
    goes_on: GoesOn
    checkpoint: str | None
    """A run or a model, where weights of ours go on."""
    weights: Weights | None
    overrides: list[str] | None
    description: str | None
    runs_directory: Path
    skip_doctor: bool
    output: Path | None


def measured_credit(asked: Measuring) -> ExitCode:
    """Measure steps of a run, and show how near its credit comes.

    Raises:
        ConfigError: There is nothing to measure, or a step cannot be taken up; nothing was played.
        LonghaulError: See `run_branches`.
    """
    engine = read_only_engine(asked.store)
    try:
        run_id = find_in_store(engine, asked.run, asked.store)
        with store_errors(describe_store(engine.url)), Session(engine) as session:
            run = queries.get_run(session, run_id=run_id)
            selection = select_steps(
                session,
                run_id,
                training_steps=asked.training_steps,
                num_groups=asked.num_groups,
                num_steps=asked.num_steps,
                seed=asked.seed,
            )
        config = _config(asked, run, _path_of_weights(asked, engine, run_id))
        _require_continuable(config, selection, asked.goes_on)
        code = _play(asked, config, selection, engine)
        with store_errors(describe_store(engine.url)), Session(engine) as session:
            report = report_of(session, selection, _stored(session, config, selection))
    finally:
        engine.dispose()
    _show(asked, config, selection, report, run_id=run_id)
    return ExitCode.UNPLAYED if code is ExitCode.DONE and report.num_undefined else code


def _path_of_weights(asked: Measuring, engine: Engine, run_id: str) -> str | None:
    """Where the weights that go on lie: those of the measured run, unless others are named."""
    if asked.goes_on != "weights":
        return None
    if asked.checkpoint is not None:
        return path_of_weights(asked.checkpoint, asked.weights, runs_directory=asked.runs_directory)
    folder = folder_of(engine, run_id)
    if folder is None:
        raise ConfigError(
            f"the folder of {run_id} with its weights is not on this machine; say who goes on by "
            "--checkpoint, --endpoint or --policy"
        )
    return path_of_weights(
        str(folder.path), asked.weights or "final", runs_directory=asked.runs_directory
    )


def _config(asked: Measuring, run: RunDetail, path: str | None) -> RunConfig:
    """The run that goes on; its name says who does, and which weights or which address."""
    goes_on = asked.goes_on
    if path is not None:
        named = Path(asked.checkpoint or run.summary.run_id).name
        who = f"{hash_model(prepare_model(path))[:8]}-{named}"
    elif isinstance(goes_on, str):
        who = goes_on
    else:
        address = hashlib.sha256(f"{goes_on.api} {goes_on.url}".encode()).hexdigest()
        who = f"{address[:8]}-{goes_on.model}"
    config = continuing_config(
        run.config_json,
        asked.overrides,
        run_id=run.summary.run_id,
        run_kind=cast("RunKind", run.summary.kind),
        store=asked.store,
        description=asked.description,
        name=TRUTH + re.sub(r"[^a-z0-9._-]+", "-", who.lower())[:_LONGEST_NAME],
    )
    if path is not None:
        config = with_model(config, path)
        check_machine(config, skip=asked.skip_doctor, trains=False)
    return to_go_on(config, goes_on)


def _require_continuable(config: RunConfig, selection: Selection, goes_on: GoesOn) -> None:
    """Ask once for each version of an environment: descriptions take a while."""
    asked: set[tuple[str, str]] = set()
    for step in selection.steps:
        task = step.choice.recorded.task
        if (task.environment, task.version) not in asked:
            asked.add((task.environment, task.version))
            require_continuable(config, step.choice, goes_on)


def _play(asked: Measuring, config: RunConfig, selection: Selection, engine: Engine) -> ExitCode:
    """Play the continuations that the store does not have."""

    def stored() -> Stored:
        with store_errors(describe_store(engine.url)), Session(engine) as session:
            return _stored(session, config, selection)

    missing = Missing(
        config=config,
        steps=selection.steps,
        half_width=asked.half_width,
        most=asked.most,
        stored=stored,
    )
    first = missing.further()
    console = console_of("stdout")
    if not first:
        console.print("[dim]plays[/]   nothing: the store has every continuation")
        return ExitCode.DONE
    console.print(
        f"[dim]plays[/]   {len(first):,} continuations of {len(selection.steps):,} steps, then as "
        f"many as a half-width of {asked.half_width:g} needs"
    )
    plan = Plan(
        kind="branch",
        phase="branch",
        specs=first,
        group_size=None,
        max_retries=max_retries_of(config, asked.goes_on),
        further=missing.further,
    )
    spent = Spent()
    try:
        outcome = played_continuations(config, plan, asked.goes_on, heard=spent.heard)
    except AllFailedError as error:
        if not stored():
            raise
        console.print(f"[yellow]failed[/]  {escape(str(error))}; the store has earlier ones")
        return ExitCode.UNPLAYED
    if not isinstance(asked.goes_on, str):
        console.print(f"[dim]cost[/]    {spent.in_words()}")
    return EXIT_CODE_OF_STATUS[outcome.status]


def _stored(session: Session, config: RunConfig, selection: Selection) -> Stored:
    """What the store has of who goes on now."""
    written = redacted(storable_text(json.dumps(config.model_dump(mode="json"))))
    by = ContinuedBy.of(config.name, json.loads(written))
    return queries.continued_steps(session, selection.episode_ids).get(by, {})


def _show(
    asked: Measuring, config: RunConfig, selection: Selection, report: Report, *, run_id: str
) -> None:
    console = console_of("stdout")
    for line in (lines := _lines(asked, config, selection, report, run_id=run_id)):
        console.print(line, markup=False)
    table = table_of(report.rows) if report.rows else "no step has continuations of both kinds"
    console.print(f"\n{table}\n", markup=False)
    for estimator, reasons in report.missing.items():
        for reason, times in reasons.items():
            console.print(f"not computed: {estimator}, {times:,} groups: {reason}", markup=False)
    if asked.output is not None:
        text = "\n".join(f"{line}  " for line in lines) + f"\n\n{table}\n"
        if asked.output.suffix == ".json":
            text = json.dumps(_json(selection, report, lines), indent=1)
        asked.output.write_text(text, encoding="utf-8")


def _lines(
    asked: Measuring, config: RunConfig, selection: Selection, report: Report, *, run_id: str
) -> list[str]:
    """What was measured, and how well."""
    who = config.name.removeprefix(TRUTH)
    if asked.goes_on == "weights":
        who = f"the weights {config.model.path}"
    measured, defined = len(selection.steps), len(report.steps)
    by_share = f"{report.num_with_effect / defined:.0%}" if defined else "none"
    return [
        f"{run_id}: {measured:,} steps, drawn evenly by seed {asked.seed} from the "
        f"{selection.num_steps:,} of the episodes of {len(selection.groups)} groups",
        f"V and Q are of {who}, by {report.num_continuations:,} continuations, discount "
        f"{config.algorithm.discount:g}, half-width {asked.half_width:g}; at most {asked.most:,} "
        "of either kind",
        f"with an effect: {report.num_with_effect:,} of {defined:,} ({by_share}; where "
        "nothing has one, up to 5 % seem to); undefined, since no continuation ended: "
        f"{report.num_undefined:,}",
    ]


def _json(selection: Selection, report: Report, lines: Sequence[str]) -> dict[str, Any]:
    return {
        "measured": list(lines),
        "groups": [asdict(group) for group in selection.groups],
        "steps": [
            {
                "episode_id": episode_id,
                "step_index": step_index,
                "value": found.value._asdict(),
                "action_value": found.action_value._asdict(),
                "advantage": found.advantage._asdict(),
                "has_effect": found.has_effect,
            }
            for (episode_id, step_index), found in report.steps.items()
        ],
        "num_undefined": report.num_undefined,
        "estimators": {
            name: {
                column: None if figure is None else figure._asdict()
                for column, figure in figures.items()
            }
            for name, figures in report.rows.items()
        },
        "not_computed": {name: dict(reasons) for name, reasons in report.missing.items()},
    }
