"""What `trainer credit-truth` does: plays what is missing, judges, and shows it.

Apart from the command, because SQLAlchemy takes a while to import.
"""

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

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
from longhaul_trainer.cli.branch import (
    are_small,
    continuing_config,
    played_continuations,
    to_go_on,
)
from longhaul_trainer.cli.evaluate import Weights, path_of_weights, with_model
from longhaul_trainer.cli.exit_codes import ExitCode
from longhaul_trainer.cli.stored_runs import find_in_store, folder_of
from longhaul_trainer.cli.train import EXIT_CODE_OF_STATUS, check_machine
from longhaul_trainer.config import RunConfig
from longhaul_trainer.config.load import stored_config
from longhaul_trainer.models.prepare import hash_model, prepare_model
from longhaul_trainer.play.branches import GoesOn, max_retries_of, require_continuable
from longhaul_trainer.play.episode_run import Plan
from longhaul_trainer.play.hosted_evaluation import Spent
from longhaul_trainer.play.players import temperature_of
from longhaul_trainer.play.truth.continuations import Missing, Stored
from longhaul_trainer.play.truth.labels import label_credit
from longhaul_trainer.play.truth.logprobs import (
    EngineCheck,
    check_against_engine,
    logprob_credit,
    sampled_replies,
)
from longhaul_trainer.play.truth.report import Report, Truth, report_of, sampled_steps
from longhaul_trainer.play.truth.selection import Place, Selection, select_steps
from longhaul_trainer.run.directory import RunDirectory
from longhaul_trainer.training.checkpoints import CheckpointFolder

if TYPE_CHECKING:
    from longhaul_core.store.records import RunKind
    from longhaul_trainer.play.small_policy import SmallModel
    from longhaul_trainer.play.truth.gradients import Gradients

_LONGEST_NAME = 40 - len(TRUTH)
_MOST_OF_GRADIENTS = 2**28
"""Numbers of the groups' gradients by one credit, 1 GiB in float32; two are compared."""


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
    exact: bool
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
        small = _small_weights(config, engine) if asked.goes_on == "weights" else None
        if asked.exact:
            found = _exact(asked, config, selection, small)
        else:
            found = _sampled(asked, config, selection, engine, small)
        with store_errors(describe_store(engine.url)), Session(engine) as session:
            report = report_of(
                session,
                selection,
                found.steps,
                halves=found.halves,
                further=label_credit(session, selection) | _logprob_credit(run, selection, small),
                gradients=_gradients(run, selection, small),
            )
    finally:
        engine.dispose()
    _show(asked, selection, report, found.lines, run_id=run_id)
    code = found.code
    return ExitCode.UNPLAYED if code is ExitCode.DONE and report.num_undefined else code


class _Small(NamedTuple):
    """Small weights that go on, in this process."""

    model: "SmallModel"
    check: EngineCheck | None
    """None where the store has no reply that they sampled in the engine."""

    @property
    def in_words(self) -> str:
        """How near they are to the engine."""
        if self.check is None:
            return "not compared with the engine: the store has no reply that they sampled there"
        return (
            f"logprobs of {self.check.num_calls:,} stored replies differ from the engine's by at "
            f"most {self.check.largest:.1g} nats; {self.check.tolerance:g} are allowed"
        )


class _Found(NamedTuple):
    """The truth, and how it was found."""

    steps: Truth
    halves: tuple[Truth, Truth] | None
    """By each half of the continuations, where it is sampled."""
    code: ExitCode
    lines: tuple[str, ...]


def _small_weights(config: RunConfig, engine: Engine) -> _Small | None:
    """The weights that go on, compared with the engine; None where the engine has to sample them.

    Raises:
        ConfigError: They are not the engine's.
    """
    if not are_small(config):
        return None
    from longhaul_trainer.play.small_policy import SmallModel

    folder = prepare_model(config.model.path)
    model, sampled = SmallModel(folder), _version_in_store(folder)
    if sampled is None:
        return _Small(model, None)
    run_id, version = sampled
    with store_errors(describe_store(engine.url)), Session(engine) as session:
        try:
            run = queries.get_run(session, run_id=run_id)
        except LookupError:
            return _Small(model, None)
        played = stored_config(run.config_json, run_id=run_id)
        check = check_against_engine(session, run_id, played, model, policy_version=version)
    return _Small(model, check)


def _version_in_store(folder: Path) -> tuple[str, int] | None:
    """The run whose weights these are, and the policy version that its calls have of them.

    Args:
        folder: Of a Hugging Face model.

    Returns:
        None where it is no run's, or its checkpoint is gone.
    """
    folder = folder.absolute()
    of_checkpoint = folder.parts[-2:] == ("actor", "huggingface")
    run = RunDirectory(path=folder.parents[3] if of_checkpoint else folder.parent)
    if not run.config_file.is_file() or not run.checkpoints.is_dir():
        return None
    checkpoints = CheckpointFolder(run.checkpoints)
    kept = {one.folder / "actor" / "huggingface": one for one in checkpoints.complete()}
    named = {run.model: checkpoints.latest(), run.best_model: checkpoints.best()}
    checkpoint = (kept | named).get(folder)
    if checkpoint is None:
        return None
    return run.run_id, run.load_config().policy_version(checkpoint.training_step)


def _logprob_credit(
    run: RunDetail, selection: Selection, small: _Small | None
) -> dict[str, dict[Place, float]]:
    """Credit by the logprobs of stored replies, as far as they are known."""
    played = stored_config(run.config_json, run_id=run.summary.run_id)
    if small is None:
        return logprob_credit(selection.steps, played)
    start = _started_from(played)
    return logprob_credit(selection.steps, played, model=small.model, start=start)


def _gradients(run: RunDetail, selection: Selection, small: _Small | None) -> "Gradients | None":
    """By the weights that go on, where they are small, and there is room for their gradients."""
    if small is None or len(selection.groups) * small.model.num_parameters > _MOST_OF_GRADIENTS:
        return None
    from longhaul_trainer.play.truth.gradients import gradients_of

    temperature = temperature_of(stored_config(run.config_json, run_id=run.summary.run_id), "train")
    return gradients_of(sampled_replies(selection.steps), small.model, temperature=temperature)


def _started_from(played: RunConfig) -> "SmallModel | None":
    """The weights that a run began with; None where they are gone or not small."""
    from longhaul_trainer.play.small_policy import SmallModel, is_small

    try:
        folder = prepare_model(played.model.path)
    except ConfigError:
        return None
    return SmallModel(folder) if is_small(folder) else None


def _exact(
    asked: Measuring, config: RunConfig, selection: Selection, small: _Small | None
) -> _Found:
    """V and Q by all states of the tasks.

    Raises:
        ConfigError: The policy reads more than the state, is too large, or states are too many.
    """
    from longhaul_trainer.play.imitation.player import unasked_player
    from longhaul_trainer.play.truth.exact import exact_steps, require_exact

    require_exact(config, by_chance=asked.goes_on == "random")
    if asked.goes_on == "weights" and small is None:
        raise ConfigError(
            f"the weights {config.model.path} have more than 10 million parameters or read "
            "pictures, and exact values need many passes through them; leave --exact out"
        )
    found = exact_steps(
        config,
        selection.steps,
        player=unasked_player(config),
        model=None if small is None else small.model,
    )
    line = (
        f"V and Q are exact, of {_who(asked, config)}, by {found.num_states:,} states of "
        f"{found.num_tasks:,} tasks, discount {config.algorithm.discount:g}"
    )
    if small is not None:
        line += f"; of a state's replies at most {found.left_out:.1g} are not followed to an end"
    return _Found(found.steps, None, ExitCode.DONE, (line, *([small.in_words] if small else ())))


def _sampled(
    asked: Measuring,
    config: RunConfig,
    selection: Selection,
    engine: Engine,
    small: _Small | None,
) -> _Found:
    """V and Q by continuations, those that the store has and those that it lacks."""
    code = _play(asked, config, selection, engine)
    with store_errors(describe_store(engine.url)), Session(engine) as session:
        stored = _stored(session, config, selection)
    steps = sampled_steps(selection, stored)
    one, other = (sampled_steps(selection, stored, part=part) for part in (0, 1))
    number = sum(step.advantage.num_units for step in steps.values())
    line = (
        f"V and Q are of {_who(asked, config)}, by {number:,} continuations, discount "
        f"{config.algorithm.discount:g}, half-width {asked.half_width:g}; at most {asked.most:,} "
        "of either kind"
    )
    lines = (line, *([small.in_words] if small else ()))
    return _Found(steps, (one, other), code, lines)


def _who(asked: Measuring, config: RunConfig) -> str:
    if asked.goes_on == "weights":
        return f"the weights {config.model.path}"
    return config.name.removeprefix(TRUTH)


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
    asked: Measuring, selection: Selection, report: Report, how: Sequence[str], *, run_id: str
) -> None:
    console = console_of("stdout")
    for line in (lines := _lines(asked, selection, report, how, run_id=run_id)):
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
    asked: Measuring, selection: Selection, report: Report, how: Sequence[str], *, run_id: str
) -> list[str]:
    """What was measured, and how well."""
    measured, defined = len(selection.steps), len(report.steps)
    by_share = f"{report.num_with_effect / defined:.0%}" if defined else "none"
    return [
        f"{run_id}: {measured:,} steps, drawn evenly by seed {asked.seed} from the "
        f"{selection.num_steps:,} of the episodes of {len(selection.groups)} groups",
        *how,
        f"with an effect: {report.num_with_effect:,} of {defined:,} ({by_share}"
        + (
            ")"
            if asked.exact
            else "; where nothing has one, up to 5 % seem to); undefined, since no continuation "
            f"ended: {report.num_undefined:,}"
        ),
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
