"""Tests for `longhaul_trainer.play.programs.by_hand`: a gateway that stands alone."""

import asyncio
from collections.abc import Mapping

import httpx
import pytest

from fakes import ByteChatRenderer, ScriptedPolicy
from longhaul_core.errors import StoreError
from longhaul_core.rollout import EpisodeLimits, Responder
from longhaul_core.store.records import EpisodeRecord
from longhaul_trainer.gateway.episode import CallRules
from longhaul_trainer.play.programs.by_hand import GatewayByHand

LIMITS = EpisodeLimits(horizon=8, max_prompt_tokens=4_096, close_deadline_seconds=0.1)


def test_a_store_that_refuses_an_episode_opened_on_demand_ends_the_gateway() -> None:
    addresses: asyncio.Queue[str] = asyncio.Queue()

    async def store(record: EpisodeRecord) -> None:
        raise StoreError("the disk is full")

    def opened(number: int, environ: Mapping[str, str]) -> None:
        addresses.put_nowait(environ["LONGHAUL_URL"].partition("/e/")[0])

    async def serve() -> None:
        by_hand = GatewayByHand(
            Responder(policy=ScriptedPolicy(("north",)), renderer=ByteChatRenderer()),
            names=["policy"],
            run_id="run",
            store=store,
            rules=CallRules(trains=False),
            limits=LIMITS,
            host="127.0.0.1",
            port=0,
            on_open=opened,
            on_end=lambda number, record: None,
        )
        serving = asyncio.create_task(by_hand.serve())
        async with httpx.AsyncClient(base_url=await addresses.get(), timeout=60) as http:
            key = {"Authorization": f"Bearer {by_hand.key}"}
            environ = (await http.post("/episodes", headers=key)).json()["environ"]
            own = {"Authorization": f"Bearer {environ['LONGHAUL_KEY']}"}
            asked = {"model": "auto", "messages": [{"role": "user", "content": "Which way?"}]}
            url = f"{environ['OPENAI_BASE_URL']}/chat/completions"
            assert (await http.post(url, json=asked, headers=own)).status_code == 200
            said = {"reward": 1.0, "done": True}
            await http.post(f"{environ['LONGHAUL_URL']}/step", json=said, headers=own)
        async with asyncio.timeout(60):
            await serving

    with pytest.raises(StoreError, match="the disk is full"):
        asyncio.run(serve())
