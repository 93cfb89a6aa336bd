"""Which requests are repetitions of others, each case of `longhaul_trainer.gateway.idempotency`."""

import asyncio
import tracemalloc
from collections.abc import Callable, Coroutine

import pytest

from longhaul_trainer.gateway.exchange import (
    ApiError,
    ChatReply,
    Choice,
    CreditReport,
    Delta,
    Usage,
)
from longhaul_trainer.gateway.idempotency import IdempotentRequests, ProgramRequest, Sent

BODY = b"body"
OnDelta = Callable[[Delta], None]


def sent(body: bytes = BODY, *, key: str | None = None, retries: int | None = None) -> Sent:
    return Sent(fingerprint=body, idempotency_key=key, num_retries=retries)


def reply_of(asked: ProgramRequest) -> ChatReply:
    usage = Usage(prompt_tokens=1, reply_tokens=1)
    return ChatReply(id=asked.reply_id, created=0, model="auto", choices=(), usage=usage)


class Engine:
    """Samples replies when it is let; counts what it was asked and what was given up."""

    def __init__(self) -> None:
        self.num_begun = self.num_cancelled = 0
        self.free = asyncio.Event()
        self.error: ApiError | None = None

    def sampling(
        self, asked: ProgramRequest
    ) -> Callable[[OnDelta], Coroutine[None, None, ChatReply]]:
        async def sample(emit: OnDelta) -> ChatReply:
            self.num_begun += 1
            try:
                await self.free.wait()
            except asyncio.CancelledError:
                self.num_cancelled += 1
                raise
            if self.error is not None:
                raise self.error
            return reply_of(asked)

        return sample

    def waiting(self, asked: ProgramRequest) -> asyncio.Task[ChatReply]:
        return asyncio.create_task(asked.reply(self.sampling(asked), None))

    async def answered(self, asked: ProgramRequest) -> ChatReply:
        self.free.set()
        return await self.waiting(asked)


async def under_way() -> None:
    """Let tasks that were made begin."""
    for _ in range(3):
        await asyncio.sleep(0)


def run(test: Coroutine[None, None, None]) -> None:
    asyncio.run(test)


@pytest.mark.parametrize(
    ("first", "second", "is_same"),
    [
        pytest.param(sent(key="a"), sent(key="a"), True, id="equal keys"),
        pytest.param(sent(key="a"), sent(key="b"), False, id="different keys"),
        pytest.param(sent(retries=0), sent(retries=1), True, id="counted as a retry"),
        pytest.param(sent(retries=0), sent(retries=0), False, id="counted as a first try"),
        pytest.param(sent(retries=0), sent(b"other", retries=1), False, id="another body"),
        pytest.param(sent(), sent(), False, id="nothing said, and a client waits for each"),
        pytest.param(sent(key="a"), sent(retries=0), False, id="a key beside none"),
    ],
)
def test_a_request_in_flight_is_repeated_or_not(first: Sent, second: Sent, is_same: bool) -> None:
    async def test() -> None:
        table, engine = IdempotentRequests(max_kept=4), Engine()
        one = table.request_of(first)
        waits = engine.waiting(one)
        await under_way()
        other = table.request_of(second)
        engine.free.set()
        replies = [await waits, await engine.waiting(other)]

        assert (other is one) == is_same
        assert engine.num_begun == (1 if is_same else 2)
        assert (replies[0].id == replies[1].id) == is_same

    run(test())


@pytest.mark.parametrize(
    ("first", "second", "is_same"),
    [
        pytest.param(sent(key="a"), sent(key="a"), True, id="equal keys"),
        pytest.param(sent(retries=0), sent(retries=2), True, id="its reply was lost on the way"),
        pytest.param(sent(retries=0), sent(retries=0), False, id="equal prompts of two turns"),
        pytest.param(sent(), sent(), False, id="equal prompts of two turns, nothing said"),
    ],
)
def test_a_request_with_a_reply_is_repeated_or_not(
    first: Sent, second: Sent, is_same: bool
) -> None:
    async def test() -> None:
        table, engine = IdempotentRequests(max_kept=4), Engine()
        one = table.request_of(first)
        reply = await engine.answered(one)
        other = table.request_of(second)

        assert (other is one) == is_same
        assert ((await engine.answered(other)).id == reply.id) == is_same

    run(test())


def test_a_key_for_another_body_is_refused() -> None:
    table = IdempotentRequests(max_kept=4)
    table.request_of(sent(key="a"))

    with pytest.raises(ApiError, match="'a' belongs to a request with another body"):
        table.request_of(sent(b"other", key="a"))


@pytest.mark.parametrize("retries", [None, 0, 1])
def test_a_request_whose_client_went_away_is_cancelled_and_its_repetition_sampled_anew(
    retries: int | None,
) -> None:
    async def test() -> None:
        table, engine = IdempotentRequests(max_kept=4), Engine()
        one = table.request_of(sent(retries=0 if retries is not None else None))
        one.credit = CreditReport(reward=1.0)
        waits = engine.waiting(one)
        await under_way()
        waits.cancel()
        await asyncio.wait({waits})
        other = table.request_of(sent(retries=retries))

        assert engine.num_cancelled == 1
        assert other is not one
        assert other.credit == one.credit, "what was reported with it counts once"
        assert (await engine.answered(other)).id == other.reply_id

    run(test())


def test_a_repetition_that_comes_while_the_first_is_being_cancelled_is_sampled_anew() -> None:
    async def test() -> None:
        table, engine = IdempotentRequests(max_kept=4), Engine()
        one = table.request_of(sent(key="a"))
        waits = engine.waiting(one)
        await under_way()
        waits.cancel()
        await asyncio.sleep(0)  # the cancellation is on its way to the engine
        other = table.request_of(sent(key="a"))

        assert other is not one
        assert await engine.answered(other)
        await asyncio.wait({waits})
        assert engine.num_cancelled == 1

    run(test())


def test_a_repetition_that_is_still_read_when_the_first_is_cancelled_is_sampled_anew() -> None:
    """Between the question and the wait for the answer, a long body is read in a thread."""

    async def test() -> None:
        engine, requests = Engine(), IdempotentRequests(max_kept=8)
        first = requests.request_of(sent(retries=0))
        first.credit = CreditReport(reward=1.0)
        waiting = engine.waiting(first)
        await under_way()
        again = [requests.request_of(sent(retries=1)) for _ in range(2)]
        waiting.cancel()
        await under_way()
        answered = [engine.waiting(one) for one in again]
        engine.free.set()

        replies = [await one for one in answered]
        assert {reply.id for reply in replies} == {again[0].reply_id}
        assert (engine.num_begun, engine.num_cancelled) == (2, 1)
        assert again[0].credit == CreditReport(reward=1.0)  # it counts once
        assert requests.request_of(sent(retries=1)).reply_id == again[0].reply_id

    run(test())


def test_a_request_goes_on_while_one_of_its_clients_waits() -> None:
    async def test() -> None:
        table, engine = IdempotentRequests(max_kept=4), Engine()
        one = table.request_of(sent(key="a"))
        first, second = engine.waiting(one), engine.waiting(one)
        await under_way()
        first.cancel()
        await asyncio.wait({first})
        engine.free.set()

        assert (await second).id == one.reply_id
        assert (engine.num_begun, engine.num_cancelled) == (1, 0)

    run(test())


def test_a_reply_that_was_there_when_its_client_went_away_is_the_next_ones() -> None:
    async def test() -> None:
        table, engine = IdempotentRequests(max_kept=4), Engine()
        one = table.request_of(sent())
        waits = engine.waiting(one)
        await under_way()
        engine.free.set()
        await asyncio.sleep(0)
        assert one.answered
        waits.cancel()
        await asyncio.wait({waits})
        assert waits.cancelled()

        assert table.request_of(sent()) is one
        assert table.request_of(sent()) is not one, "it is given once"

    run(test())


def test_a_request_that_failed_is_sampled_anew() -> None:
    async def test() -> None:
        table, engine = IdempotentRequests(max_kept=4), Engine()
        engine.error = ApiError("upstream", "engine gone")
        one = table.request_of(sent(key="a"))
        with pytest.raises(ApiError, match="engine gone"):
            await engine.answered(one)
        engine.error = None

        assert (await engine.answered(table.request_of(sent(key="a")))).id != one.reply_id

    run(test())


def test_no_more_replies_are_kept_than_allowed() -> None:
    async def test() -> None:
        table, engine = IdempotentRequests(max_kept=2), Engine()
        first = [table.request_of(sent(bytes([n]), key=str(n))) for n in range(3)]
        for one in first:
            await engine.answered(one)
        again = [table.request_of(sent(bytes([n]), key=str(n))) for n in range(3)]

        assert [a is b for a, b in zip(first, again, strict=True)] == [False, True, True]

    run(test())


def test_closing_gives_up_what_is_in_flight_and_says_why() -> None:
    async def test() -> None:
        table, engine = IdempotentRequests(max_kept=2), Engine()
        waits = [engine.waiting(table.request_of(sent(bytes([n])))) for n in range(3)]
        unread = table.request_of(sent(b"unread"))
        await under_way()
        await table.close("the episode is over")

        assert engine.num_cancelled == 3
        for one in waits:
            with pytest.raises(ApiError, match="given up: the episode is over") as refused:
                await one
            assert refused.value.kind == "gone"
        assert unread.given_up

    run(test())


def test_a_request_that_cannot_be_read_is_forgotten() -> None:
    async def test() -> None:
        table = IdempotentRequests(max_kept=2)
        unread = table.request_of(sent(key="a"))
        await unread.drop_unread()

        assert table.request_of(sent(key="a")) is not unread

    run(test())


def test_closing_when_a_reply_has_just_come_ends() -> None:
    async def test() -> None:
        table, engine = IdempotentRequests(max_kept=4), Engine()
        waits = engine.waiting(table.request_of(sent()))
        await under_way()
        closing = asyncio.Event()

        async def close() -> None:
            await engine.free.wait()  # the reply's task wakes first, in the same pass of the loop
            await table.close("over")
            closing.set()

        closes = asyncio.create_task(close())
        await under_way()
        engine.free.set()
        await closes

        assert closing.is_set()
        await waits

    run(test())


def test_a_retry_of_a_call_that_failed_is_not_answered_with_an_earlier_equal_one() -> None:
    async def test() -> None:
        table, engine = IdempotentRequests(max_kept=4), Engine()
        earlier = await engine.answered(table.request_of(sent(retries=0)))
        engine.error = ApiError("upstream", "engine gone")
        failing = [table.request_of(sent(retries=0)) for _ in range(2)]
        for one in failing:
            with pytest.raises(ApiError, match="engine gone"):
                await engine.answered(one)
        engine.error = None
        again = [table.request_of(sent(retries=1)) for _ in range(2)]
        replies = [await engine.answered(one) for one in again]
        lost = table.request_of(sent(retries=1))

        assert len({earlier.id, *(reply.id for reply in replies)}) == 3
        assert lost is again[-1], "nothing else waits for its retry"

    run(test())


def test_a_kept_reply_comes_back_as_it_was_and_takes_little_memory() -> None:
    def with_tokens(asked: ProgramRequest) -> ChatReply:
        numbers = tuple(range(100_000, 104_000))  # each an object of its own
        choice = Choice(text="hi", tokens=numbers[:2], logprobs=(-0.5, -0.25))
        usage = Usage(prompt_tokens=4_000, reply_tokens=2)
        return ChatReply(
            id=asked.reply_id,
            created=1,
            model="auto",
            choices=[choice],
            usage=usage,
            prompt_tokens=numbers,
        )

    async def test() -> None:
        table = IdempotentRequests(max_kept=4)
        asked = table.request_of(sent(key="a"))

        async def sample(emit: OnDelta) -> ChatReply:
            return with_tokens(asked)

        tracemalloc.start()
        try:
            before, _ = tracemalloc.get_traced_memory()
            await asked.reply(sample, None)
            grown = tracemalloc.get_traced_memory()[0] - before
        finally:
            tracemalloc.stop()

        assert await table.request_of(sent(key="a")).reply(sample, None) == with_tokens(asked)
        assert grown < 2 * 8 * 4_000  # 36 bytes for each number of a tuple

    run(test())
