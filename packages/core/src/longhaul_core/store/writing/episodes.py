"""Episodes, their steps, the credit that training gives them, and what it consumed of them."""

from collections.abc import Iterable, Sequence

from sqlalchemy import ColumnElement, Connection, select, update

from longhaul_core.errors import StoreError
from longhaul_core.store import rows
from longhaul_core.store.models import (
    CriticLossInputRow,
    EpisodeRow,
    FailureRow,
    GroupRow,
    LossInputRow,
    MessageRow,
    StepContentRow,
    StepRow,
    TaskRow,
)
from longhaul_core.store.packing import pack_logprobs
from longhaul_core.store.records import (
    CriticLossInputs,
    EpisodeCredit,
    EpisodeRecord,
    GroupDecision,
    LossInputs,
)
from longhaul_core.store.rows import Row
from longhaul_core.store.writing.limits import require_storable
from longhaul_core.store.writing.runs import FATE_OF_GROUP, Lines
from longhaul_core.store.writing.statements import insert, insert_new, update_all
from longhaul_core.types import FailedEpisode, Message, Task

__all__ = [
    "episode_lengths",
    "write_credit",
    "write_critic_loss_inputs",
    "write_decisions",
    "write_episodes",
    "write_loss_inputs",
    "write_tasks",
]


def write_episodes(connection: Connection, records: Sequence[EpisodeRecord], lines: Lines) -> None:
    """Put episodes in with their tasks, groups, steps, messages and failures.

    One that is there already is left as it is, and its steps are not even packed.

    Raises:
        StoreError: An attempt was never started, or a number cannot be kept.
    """
    if not records:
        return
    episodes: dict[str, EpisodeRecord] = {}
    for record in records:
        episodes.setdefault(record.episode_id, record)
    superseded = {
        # The decision on a group, which comes later, says whether its episodes survive.
        key: lines.given_up(record) if record.phase in FATE_OF_GROUP else lines.superseded(record)
        for key, record in episodes.items()
    }
    write_tasks(connection, [record.outcome.task for record in episodes.values()])
    insert_new(
        connection,
        GroupRow,
        [rows.group_row(record, superseded=superseded[key]) for key, record in episodes.items()],
        key=("run_id", "attempt", "phase", "training_step", "group_index"),
    )
    new = [rows.episode_row(episodes[key], superseded=superseded[key]) for key in sorted(episodes)]
    require_storable(EpisodeRow, new)
    statement = insert(connection, EpisodeRow).on_conflict_do_nothing().returning(EpisodeRow.id)
    written = connection.scalars(statement, new).all()
    _write_steps(connection, [episodes[key] for key in sorted(written)])


def write_tasks(connection: Connection, tasks: Iterable[Task]) -> None:
    """Put tasks in."""
    insert_new(connection, TaskRow, [rows.task_row(task) for task in set(tasks)], key=("hash",))


def _write_steps(connection: Connection, records: Sequence[EpisodeRecord]) -> None:
    """Write what hangs on episodes that are new to the store."""
    failures: list[Row] = []
    steps: list[Row] = []
    contents: list[Row] = []
    messages: dict[Message, Row] = {}
    for record in records:
        key = record.episode_id
        if isinstance(record.outcome, FailedEpisode):
            failures.append(rows.failure_row(record, record.outcome))
        previous = None
        for step in record.outcome.steps:
            hashes: list[str] = []
            for message in step.messages:
                row = messages.get(message)
                if row is None:
                    row = messages[message] = rows.message_row(message)
                hashes.append(str(row["hash"]))
            steps.append(rows.step_row(key, step))
            contents.append(
                rows.step_content_row(key, step, message_hashes=hashes, previous=previous)
            )
            previous = step
    insert_new(connection, MessageRow, list(messages.values()), key=("hash",))
    for model, new in ((FailureRow, failures), (StepRow, steps), (StepContentRow, contents)):
        if new:
            require_storable(model, new)
            connection.execute(insert(connection, model), new)


def write_decisions(connection: Connection, records: Sequence[GroupDecision], lines: Lines) -> None:
    """Set what became of groups that are in the store.

    Raises:
        StoreError: A group is not there.
    """
    decisions: dict[tuple[str, int, int, int], GroupDecision] = {}
    for record in records:
        key = (record.run_id, record.attempt, record.training_step, record.group_index)
        decisions.setdefault(key, record)
    for key, decision in sorted(decisions.items()):
        superseded = lines.superseded(decision, training_step=decision.resolved_training_step)
        decided: Row = {
            "resolved_training_step": int(decision.resolved_training_step),
            "update_index": decision.update_index,
            "discard_reason": decision.discard_reason,
            "superseded": superseded,
        }
        require_storable(GroupRow, [decided])
        written = connection.execute(
            update(GroupRow)
            .where(*_group(GroupRow, decision), GroupRow.phase == "train")
            .values(decided)
        )
        if written.rowcount != 1:
            raise StoreError(f"decision on a group that is not in the store: {key}")
        if lines.given_up(decision):
            for model in (EpisodeRow, GroupRow):
                connection.execute(
                    update(model)
                    .where(*_group(model, decision), model.phase.in_(FATE_OF_GROUP))
                    .values(superseded=superseded)
                )


def _group(
    model: type[GroupRow] | type[EpisodeRow], decision: GroupDecision
) -> tuple[ColumnElement[bool], ...]:
    return (
        model.run_id == decision.run_id,
        model.attempt == decision.attempt,
        model.training_step == decision.training_step,
        model.group_index == decision.group_index,
    )


def write_credit(connection: Connection, records: Sequence[EpisodeCredit], lines: Lines) -> None:
    """Set the credit of episodes that are in the store.

    Raises:
        StoreError: An episode is not there or has another number of steps, or a number is
            not finite.
    """
    if not records:
        return
    credits = {record.episode_id: record for record in records}
    lengths = episode_lengths(connection, sorted(credits))
    for key, credit in credits.items():
        if lengths.get(key) != len(credit.advantages):
            known = "is not in the store" if key not in lengths else f"has {lengths[key]} steps"
            raise StoreError(
                f"credit for {len(credit.advantages)} steps, but episode {key} {known}"
            )
    episodes: list[Row] = []
    steps: list[Row] = []
    logprobs: list[Row] = []
    for key in sorted(credits):
        credit = credits[key]
        trained = credit.trained and not lines.superseded(
            credit, training_step=credit.trained_training_step
        )
        steps.extend(rows.credit_rows(credit, trained=trained))
        episodes.append(
            {
                "of_episode": key,
                "new_trained": trained,
                "new_trained_training_step": int(credit.trained_training_step) if trained else None,
                "new_episode_advantage": float(credit.episode_advantage),
                "new_final_value": rows.final_value(credit),
                "new_optimizer_step_index": credit.optimizer_step_index,
            }
        )
        for call in credit.calls:
            if call.policy_logprobs is not None:
                logprobs.append(
                    {
                        "of_episode": key,
                        "of_step": call.step_index,
                        "new_policy_logprobs": pack_logprobs(call.policy_logprobs),
                    }
                )
    update_all(connection, EpisodeRow, episodes, where={"id": "of_episode"})
    tokens: list[Row] = [
        {
            "of_episode": key,
            "of_step": call.step_index,
            "new_token_values": pack_logprobs(call.token_values),
            "new_token_advantages": pack_logprobs(call.token_advantages),
        }
        for key in sorted(credits)
        for call in credits[key].calls
        if call.token_values is not None and call.token_advantages is not None
    ]
    one_step = {"episode_id": "of_episode", "step_index": "of_step"}
    update_all(connection, StepRow, steps, where=one_step)
    update_all(connection, StepContentRow, logprobs, where=one_step)
    update_all(connection, StepContentRow, tokens, where=one_step)


def write_loss_inputs(connection: Connection, records: Sequence[LossInputs]) -> None:
    """Put in what the loss function read of steps that are in the store.

    Raises:
        StoreError: An episode is not there or has no such step, or a number is not finite.
    """
    new = [row for record in records for row in rows.loss_input_rows(record)]
    steps = {(record.episode_id(row), row.step_index) for record in records for row in record.rows}
    _require_steps(connection, steps)
    insert_new(connection, LossInputRow, new, key=_CONSUMED_KEY)


def write_critic_loss_inputs(connection: Connection, records: Sequence[CriticLossInputs]) -> None:
    """Put in what the critic's loss read of steps that are in the store.

    Raises:
        StoreError: An episode is not there or has no such step, or a number is not finite.
    """
    new = [row for record in records for row in rows.critic_loss_input_rows(record)]
    steps = {(record.episode_id(row), row.step_index) for record in records for row in record.rows}
    _require_steps(connection, steps)
    insert_new(connection, CriticLossInputRow, new, key=_CONSUMED_KEY)


_CONSUMED_KEY = (
    "episode_id",
    "step_index",
    "training_step",
    "optimizer_step_index",
    "rank",
    "micro_batch",
    "row_index",
)


def _require_steps(connection: Connection, steps: set[tuple[str, int]]) -> None:
    lengths = episode_lengths(connection, sorted({key for key, _ in steps}))
    for key, step_index in sorted(steps):
        if key not in lengths:
            raise StoreError(f"consumed step of an episode that is not in the store: {key}")
        if not 0 <= step_index < lengths[key]:
            raise StoreError(
                f"consumed step {step_index}, but episode {key} has {lengths[key]} steps"
            )


def episode_lengths(connection: Connection, episode_ids: Sequence[str]) -> dict[str, int]:
    """Number of steps by episode id, of those episodes that are in the store."""
    lengths: dict[str, int] = {}
    for start in range(0, len(episode_ids), 500):
        chunk = episode_ids[start : start + 500]
        for key, num_steps in connection.execute(
            select(EpisodeRow.id, EpisodeRow.num_steps).where(EpisodeRow.id.in_(chunk))
        ):
            lengths[key] = num_steps
    return lengths
