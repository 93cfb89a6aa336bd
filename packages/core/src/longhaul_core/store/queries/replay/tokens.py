"""Tokens of calls with the text that they stand for.

A token is a piece of *bytes*, not of text: one character may be split over several tokens. Tokens
are therefore joined into spans, the shortest runs that decode to whole characters. A combining
mark, or an emoji that is joined to the one before it, stays with what it modifies, because a
browser would otherwise draw the two apart.
"""

import codecs
import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import cast

from sqlalchemy import and_, or_, select
from sqlalchemy.orm import Session

from longhaul_core.store.models import CallRow, CallTokensRow, EpisodeRow
from longhaul_core.store.packing import unpack_entropies, unpack_logprobs, unpack_tokens
from longhaul_core.store.queries.base import Answer
from longhaul_core.store.queries.metrics import token_pieces
from longhaul_core.store.token_stream import LatestPrompts, Stream, TokenReader

__all__ = [
    "CallTokenSlice",
    "ReplyTokens",
    "Spans",
    "StoredCall",
    "call_tokens",
    "join_tokens",
    "reply_tokens",
    "stored_calls",
]

_ZERO_WIDTH_JOINER = "\u200d"
_DIGITS = 6
"""Decimals of a logprob, an entropy or an advantage: float32 has seven digits in all."""

Spans = tuple[tuple[str, ...], tuple[int, ...]]
"""The text of each span, and how many tokens it has."""


@dataclass(frozen=True, slots=True)
class ReplyTokens(Answer):
    """The tokens of a reply, or some of them. All but the spans have an entry per token."""

    ids: tuple[int, ...]
    texts: tuple[str, ...]
    r"""Of each span of whole characters. Bytes that are no UTF-8 appear as `\xNN`, a token that
    the run never named as `⟨id⟩`."""
    sizes: tuple[int, ...]
    """How many tokens each span has."""
    behavior_logprobs: tuple[float, ...]
    """The sampler's, to six decimals, as are the others."""
    policy_logprobs: tuple[float, ...] | None
    """The learner's before the update; None without credit."""
    policy_entropies: tuple[float, ...] | None
    """In nats, of the learner's distribution at each token, before the update; None without credit,
    or where an older version wrote it."""
    advantages: tuple[float, ...] | None
    """Of each token; None where all have the call's."""
    values: tuple[float, ...] | None
    """The critic's before each token; None unless it credits tokens."""


@dataclass(frozen=True, slots=True)
class CallTokenSlice(Answer):
    """A stretch of what the engine read and wrote in a call: the prompt, then the reply."""

    first: int
    """Place of the first token; at or before the one asked for, as characters are never split."""
    stop: int
    """Place after the last one."""
    num_prompt_tokens: int
    """Tokens from this place on are of the reply."""
    num_action_tokens: int
    ids: tuple[int, ...]
    texts: tuple[str, ...]
    """Of each span, as in `ReplyTokens`."""
    sizes: tuple[int, ...]
    reply: ReplyTokens | None
    """What is known of the stretch's tokens of the reply; None if it has none."""


@dataclass(frozen=True, slots=True)
class StoredCall:
    """A call with its tokens, as the store's stream of them is read."""

    step_index: int
    call_index: int
    agent: str
    purpose: str
    conversation: int
    prompt: tuple[int, ...] | None
    """None where no engine of ours read it, or once pruned; so is the reply."""
    reply: tuple[int, ...] | None
    row: CallTokensRow | None

    @property
    def stream(self) -> Stream:
        """Whose calls it is one of."""
        return Stream(self.agent, self.purpose, self.conversation)


def stored_calls(
    session: Session, episode_id: str, *, last: tuple[int, int] | None = None
) -> Iterator[StoredCall]:
    """The calls of an episode in order from the first, as its tokens can only be read so.

    Args:
        session: Only read from.
        episode_id: Which.
        last: Step and call after which nothing is read; None reads all.

    Raises:
        StoreError: Tokens are damaged.
    """
    statement = (
        select(CallRow, CallTokensRow)
        .outerjoin(
            CallTokensRow,
            and_(
                CallTokensRow.episode_id == CallRow.episode_id,
                CallTokensRow.step_index == CallRow.step_index,
                CallTokensRow.call_index == CallRow.call_index,
            ),
        )
        .where(CallRow.episode_id == episode_id)
        .order_by(CallRow.step_index, CallRow.call_index)
    )
    if last is not None:
        statement = statement.where(
            or_(
                CallRow.step_index < last[0],
                and_(CallRow.step_index == last[0], CallRow.call_index <= last[1]),
            )
        )
    reader = TokenReader()
    prompts = LatestPrompts[tuple[int, ...]]()
    for call, of_call in session.execute(statement):
        stored = cast("CallTokensRow | None", of_call)  # the join is an outer one
        stream = Stream(call.agent, call.purpose, call.conversation)
        prompt: tuple[int, ...] | None = None
        reply: tuple[int, ...] | None = None
        if call.num_prompt_tokens is not None:
            num_shared = call.num_shared_prompt_tokens or 0
            read = reader.read(
                None if stored is None else stored.tokens,
                counts=(call.num_prompt_tokens - num_shared, call.num_action_tokens or 0),
                call=f"call {call.call_index} of step {call.step_index} of {episode_id}",
            )
            if read is not None:
                shared = (prompts.before(stream) or ())[:num_shared]
                prompt, reply = shared + unpack_tokens(read[0]), unpack_tokens(read[1])
            prompts.add(stream, prompt or ())
        yield StoredCall(
            step_index=call.step_index,
            call_index=call.call_index,
            agent=call.agent,
            purpose=call.purpose,
            conversation=call.conversation,
            prompt=prompt,
            reply=reply,
            row=stored,
        )


def call_tokens(
    session: Session,
    *,
    episode_id: str,
    step_index: int,
    call_index: int,
    first: int = 0,
    stop: int | None = None,
) -> CallTokenSlice:
    """Tokens of one call, as the engine read and wrote them.

    Args:
        session: Only read from.
        episode_id: Which.
        step_index: 0-based.
        call_index: 0-based place in the step.
        first: Place of the first token that is wanted; prompt and reply are counted through.
        stop: Place after the last one; None means the end of the reply.

    Raises:
        LookupError: There is no such call, or it has no tokens: no engine of ours answered it, or
            they were pruned.
        StoreError: They are damaged.
    """
    key = (step_index, call_index)
    found = None
    for found in stored_calls(session, episode_id, last=key):  # noqa: B007  # the last one
        pass
    name = f"call {call_index} of step {step_index} of episode {episode_id!r}"
    if found is None or (found.step_index, found.call_index) != key:
        raise LookupError(f"there is no {name} in the store")
    if found.prompt is None or found.reply is None:
        raise LookupError(f"{name} has no tokens: they were pruned, or no engine of ours wrote it")
    prompt, reply = found.prompt, found.reply
    tokens = prompt + reply
    pieces = token_pieces(session, run_id=_run_of(session, episode_id), token_ids=(*prompt, *reply))
    whole = [join_tokens(part, pieces) for part in (prompt, reply)]
    texts, sizes = whole[0][0] + whole[1][0], whole[0][1] + whole[1][1]
    end = len(tokens) if stop is None else min(stop, len(tokens))
    seams = list(accumulate(sizes, initial=0))  # where spans begin, and the end of the last
    span = bisect_right(seams, first) - 1
    after = max(span, bisect_left(seams, end))
    begins, ends = seams[span], seams[after]
    in_reply = max(begins, len(prompt))
    return CallTokenSlice(
        first=begins,
        stop=ends,
        num_prompt_tokens=len(prompt),
        num_action_tokens=len(reply),
        ids=tokens[begins:ends],
        texts=texts[span:after],
        sizes=sizes[span:after],
        reply=None
        if in_reply >= ends
        else reply_tokens(found, pieces, first=in_reply - len(prompt), stop=ends - len(prompt)),
    )


def reply_tokens(
    call: StoredCall, pieces: Mapping[int, bytes], *, first: int = 0, stop: int | None = None
) -> ReplyTokens | None:
    """The tokens of a reply that stand in [first, stop), which splits no character; None without.

    Args:
        call: Whose reply.
        pieces: The bytes of its tokens, by id.
        first: Place in the reply.
        stop: Place after the last one; None means the end.
    """
    if call.reply is None or call.row is None:
        return None
    ids = call.reply[first:stop]
    texts, sizes = join_tokens(ids, pieces)

    def numbers(
        packed: bytes | None, unpack: Callable[[bytes], tuple[float, ...]] = unpack_logprobs
    ) -> tuple[float, ...] | None:
        if packed is None:
            return None
        return tuple(round(value, _DIGITS) for value in unpack(packed)[first:stop])

    return ReplyTokens(
        ids=ids,
        texts=texts,
        sizes=sizes,
        behavior_logprobs=numbers(call.row.behavior_logprobs) or (),
        policy_logprobs=numbers(call.row.policy_logprobs),
        policy_entropies=numbers(call.row.policy_entropies, unpack_entropies),
        advantages=numbers(call.row.token_advantages),
        values=numbers(call.row.token_values),
    )


def join_tokens(ids: Sequence[int], pieces: Mapping[int, bytes]) -> Spans:
    """The spans of some tokens; every token is in exactly one.

    Args:
        ids: Of the tokens, in order.
        pieces: The bytes that an id stands for; one that is absent makes a span of its own.
    """
    texts: list[str] = []
    sizes: list[int] = []
    alone = {each: _decoded(pieces[each]) for each in set(ids) if each in pieces}
    decoder = codecs.getincrementaldecoder("utf-8")(errors="backslashreplace")
    text, size = "", 0  # of the span that is not whole yet

    def append(text: str, size: int) -> None:
        if texts and texts[-1] and _continues(texts[-1], text):
            texts[-1] += text
            sizes[-1] += size
        else:
            texts.append(text)
            sizes.append(size)

    for token_id in ids:
        whole = alone.get(token_id)
        if not size and whole is not None:
            append(whole, 1)
        elif token_id not in pieces:
            if size:
                append(text + decoder.decode(b"", final=True), size)
                decoder.reset()
                text, size = "", 0
            texts.append(f"⟨{token_id}⟩")
            sizes.append(1)
        else:
            text += decoder.decode(pieces[token_id])
            size += 1
            if not decoder.getstate()[0]:
                append(text, size)
                text, size = "", 0
    if size:
        append(text + decoder.decode(b"", final=True), size)
    return tuple(texts), tuple(sizes)


def _decoded(piece: bytes) -> str | None:
    """Its text; None if it needs its neighbours."""
    try:
        return piece.decode()
    except UnicodeDecodeError:
        return None


def _continues(before: str, after: str) -> bool:
    """Whether `after` is drawn together with the end of `before`."""
    if not after:
        return False
    first = after[0]
    if first < "\u0300":
        return before[-1] == _ZERO_WIDTH_JOINER
    return (
        before[-1] == _ZERO_WIDTH_JOINER
        or first == _ZERO_WIDTH_JOINER
        or unicodedata.category(first).startswith("M")
        or 0x1F3FB <= ord(first) <= 0x1F3FF  # skin tones
    )


def _run_of(session: Session, episode_id: str) -> str:
    return session.scalars(select(EpisodeRow.run_id).where(EpisodeRow.id == episode_id)).one()
