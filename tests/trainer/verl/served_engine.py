"""A real vLLM engine on the CPU behind our server, as an actor that verl's client is given.

Verl's start of a server needs the learner's workers; here the engine is made by itself. All that a
request passes through is real: the client, Ray, verl's load balancer, the server, the engine.
"""

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import ray

MAX_MODEL_TOKENS = 2048


def start_engine(model: Path, *, max_model_tokens: int = MAX_MODEL_TOKENS) -> tuple[Any, Any]:
    """The actor, once its engine takes requests, and verl's load balancer; Ray must run."""
    from verl.workers.rollout.router import get_router_handle

    from longhaul_trainer.verl.engine_server import EngineServer

    replies = _recorded_replies()

    class Served(EngineServer):
        def __init__(self) -> None:
            fields: dict[str, object] = {
                "config": SimpleNamespace(
                    max_model_len=max_model_tokens,
                    full_determinism=False,
                    enable_rollout_routing_replay=False,
                    mtp=None,
                    get=lambda name, default=None: default,  # pyright: ignore[reportUnknownLambdaType]
                ),
                "model_config": SimpleNamespace(processor=None, lora_rank=0, lora={}),
                "node_rank": 0,
                "replica_rank": 0,
                "global_steps": 7,
                "_disaggregation_role": "null",
                "_pd_decode_peers": [],
                "_submission_paused": False,
                "_rejecting": False,
                "_admitting": 0,
                "_resume_event": asyncio.Event(),
            }
            for name, value in fields.items():
                setattr(self, name, value)
            self.prepare_requests()
            self.num_cancelled = 0

        async def generate(self, *given: Any, **named: Any) -> Any:  # noqa: ANN401
            try:
                return await super().generate(*given, **named)
            except asyncio.CancelledError:
                self.num_cancelled += 1
                raise

        async def requests_cancelled(self) -> int:
            """Requests that were given up before their reply was whole."""
            return self.num_cancelled

        async def start(self, model: str) -> None:
            from vllm import AsyncEngineArgs
            from vllm.v1.engine.async_llm import AsyncLLM

            from longhaul_trainer.verl.model_classes import ask_a_fork

            ask_a_fork()

            options: dict[str, Any] = {
                "model": model,
                "dtype": "float32",
                "enforce_eager": True,
                "kv_cache_memory_bytes": 2**27,
                "max_model_len": max_model_tokens,
                "max_num_seqs": 64,
                "logprobs_mode": "processed_logprobs",
                "stream_interval": max_model_tokens,
            }
            self.engine = replies(AsyncLLM.from_engine_args(AsyncEngineArgs(**options)))

        async def num_in_flight(self) -> tuple[int, int]:
            """Requests that the engine has, and outboxes of clients."""
            return len(self.engine.output_processor.request_states), len(self._outboxes)

        async def read_and_written(self) -> list[tuple[list[int], list[int]]]:
            """Prompt and reply of every request that was finished, in order of their ends."""
            return self.engine.read_and_written

        async def stop(self) -> None:
            self.engine.shutdown()

    make_actor: Any = ray.remote
    server = make_actor(num_cpus=0, max_concurrency=200)(Served).remote()
    ray.get(server.start.remote(str(model)))
    return server, get_router_handle({"engine": server}, None, full_determinism=False)


def _recorded_replies() -> Any:  # noqa: ANN401
    """The class that makes whole replies, which also keeps a record; verl must be importable."""
    from longhaul_trainer.verl.engine_server import WholeReplies

    class RecordedReplies(WholeReplies):
        """Keeps what the engine read and wrote, as it says itself."""

        def __init__(self, engine: Any) -> None:  # noqa: ANN401
            super().__init__(engine)
            self.read_and_written: list[tuple[list[int], list[int]]] = []

        async def generate(self, *, request_id: str, **asked: Any) -> AsyncGenerator[Any]:  # noqa: ANN401
            whole: Any = None
            async for whole in super().generate(request_id=request_id, **asked):
                yield whole
            self.read_and_written.append(
                (list(whole.prompt_token_ids), list(whole.outputs[0].token_ids))
            )

    return RecordedReplies


def client_of(balancer: Any, kind: Any) -> Any:  # noqa: ANN401
    """A client of verl's, of the given class, that finds the server by the load balancer."""
    from omegaconf import DictConfig

    return kind(DictConfig({"actor_rollout_ref": {"rollout": {"name": "vllm"}}}), balancer)
