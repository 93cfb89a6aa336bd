"""Tests for streaming from an engine: a real one, behind our server, asked by verl's client."""

import asyncio
import json
from collections.abc import Callable, Coroutine, Generator, Sequence
from pathlib import Path
from typing import Any

import pytest

from longhaul_core.errors import PolicyFailure
from longhaul_core.policy import Completion, Prompt, Sampling, StreamingPolicy
from longhaul_core.types import FinishReason
from longhaul_trainer.models import prepare_model
from trainer.verl.pythons import Pythons
from verl_process import IMPORTS_VERL

pytestmark = IMPORTS_VERL

PROMPT = Prompt(messages=(), tokens=tuple(range(100, 140)))
LONG = 400
"""Tokens: enough for something to happen while they are written."""
LONGEST = 1900
"""So many that the reply is cancelled before it ends, on any machine."""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepare_model("tiny", tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def started(model: Path, cpu_run: None, pythons: Pythons) -> Generator[tuple[Any, Any]]:
    import ray

    from trainer.verl.local_ray import ray_here
    from trainer.verl.served_engine import start_engine

    with ray_here(python=pythons.engine):
        server, balancer = start_engine(model)
        yield server, balancer
        ray.get(server.stop.remote())


@pytest.fixture(scope="module")
def engine(started: tuple[Any, Any]) -> Any:  # noqa: ANN401
    return started[0]


@pytest.fixture(scope="module")
def tokenizer(model: Path) -> Any:  # noqa: ANN401
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(model)


@pytest.fixture
def policy(started: tuple[Any, Any], tokenizer: Any) -> Callable[[], Any]:  # noqa: ANN401
    """Makes the run's policy; on the event loop that uses it."""

    def make(kind: str = "EngineClient") -> StreamingPolicy:
        from longhaul_trainer.rendering.renderer import ChatTemplateRenderer
        from longhaul_trainer.verl import client
        from longhaul_trainer.verl.engine_policy import EnginePolicy
        from trainer.verl.served_engine import client_of

        return EnginePolicy(
            client_of(started[1], getattr(client, kind)),
            ChatTemplateRenderer(tokenizer),
            end_token=tokenizer.eos_token_id,
            policy_version=lambda training_step: 10 * training_step,
        )

    return make


def sampling(**settings: Any) -> Sampling:  # noqa: ANN401
    asked: dict[str, Any] = {"seed": 5, "max_tokens": 40}
    return Sampling(**(asked | settings))


async def in_flight(engine: Any) -> tuple[int, int]:  # noqa: ANN401
    return await engine.num_in_flight.remote()


async def until_nothing_is_in_flight(engine: Any) -> None:  # noqa: ANN401
    async with asyncio.timeout(60):
        while await in_flight(engine) != (0, 0):  # noqa: ASYNC110  it is another process
            await asyncio.sleep(0.02)


async def streamed(
    policy: StreamingPolicy, asked: Sampling, pieces: list[Sequence[int]]
) -> Completion:
    return await policy.stream(PROMPT, asked, episode_id="one", on_tokens=pieces.append)


def test_a_stream_is_the_reply_that_the_same_seed_gives_and_comes_in_pieces(
    policy: Callable[[], StreamingPolicy],
) -> None:
    async def both() -> tuple[Completion, Completion, list[Sequence[int]]]:
        asked, pieces, long = policy(), list[Sequence[int]](), sampling(max_tokens=LONG)
        whole = await asked.act(PROMPT, long, episode_id="one")
        return whole, await streamed(asked, long, pieces), pieces

    whole, completion, pieces = asyncio.run(both())

    assert completion.action_tokens == whole.action_tokens
    assert completion.behavior_logprobs == pytest.approx(whole.behavior_logprobs, abs=1e-4)
    assert (completion.policy_version, completion.finish_reason) == (70, FinishReason.LENGTH)
    assert [token for piece in pieces for token in piece] == [*completion.action_tokens]
    assert len(pieces) > 3, f"a reply of {LONG} tokens came at once"


def test_streams_at_once_and_whole_replies_beside_them_get_their_own_tokens(
    policy: Callable[[], StreamingPolicy],
) -> None:
    async def many() -> list[tuple[Completion, list[Sequence[int]]]]:
        asked = policy()
        pieces = [list[Sequence[int]]() for _ in range(16)]
        replies = await asyncio.gather(
            *(streamed(asked, sampling(seed=seed), got) for seed, got in enumerate(pieces)),
            *(asked.act(PROMPT, sampling(seed=n), episode_id="two") for n in range(4)),
        )
        assert [reply.action_tokens for reply in replies[16:]] == [
            reply.action_tokens for reply in replies[:4]
        ]
        return list(zip(replies[:16], pieces, strict=True))

    for completion, pieces in (found := asyncio.run(many())):
        assert [token for piece in pieces for token in piece] == [*completion.action_tokens]
    assert len({completion.action_tokens for completion, _ in found}) == 16


@pytest.mark.parametrize("streams", [True, False])
def test_a_reply_that_nobody_waits_for_any_more_ends_in_the_engine(
    policy: Callable[[], StreamingPolicy],
    engine: Any,  # noqa: ANN401
    streams: bool,
) -> None:
    async def cancelled() -> int:
        asked, began = policy(), asyncio.Event()
        long = sampling(max_tokens=LONGEST)
        waiting = asyncio.create_task(
            asked.stream(PROMPT, long, episode_id="one", on_tokens=lambda _: began.set())
            if streams
            else asked.act(PROMPT, long, episode_id="one")
        )
        if streams:
            await began.wait()
        while not (await in_flight(engine))[0]:  # noqa: ASYNC110  it is another process
            await asyncio.sleep(0.01)
        cancelled_before = await engine.requests_cancelled.remote()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await until_nothing_is_in_flight(engine)
        return await engine.requests_cancelled.remote() - cancelled_before

    assert asyncio.run(cancelled()) == 1


@pytest.mark.parametrize("stop", [(), ("no such word",)])
def test_a_stream_goes_on_after_an_update_with_every_token_in_its_place(
    policy: Callable[[str], StreamingPolicy],
    engine: Any,  # noqa: ANN401
    tokenizer: Any,  # noqa: ANN401
    stop: tuple[str, ...],
) -> None:
    never_ends = ("logit_bias", json.dumps({tokenizer.eos_token_id: -100}))
    asked_for = sampling(max_tokens=LONG, stop=stop, altered=(never_ends,))

    async def interrupted() -> tuple[Completion, list[Sequence[int]], int]:
        asked, pieces, began = policy("InterruptibleClient"), list[Sequence[int]](), asyncio.Event()

        def take(tokens: Sequence[int]) -> None:
            pieces.append(tokens)
            began.set()

        waiting = asyncio.create_task(
            asked.stream(PROMPT, asked_for, episode_id="one", on_tokens=take)
        )
        await began.wait()
        aborted = await engine.abort_all_requests.remote()
        await engine.set_global_steps.remote(8)
        await engine.resume_generation.remote()
        try:
            return await waiting, pieces, aborted["aborted_count"]
        finally:
            await engine.set_global_steps.remote(7)

    completion, pieces, num_aborted = asyncio.run(interrupted())

    assert num_aborted == 1
    assert [token for piece in pieces for token in piece] == [*completion.action_tokens]
    assert len(completion.action_tokens) == len(completion.behavior_logprobs or ()) == LONG
    assert completion.policy_version == 70, "the weights that began it"


def test_a_stop_word_ends_the_tokens_and_is_no_part_of_the_text(
    policy: Callable[[], StreamingPolicy],
    tokenizer: Any,  # noqa: ANN401
) -> None:
    async def replies() -> tuple[Completion, Completion, list[Sequence[int]]]:
        asked, pieces = policy(), list[Sequence[int]]()
        free = await asked.act(PROMPT, sampling(), episode_id="one")
        word = tokenizer.decode(free.action_tokens[5:7])
        stopped = await streamed(asked, sampling(stop=("never", word)), pieces)
        return free, stopped, pieces

    free, stopped, pieces = asyncio.run(replies())

    assert stopped.finish_reason is FinishReason.STOP
    assert stopped.action_tokens == free.action_tokens[: len(stopped.action_tokens)]
    assert len(stopped.action_tokens) <= 7
    whole = tokenizer.decode(stopped.action_tokens, skip_special_tokens=True)
    assert whole.startswith(stopped.text)
    assert whole != stopped.text
    assert [token for piece in pieces for token in piece] == [*stopped.action_tokens]


def test_settings_that_alter_the_distribution_reach_the_engine(
    policy: Callable[[], StreamingPolicy],
    tokenizer: Any,  # noqa: ANN401
) -> None:
    async def drawn(*altered: tuple[str, str]) -> Completion:
        return await policy().act(PROMPT, sampling(altered=altered), episode_id="one")

    likeliest = asyncio.run(drawn(("top_k", "1")))
    biased = asyncio.run(drawn(("logit_bias", '{"65": 100}')))
    chosen = asyncio.run(drawn(("structured_outputs", '{"choice": ["left", "right"]}')))

    assert set(biased.action_tokens) == {65}
    assert chosen.text in ("left", "right")
    greedy = asyncio.run(
        policy().act(PROMPT, sampling(temperature=0.0), episode_id="one")  # of the same weights
    )
    assert likeliest.action_tokens == greedy.action_tokens


def test_a_listener_that_fails_fails_its_own_stream_alone(
    policy: Callable[[], StreamingPolicy],
) -> None:
    def fail(tokens: Sequence[int]) -> None:
        raise ValueError(f"cannot take {len(tokens)}")

    async def two() -> tuple[Completion | BaseException, Completion | BaseException]:
        asked = policy()
        tasks: list[Coroutine[Any, Any, Completion]] = [
            asked.stream(PROMPT, sampling(), episode_id="one", on_tokens=fail),
            streamed(asked, sampling(), []),
        ]
        failed, other = await asyncio.gather(*tasks, return_exceptions=True)
        return failed, other

    failed, other = asyncio.run(two())

    assert isinstance(failed, PolicyFailure)
    assert "cannot take" in str(failed)
    assert isinstance(other, Completion)
