"""One episode with every step, and its pictures."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from typing import Any, TypeVar, cast

from sqlalchemy import select
from sqlalchemy.orm import Session

from longhaul_core.store.message_text import Source, message_numbers
from longhaul_core.store.models import (
    Base,
    CallRow,
    CallTokensRow,
    EpisodeRow,
    LabelRow,
    MediaRow,
    MessageRow,
    ObservationRow,
    StepRow,
    TaskRow,
)
from longhaul_core.store.packing import unpack_entropies, unpack_logprobs, unpack_tokens
from longhaul_core.store.queries.base import Answer, columns
from longhaul_core.store.queries.episode_lists import (
    EpisodeSummary,
    episode_summaries,
    unknown_episode,
)
from longhaul_core.store.queries.messages import (
    PromptMessage,
    StoredPicture,
    numbers_of,
    pictures_of,
    sampling_of,
    texts_of,
    tool_calls,
    tools_of,
    whole_messages,
)
from longhaul_core.store.token_stream import LatestPrompts, Stream, TokenReader
from longhaul_core.types import Sampling, Tool, ToolCall

__all__ = [
    "CallDetail",
    "CallTokens",
    "EpisodeDetail",
    "LabelDetail",
    "Media",
    "StepDetail",
    "get_episode",
    "get_media",
]


@dataclass(frozen=True, slots=True)
class Media:
    """A picture with its bytes."""

    content_hash: str
    media_type: str
    data: bytes


@dataclass(frozen=True, slots=True)
class CallTokens(Answer):
    """A call as the engine read and wrote it."""

    prompt_tokens: tuple[int, ...]
    """As the engine read them."""
    action_tokens: tuple[int, ...]
    """As the engine wrote them."""
    behavior_logprobs: tuple[float, ...]
    """The sampler's, one per action token; empty for an imitated reply, which nobody sampled."""
    policy_logprobs: tuple[float, ...] | None
    """The learner's before the update, one per action token; None if they are not known."""
    policy_entropies: tuple[float, ...] | None
    """In nats, of the learner's distribution at each action token, before the update; None if they
    are not known."""

    @property
    def logprobs(self) -> list[float] | None:
        """The sampler's, for files of other programs; None where nobody sampled the reply."""
        sampled = len(self.behavior_logprobs) == len(self.action_tokens)
        return list(self.behavior_logprobs) if sampled else None


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
    tools: tuple[Tool, ...]
    """What the reply could ask for; empty once retention removed them."""
    conversation: int
    """Which conversation of the episode, from 0 in the order of their first calls."""
    continuation: str | None
    """How its prompt relates to the calls before: `start`, `exact`, `rewritten` or `forked`; None
    where an episode loop composed it."""
    reply: str | None
    """None once retention removed it."""
    tool_calls: tuple[ToolCall, ...]
    """What the reply asks for."""
    sampling: Sampling | None
    """How the reply was drawn, where that was not as the run says."""
    overridden: tuple[str, ...]
    """What its program asked for and did not get, by the names of the gateway's header."""
    cost_usd: float | None
    """What a hosted model charged for it, in US dollars; None where nobody knows."""
    finish_reason: str
    """`stop`, `length` (a limit on tokens), `tool_calls` or `aborted`."""
    policy_version: int | None
    """Optimizer steps behind the weights that sampled it; None where no engine of ours did."""
    dropped_exchanges: int
    """Left out by the memory to make the prompt fit."""
    recalled_steps: tuple[int, ...]
    """Indices of the steps whose exchanges the memory chose from before the last ones, and the
    prompt shows."""
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
    """What the advantage is multiplied by for its tokens."""
    credited_by: str
    """Which step's advantage that is: `step`, its own, or `next_step`, which is its own too where
    none comes after it and where a critic is trained."""
    advantage: float | None
    """That product, as the loss used it."""
    loss_weight: float | None
    """Of each action token."""
    split_reason: str | None
    """Why a new row of the batch began here."""
    reference_logprob_sum: float | None
    """Of its action tokens, under the weights that the run starts from, in nats; None unless pairs
    of episodes are trained."""


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
    """What credit was given for: the reward, shaped, and less a penalty that is off the return."""
    value: float | None
    """The critic's; None without one."""
    return_to_go: float | None
    """Discounted sum of the shaped rewards from this step on."""
    episode_advantage: float | None
    step_advantage: float | None
    advantage: float | None
    """Both parts combined; a call's is its share of it."""
    loss_weight: float | None
    """Of each token of its trained calls; their mean, where purposes have shares."""
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
    task_data: str
    """What a program was given to work on, a JSON object; empty without one."""
    seed: int
    """Seeds the sampling of the actions."""
    final_observation: str | None
    """Seen after the last action; None if it failed."""
    final_pictures: tuple[StoredPicture, ...]
    """Shown beside it."""
    steps: tuple[StepDetail, ...]
    labels: tuple[LabelDetail, ...]


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
        episode_summaries()
        .add_columns(
            TaskRow.version,
            TaskRow.seed,
            TaskRow.data,
            EpisodeRow.seed,
            EpisodeRow.final_observation,
            EpisodeRow.final_picture_hashes_json,
        )
        .where(EpisodeRow.id == episode_id)
    ).one_or_none()
    if row is None:
        raise unknown_episode(episode_id)
    labels = session.execute(
        select(*columns(LabelDetail, LabelRow))
        .where(LabelRow.episode_id == episode_id)
        .order_by(LabelRow.step_index, LabelRow.name, LabelRow.author)
    )
    version, task_seed, task_data, seed, final_observation, final_pictures = row[-6:]
    pictures = pictures_of(session, episode_id)
    return EpisodeDetail(
        summary=EpisodeSummary(*row[:-6]),
        environment_version=version,
        task_seed=task_seed,
        task_data=task_data,
        seed=seed,
        final_observation=final_observation,
        final_pictures=tuple(pictures[each] for each in texts_of(final_pictures)),
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
        "pictures": tuple(pictures[each] for each in texts_of(row.picture_hashes_json)),
        "anchor_state": row.anchor_state,
        "admissible_actions": None if actions is None else texts_of(actions),
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
    rows = session.scalars(
        select(CallRow)
        .where(CallRow.episode_id == episode_id)
        .order_by(CallRow.step_index, CallRow.call_index)
    ).all()
    stored: dict[tuple[int, int], CallTokensRow] = {}
    if tokens:
        stored = {
            (row.step_index, row.call_index): row
            for row in session.scalars(
                select(CallTokensRow).where(CallTokensRow.episode_id == episode_id)
            )
        }
    texts = {Source("o", step_index): text for step_index, text in observed.items()}
    for row in rows:
        if row.reply is not None:
            texts[Source("r", row.step_index, row.call_index)] = row.reply
    asked = {Source("r", row.step_index, row.call_index): row.tool_calls_json for row in rows}
    stored_messages = session.scalars(
        select(MessageRow).where(MessageRow.episode_id == episode_id)
    ).all()
    texts |= {Source("m", row.number): row.own_lines for row in stored_messages}
    messages = whole_messages(stored_messages, texts=texts, asked=asked, pictures=pictures)
    has_tools = any(row.tools_number is not None for row in rows)
    tools = tools_of(session, episode_id) if has_tools else {}
    reader = TokenReader()
    prompts = LatestPrompts[tuple[int, ...]]()
    for row in rows:
        sampled = None
        if tokens and row.num_prompt_tokens is not None:
            stream = Stream(row.agent, row.purpose, row.conversation)
            sampled = _call_tokens(
                row,
                stored.get((row.step_index, row.call_index)),
                reader,
                shared=prompts.before(stream) or (),
            )
            prompts.add(stream, () if sampled is None else sampled.prompt_tokens)
        yield (
            row.step_index,
            _filled(
                CallDetail,
                (row,),
                messages=tuple(messages[each] for each in message_numbers(row.messages_json)),
                tools=() if row.tools_number is None else tools[row.tools_number],
                tool_calls=tool_calls(row.tool_calls_json),
                sampling=sampling_of(row.sampling_json),
                overridden=texts_of(row.overridden_json),
                recalled_steps=numbers_of(row.recalled_steps_json),
                tokens=sampled,
            ),
        )


def _call_tokens(
    row: CallRow, stored: CallTokensRow | None, reader: TokenReader, *, shared: tuple[int, ...]
) -> CallTokens | None:
    """What was read and written; None once pruned.

    Args:
        row: The episode's next call that had tokens.
        stored: They; None once pruned.
        reader: The episode's.
        shared: The prompt before by `LatestPrompts`, whose first tokens are this one's too.
    """
    num_shared = row.num_shared_prompt_tokens or 0
    read = reader.read(
        None if stored is None else stored.tokens,
        counts=((row.num_prompt_tokens or 0) - num_shared, row.num_action_tokens or 0),
        call=f"call {row.call_index} of step {row.step_index} of {row.episode_id}",
    )
    if read is None or stored is None:
        return None
    others, reply = read
    learner, entropies = stored.policy_logprobs, stored.policy_entropies
    return CallTokens(
        prompt_tokens=shared[:num_shared] + unpack_tokens(others),
        action_tokens=unpack_tokens(reply),
        behavior_logprobs=unpack_logprobs(stored.behavior_logprobs),
        policy_logprobs=None if learner is None else unpack_logprobs(learner),
        policy_entropies=None if entropies is None else unpack_entropies(entropies),
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
