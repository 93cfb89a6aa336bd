"""Tests for `longhaul_trainer.verl.agent_loop`: an episode's rows and its record in the store."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from longhaul_core.errors import StoreError
from longhaul_core.store.records import EpisodeRecord, Record
from longhaul_core.types import Split
from longhaul_trainer.config import RunConfig
from longhaul_trainer.environments import task_panel
from longhaul_trainer.models import prepare_model
from longhaul_trainer.verl.recorder import Recorder
from longhaul_trainer.verl.runtime import RunTicket
from verl_process import IMPORTS_VERL

if TYPE_CHECKING:
    from verl.experimental.agent_loop import AgentLoopOutput

pytestmark = IMPORTS_VERL

RUN = RunConfig.model_validate(
    {
        "num_training_steps": 1,
        "tasks_per_training_step": 1,
        "environment": {
            "id": "longhaul/TextCraft-v0",
            "options": {"depth": 1},
            "isolation": "thread",
        },
        "validation": {"num_tasks": 2, "test_num_tasks": 2},
        "rollout": {"horizon": 2},
    }
)


class Server:
    """Replies with the same tokens to every prompt."""

    async def generate(self, request_id: str, **_: object) -> SimpleNamespace:
        return SimpleNamespace(
            token_ids=[5, 6, 7],
            log_probs=[-1.0, -1.0, -1.0],
            stop_reason="completed",
            extra_fields={"min_global_steps": 0},
        )


class SlowRecorder:
    """Takes records at once, and has them in the store when `committed` is set."""

    def __init__(self, *, failure: StoreError | None = None) -> None:
        self.has_episode = asyncio.Event()
        self.committed = asyncio.Event()
        self._failure = failure
        self._loop = asyncio.get_running_loop()

    def put(self, records: Sequence[Record]) -> None:
        """Take them, from another thread than the event loop's."""
        self._loop.call_soon_threadsafe(self._take, records)

    async def commit(self, records: Sequence[Record]) -> None:
        self._take(records)
        if self._failure is not None:
            raise self._failure
        await self.committed.wait()

    def _take(self, records: Sequence[Record]) -> None:
        if any(isinstance(each, EpisodeRecord) for each in records):
            self.has_episode.set()


@pytest.fixture
def tokenizer(tmp_path: Path) -> Any:  # noqa: ANN401
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(prepare_model("tiny", tmp_path))


def play(
    recorder: SlowRecorder,
    tokenizer: Any,  # noqa: ANN401
) -> "asyncio.Task[list[AgentLoopOutput]]":
    """Begin an episode whose records go to `recorder`."""
    from longhaul_trainer.verl.agent_loop import EpisodeService

    ticket = RunTicket(run_id="run", attempt=0, recorder_name="none", config=RUN)

    def find(_name: str) -> SlowRecorder:
        return recorder

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Recorder, "find", find)
        server: Any = Server()
        service = EpisodeService(ticket, server, tokenizer)
    return asyncio.create_task(
        service.play(
            task_panel(RUN, Split.VALIDATION).tasks[0],
            phase="train",
            training_step=1,
            group_index=0,
            position=0,
            horizon=2,
        )
    )


def test_an_episodes_rows_go_on_when_the_store_has_it(tokenizer: Any) -> None:  # noqa: ANN401
    async def rows_before_and_after() -> tuple[bool, int]:
        recorder = SlowRecorder()
        playing = play(recorder, tokenizer)
        await recorder.has_episode.wait()
        done, _ = await asyncio.wait({playing}, timeout=0.5)
        recorder.committed.set()
        return bool(done), len(await playing)

    assert asyncio.run(rows_before_and_after()) == (False, 2)


def test_an_episode_that_the_store_refuses_fails_itself(tokenizer: Any) -> None:  # noqa: ANN401
    async def refused() -> None:
        await play(SlowRecorder(failure=StoreError("the disk is full")), tokenizer)

    with pytest.raises(StoreError, match="the disk is full"):
        asyncio.run(refused())
