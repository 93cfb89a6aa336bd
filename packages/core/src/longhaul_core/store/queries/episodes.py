"""Episodes: lists of them, and one with every step."""

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from typing import Any, Literal, TypeVar, cast

from sqlalchemy import ColumnElement, Select, func, select
from sqlalchemy.orm import Session, defer

from longhaul_core.store.message_text import Source, whole_text
from longhaul_core.store.models import (
    Base,
    CallRow,
    EpisodeMediaRow,
    EpisodeRow,
    FailureRow,
    LabelRow,
    MediaRow,
    MessageRow,
    ObservationRow,
    StepRow,
    TaskRow,
)
from longhaul_core.store.packing import unpack_logprobs, unpack_tokens
from longhaul_core.store.queries.answers import Answer, columns
from longhaul_core.store.token_stream import TokenReader
from longhaul_core.types import MediaType, Role, ToolCall

__all__ = [
    "CallDetail",
    "CallTokens",
    "EpisodeDetail",
    "EpisodeFilter",
    "EpisodePage",
    "EpisodeSort",
    "EpisodeSummary",
    "Failure",
    "LabelDetail",
    "Media",
    "PromptMessage",
    "StepDetail",
    "StoredPicture",
    "episodes_of_group",
    "failures",
    "get_episode",
    "get_media",
    "list_episodes",
]

EpisodeSort = Literal[
    "training_step",
    "episode_return",
    "num_steps",
    "num_action_tokens",
    "num_invalid_actions",
    "duration_seconds",
    "started_at",
]


@dataclass(frozen=True, slots=True)
class EpisodeSummary(Answer):
    """An episode in a list."""

    episode_id: str
    """`run/attempt/phase/training step/group/sample_index/retry`."""
    run_id: str
    attempt: int
    phase: str
    """`train`, `baseline`, `validation` or `test`."""
    training_step: int
    group_index: int
    sample_index: int
    """0-based place in its group."""
    retry: int
    environment: str
    task_id: str
    """Unique within the environment."""
    split: str
    goal: str
    failed: bool
    """Something broke: no return, no success, in no baseline."""
    failure_cause: str | None
    failure_message: str | None
    success: bool | None
    """Whether the environment says the task was solved; None if it failed, as are stop_reason,
    terminated, truncated and episode_return."""
    stop_reason: str | None
    terminated: bool | None
    """The task itself ended."""
    truncated: bool | None
    """A limit cut it short."""
    episode_return: float | None
    """Undiscounted sum of rewards."""
    num_steps: int
    horizon: int
    """The step limit in force."""
    num_calls: int
    """Calls of models, summed over the steps."""
    num_prompt_tokens: int
    num_action_tokens: int
    num_invalid_actions: int
    started_at: float
    """Unix time."""
    duration_seconds: float
    rolled_back: bool
    """A resume went on from before it."""
    trained: bool
    """Whether it was in the loss."""
    episode_advantage: float | None
    optimizer_step_index: int | None
    retention: str | None
    """`removed` if the run's retention removed its text, pictures and tokens, `sampled` if it keeps
    them for good; None before retention has decided."""


@dataclass(frozen=True, slots=True)
class EpisodePage(Answer):
    """Part of a list of episodes."""

    total: int
    """Matching episodes in all."""
    rows: tuple[EpisodeSummary, ...]


@dataclass(frozen=True, slots=True)
class Failure(Answer):
    """An episode that broke, and why."""

    episode_id: str
    phase: str
    training_step: int
    group_index: int
    sample_index: int
    retry: int
    environment: str
    task_id: str
    cause: str
    message: str
    num_steps: int
    """Finished before it broke."""


@dataclass(frozen=True, slots=True)
class Media:
    """A picture with its bytes."""

    content_hash: str
    media_type: str
    data: bytes


@dataclass(frozen=True, slots=True)
class StoredPicture(Answer):
    """A picture, by its content; `media` has its bytes."""

    content_hash: str
    """SHA-256 of the bytes as hexadecimal text."""
    media_type: MediaType


@dataclass(frozen=True, slots=True)
class PromptMessage(Answer):
    """One chat message of a prompt."""

    role: Role
    parts: tuple[str | StoredPicture, ...]
    """Its content in order: texts and pictures."""
    tool_calls: tuple[ToolCall, ...]
    """What an assistant's message asks for."""
    tool_call_id: str | None
    """The request that a tool's message answers."""

    @property
    def text(self) -> str:
        """The parts that are text, one below the other."""
        return "\n".join(part for part in self.parts if isinstance(part, str))


@dataclass(frozen=True, slots=True)
class CallTokens(Answer):
    """A call as the engine read and wrote it."""

    prompt_tokens: tuple[int, ...]
    """As the engine read them."""
    action_tokens: tuple[int, ...]
    """As the engine wrote them."""
    behavior_logprobs: tuple[float, ...]
    """The sampler's, one per action token."""
    policy_logprobs: tuple[float, ...] | None
    """The learner's before the update, one per action token; None if they are not known."""


@dataclass(frozen=True, slots=True)
class CallDetail(Answer):
    """One call of a model: a prompt was read, a reply was written. Credit is None without it."""

    call_index: int
    """0-based place in the step."""
    purpose: str
    """`act` chose the step's action; `plan`, `remember`, `judge` or another word."""
    agent: str
    """Which agent of several made it; empty where there is one."""
    model: str
    """Which model answered; empty for the policy that is trained."""
    messages: tuple[PromptMessage, ...]
    """The prompt as it was composed."""
    reply: str | None
    """None once retention removed it."""
    tool_calls: tuple[ToolCall, ...]
    """What the reply asks for."""
    finish_reason: str
    """`stop`, `length` (a limit on tokens), `tool_calls` or `aborted`."""
    policy_version: int | None
    """Optimizer steps behind the weights that sampled it; None where no engine of ours did."""
    dropped_exchanges: int
    """Left out by the memory to make the prompt fit."""
    queue_seconds: float
    """Seconds until the engine began with the request; 0 where it does not report it."""
    generate_seconds: float
    """Seconds from then until the reply was complete."""
    num_cached_tokens: int | None
    """Leading prompt tokens from the engine's prefix cache; None where it does not report them."""
    num_prompt_tokens: int | None
    """None where no engine of ours read them: no tokens were recorded."""
    num_action_tokens: int | None
    tokens: CallTokens | None
    """None if none were recorded, if they were pruned, or if they were not requested."""
    trained: bool
    """Whether its tokens are in the loss of a step that is trained."""
    credit_share: float
    """What the step's advantage is multiplied by for its tokens."""
    advantage: float | None
    """That product, as the loss used it."""
    loss_weight: float | None
    """Of each action token."""
    split_reason: str | None
    """Why a new row of the batch began here."""


@dataclass(frozen=True, slots=True)
class StepDetail(Answer):
    """One exchange with the environment. Credit is None before the update."""

    step_index: int
    observation: str | None
    """None once retention removed it."""
    pictures: tuple[StoredPicture, ...]
    """Shown beside the text."""
    anchor_state: str | None
    """The state that steps are compared in; None: what is shown."""
    anchor_hash: str
    admissible_actions: tuple[str, ...] | None
    """None if the environment does not say."""
    action: str
    """What the environment was given."""
    action_valid: bool
    reward: float
    """Paid for this step alone."""
    shaped_reward: float | None
    """What credit was given for: the reward, shaped and less penalties."""
    value: float | None
    """The critic's; None without one."""
    return_to_go: float | None
    """Discounted sum of the shaped rewards from this step on."""
    episode_advantage: float | None
    step_advantage: float | None
    advantage: float | None
    """Both parts combined; a call's is its share of it."""
    loss_weight: float | None
    """Of each token of its trained calls."""
    trained: bool
    act_call_index: int | None
    """The call that chose the action; None where no model did."""
    environment_seconds: float
    calls: tuple[CallDetail, ...]
    """Calls of models that belong to the step, in order; maybe none."""

    @property
    def act(self) -> CallDetail | None:
        """The call that chose the action."""
        return None if self.act_call_index is None else self.calls[self.act_call_index]


@dataclass(frozen=True, slots=True)
class LabelDetail(Answer):
    """A remark on an episode."""

    step_index: int | None
    name: str
    value: str
    author: str
    created_at: float


@dataclass(frozen=True, slots=True)
class EpisodeDetail(Answer):
    """One episode with every step."""

    summary: EpisodeSummary
    environment_version: str
    task_seed: int
    seed: int
    """Seeds the sampling of the actions."""
    final_observation: str | None
    """Seen after the last action; None if it failed."""
    final_pictures: tuple[StoredPicture, ...]
    """Shown beside it."""
    steps: tuple[StepDetail, ...]
    labels: tuple[LabelDetail, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeFilter:
    """Which episodes are meant; a field that is None does not restrict."""

    run_id: str | None = None
    phase: str | None = None
    min_training_step: int | None = None
    max_training_step: int | None = None
    group_index: int | None = None
    failed: bool | None = None
    success: bool | None = None
    trained: bool | None = None
    stop_reason: str | None = None
    environment: str | None = None
    task_id: str | None = None
    min_return: float | None = None
    max_return: float | None = None
    rolled_back: bool | None = False
    """False: the lineage; True: what was taken back; None: both."""


def list_episodes(
    session: Session,
    *,
    where: EpisodeFilter | None = None,
    sort: EpisodeSort = "training_step",
    descending: bool = True,
    limit: int = 50,
    offset: int = 0,
) -> EpisodePage:
    """A page of the episodes that match.

    Episodes without a value (a failed one has no return) come last in either direction;
    equals are in order of phase, training step, group, sample_index and retry.

    Args:
        session: Only read from.
        where: Which episodes; None means every one of a lineage.
        sort: The column that orders them.
        descending: Largest first.
        limit: Rows of a page.
        offset: Rows before it.
    """
    asked = where or EpisodeFilter()
    matching = select(EpisodeRow.id).where(*_conditions(asked))
    if asked.environment is not None or asked.task_id is not None:
        matching = matching.join(TaskRow, TaskRow.hash == EpisodeRow.task_hash)
    count = matching.with_only_columns(func.count(), maintain_column_froms=True)
    column = _SORT_COLUMNS[sort]
    order = ((column.desc() if descending else column.asc()).nulls_last(), *_TIE_BREAKERS)
    # Ids alone are sorted; the wide rows, their tasks and failures are read for the page only.
    page = matching.order_by(*order).limit(limit).offset(offset).subquery()
    rows = session.execute(_summaries().join(page, page.c.id == EpisodeRow.id).order_by(*order))
    return EpisodePage(
        total=session.execute(count).scalar_one(),
        rows=tuple(EpisodeSummary(*row) for row in rows),
    )


def episodes_of_group(
    session: Session,
    *,
    run_id: str,
    attempt: int,
    phase: str,
    training_step: int,
    group_index: int,
) -> tuple[EpisodeSummary, ...]:
    """All episodes of one group, failed tries included, by sample_index and retry; maybe none."""
    rows = session.execute(
        _summaries()
        .where(
            EpisodeRow.run_id == run_id,
            EpisodeRow.attempt == attempt,
            EpisodeRow.phase == phase,
            EpisodeRow.training_step == training_step,
            EpisodeRow.group_index == group_index,
        )
        .order_by(EpisodeRow.sample_index, EpisodeRow.retry)
    )
    return tuple(EpisodeSummary(*row) for row in rows)


def get_episode(session: Session, *, episode_id: str, tokens: bool = True) -> EpisodeDetail:
    """One episode with every step and call: prompts, replies, credit.

    Args:
        session: Only read from.
        episode_id: Which.
        tokens: Token ids and logprobs too.

    Raises:
        LookupError: There is no such episode.
    """
    row = session.execute(
        _summaries()
        .add_columns(
            TaskRow.version,
            TaskRow.seed,
            EpisodeRow.seed,
            EpisodeRow.final_observation,
            EpisodeRow.final_picture_hashes_json,
        )
        .where(EpisodeRow.id == episode_id)
    ).one_or_none()
    if row is None:
        raise LookupError(f"there is no episode {episode_id!r} in the store")
    labels = session.execute(
        select(*columns(LabelDetail, LabelRow))
        .where(LabelRow.episode_id == episode_id)
        .order_by(LabelRow.step_index, LabelRow.name, LabelRow.author)
    )
    version, task_seed, seed, final_observation, final_pictures = row[-5:]
    pictures = _pictures(session, episode_id)
    return EpisodeDetail(
        summary=EpisodeSummary(*row[:-5]),
        environment_version=version,
        task_seed=task_seed,
        seed=seed,
        final_observation=final_observation,
        final_pictures=tuple(pictures[each] for each in _strings(final_pictures)),
        steps=_steps(session, episode_id, pictures=pictures, tokens=tokens),
        labels=tuple(
            replace(label, step_index=None if label.step_index == -1 else label.step_index)
            for label in (LabelDetail(*row) for row in labels)
        ),
    )


def get_media(session: Session, *, content_hash: str) -> Media:
    """A picture with its bytes.

    Raises:
        LookupError: There is no such picture.
    """
    row = session.execute(
        select(*columns(Media, MediaRow)).where(MediaRow.content_hash == content_hash)
    ).one_or_none()
    if row is None:
        raise LookupError(f"there is no picture {content_hash!r} in the store")
    return Media(*row)


def failures(
    session: Session,
    *,
    run_id: str,
    cause: str | None = None,
    limit: int = 100,
    offset: int = 0,
) -> list[Failure]:
    """Failed episodes of the run's lineage, the newest training step first.

    Args:
        session: Only read from.
        run_id: The run asked about.
        cause: Only those with this `FailureCause`.
        limit: At most so many.
        offset: Leave out so many.
    """
    statement = (
        select(*columns(Failure, FailureRow, EpisodeRow, TaskRow))
        .join(FailureRow, FailureRow.episode_id == EpisodeRow.id)
        .join(TaskRow, TaskRow.hash == EpisodeRow.task_hash)
        .where(EpisodeRow.run_id == run_id, ~EpisodeRow.rolled_back)
        .order_by(EpisodeRow.training_step.desc(), EpisodeRow.id)
    )
    if cause is not None:
        statement = statement.where(FailureRow.cause == cause)
    return [Failure(*row) for row in session.execute(statement.limit(limit).offset(offset))]


_SORT_COLUMNS: dict[EpisodeSort, ColumnElement[Any]] = {
    "training_step": EpisodeRow.training_step.expression,
    "episode_return": EpisodeRow.episode_return.expression,
    "num_steps": EpisodeRow.num_steps.expression,
    "num_action_tokens": EpisodeRow.num_action_tokens.expression,
    "num_invalid_actions": EpisodeRow.num_invalid_actions.expression,
    "duration_seconds": EpisodeRow.duration_seconds.expression,
    "started_at": EpisodeRow.started_at.expression,
}
_TIE_BREAKERS = (
    EpisodeRow.run_id,
    EpisodeRow.phase,
    EpisodeRow.training_step,
    EpisodeRow.group_index,
    EpisodeRow.sample_index,
    EpisodeRow.retry,
    EpisodeRow.attempt,
)


def _summaries() -> Select[*tuple[Any, ...]]:
    """Columns in the order of `EpisodeSummary`'s fields."""
    return (
        select(
            *columns(
                EpisodeSummary,
                EpisodeRow,
                TaskRow,
                episode_id=EpisodeRow.id,
                failure_cause=FailureRow.cause,
                failure_message=FailureRow.message,
            )
        )
        .join(TaskRow, TaskRow.hash == EpisodeRow.task_hash)
        .outerjoin(FailureRow, FailureRow.episode_id == EpisodeRow.id)
    )


def _conditions(where: EpisodeFilter) -> list[ColumnElement[bool]]:
    equals = {
        EpisodeRow.run_id: where.run_id,
        EpisodeRow.phase: where.phase,
        EpisodeRow.group_index: where.group_index,
        EpisodeRow.failed: where.failed,
        EpisodeRow.success: where.success,
        EpisodeRow.trained: where.trained,
        EpisodeRow.stop_reason: where.stop_reason,
        EpisodeRow.rolled_back: where.rolled_back,
        TaskRow.environment: where.environment,
        TaskRow.task_id: where.task_id,
    }
    conditions = [column == wanted for column, wanted in equals.items() if wanted is not None]
    if where.min_training_step is not None:
        conditions.append(EpisodeRow.training_step >= where.min_training_step)
    if where.max_training_step is not None:
        conditions.append(EpisodeRow.training_step <= where.max_training_step)
    if where.min_return is not None:
        conditions.append(EpisodeRow.episode_return >= where.min_return)
    if where.max_return is not None:
        conditions.append(EpisodeRow.episode_return <= where.max_return)
    return conditions


def _steps(
    session: Session, episode_id: str, *, pictures: Mapping[str, StoredPicture], tokens: bool
) -> tuple[StepDetail, ...]:
    rows = session.scalars(
        select(StepRow).where(StepRow.episode_id == episode_id).order_by(StepRow.step_index)
    ).all()
    observations = {
        row.step_index: row
        for row in session.scalars(
            select(ObservationRow).where(ObservationRow.episode_id == episode_id)
        )
    }
    observed = {step_index: row.text for step_index, row in observations.items()}
    calls: dict[int, list[CallDetail]] = defaultdict(list)
    for step_index, call in _calls(
        session, episode_id, observed=observed, pictures=pictures, tokens=tokens
    ):
        calls[step_index].append(call)
    return tuple(
        _filled(
            StepDetail,
            (step,),
            **_observed(observations.get(step.step_index), pictures=pictures),
            calls=tuple(calls[step.step_index]),
        )
        for step in rows
    )


def _observed(
    row: ObservationRow | None, *, pictures: Mapping[str, StoredPicture]
) -> dict[str, object]:
    """Fields of a `StepDetail` about its observation; without a row it was removed."""
    if row is None:
        return {
            "observation": None,
            "pictures": (),
            "anchor_state": None,
            "admissible_actions": None,
        }
    actions = row.admissible_actions_json
    return {
        "observation": row.text,
        "pictures": tuple(pictures[each] for each in _strings(row.picture_hashes_json)),
        "anchor_state": row.anchor_state,
        "admissible_actions": None if actions is None else tuple(_strings(actions)),
    }


def _calls(
    session: Session,
    episode_id: str,
    *,
    observed: Mapping[int, str],
    pictures: Mapping[str, StoredPicture],
    tokens: bool,
) -> Iterator[tuple[int, CallDetail]]:
    """The calls of an episode in order, each with its step; `observed` is the text of each."""
    statement = select(CallRow).where(CallRow.episode_id == episode_id)
    if not tokens:
        statement = statement.options(*(defer(column, raiseload=True) for column in _TOKENS))
    rows = session.scalars(statement.order_by(CallRow.step_index, CallRow.call_index)).all()
    texts = {Source("o", step_index): text for step_index, text in observed.items()}
    for row in rows:
        if row.reply is not None:
            texts[Source("r", row.step_index, row.call_index)] = row.reply
    messages = _messages(session, episode_id, texts=texts, pictures=pictures)
    reader = TokenReader()
    previous: dict[tuple[str, str], tuple[int, ...]] = {}
    for row in rows:
        sampled = None
        if tokens and row.num_prompt_tokens is not None:
            program = (row.agent, row.purpose)
            sampled = _call_tokens(row, reader, shared=previous.get(program, ()))
            previous[program] = () if sampled is None else sampled.prompt_tokens
        yield (
            row.step_index,
            _filled(
                CallDetail,
                (row,),
                messages=tuple(messages[each] for each in json.loads(row.messages_json or "[]")),
                tool_calls=_tool_calls(row.tool_calls_json),
                tokens=sampled,
            ),
        )


_TOKENS = (
    CallRow.tokens,
    CallRow.behavior_logprobs,
    CallRow.policy_logprobs,
    CallRow.token_values,
    CallRow.token_advantages,
)


def _call_tokens(
    row: CallRow, reader: TokenReader, *, shared: tuple[int, ...]
) -> CallTokens | None:
    """What was read and written; None once pruned.

    Args:
        row: The episode's next call that has tokens.
        reader: The episode's.
        shared: The prompt of the program's call before, whose first tokens are this one's too.
    """
    num_shared = row.num_shared_prompt_tokens or 0
    read = reader.read(
        row.tokens,
        counts=((row.num_prompt_tokens or 0) - num_shared, row.num_action_tokens or 0),
        call=f"call {row.call_index} of step {row.step_index} of {row.episode_id}",
    )
    if read is None or row.behavior_logprobs is None:
        return None
    others, reply = read
    learner = row.policy_logprobs
    return CallTokens(
        prompt_tokens=shared[:num_shared] + unpack_tokens(others),
        action_tokens=unpack_tokens(reply),
        behavior_logprobs=unpack_logprobs(row.behavior_logprobs),
        policy_logprobs=None if learner is None else unpack_logprobs(learner),
    )


AnswerT = TypeVar("AnswerT", StepDetail, CallDetail)


def _filled(answer: type[AnswerT], rows: Sequence[Base], **given: object) -> AnswerT:
    """An answer whose fields are the attributes of their name of the first row that has one."""
    for name, place in _places(answer, tuple(map(type, rows)), frozenset(given)):
        given[name] = getattr(rows[place], name)
    return answer(**cast("dict[str, Any]", given))


@cache
def _places(
    answer: type[StepDetail] | type[CallDetail],
    models: tuple[type[Base], ...],
    given: frozenset[str],
) -> tuple[tuple[str, int], ...]:
    """Fields that are not given, each with the place of the first model that has it."""
    return tuple(
        (field.name, next(place for place, each in enumerate(models) if hasattr(each, field.name)))
        for field in fields(answer)
        if field.name not in given
    )


def _strings(list_json: str | None) -> list[str]:
    return [] if list_json is None else [str(each) for each in json.loads(list_json)]


def _tool_calls(list_json: str | None) -> tuple[ToolCall, ...]:
    return () if list_json is None else tuple(ToolCall(**each) for each in json.loads(list_json))


def _pictures(session: Session, episode_id: str) -> dict[str, StoredPicture]:
    """Those that the episode refers to, by hash."""
    rows = session.execute(
        select(*columns(StoredPicture, MediaRow))
        .join(EpisodeMediaRow, EpisodeMediaRow.content_hash == MediaRow.content_hash)
        .where(EpisodeMediaRow.episode_id == episode_id)
    )
    return {row.content_hash: StoredPicture(*row) for row in rows}


def _messages(
    session: Session,
    episode_id: str,
    *,
    texts: Mapping[Source, str],
    pictures: Mapping[str, StoredPicture],
) -> dict[int, PromptMessage]:
    """Those of the episode by number; `texts` are its observations and replies."""
    rows = session.scalars(select(MessageRow).where(MessageRow.episode_id == episode_id)).all()
    known = {**texts, **{Source("m", row.number): row.own_lines for row in rows}}

    def parts(row: MessageRow) -> tuple[str | StoredPicture, ...]:
        if row.parts_json is None:
            name = f"message {row.number} of {episode_id}"
            return (whole_text(row.own_lines, row.pieces_json, texts=known, message=name),)
        found: list[str | dict[str, str]] = json.loads(row.parts_json)
        return tuple(p if isinstance(p, str) else pictures[p["picture"]] for p in found)

    return {
        row.number: PromptMessage(
            role=cast("Role", row.role),
            parts=parts(row),
            tool_calls=_tool_calls(row.tool_calls_json),
            tool_call_id=row.tool_call_id,
        )
        for row in rows
    }
