"""Reads what the store holds of one training step.

One training step is in memory at a time; its tokens and logprobs are reduced to a few numbers a
call while they are read.

Shapes: N replies, T tokens of all of them, one after the other.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from sqlalchemy.orm import Session

from longhaul_core.audit.evidence import (
    LOGPROB_ROUNDING,
    AuditedEpisode,
    CallKey,
    CallPictures,
    Evidence,
    FirstReply,
    GreedyEvidence,
    ImitatedReply,
    ReplyFacts,
    SpelledMark,
    TokenFacts,
    key_of,
)
from longhaul_core.audit.intent import Intent
from longhaul_core.audit.spelled import RunMarks
from longhaul_core.audit.tables import (
    CallNumbers,
    CallPrompt,
    CallReply,
    CallTokens,
    CriticLossInput,
    EpisodePicture,
    FinalState,
    LossInput,
    MessageParts,
    State,
    StepNumbers,
)
from longhaul_core.store import queries
from longhaul_core.store.message_text import message_numbers
from longhaul_core.store.queries import EpisodeNumbers
from longhaul_core.store.records import FATE_OF_GROUP
from longhaul_core.store.token_stream import LatestPrompts, Stream, TokenReader

__all__ = ["METRICS", "PICTURE_TOKENS", "num_picture_places", "read_evidence"]

METRICS = ("actor/optimizer_steps", "agreement/logprob_difference_max")

PICTURE_TOKENS = (b"<|image_pad|>",)
"""What stands for a picture in a prompt, as often as the picture takes tokens, by the families of
models whose pictures are trained on."""

_CALLS = 2_000
"""Calls whose tokens are in memory at once, or more where one episode has more."""


def read_evidence(
    session: Session,
    intent: Intent,
    *,
    run_id: str,
    training_step: int,
    horizons: Sequence[int],
    marks: RunMarks,
    loss_inputs_recorded: bool,
) -> Evidence:
    """Everything that the store holds of one training step.

    Args:
        session: Only read from.
        intent: What the run was meant to do.
        run_id: The run.
        training_step: Which.
        horizons: See `Evidence`.
        marks: Of the run.
        loss_inputs_recorded: See `Evidence`.

    Raises:
        StoreError: Tokens in the store are damaged.
    """
    groups = queries.groups_of_training_step(session, run_id=run_id, training_step=training_step)
    taken = [
        (group.update_index, group.group_size)
        for group in groups
        if group.update_index is not None and group.resolved_training_step == training_step
    ]
    by_phase: dict[str, list[EpisodeNumbers]] = {phase: [] for phase in FATE_OF_GROUP}
    for numbers in queries.episodes_of_update(session, run_id=run_id, training_step=training_step):
        by_phase[numbers.phase].append(numbers)
    by_text = intent.algorithm["anchor_similarity"] is not None
    episodes = _read_episodes(session, by_phase["train"], by_text=by_text)
    greedy = (
        _read_episodes(session, by_phase["baseline"], by_text=False)
        if intent.needs_greedy_episode
        else ()
    )
    pictures = tuple(
        call
        for phase in ("train", "baseline")
        for call in _read_pictures(session, episodes=by_phase[phase])
    )
    read = _ReadTokens(
        intent,
        picture_tokens=queries.token_ids_of(session, run_id=run_id, pieces=PICTURE_TOKENS)
        if pictures
        else (),
        with_pictures={key_of(call) for call in pictures if call.prompt},
        marks=marks,
        in_texts=marks.in_texts([e.numbers.episode_id for e in episodes if e.numbers.trained]),
    )
    for batch in _batches((*episodes, *greedy)):
        ids = [episode.numbers.episode_id for episode in batch]
        rows = queries.rows_of_episodes(session, CallTokens, "call_tokens", episode_ids=ids)
        read.add(batch, {key_of(row): row for row in rows})
    settled = queries.settled_episodes(session, run_id=run_id, training_step=training_step)
    evidence = Evidence(
        intent=intent,
        training_step=training_step,
        groups=tuple(sorted(taken, key=lambda one: one[0])),
        episodes=episodes,
        greedy=GreedyEvidence(episodes=greedy, first_replies=read.first_replies),
        replies=tuple(read.replies),
        continued=read.continued,
        pictures=pictures,
        imitated=_imitated(session, read.last_tokens, run_id=run_id),
        prompts=read.prompts,
        picture_places=read.picture_places,
        spelled_marks=read.spelled_marks,
        loss_inputs=tuple(
            queries.rows_of_episodes(session, LossInput, "loss_inputs", episode_ids=settled)
        ),
        token_credit=read.credit,
        critic_loss_inputs=tuple(
            queries.rows_of_episodes(
                session, CriticLossInput, "critic_loss_inputs", episode_ids=settled
            )
        )
        if intent.has_critic
        else (),
        loss_inputs_recorded=loss_inputs_recorded,
        metrics=queries.metrics_of_training_step(
            session, names=METRICS, run_id=run_id, training_step=training_step
        ),
        discarded=tuple(
            group
            for group in groups
            if group.discard_reason is not None
            and group.resolved_training_step == training_step
            and group.first_episode_id is not None
        ),
        played=tuple(
            group
            for group in groups
            if group.training_step == training_step and group.first_episode_id is not None
        ),
        horizons=horizons,
    )
    demonstrations = by_phase["demonstration"]
    if not demonstrations:
        return evidence
    beside = _demonstrations(session, evidence, demonstrations, run_id=run_id, marks=marks)
    return replace(evidence, demonstrations=beside)


def _demonstrations(
    session: Session,
    evidence: Evidence,
    numbers: Sequence[EpisodeNumbers],
    *,
    run_id: str,
    marks: RunMarks,
) -> Evidence:
    """See `Evidence.demonstrations`."""
    intent = evidence.intent.of_demonstrations(evidence.training_step)
    episodes = _read_episodes(session, numbers, by_text=False)
    read = _ReadTokens(intent, picture_tokens=(), with_pictures=(), marks=marks, in_texts={})
    for batch in _batches(episodes):
        ids = [episode.numbers.episode_id for episode in batch]
        rows = queries.rows_of_episodes(session, CallTokens, "call_tokens", episode_ids=ids)
        read.add(batch, {key_of(row): row for row in rows})
    ids = [each.episode_id for each in numbers]
    return replace(
        evidence,
        intent=intent,
        episodes=episodes,
        greedy=GreedyEvidence(),
        token_credit={},
        critic_loss_inputs=(),
        replies=tuple(read.replies),
        continued=read.continued,
        pictures=(),
        picture_places={},
        spelled_marks={},
        imitated=_imitated(session, read.last_tokens, run_id=run_id),
        loss_inputs=tuple(
            queries.rows_of_episodes(session, LossInput, "loss_inputs", episode_ids=ids)
        ),
    )


def _read_episodes(
    session: Session, episodes: Sequence[EpisodeNumbers], *, by_text: bool
) -> tuple[AuditedEpisode, ...]:
    """Episodes with their steps and calls.

    Args:
        session: Only read from.
        episodes: Which.
        by_text: Whether anchor states are compared by their text, and not by its hash.
    """
    ids = [numbers.episode_id for numbers in episodes]
    steps: dict[str, list[StepNumbers]] = defaultdict(list)
    for step in queries.rows_of_episodes(session, StepNumbers, "steps", episode_ids=ids):
        steps[step.episode_id].append(step)
    calls: dict[str, list[CallNumbers]] = defaultdict(list)
    for call in queries.rows_of_episodes(session, CallNumbers, "calls", episode_ids=ids):
        calls[call.episode_id].append(call)
    texts: dict[tuple[str, int], str] = {}
    final_texts: dict[str, str] = {}
    if by_text:
        texts = {
            (row.episode_id, row.step_index): queries.state_text(*row[2:]).anchor
            for row in queries.rows_of_episodes(session, State, "observations", episode_ids=ids)
        }
        final_texts = {
            row.id: queries.state_text(*row[1:]).anchor
            for row in queries.rows_of_episodes(session, FinalState, "episodes", episode_ids=ids)
            if row.final_observation is not None
        }
    return tuple(
        AuditedEpisode(
            numbers=numbers,
            steps=tuple(steps[numbers.episode_id]),
            calls=tuple(calls[numbers.episode_id]),
            anchors=tuple(
                texts.get((step.episode_id, step.step_index)) if by_text else step.anchor_hash
                for step in steps[numbers.episode_id]
            ),
            final_anchor=final_texts.get(numbers.episode_id)
            if by_text
            else numbers.final_anchor_hash,
        )
        for numbers in episodes
    )


def _strings(list_json: str | None) -> list[str]:
    return [] if list_json is None else json.loads(list_json)


def _read_pictures(
    session: Session, *, episodes: Collection[EpisodeNumbers]
) -> Iterator[CallPictures]:
    """Calls of the episodes that have pictures, or may have had, by episode, step and place."""
    ids = [numbers.episode_id for numbers in episodes]
    removed = {numbers.episode_id for numbers in episodes if numbers.retention == "removed"}
    rows = queries.rows_of_episodes(session, EpisodePicture, "episode_media", episode_ids=ids)
    chosen = removed | {row.episode_id for row in rows}
    messages: dict[tuple[str, int], tuple[str, list[str]]] = {}
    for row in queries.rows_of_episodes(session, MessageParts, "messages", episode_ids=chosen):
        if row.parts_json is not None:
            parts: list[str | dict[str, str]] = json.loads(row.parts_json)
            of_parts = [part["picture"] for part in parts if isinstance(part, dict)]
            messages[row.episode_id, row.number] = row.role, of_parts
    observed = {
        (row.episode_id, row.step_index): _strings(row.picture_hashes_json)
        for row in queries.rows_of_episodes(session, State, "observations", episode_ids=chosen)
    }
    for call in queries.rows_of_episodes(session, CallPrompt, "calls", episode_ids=chosen):
        prompt = [(call.episode_id, number) for number in message_numbers(call.messages_json)]
        held = [messages[each] for each in prompt if each in messages]
        yield CallPictures(
            *key_of(call),
            prompt=tuple(picture for _, of in held for picture in of),
            shown=frozenset(picture for role, of in held for picture in of if role != "tool"),
            from_tools=frozenset(picture for role, of in held for picture in of if role == "tool"),
            observed=frozenset(observed.get((call.episode_id, call.step_index), ())),
            removed=call.episode_id in removed,
        )


def _imitated(
    session: Session, last_tokens: Mapping[CallKey, int | None], *, run_id: str
) -> dict[CallKey, ImitatedReply]:
    """See `Evidence.imitated`."""
    tokens = [token for token in last_tokens.values() if token is not None]
    pieces = {
        token: piece.decode(errors="replace")
        for token, piece in queries.token_pieces(session, run_id=run_id, token_ids=tokens).items()
    }
    ids = {episode_id for episode_id, _, _ in last_tokens}
    texts = {
        key_of(row): row.reply
        for row in queries.rows_of_episodes(session, CallReply, "calls", episode_ids=ids)
    }
    return {
        key: ImitatedReply(token, None if token is None else pieces.get(token), texts[key])
        for key, token in last_tokens.items()
    }


def _batches(episodes: Iterable[AuditedEpisode]) -> Iterator[list[AuditedEpisode]]:
    batch: list[AuditedEpisode] = []
    num_calls = 0
    for episode in episodes:
        batch.append(episode)
        num_calls += len(episode.calls)
        if num_calls >= _CALLS:
            yield batch
            batch, num_calls = [], 0
    if batch:
        yield batch


class _ReadCall(NamedTuple):
    """A call of an engine of ours; tokens are packed int32, None once pruned."""

    call: CallNumbers
    prompt: bytes | None
    reply: bytes | None


@dataclass(kw_only=True)
class _ReadTokens:
    """Follows from the tokens and logprobs of calls; see the fields of `Evidence`."""

    intent: Intent = field(kw_only=False)
    picture_tokens: Sequence[int]
    """Those that stand for pictures."""
    with_pictures: Collection[CallKey]
    """Calls whose messages have pictures."""
    marks: RunMarks
    in_texts: Mapping[CallKey, Mapping[str, int]]
    """How often the texts of trained calls spell the marks; calls that spell none are left out."""
    replies: list[ReplyFacts] = field(default_factory=list[ReplyFacts])
    credit: dict[CallKey, TokenFacts] = field(default_factory=dict[CallKey, TokenFacts])
    continued: dict[CallKey, bool | None] = field(default_factory=dict[CallKey, bool | None])
    picture_places: dict[CallKey, int | None] = field(default_factory=dict[CallKey, int | None])
    spelled_marks: dict[CallKey, tuple[SpelledMark, ...] | None] = field(
        default_factory=dict[CallKey, tuple[SpelledMark, ...] | None]
    )
    last_tokens: dict[CallKey, int | None] = field(default_factory=dict[CallKey, int | None])
    """Of imitated replies."""
    prompts: dict[CallKey, bytes] = field(default_factory=dict[CallKey, bytes])
    first_replies: dict[str, FirstReply] = field(default_factory=dict[str, FirstReply])

    def add(self, episodes: Sequence[AuditedEpisode], stored: Mapping[CallKey, CallTokens]) -> None:
        """Add whole episodes.

        Args:
            episodes: Sampled and greedy ones.
            stored: All that the store has of their tokens.
        """
        of_update = [episode for episode in episodes if episode.numbers.phase != "baseline"]
        calls = [
            call
            for episode in of_update
            if episode.numbers.trained
            for call in episode.calls
            if call.trained
        ]
        self.replies += _reduced(calls, [stored.get(key_of(call)) for call in calls])
        if self.intent.credits_tokens:
            for key in (key_of(c) for episode in of_update for c in episode.calls if c.trained):
                row = stored.get(key)
                self.credit[key] = TokenFacts(
                    _unpacked(row.token_values if row else None),
                    _unpacked(row.token_advantages if row else None),
                )
        for episode in of_update:
            if episode.numbers.trained:
                self._add_prompts(episode, stored)
        if self.intent.needs_greedy_episode:
            for episode in episodes:
                self._add_first_reply(episode, stored)

    def _add_prompts(self, episode: AuditedEpisode, stored: Mapping[CallKey, CallTokens]) -> None:
        of_program = {
            key_of(call)
            for call in episode.calls
            if call.trained and call.continuation is not None and key_of(call) in self.with_pictures
        }
        spells = any(key_of(call) in self.in_texts for call in episode.calls)
        merged, imitates = self.intent.rows == "merged", self.intent.imitates
        if not (merged or imitates or of_program or spells):
            return
        newest_trained: dict[Stream, bytes | None] = {}
        sampled = Counter[str]()
        for call, prompt, reply in _read_calls(episode, stored):
            key, stream = key_of(call), _stream_of(call)
            if key in of_program:
                self.picture_places[key] = (
                    None if prompt is None else num_picture_places(prompt, self.picture_tokens)
                )
            if key in self.in_texts:
                self.spelled_marks[key] = (
                    None
                    if prompt is None
                    else self.marks.in_prompt(self.in_texts[key], _ids(prompt), sampled=sampled)
                )
            if spells and reply is not None:
                sampled.update(self.marks.in_reply(_ids(reply)))
            if self.intent.compares_steps and prompt is not None:
                self.prompts[key] = blake2b(prompt, digest_size=16).digest()
            if imitates:
                self.last_tokens[key] = int(np.frombuffer(reply, "<i4")[-1]) if reply else None
            if not merged or not call.trained:
                continue
            if stream in newest_trained:
                whole = newest_trained[stream]
                self.continued[key] = (
                    None if prompt is None or whole is None else prompt.startswith(whole)
                )
            newest_trained[stream] = None if prompt is None or reply is None else prompt + reply

    def _add_first_reply(
        self, episode: AuditedEpisode, stored: Mapping[CallKey, CallTokens]
    ) -> None:
        if episode.numbers.failed:
            return
        acting = [(step.step_index, step.act_call_index) for step in episode.steps]
        for call, prompt, reply in _read_calls(episode, stored):
            if call.step_index > 0:
                return
            if (0, call.call_index) in acting:
                row = stored.get(key_of(call))
                logprobs = None if row is None else row.behavior_logprobs
                self.first_replies[call.episode_id] = FirstReply(
                    call.episode_id, prompt, reply, logprobs
                )


def _stream_of(call: CallNumbers) -> Stream:
    return Stream(call.agent, call.purpose, call.conversation)


def _read_calls(
    episode: AuditedEpisode, stored: Mapping[CallKey, CallTokens]
) -> Iterator[_ReadCall]:
    """The calls that an engine of ours answered, with all of their prompts."""
    reader, prompts = TokenReader(), LatestPrompts[bytes]()
    for call in episode.calls:
        shared = call.num_shared_prompt_tokens
        if shared is None or call.num_prompt_tokens is None or call.num_action_tokens is None:
            continue
        row, stream = stored.get(key_of(call)), _stream_of(call)
        read = reader.read(
            None if row is None else row.tokens,
            counts=(call.num_prompt_tokens - shared, call.num_action_tokens),
            call=f"call {call.call_index} of step {call.step_index} of {call.episode_id}",
        )
        if read is None:  # and so are all later ones
            yield _ReadCall(call, None, None)
            continue
        prompt = (prompts.before(stream) or b"")[: 4 * shared] + read[0]
        prompts.add(stream, prompt)
        yield _ReadCall(call, prompt, read[1])


def num_picture_places(prompt: bytes, tokens: Sequence[int]) -> int:
    """How many pictures a prompt has places for: the learner reads a run of one token as one.

    Args:
        prompt: Packed int32.
        tokens: That stand for pictures.
    """
    prompt_T = np.frombuffer(prompt, "<i4")
    stands_T = np.isin(prompt_T, tokens)
    return int(np.count_nonzero(stands_T[1:] & ~stands_T[:-1]) + stands_T[:1].sum())


def _reduced(
    calls: Sequence[CallNumbers], rows: Sequence[CallTokens | None]
) -> Iterator[ReplyFacts]:
    """Facts about the reply of each call, whose row is None if its tokens were pruned."""
    behavior_T, num_behavior_N = _joined([row.behavior_logprobs if row else b"" for row in rows])
    policy_T, num_policy_N = _joined([(row and row.policy_logprobs) or b"" for row in rows])
    wrong_N = _per_reply(_wrong(behavior_T), num_behavior_N) + _per_reply(
        _wrong(policy_T), num_policy_N
    )
    pairs_N = num_behavior_N == num_policy_N
    difference_T = np.abs(
        behavior_T[np.repeat(pairs_N, num_behavior_N)] - policy_T[np.repeat(pairs_N, num_policy_N)]
    )
    lengths_N = np.where(pairs_N, num_behavior_N, 0)
    with np.errstate(invalid="ignore"):
        mean_N = _per_reply(difference_T, lengths_N) / np.where(pairs_N, lengths_N, np.nan)
    max_N = np.full(len(calls), np.nan)
    filled_N = lengths_N > 0
    if filled_N.any():
        starts = np.cumsum(lengths_N[filled_N]) - lengths_N[filled_N]
        max_N[filled_N] = np.maximum.reduceat(difference_T, starts)
    sums_N = _per_reply(policy_T, num_policy_N)
    for place, (call, row) in enumerate(zip(calls, rows, strict=True)):
        recorded = row is not None and row.policy_logprobs is not None
        yield ReplyFacts(
            *key_of(call),
            pruned=row is None,
            num_action_tokens=call.num_action_tokens,
            num_behavior_logprobs=int(num_behavior_N[place]),
            num_policy_logprobs=int(num_policy_N[place]) if recorded else -1,
            num_wrong_logprobs=int(wrong_N[place]),
            mean_difference=float(mean_N[place]),
            max_difference=float(max_N[place]),
            policy_sum=float(sums_N[place]),
        )


def _ids(tokens: bytes) -> list[int]:
    """Tokens that are packed int32."""
    return np.frombuffer(tokens, "<i4").tolist()


def _unpacked(blob: bytes | None) -> list[float]:
    return np.frombuffer(blob or b"", "<f4").astype(np.float64).tolist()


def _joined(blobs: Sequence[bytes]) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
    """All logprobs, one after the other, and how many each reply has."""
    logprobs_T = np.frombuffer(b"".join(blobs), "<f4").astype(np.float64)
    return logprobs_T, np.array([len(blob) // 4 for blob in blobs], dtype=np.int64)


def _wrong(logprobs_T: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    return (~np.isfinite(logprobs_T) | (logprobs_T > LOGPROB_ROUNDING)).astype(np.float64)


def _per_reply(
    values_T: npt.NDArray[np.float64], lengths_N: npt.NDArray[np.int64]
) -> npt.NDArray[np.float64]:
    """Sum over the tokens of each reply."""
    places_T = np.repeat(np.arange(len(lengths_N)), lengths_N)
    sums_N = np.bincount(places_T, weights=values_T, minlength=len(lengths_N))
    return sums_N.astype(np.float64)
