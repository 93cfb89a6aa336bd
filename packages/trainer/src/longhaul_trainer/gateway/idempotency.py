"""When a request repeats another one, and then shares its reply.

Clients send a request again when its connection broke or its answer did not come in time. The
policy must not be sampled a second time for it: the first sample would be trained as an action that
nobody took. Two requests with equal prompts that mean two calls must not become one either. A
request repeats an earlier one of its episode

1. if it has the `Idempotency-Key` of it, and the same body;
2. if its client counts retries (`x-stainless-retry-count` of the OpenAI and Anthropic packages),
   the count is not 0, and the body is the same; first of all one that got no reply, which is
   sampled anew;
3. if its client says nothing of retries, and the body is that of one whose client went away just
   when the reply was there.

Everything else is a call of its own, so that a program may ask for several replies to one prompt at
once, with whatever client. Where the last client that waits for a reply goes away, its
request in the engine is cancelled; a repetition that comes later is sampled anew. Bodies are
compared byte by byte, with the address and the headers of credit.
"""

import asyncio
import secrets
from array import array
from collections import OrderedDict, deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace

from longhaul_trainer.gateway.exchange import ApiError, ChatReply, CreditReport, Delta

__all__ = ["IdempotentRequests", "ProgramRequest", "Sent"]

OnDelta = Callable[[Delta], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """What tells a request from others of its episode, and a repetition from a new one."""

    fingerprint: bytes
    """Hash of address, headers of credit and body."""
    idempotency_key: str | None = None
    num_retries: int | None = None
    """How often its client sent it before; None where it does not say."""


class _KeptReply:
    """A reply whose tokens are packed: as tuples they take ten times the memory of its text."""

    __slots__ = ("_bare", "_prompt_tokens", "_sampled")

    def __init__(self, reply: ChatReply) -> None:
        """Keep a reply."""
        bare = [replace(choice, tokens=(), logprobs=()) for choice in reply.choices]
        self._bare = replace(reply, choices=bare, prompt_tokens=())
        self._prompt_tokens = array("q", reply.prompt_tokens)
        self._sampled = [
            (array("q", choice.tokens), array("d", choice.logprobs)) for choice in reply.choices
        ]

    def whole(self) -> ChatReply:
        """The reply as it was."""
        choices = [
            replace(choice, tokens=tuple(tokens), logprobs=tuple(logprobs))
            for choice, (tokens, logprobs) in zip(self._bare.choices, self._sampled, strict=True)
        ]
        return replace(self._bare, choices=choices, prompt_tokens=tuple(self._prompt_tokens))


class ProgramRequest:
    """One request of a program, however often its client sends it."""

    def __init__(
        self, sent: Sent, *, table: "IdempotentRequests", credit: CreditReport | None
    ) -> None:
        """A request that nothing was done for yet; made by `IdempotentRequests.request_of`."""
        self.sent = sent
        self.credit = credit
        """What its program reported with it, once that was taken in: it counts once, so a
        repetition of a request that was given up finds it here."""
        self.reply_id = secrets.token_urlsafe(18)
        self.lost = False
        """Whether the last client had gone when its reply was there."""
        self._table = table
        self._task: asyncio.Task[ChatReply] | None = None
        """Samples the reply; None before that, and when the reply is kept."""
        self._kept: _KeptReply | None = None
        self._cause = ""
        self._pieces: list[Delta] = []
        self._listeners: list[OnDelta] = []
        self._num_waiting = 0

    @property
    def task(self) -> "asyncio.Task[ChatReply] | None":
        """What samples it; None where nobody has asked for its reply yet."""
        return self._task

    @property
    def given_up(self) -> bool:
        """Whether nobody waits for its reply any more."""
        return bool(self._cause)

    @property
    def answered(self) -> bool:
        """Whether it has its reply."""
        if self._kept is not None:
            return True
        task = self._task  # done, and `_ended` about to be called
        return task is not None and task.done() and not task.cancelled() and not task.exception()

    @property
    def _is_done(self) -> bool:
        """Whether its reply is there, or none will come."""
        return self._kept is not None or (self._task is not None and self._task.done())

    async def reply(
        self,
        sample: Callable[[OnDelta], Coroutine[None, None, ChatReply]],
        on_delta: OnDelta | None,
    ) -> ChatReply:
        """Its reply, which is sampled once.

        Cancelled, it cancels the sampling too, where nobody else waits for it.

        Args:
            sample: Samples it, and calls the function it gets with each piece.
            on_delta: Called with each piece, from the first one on; not at all where the reply is
                there already.

        Raises:
            ApiError: What `sample` raised; `gone` where `cancel` was called.
        """
        while self._cause and self._task is not None:  # it was given up since this one found it
            await asyncio.wait({self._task})
            self._ask_anew()
        if self._kept is not None:
            return self._kept.whole()
        task = self._task
        if task is None:
            task = self._task = asyncio.create_task(sample(self._emit))
            task.add_done_callback(self._ended)
        if on_delta is not None:
            for piece in self._pieces:
                on_delta(piece)
            self._listeners.append(on_delta)
        self._num_waiting += 1
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            if self._num_waiting == 1:
                self.lost = self.answered
                await self.cancel("its client went away")
            raise
        finally:
            self._num_waiting -= 1
            if on_delta is not None:
                self._listeners.remove(on_delta)
        if task.cancelled():
            raise ApiError("gone", f"the request was given up: {self._cause}")
        return task.result()

    async def cancel(self, cause: str) -> None:
        """Give it up unless it has its reply, and return when nothing of it is in flight."""
        if self._is_done:
            return
        if not self._cause:
            self._cause = cause
            self._table.gave_up(self)
        if self._task is None:
            self._table.ended(self)
        else:
            self._task.cancel()
            await asyncio.wait({self._task})

    def unread(self) -> None:
        """Its client went away: where its reply is there, the next request like it gets it."""
        self.lost |= self.answered

    async def drop_unread(self) -> None:
        """Forget it, if no reply was ever asked for: its body could not be read."""
        if self._task is None and self._kept is None:
            await self.cancel("its body could not be read")

    def _ask_anew(self) -> None:
        """Be a request that nothing was done for yet; what was reported with it stays taken in."""
        if self._cause:
            self._cause, self._task = "", None
            self._table.wanted_again(self)

    def _emit(self, delta: Delta) -> None:
        self._pieces.append(delta)
        for listener in self._listeners:
            listener(delta)

    def _ended(self, task: asyncio.Task[ChatReply]) -> None:
        self._pieces = []
        if not task.cancelled() and task.exception() is None:  # seen: who waited may have gone
            self._kept, self._task = _KeptReply(task.result()), None
        self._table.ended(self)


class IdempotentRequests:
    """The requests of one episode: those in flight, and the newest of those that have a reply."""

    def __init__(self, *, max_kept: int) -> None:
        """No request was made.

        Args:
            max_kept: Of how many the replies are kept.
        """
        self._max_kept = max_kept
        self._running: set[ProgramRequest] = set()
        self._kept: deque[ProgramRequest] = deque()
        self._by_body: dict[bytes, list[ProgramRequest]] = {}
        self._by_key: dict[str, ProgramRequest] = {}
        self._given_up: OrderedDict[bytes, list[CreditReport | None]] = OrderedDict()
        """What was reported with requests that got no reply, and may be sent again; by body."""

    def request_of(self, sent: Sent) -> ProgramRequest:
        """The request that this one repeats, or a new one.

        Raises:
            ApiError: Its idempotency key belongs to a request with another body.
        """
        found = self._repeated(sent)
        if found is not None:
            found.lost = False
            return found
        new = ProgramRequest(sent, table=self, credit=self._sent_again(sent.fingerprint))
        self._add(new)
        return new

    def _add(self, asked: ProgramRequest) -> None:
        sent = asked.sent
        self._running.add(asked)
        self._by_body.setdefault(sent.fingerprint, []).append(asked)
        if sent.idempotency_key is not None:
            self._by_key[sent.idempotency_key] = asked

    async def settled(self) -> None:
        """Return when those that are in flight now have their replies, or none."""
        tasks = {asked.task for asked in self._running if asked.task is not None}
        if tasks:
            await asyncio.wait(tasks)

    async def close(self, cause: str) -> None:
        """Give up what is in flight, and return when nothing is; replies are kept no longer."""
        for asked in tuple(self._running):  # none is added: the episode refuses it
            await asked.cancel(cause)
        self._kept.clear()
        self._by_body.clear()
        self._by_key.clear()
        self._given_up.clear()

    def _repeated(self, sent: Sent) -> ProgramRequest | None:
        if sent.idempotency_key is not None:
            found = self._by_key.get(sent.idempotency_key)
            if found is not None and found.sent.fingerprint != sent.fingerprint:
                raise ApiError(
                    "invalid_request",
                    f"Idempotency-Key {sent.idempotency_key!r} belongs to a request with another "
                    "body; give each request a key of its own",
                )
            return found
        if sent.num_retries == 0:
            return None
        alike = self._by_body.get(sent.fingerprint, [])
        lost = [one for one in alike if one.lost]
        if sent.num_retries is None:
            return next(iter(lost), None)
        if not lost and sent.fingerprint in self._given_up:
            return None
        return next(iter(lost + alike[::-1]), None)

    def _sent_again(self, fingerprint: bytes) -> CreditReport | None:
        """What was reported with the request of this body that got no reply, if there is one."""
        credits = self._given_up.get(fingerprint)
        if credits is None:
            return None
        first = credits.pop(0)
        if not credits:
            del self._given_up[fingerprint]
        return first

    def gave_up(self, asked: ProgramRequest) -> None:
        """It gets no reply: no later request repeats it."""
        self._remove(asked)
        self._given_up.setdefault(asked.sent.fingerprint, []).append(asked.credit)
        if len(self._given_up) > self._max_kept:
            self._given_up.popitem(last=False)

    def wanted_again(self, asked: ProgramRequest) -> None:
        """It was given up, and a repetition of it waits for its reply after all."""
        self._sent_again(asked.sent.fingerprint)
        self._add(asked)

    def ended(self, asked: ProgramRequest) -> None:
        """Nothing of it is in flight any more."""
        self._running.discard(asked)
        if asked.answered and not asked.given_up:
            self._kept.append(asked)
            if len(self._kept) > self._max_kept:
                self._remove(self._kept.popleft())
        elif not asked.given_up:  # it failed
            self.gave_up(asked)

    def _remove(self, asked: ProgramRequest) -> None:
        alike = self._by_body.get(asked.sent.fingerprint, [])
        if asked in alike:
            alike.remove(asked)
        if not alike:
            self._by_body.pop(asked.sent.fingerprint, None)
        if self._by_key.get(asked.sent.idempotency_key or "") is asked:
            del self._by_key[asked.sent.idempotency_key or ""]
