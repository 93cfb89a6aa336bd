"""Tests for `longhaul_trainer.verl.client`: replies that are interrupted and finished."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from omegaconf import DictConfig

from longhaul_core.rollout import continuation_seed
from verl_process import IMPORTS_VERL

pytestmark = IMPORTS_VERL


def test_the_rest_of_an_interrupted_reply_is_drawn_by_a_seed_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from verl.workers.rollout.llm_server import LLMServerClient
    from verl.workers.rollout.replica import TokenOutput

    from longhaul_trainer.verl.client import InterruptibleClient

    asked: list[dict[str, Any]] = []

    async def generate(self: LLMServerClient, request_id: str, **request: Any) -> TokenOutput:  # noqa: ANN401
        asked.append(request)
        reply, reason = ([7, 8], "aborted") if len(asked) == 1 else ([9], "completed")
        return TokenOutput(token_ids=reply, log_probs=[-1.0] * len(reply), stop_reason=reason)

    monkeypatch.setattr(LLMServerClient, "generate", generate)  # the door to the engine
    client = InterruptibleClient(DictConfig({}))

    reply = asyncio.run(
        client.generate(
            "episode", prompt_ids=[1, 2, 3], sampling_params={"seed": 5, "max_tokens": 10}
        )
    )

    assert reply.token_ids == [7, 8, 9]
    assert [request["prompt_ids"] for request in asked] == [[1, 2, 3], [1, 2, 3, 7, 8]]
    assert [request["sampling_params"] for request in asked] == [
        {"seed": continuation_seed(5, num_tokens=3), "max_tokens": 10},
        {"seed": continuation_seed(5, num_tokens=5), "max_tokens": 8},
    ]


def test_a_reply_without_a_seed_stays_without_and_its_waits_add_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from verl.workers.rollout.llm_server import LLMServerClient
    from verl.workers.rollout.replica import TokenOutput

    from longhaul_trainer.verl.client import InterruptibleClient

    asked: list[dict[str, Any]] = []

    async def generate(self: LLMServerClient, request_id: str, **request: Any) -> TokenOutput:  # noqa: ANN401
        asked.append(dict(request["sampling_params"]))
        reply, reason = ([7], "aborted") if len(asked) == 1 else ([9], "completed")
        waited = {"queue_seconds": 0.5, "num_cached_tokens": 2 * len(asked)}
        return TokenOutput(
            token_ids=reply, log_probs=[-1.0], stop_reason=reason, extra_fields=waited
        )

    monkeypatch.setattr(LLMServerClient, "generate", generate)  # the door to the engine

    reply = asyncio.run(
        InterruptibleClient(DictConfig({})).generate(
            "episode", prompt_ids=[1, 2, 3], sampling_params={"max_tokens": 10}
        )
    )

    assert asked == [{"max_tokens": 10}, {"max_tokens": 9}]
    assert reply.extra_fields["queue_seconds"] == 1.0
    assert reply.extra_fields["num_cached_tokens"] == 2  # of the prompt, when it was first read


@pytest.mark.parametrize("num_engines", [1, 2])
def test_a_lone_engine_is_asked_without_the_load_balancer(
    num_engines: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    from verl.workers.rollout.replica import TokenOutput

    from longhaul_trainer.verl.client import EngineClient
    from longhaul_trainer.verl.modes import SyncTrainer

    verls = DictConfig({"actor_rollout_ref": {"rollout": {"name": "vllm"}}})
    released: list[str] = []

    def replies_with(value: object) -> SimpleNamespace:  # as an actor's method is called
        async def call(*_arguments: object, **_options: object) -> object:
            return value

        return SimpleNamespace(remote=call)

    def release(*, server_id: str) -> None:
        released.append(server_id)

    engines = [
        SimpleNamespace(generate=replies_with(TokenOutput(token_ids=[place], log_probs=[-1])))
        for place in range(num_engines)
    ]
    balancer = SimpleNamespace(
        require_acquire_fields=replies_with([]),
        require_release_fields=replies_with([]),
        acquire_server=replies_with(("second", engines[-1])),
        release_server=SimpleNamespace(remote=release),
    )

    def get_client(*, client_cls: type[EngineClient], **options: Any) -> EngineClient:  # noqa: ANN401
        return client_cls(verls, balancer if num_engines > 1 else None, **options)

    trainer = SyncTrainer.__new__(SyncTrainer)
    manager = SimpleNamespace(
        server_handles=engines,
        server_addresses=["first", "second"][:num_engines],
        get_client=get_client,
    )
    monkeypatch.setattr(trainer, "llm_server_manager", manager, raising=False)

    reply = asyncio.run(
        trainer.get_llm_client().generate("episode", prompt_ids=[1], sampling_params={})
    )

    assert reply.token_ids == [num_engines - 1]
    assert released == (["second"] if num_engines > 1 else [])


def test_both_asynchronous_trainers_take_it() -> None:
    from longhaul_trainer.verl.client import InterruptibleClient
    from longhaul_trainer.verl.modes import ColocateAsyncTrainer, SeparateAsyncTrainer

    class Manager:
        def get_client(self, *, client_cls: type) -> type:
            return client_cls

    for kind, name in (
        (ColocateAsyncTrainer, "llm_server_manager"),
        (SeparateAsyncTrainer, "standalone_server_manager"),
    ):
        trainer = kind.__new__(kind)
        setattr(trainer, name, Manager())
        assert trainer.get_llm_client() is InterruptibleClient
