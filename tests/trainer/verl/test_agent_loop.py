"""Tests for `longhaul_trainer.verl.agent_loop`: an episode's rows and its record in the store."""

import asyncio
import importlib
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import openai
import pytest

from longhaul_core.errors import StoreError
from longhaul_core.store.records import EpisodeRecord, Phase, Record
from longhaul_core.types import (
    Call,
    CreditedBy,
    FailedEpisode,
    FailureCause,
    FinishReason,
    Split,
)
from longhaul_trainer.config import RunConfig
from longhaul_trainer.config.agent_loops import AgentLoop
from longhaul_trainer.config.episodes import AgentConfig
from longhaul_trainer.models import prepare_model
from longhaul_trainer.play.environments import descriptions_of, task_panel
from longhaul_trainer.play.programs.program import Endpoint
from longhaul_trainer.run.context import RunContext
from longhaul_trainer.training.step_metadata import read_metadata
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
    """Replies with the same tokens to every prompt, and keeps how it was asked."""

    def __init__(self, tokens: Sequence[int] = (5, 6, 7)) -> None:
        self._tokens = list(tokens)
        self.asked: list[dict[str, Any]] = []
        self.reported: dict[str, object] = {}

    @property
    def max_tokens(self) -> list[int]:
        return [asked["max_tokens"] for asked in self.asked]

    async def generate(self, request_id: str, **asked: Any) -> SimpleNamespace:  # noqa: ANN401
        self.asked.append(asked["sampling_params"])
        return SimpleNamespace(
            token_ids=self._tokens,
            log_probs=[-1.0] * len(self._tokens),
            stop_reason="completed",
            extra_fields={"min_global_steps": 0} | self.reported,
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
def tokenizer(model_folder: Path) -> Any:  # noqa: ANN401
    """One of each test's own, whose template it may change."""
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(model_folder)


def service_of(
    recorder: SlowRecorder,
    tokenizer: Any,  # noqa: ANN401
    *,
    run: RunConfig = RUN,
    server: Server | None = None,
    agent_loop: AgentLoop | None = None,
    processor: object = None,
) -> "EpisodeService":
    """What episodes share whose records go to `recorder`."""
    from longhaul_trainer.verl.agent_loop import EpisodeService

    run_context = RunContext(
        run_id="run",
        attempt=0,
        recorder_name="none",
        config=run,
        descriptions=descriptions_of(run),
    )

    def find(_name: str, *, max_pending: int) -> SlowRecorder:
        return recorder

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RunRecorder, "find", find)
        engine: Any = server or Server()
        return EpisodeService(
            run_context, engine, tokenizer, processor=processor, agent_loop=agent_loop
        )


def begin(
    service: "EpisodeService", *, sample_index: int = 0, horizon: int = 2
) -> "asyncio.Task[list[AgentLoopOutput]]":
    """Begin an episode of the first task."""
    return asyncio.create_task(
        service.play(
            task_panel(service.run, Split.VALIDATION).tasks[0],
            phase="train",
            training_step=1,
            group_index=0,
            sample_index=sample_index,
            horizon=horizon,
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
                update={"reset_deadline_seconds": 20.0, "step_deadline_seconds": 20.0}
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
            if not first_is_rendered.is_set():
                loop.call_soon_threadsafe(first_is_rendered.set)
                assert other_has_ended.wait(timeout=60), "the other episode waits too"
            return render(*arguments, **options)

        service = service_of(recorder, tokenizer, run=run)
        tokenizer.apply_chat_template = slow_at_first
        slow = begin(service)
        await asyncio.wait_for(first_is_rendered.wait(), timeout=60)
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


def stored_calls(
    tokenizer: Any,  # noqa: ANN401
    *,
    horizon: int = 2,
    server: Server | None = None,
    **sections: Mapping[str, object],
) -> list[tuple[Call, ...]]:
    """The calls of each step of an episode, as the recorder gets them, with other settings."""
    run = RunConfig.model_validate(RUN.model_dump() | sections)

    async def play_one() -> list[tuple[Call, ...]]:
        recorder = SlowRecorder()
        recorder.committed.set()
        await begin(service_of(recorder, tokenizer, run=run, server=server), horizon=horizon)
        (episode,) = recorder.episodes
        return [step.calls for step in episode.outcome.steps]

    return asyncio.run(play_one())


def test_an_agent_that_plans_first_makes_two_calls_a_step(
    tokenizer: Any,  # noqa: ANN401
) -> None:
    steps = stored_calls(tokenizer, agent={"kind": "plan_then_act"})

    assert [[(call.purpose, call.agent, call.trained) for call in calls] for calls in steps] == [
        [("plan", "planner", True), ("act", "", True)]
    ] * 2


def test_an_agent_of_ones_own_is_made_once_for_all_environments_and_phases(
    tokenizer: Any,  # noqa: ANN401
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "counted_agent.py").write_text(
        "from longhaul_core.rollout import SingleCall\n"
        "made = []\n"
        "def agent():\n"
        "    made.append(SingleCall())\n"
        "    return made[-1]\n",
        encoding="utf-8",
    )
    monkeypatch.syspath_prepend(tmp_path)
    run = RUN.model_copy(update={"agent": AgentConfig(kind="counted_agent:agent")})

    async def make() -> None:
        service_of(SlowRecorder(), tokenizer, run=run)

    asyncio.run(make())

    assert len(importlib.import_module("counted_agent").made) == 1


@pytest.mark.parametrize("trained", [False, True])
def test_the_runs_memory_has_the_model_write_its_summaries(
    tokenizer: Any,  # noqa: ANN401
    trained: bool,
) -> None:
    server = Server(tokenizer.encode("so far", add_special_tokens=False))
    steps = stored_calls(
        tokenizer,
        horizon=3,
        server=server,
        memory={
            "kind": "summary",
            "size": 1,
            "summarize_every": 1,
            "max_summary_tokens": 5,
            "train_summaries": trained,
        },
    )

    act = ("act", True, CreditedBy.STEP)
    assert [[(c.purpose, c.trained, c.credited_by) for c in calls] for calls in steps] == [
        [act],
        [act, ("remember", trained, CreditedBy.NEXT_STEP)],
        [act],
    ]
    assert server.max_tokens == [64, 64, 5, 64]
    assert steps[2][0].messages[-1].text.startswith("Summary:\nso far\nPast:\n")


def test_a_reply_is_cut_at_its_own_limit_and_stops_at_an_end_token(
    tokenizer: Any,  # noqa: ANN401
) -> None:
    end = tokenizer.eos_token_id

    def reasons(tokens: Sequence[int]) -> list[FinishReason]:
        short = RUN.rollout.model_dump() | {"max_reply_tokens": 3}
        steps = stored_calls(tokenizer, horizon=1, server=Server(tokens), rollout=short)
        return [call.finish_reason for calls in steps for call in calls]

    assert reasons([5, 6]) == [FinishReason.STOP]  # a stop word
    assert reasons([5, 6, end]) == [FinishReason.STOP]
    assert reasons([5, 6, 7]) == [FinishReason.LENGTH]


def test_a_reply_is_drawn_by_a_seed_of_its_own_or_by_the_engines_generator(
    tokenizer: Any,  # noqa: ANN401
) -> None:
    def seeds(reproducibility: str) -> list[object]:
        server = Server()
        rollout = RUN.rollout.model_dump() | {"reproducibility": reproducibility}
        stored_calls(tokenizer, server=server, rollout=rollout)
        return [asked.get("seed") for asked in server.asked]

    exact, fast = seeds("exact"), seeds("fast")

    assert len({*exact} - {None}) == 2
    assert seeds("exact") == exact
    assert fast == [None, None]


def test_what_the_engine_reports_of_a_call_is_recorded_with_it(
    tokenizer: Any,  # noqa: ANN401
) -> None:
    def engine_line(**reported: object) -> list[tuple[int | None, float]]:
        server = Server()
        server.reported = reported
        steps = stored_calls(tokenizer, horizon=1, server=server)
        return [(call.num_cached_tokens, call.queue_seconds) for calls in steps for call in calls]

    assert engine_line(num_cached_tokens=48, queue_seconds=0.25) == [(48, 0.25)]
    assert engine_line() == [(None, 0.0)]


def test_an_episodes_rows_are_made_beside_the_event_loop(
    tokenizer: Any,  # noqa: ANN401
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from longhaul_trainer.verl import agent_loop

    to_rows: Any = agent_loop.to_rows

    async def other_work_went_on() -> bool:
        loop, recorder, went_on = asyncio.get_running_loop(), SlowRecorder(), threading.Event()
        recorder.committed.set()
        answers: list[bool] = []

        def slow(*arguments: object, **options: object) -> object:
            loop.call_soon_threadsafe(went_on.set)
            answers.append(went_on.wait(timeout=60))
            return to_rows(*arguments, **options)

        monkeypatch.setattr(agent_loop, "to_rows", slow)
        await begin(service_of(recorder, tokenizer))
        return all(answers)

    assert asyncio.run(other_work_went_on())


def test_environments_with_the_same_reply_prefix_share_a_renderer(
    tokenizer: Any,  # noqa: ANN401
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from longhaul_trainer.verl import agent_loop

    made: list[str] = []

    class Counted(agent_loop.ChatTemplateRenderer):
        def __init__(self, tokenizer: Any, *, reply_prefix: str = "", **rest: Any) -> None:  # noqa: ANN401
            super().__init__(tokenizer, reply_prefix=reply_prefix, **rest)
            made.append(reply_prefix)

    monkeypatch.setattr(agent_loop, "ChatTemplateRenderer", Counted)
    prefixes = {"TextCraft": "", "BabyAI": "", "Sokoban": "<action>"}
    of_one = {"environment", "memory", "prompt", "actions", "environments"}
    run = RunConfig.model_validate(
        {name: value for name, value in RUN.model_dump().items() if name not in of_one}
        | {
            "environments": [
                {
                    "id": f"longhaul/{name}-v0",
                    "isolation": "thread",
                    "prompt": {"reply_prefix": prefix},
                }
                for name, prefix in prefixes.items()
            ]
        }
    )

    async def make() -> None:
        service_of(SlowRecorder(), tokenizer, run=run)

    asyncio.run(make())

    assert sorted(made) == ["", "<action>"]


class RefusingServer(Server):
    """Gives no reply to its first requests."""

    def __init__(self, *, num_refused: int) -> None:
        super().__init__()
        self._num_refused = num_refused

    async def generate(self, request_id: str, **asked: Any) -> SimpleNamespace:  # noqa: ANN401
        reply = await super().generate(request_id, **asked)
        if len(self.max_tokens) <= self._num_refused:
            reply.stop_reason = "aborted"
        return reply


@pytest.mark.parametrize(("num_refused", "num_rows"), [(1, 2), (2, 0)])
def test_every_try_is_stored_and_the_last_one_has_the_rows(
    tokenizer: Any,  # noqa: ANN401
    num_refused: int,
    num_rows: int,
) -> None:
    async def tries() -> tuple[list[tuple[int, bool]], int]:
        recorder = SlowRecorder()
        recorder.committed.set()
        server = RefusingServer(num_refused=num_refused)
        rows = await begin(service_of(recorder, tokenizer, server=server))
        return [
            (episode.retry, isinstance(episode.outcome, FailedEpisode))
            for episode in recorder.episodes
        ], len(rows)

    assert asyncio.run(tries()) == ([(0, True), (1, num_refused == 2)], num_rows)


def test_a_failure_is_not_retried_where_it_is_left_out(
    tokenizer: Any,  # noqa: ANN401
) -> None:
    left_out = RUN.rollout.model_copy(update={"on_failure": "leave_out"})

    async def num_tries() -> int:
        recorder = SlowRecorder()
        recorder.committed.set()
        run = RUN.model_copy(update={"rollout": left_out})
        await begin(service_of(recorder, tokenizer, run=run, server=RefusingServer(num_refused=1)))
        return len(recorder.episodes)

    assert asyncio.run(num_tries()) == 1


def test_the_episodes_of_a_stopped_group_end_are_stored_and_are_not_played_again(
    tokenizer: Any,  # noqa: ANN401
) -> None:
    class Hanging(Server):
        def __init__(self) -> None:
            super().__init__()
            self.is_asked = asyncio.Event()

        async def generate(self, request_id: str, **asked: Any) -> SimpleNamespace:  # noqa: ANN401
            self.is_asked.set()
            await asyncio.Event().wait()
            raise AssertionError("unreachable")

    async def stopped() -> tuple[list[FailureCause], int]:
        recorder = SlowRecorder()
        recorder.committed.set()
        server = Hanging()
        service = service_of(recorder, tokenizer, server=server)
        playing = begin(service)
        await asyncio.wait_for(server.is_asked.wait(), timeout=60)
        service.in_flight.stop(["train-1-0"])
        async with asyncio.timeout(60):
            assert await playing == []
        outcomes = [episode.outcome for episode in recorder.episodes]
        assert all(isinstance(outcome, FailedEpisode) for outcome in outcomes)
        found = service.in_flight.stop(["train-1-0"])
        causes = [one.cause for one in outcomes if isinstance(one, FailedEpisode)]
        return causes, found["train-1-0"].num_episodes

    assert asyncio.run(stopped()) == ([FailureCause.STOPPED_EARLY], 1)


def of_pictures(model: str, pictures: str) -> RunConfig:
    """A run of Sokoban's pictures."""
    return RunConfig.model_validate(
        RUN.model_dump(exclude_unset=True)
        | {
            "model": {"path": model, "pictures": pictures},
            "environment": {
                "id": "longhaul/Sokoban-v0",
                "options": {"size": 5, "min_pushes": 1, "observation": "image"},
                "isolation": "thread",
            },
        }
    )


@pytest.mark.parametrize(("pictures", "is_grey"), [("read", False), ("grey", True)])
def test_engine_and_learner_are_shown_the_same_pictures(pictures: str, *, is_grey: bool) -> None:
    from transformers import AutoProcessor

    load: Any = AutoProcessor.from_pretrained
    processor = load(prepare_model("tiny-vision"))

    class Looking(Server):
        def __init__(self) -> None:
            super().__init__()
            self.shown: list[Any] = []

        async def generate(self, request_id: str, **asked: Any) -> SimpleNamespace:  # noqa: ANN401
            self.shown += asked["image_data"]
            return await super().generate(request_id, **asked)

    async def played() -> tuple[list[Any], list[Any]]:
        recorder = SlowRecorder()
        recorder.committed.set()
        server = Looking()
        service = service_of(
            recorder,
            processor.tokenizer,
            run=of_pictures("tiny-vision", pictures),
            server=server,
            processor=processor,
        )
        rows: list[Any] = await begin(service)
        return server.shown, [image for row in rows for image in row.multi_modal_data["images"]]

    shown, learned = asyncio.run(played())

    assert [image.tobytes() for image in learned] == [image.tobytes() for image in shown]
    assert [image.size for image in shown] == [(160, 160)] * 2
    assert [image.getcolors() == [(160 * 160, (128,) * 3)] for image in shown] == [is_grey] * 2


@pytest.mark.parametrize(("pictures", "num_calls"), [("read", 0), ("never", 2)])
def test_a_picture_that_was_not_declared_fails_its_episode_unless_the_run_agrees(
    tokenizer: Any,  # noqa: ANN401
    pictures: str,
    num_calls: int,
) -> None:
    run = of_pictures("tiny", pictures)

    async def outcome() -> tuple[object, int]:
        recorder = SlowRecorder()
        recorder.committed.set()
        server = Server()
        await begin(service_of(recorder, tokenizer, run=run, server=server))
        return recorder.episodes[-1].outcome, len(server.asked)

    found, asked = asyncio.run(outcome())

    assert asked == num_calls
    assert isinstance(found, FailedEpisode) == (pictures == "read")
    if isinstance(found, FailedEpisode):
        assert found.cause == FailureCause.RENDERER_ERROR
        assert "1 pictures, and the model reads none" in found.message


class BusyServer(Server):
    """Counts the most requests that it had at once; answers none before it has had so many."""

    def __init__(self, wanted: int) -> None:
        super().__init__()
        self._num_now = 0
        self.most = 0
        self._wanted = wanted
        self._has_so_many = asyncio.Event()

    async def generate(self, request_id: str, **others: object) -> SimpleNamespace:
        self._num_now += 1
        self.most = max(self.most, self._num_now)
        if self.most >= self._wanted:
            self._has_so_many.set()
        await asyncio.wait_for(self._has_so_many.wait(), timeout=60)
        await asyncio.sleep(0.05)
        self._num_now -= 1
        return await super().generate(request_id, **others)


def test_the_agent_loops_of_a_run_play_its_concurrent_episodes_together(
    tokenizer: Any,  # noqa: ANN401
) -> None:
    rollout = {"horizon": 2, "concurrent_episodes": 5}
    run = RunConfig.model_validate(RUN.model_dump(exclude_unset=True) | {"rollout": rollout})

    async def most_at_once(index: int, wanted: int) -> int:
        recorder, server = SlowRecorder(), BusyServer(wanted)
        recorder.committed.set()
        loop = AgentLoop(index=index, of=2)
        service = service_of(recorder, tokenizer, run=run, server=server, agent_loop=loop)
        await asyncio.gather(*(begin(service, sample_index=position) for position in range(8)))
        return server.most

    async def of_all_loops() -> list[int]:
        return [await most_at_once(index, wanted) for index, wanted in enumerate((3, 2))]

    assert asyncio.run(of_all_loops()) == [3, 2]


def test_an_episode_has_the_words_memory_and_limits_of_its_environment(
    tokenizer: Any,  # noqa: ANN401
) -> None:
    sections = RUN.model_dump(exclude={"environment", "prompt", "memory", "actions"})
    run = RunConfig.model_validate(
        sections
        | {
            "environments": [
                RUN.environment.model_dump() | {"step_deadline_seconds": 3.0},
                {"id": "longhaul/Sokoban-v0", "isolation": "thread", "prompt": {"system": "Push."}},
            ],
        }
    )

    async def played() -> list[EpisodeRecord]:
        recorder = SlowRecorder()
        recorder.committed.set()
        service = service_of(recorder, tokenizer, run=run)
        assert service.limits("longhaul/TextCraft-v0", 2).step_deadline_seconds == 3.0
        assert service.limits("longhaul/Sokoban-v0", 2).step_deadline_seconds == 30.0
        for part in task_panel(run, Split.VALIDATION).parts.values():
            await service.play(
                part.tasks[0],
                phase="validation",
                training_step=1,
                group_index=0,
                sample_index=0,
                horizon=2,
            )
        return recorder.episodes

    crafting, pushing = (record.outcome for record in asyncio.run(played()))
    words = [str(outcome.steps[0].calls[0].messages[0].content) for outcome in (crafting, pushing)]

    assert words[0].startswith("You craft items.")
    assert words[1] == "Push."
    assert crafting.steps[0].observation.text.startswith("Goal: craft")
    assert pushing.steps[0].observation.text.startswith("Goal: push")


@pytest.mark.parametrize(
    ("validation", "temperature"),
    [({}, 0.0), ({"temperature": 0.4, "samples_per_task": 2}, 0.4)],
)
def test_a_panel_is_played_as_validation_says_and_a_baseline_greedily(
    tokenizer: Any,  # noqa: ANN401
    validation: dict[str, object],
    temperature: float,
) -> None:
    run = RunConfig.model_validate(
        RUN.model_dump(mode="json")
        | {"validation": RUN.validation.model_dump() | validation, "rollout": {"temperature": 0.9}}
    )

    async def played(phase: Phase, sample_index: int) -> tuple[EpisodeRecord, list[dict[str, Any]]]:
        recorder, server = SlowRecorder(), Server()
        recorder.committed.set()
        service = service_of(recorder, tokenizer, run=run, server=server)
        await service.play(
            task_panel(run, Split.VALIDATION).tasks[0],
            phase=phase,
            training_step=1,
            group_index=0,
            sample_index=sample_index,
            horizon=2,
        )
        (episode,) = recorder.episodes
        return episode, server.asked

    seeds: list[int] = []
    for phase in ("validation", "test"):
        for sample_index in range(run.validation.samples_per_task):
            episode, asked = asyncio.run(played(phase, sample_index))
            assert {(each["temperature"], each["top_p"]) for each in asked} == {(temperature, 1.0)}
            assert episode.outcome.sample_index == sample_index
            assert episode.group_size == run.validation.samples_per_task
            seeds += [each["seed"] for each in asked]
    assert len(set(seeds)) == len(seeds)
    baseline, asked = asyncio.run(played("baseline", 0))
    assert {each["temperature"] for each in asked} == {0.0}
    assert baseline.group_size == 1
    _, asked = asyncio.run(played("train", 0))
    assert {each["temperature"] for each in asked} == {0.9}


async def one_untrained_call(task: dict[str, object], endpoint: Endpoint) -> float:
    async with openai.AsyncOpenAI(**endpoint.openai, max_retries=0) as client:
        await client.chat.completions.create(
            model="auto",
            messages=[{"role": "user", "content": "Which way?"}],
            extra_body={"longhaul": {"train": False}},
        )
    return 0.75


def test_a_step_that_is_shown_a_mark_of_the_models_is_counted(tokenizer: Any) -> None:  # noqa: ANN401
    def marked(environment: str) -> list[bool]:
        world = {"id": environment, "import_modules": ["broken_environments"]}
        run = RunConfig.model_validate(
            RUN.model_dump(exclude_unset=True) | {"environment": world | {"isolation": "thread"}}
        )

        async def played() -> "list[AgentLoopOutput]":
            recorder = SlowRecorder()
            recorder.committed.set()
            return await begin(service_of(recorder, tokenizer, run=run))

        (metadata, *_) = read_metadata([row.extra_fields for row in asyncio.run(played())])
        assert metadata.episode is not None
        return [step.spells_mark for step in metadata.episode.steps]

    assert marked("broken/Spelling-v0") == [True, True]
    assert marked("broken/Sound-v0") == [False, False]


@pytest.mark.parametrize("phase", ["validation", "test"])
def test_an_episode_of_a_panel_counts_though_no_call_of_it_is_trained(
    tokenizer: Any,  # noqa: ANN401
    phase: Phase,
) -> None:
    function = "trainer.verl.test_agent_loop:one_untrained_call"
    run = RunConfig.model_validate(
        RUN.model_dump(exclude_unset=True) | {"agent": {"kind": "function", "function": function}}
    )

    async def played() -> "list[AgentLoopOutput]":
        recorder = SlowRecorder()
        recorder.committed.set()
        service = service_of(recorder, tokenizer, run=run)
        try:
            return await service.play(
                task_panel(run, Split.VALIDATION).tasks[0],
                phase=phase,
                training_step=1,
                group_index=0,
                sample_index=0,
                horizon=2,
            )
        finally:
            await service.close()

    (row,) = asyncio.run(played())
    (beside,) = read_metadata([row.extra_fields])
    assert beside.episode is not None
    assert (beside.episode.episode_return, len(beside.episode.steps)) == (0.75, 1)
    assert (beside.spans, sum(row.response_mask)) == ((), 0)
