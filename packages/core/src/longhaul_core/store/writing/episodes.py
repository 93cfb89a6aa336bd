"""Episodes, their steps and calls, the credit of training, and what its losses read of them."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from sqlalchemy import ColumnElement, Connection, select, update

from longhaul_core.errors import StoreError
from longhaul_core.store import rows
from longhaul_core.store.message_text import MessageCutter, Source
from longhaul_core.store.models import (
    CallRow,
    CallTokensRow,
    CriticLossInputRow,
    EpisodeMediaRow,
    EpisodeRow,
    EpisodeToolsRow,
    FailureRow,
    GroupRow,
    LossInputRow,
    MediaRow,
    MessageRow,
    ObservationRow,
    StepRow,
    TaskRow,
    ToolListRow,
)
from longhaul_core.store.records import (
    FATE_OF_GROUP,
    CriticLossInputs,
    EpisodeCredit,
    EpisodeRecord,
    GroupDecision,
    LossInputs,
)
from longhaul_core.store.rows import Row
from longhaul_core.store.token_stream import Stream, TokenWriter
from longhaul_core.store.writing.limits import require_storable
from longhaul_core.store.writing.runs import Lineages
from longhaul_core.store.writing.statements import (
    insert,
    insert_all,
    insert_new,
    sent_together,
    update_all,
)
from longhaul_core.types import (
    Call,
    FailedEpisode,
    Message,
    Picture,
    Step,
    Task,
    Tool,
    Trajectory,
)

__all__ = [
    "episode_lengths",
    "write_credit",
    "write_decisions",
    "write_episodes",
    "write_loss_inputs",
    "write_tasks",
]


def write_episodes(
    connection: Connection, records: Sequence[EpisodeRecord], lineages: Lineages
) -> list[tuple[str, int]]:
    """Put episodes in with their tasks, groups, steps, messages and failures.

    One that is there already is left as it is, and its steps are not even packed.

    Returns:
        Id and training step of those that are new.

    Raises:
        StoreError: An attempt was never started, or a number cannot be kept.
    """
    if not records:
        return []
    episodes: dict[str, EpisodeRecord] = {}
    for record in records:
        episodes.setdefault(record.episode_id, record)
    rolled_back = {
        # The decision on a group, which comes later, says whether its episodes are kept.
        key: lineages.given_up(record)
        if record.phase in FATE_OF_GROUP
        else lineages.rolled_back(record)
        for key, record in episodes.items()
    }
    write_tasks(connection, [record.outcome.task for record in episodes.values()])
    insert_new(
        connection,
        GroupRow,
        [rows.group_row(record, rolled_back=rolled_back[key]) for key, record in episodes.items()],
    )
    new = [
        rows.episode_row(episodes[key], rolled_back=rolled_back[key]) for key in sorted(episodes)
    ]
    require_storable(EpisodeRow, new)
    statement = insert(connection, EpisodeRow).on_conflict_do_nothing().returning(EpisodeRow.id)
    written = connection.scalars(statement, new).all()
    _write_steps(connection, [episodes[key] for key in sorted(written)])
    return [(key, int(episodes[key].training_step)) for key in sorted(written)]


def write_tasks(connection: Connection, tasks: Iterable[Task]) -> None:
    """Put tasks in."""
    insert_new(connection, TaskRow, [rows.task_row(task) for task in set(tasks)])


def _write_steps(connection: Connection, records: Sequence[EpisodeRecord]) -> None:
    """Write what hangs on episodes that are new to the store."""
    failures: list[Row] = []
    steps: list[Row] = []
    observations: list[Row] = []
    calls: list[Row] = []
    tokens: list[Row] = []
    messages: list[Row] = []
    tool_lists: list[Row] = []
    episode_tools: list[Row] = []
    for record in records:
        key = record.episode_id
        if isinstance(record.outcome, FailedEpisode):
            failures.append(rows.failure_row(record, record.outcome))
        for step in record.outcome.steps:
            steps.append(rows.step_row(key, step))
            observations.append(rows.observation_row(key, step))
        tools = _tool_numbers(record.outcome.steps)
        for offered, number in tools.items():
            tool_lists.append(rows.tool_list_row(offered))
            content_hash = tool_lists[-1]["content_hash"]
            episode_tools.append(
                {"episode_id": key, "number": number, "content_hash": content_hash}
            )
        seen = observations[len(observations) - len(record.outcome.steps) :]
        for call, blobs in _call_rows(key, record.outcome.steps, seen, tools, messages):
            calls.append(call)
            if blobs is not None:
                tokens.append(blobs)
    _write_pictures(connection, records)
    insert_new(connection, ToolListRow, tool_lists)
    for model, new in (
        (EpisodeToolsRow, episode_tools),
        (FailureRow, failures),
        (StepRow, steps),
        (ObservationRow, observations),
        (MessageRow, messages),
        (CallRow, calls),
        (CallTokensRow, tokens),
    ):
        insert_all(connection, model, new)


def _tool_numbers(steps: Sequence[Step]) -> dict[tuple[Tool, ...], int]:
    """The lists of tools that calls of an episode were offered, each with its number."""
    offered = dict.fromkeys(call.tools for step in steps for call in step.calls if call.tools)
    return {tools: number for number, tools in enumerate(offered)}


def _prompts(steps: Sequence[Step]) -> dict[tuple[int, int], list[int]]:
    """The prompt of each call by its place: numbers of messages, side by side in a stream.

    Numbered in the order of time, a prompt of one of several conversations would be as many runs
    of messages as it has exchanges.
    """
    streams: dict[Stream, list[tuple[int, int, Call]]] = defaultdict(list)
    for step in steps:
        for place, call in enumerate(step.calls):
            stream = Stream(call.agent, call.purpose, call.conversation)
            streams[stream].append((step.index, place, call))
    numbers: dict[Message, int] = {}
    return {
        (step_index, place): [
            numbers.setdefault(message, len(numbers)) for message in call.messages
        ]
        for calls in streams.values()
        for step_index, place, call in calls
    }


def _call_rows(
    episode_id: str,
    steps: Sequence[Step],
    seen: Sequence[Row],
    tools: Mapping[tuple[Tool, ...], int],
    messages: list[Row],
) -> Iterator[tuple[Row, Row | None]]:
    """Rows of `calls` of an episode, each with that of its tokens, if it has any.

    Puts the rows of their messages into `messages`, in the order of their numbers: a table that is
    filled in the order of its key has full pages.

    Args:
        episode_id: Its key.
        steps: All of them.
        seen: Their rows of `observations`.
        tools: Numbers of the lists of tools.
        messages: Is added to.
    """
    prompts, written = _prompts(steps), dict[int, Row]()
    cutter, packer = MessageCutter(), TokenWriter()
    for step, observation in zip(steps, seen, strict=True):
        cutter.show(Source("o", step.index), str(observation["text"]))
        for place, call in enumerate(step.calls):
            prompt = prompts[step.index, place]
            for message, number in zip(call.messages, prompt, strict=True):
                if number not in written:
                    key = (episode_id, number)
                    written[number] = rows.message_row(message, place=key, cutter=cutter)
            row, blobs = rows.call_row(
                call,
                place=(episode_id, step.index, place),
                message_numbers=prompt,
                tools_number=tools.get(call.tools),
                packer=packer,
            )
            itself = Source("r", step.index, place)
            cutter.show(itself, str(row["reply"]))
            if row["tool_calls_json"] is not None:
                cutter.show_tool_calls(itself, str(row["tool_calls_json"]))
            yield row, blobs
    messages.extend(written[number] for number in sorted(written))


def _write_pictures(connection: Connection, records: Sequence[EpisodeRecord]) -> None:
    """Write the pictures that episodes refer to.

    Raises:
        StoreError: One is of a type that is not kept, or neither given with its bytes nor there.
    """
    pictures: dict[str, Picture] = {}
    references: list[Row] = []
    for record in records:
        shown = {picture.content_hash: picture for picture in _pictures(record)}
        for content_hash, picture in shown.items():
            known = pictures.get(content_hash)
            if known is None or known.data is None:
                pictures[content_hash] = picture
            references.append({"episode_id": record.episode_id, "content_hash": content_hash})
    hashes = sorted(pictures)
    there: set[str] = set()
    for start in range(0, len(hashes), 500):
        chunk = hashes[start : start + 500]
        there |= set(
            connection.scalars(
                select(MediaRow.content_hash).where(MediaRow.content_hash.in_(chunk))
            )
        )
    new = [rows.media_row(pictures[each]) for each in hashes if each not in there]
    insert_new(connection, MediaRow, new)
    insert_new(connection, EpisodeMediaRow, references)


def _pictures(record: EpisodeRecord) -> Iterator[Picture]:
    """Those that the episode refers to; of equal ones, those with their bytes come last."""
    outcome = record.outcome
    found = [
        *(
            picture
            for step in outcome.steps
            for call in step.calls
            for message in call.messages
            for picture in message.pictures
        ),
        *(picture for step in outcome.steps for picture in step.observation.pictures),
        *(outcome.final_observation.pictures if isinstance(outcome, Trajectory) else ()),
    ]
    yield from sorted(found, key=lambda picture: picture.data is not None)


def write_decisions(
    connection: Connection, records: Sequence[GroupDecision], lineages: Lineages
) -> None:
    """Set what became of groups that are in the store.

    Raises:
        StoreError: A group is not there.
    """
    decisions: dict[tuple[str, int, int, int], GroupDecision] = {}
    for record in records:
        key = (record.run_id, record.attempt, record.training_step, record.group_index)
        decisions.setdefault(key, record)
    for key, decision in sorted(decisions.items()):
        rolled_back = lineages.rolled_back(decision, training_step=decision.resolved_training_step)
        decided: Row = {
            "resolved_training_step": int(decision.resolved_training_step),
            "update_index": decision.update_index,
            "discard_reason": decision.discard_reason,
            "rolled_back": rolled_back,
        }
        require_storable(GroupRow, [decided])
        written = connection.execute(
            update(GroupRow)
            .where(*_group(GroupRow, decision), GroupRow.phase == "train")
            .values(decided)
        )
        if written.rowcount != 1:
            raise StoreError(f"decision on a group that is not in the store: {key}")
        if lineages.given_up(decision):
            for model in (EpisodeRow, GroupRow):
                connection.execute(
                    update(model)
                    .where(*_group(model, decision), model.phase.in_(FATE_OF_GROUP))
                    .values(rolled_back=rolled_back)
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


def write_credit(
    connection: Connection, records: Sequence[EpisodeCredit], lineages: Lineages
) -> None:
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
    _require_calls(
        connection,
        {(c.episode_id, e.step_index, e.call_index) for c in credits.values() for e in c.calls},
    )
    episodes: list[Row] = []
    steps: list[Row] = []
    calls: list[Row] = []
    tokens: list[Row] = []
    for key in sorted(credits):
        credit = credits[key]
        trained = credit.trained and not lineages.rolled_back(
            credit, training_step=credit.trained_training_step
        )
        steps.extend(rows.step_credit_rows(credit, trained=trained))
        calls.extend(rows.call_credit_rows(credit))
        tokens.extend(rows.call_tokens_credit_rows(credit))
        episodes.append(
            {
                "of_episode": key,
                "new_trained": trained,
                "new_trained_training_step": int(credit.trained_training_step) if trained else None,
                "new_episode_advantage": float(credit.episode_advantage),
                "new_final_value": rows.float_or_none(credit.final_value),
                "new_optimizer_step_index": credit.optimizer_step_index,
            }
        )
    _note_signals(connection, credits)
    one_step = {"episode_id": "of_episode", "step_index": "of_step"}
    one_call = one_step | {"call_index": "of_call"}
    with sent_together(connection):
        update_all(connection, EpisodeRow, episodes, where={"id": "of_episode"})
        update_all(connection, StepRow, steps, where=one_step)
        update_all(connection, CallRow, calls, where=one_call)
        update_all(connection, CallTokensRow, tokens, where=one_call)


def _note_signals(connection: Connection, credits: Mapping[str, EpisodeCredit]) -> None:
    """Raise the largest advantage of the groups that the credit is of."""
    largest: dict[tuple[int | str, ...], float] = {}
    for credit in credits.values():
        group = tuple(getattr(credit, name) for name in _GROUP)
        here = max((abs(float(advantage)) for advantage in credit.advantages), default=0.0)
        largest[group] = max(here, largest.get(group, 0.0))
    known = GroupRow.max_abs_advantage
    for group in sorted(largest):
        of_group = (getattr(GroupRow, name) == of for name, of in zip(_GROUP, group, strict=True))
        connection.execute(
            update(GroupRow)
            .where(*of_group)
            .where(known.is_(None) | (known < largest[group]))
            .values(max_abs_advantage=largest[group])
        )


_GROUP = ("run_id", "attempt", "phase", "training_step", "group_index")


def write_loss_inputs(
    connection: Connection, records: Sequence[LossInputs] | Sequence[CriticLossInputs]
) -> None:
    """Put in what a loss read of calls that are in the store.

    Raises:
        StoreError: An episode is not there or has no such call, or a number is not finite.
    """
    new: dict[type[LossInputRow | CriticLossInputRow], list[Row]] = {}
    calls: set[CallKey] = set()
    for record in records:
        model = LossInputRow if isinstance(record, LossInputs) else CriticLossInputRow
        new.setdefault(model, []).extend(rows.loss_input_rows(record))
        calls |= {(record.episode_id(row), row.step_index, row.call_index) for row in record.rows}
    _require_calls(connection, calls)
    for model, found in new.items():
        insert_new(connection, model, found)


CallKey = tuple[str, int, int]
"""Episode id, step and place in it."""


def _require_calls(connection: Connection, calls: set[CallKey]) -> None:
    """Check that calls are in the store; only an index is read."""
    episode_ids = sorted({key for key, _, _ in calls})
    there: set[CallKey] = set()
    for start in range(0, len(episode_ids), 500):
        chunk = episode_ids[start : start + 500]
        there |= {
            (key, step_index, call_index)
            for key, step_index, call_index in connection.execute(
                select(CallRow.episode_id, CallRow.step_index, CallRow.call_index).where(
                    CallRow.episode_id.in_(chunk)
                )
            )
        }
    for key, step_index, call_index in sorted(calls - there):
        lengths = episode_lengths(connection, [key])
        if key not in lengths:
            raise StoreError(f"training of an episode that is not in the store: {key}")
        raise StoreError(
            f"training of call {call_index} of step {step_index}, but episode {key} has no such "
            f"call in its {lengths[key]} steps"
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
