"""Tests for `longhaul_trainer.verl.agent_loop`: an episode's rows and its record in the store."""

import asyncio
import threading
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
from longhaul_trainer.training.run_context import RunContext
from longhaul_trainer.verl.run_recorder import RunRecorder
from verl_process import IMPORTS_VERL

if TYPE_CHECKING:
    from verl.experimental.agent_loop import AgentLoopOutput

    from longhaul_trainer.verl.agent_loop import EpisodeService

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

    def __init__(self, tokens: Sequence[int] = (5, 6, 7)) -> None:
        self._tokens = list(tokens)

    async def generate(self, request_id: str, **_: object) -> SimpleNamespace:
        return SimpleNamespace(
            token_ids=self._tokens,
            log_probs=[-1.0] * len(self._tokens),
            stop_reason="completed",
            extra_fields={"min_global_steps": 0},
        )


class SlowRecorder:
    """Takes records at once, and has them in the store when `committed` is set."""

    def __init__(self, *, failure: StoreError | None = None) -> None:
        self.has_episode = asyncio.Event()
        self.committed = asyncio.Event()
        self.episodes: list[EpisodeRecord] = []
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
        self.episodes += [each for each in records if isinstance(each, EpisodeRecord)]
        if self.episodes:
            self.has_episode.set()


@pytest.fixture
def tokenizer(tmp_path: Path) -> Any:  # noqa: ANN401
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(prepare_model("tiny", tmp_path))


def service_of(
    recorder: SlowRecorder,
    tokenizer: Any,  # noqa: ANN401
    *,
    run: RunConfig = RUN,
    server: Server | None = None,
) -> "EpisodeService":
    """What episodes share whose records go to `recorder`."""
    from longhaul_trainer.verl.agent_loop import EpisodeService

    run_context = RunContext(run_id="run", attempt=0, recorder_name="none", config=run)

    def find(_name: str) -> SlowRecorder:
        return recorder

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RunRecorder, "find", find)
        engine: Any = server or Server()
        return EpisodeService(run_context, engine, tokenizer)


def begin(
    service: "EpisodeService", *, sample_index: int = 0
) -> "asyncio.Task[list[AgentLoopOutput]]":
    """Begin an episode of the first task."""
    return asyncio.create_task(
        service.play(
            task_panel(service.run, Split.VALIDATION).tasks[0],
            phase="train",
            training_step=1,
            group_index=0,
            sample_index=sample_index,
            horizon=2,
        )
    )


def play(
    recorder: SlowRecorder,
    tokenizer: Any,  # noqa: ANN401
) -> "asyncio.Task[list[AgentLoopOutput]]":
    """Begin an episode whose records go to `recorder`."""
    return begin(service_of(recorder, tokenizer))


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


def test_a_prompt_that_is_long_in_the_rendering_costs_no_other_episode_its_deadline(
    tokenizer: Any,  # noqa: ANN401
) -> None:
    run = RUN.model_copy(
        update={
            "environment": RUN.environment.model_copy(
                update={"reset_deadline_seconds": 5.0, "step_deadline_seconds": 5.0}
            ),
            "rollout": RUN.rollout.model_copy(update={"max_retries": 0}),
        }
    )

    async def both() -> tuple[bool, list[int]]:
        loop, recorder = asyncio.get_running_loop(), SlowRecorder()
        recorder.committed.set()
        first_is_rendered, other_has_ended = asyncio.Event(), threading.Event()
        render: Any = tokenizer.apply_chat_template

        def slow_at_first(*arguments: object, **options: object) -> object:
            if options["tokenize"] and not first_is_rendered.is_set():
                loop.call_soon_threadsafe(first_is_rendered.set)
                assert other_has_ended.wait(timeout=10), "the other episode waits too"
            return render(*arguments, **options)

        service = service_of(recorder, tokenizer, run=run)
        tokenizer.apply_chat_template = slow_at_first
        slow = begin(service)
        await first_is_rendered.wait()
        num_rows = len(await begin(service, sample_index=1))
        slow_had_ended = slow.done()
        other_has_ended.set()
        return slow_had_ended, [num_rows, len(await slow)]

    assert asyncio.run(both()) == (False, [2, 2])


def test_what_is_said_in_a_thought_that_the_chat_template_began_is_not_acted_on(
    tokenizer: Any,  # noqa: ANN401
) -> None:
    tokenizer.chat_template += "{% if add_generation_prompt %}{{ '<think>\\n' }}{% endif %}"
    thinking = tokenizer.encode("I could <action>inventory</action> or", add_special_tokens=False)

    async def actions() -> list[tuple[str, bool]]:
        recorder = SlowRecorder()
        recorder.committed.set()
        await begin(service_of(recorder, tokenizer, server=Server(thinking)))
        (episode,) = recorder.episodes
        return [(step.action, step.action_valid) for step in episode.outcome.steps]

    assert asyncio.run(actions()) == [("", False), ("", False)]
