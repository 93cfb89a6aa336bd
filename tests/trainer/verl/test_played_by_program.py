"""TextCraft played by our loop, and by a program that talks to the gateway: the same training.

The program asks with the `openai` package. Seeds and policy are the loop's, so whatever differs
would be the gateway's doing: tokens, rows, advantages, weights, loss, gradient.
"""

import asyncio
import hashlib
import random
import re
from collections.abc import Generator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import openai
import pytest
import torch

from longhaul_core.actions import build_parser
from longhaul_core.memory import MemoryContext
from longhaul_core.store.records import EpisodeRecord
from longhaul_core.types import Call, FailedEpisode, Split, Task
from longhaul_trainer.config import RunConfig
from longhaul_trainer.models import prepare_model
from longhaul_trainer.play.environments import (
    descriptions_of,
    memory_builder,
    prompt_template,
    source_of,
)
from longhaul_trainer.play.programs.program import Endpoint
from longhaul_trainer.run.context import RunContext
from longhaul_trainer.training.step_metadata import METADATA, RowMetadata, read_metadata
from longhaul_trainer.training.training_step import TrainingStep
from longhaul_trainer.verl.run_recorder import RunRecorder
from trainer.verl.updates import ReadRow, still_run, update_of
from verl_process import IMPORTS_VERL, one_worker

pytestmark = IMPORTS_VERL

GROUP_SIZE, HORIZON = 4, 5
PLAYED: dict[str, Any] = {
    "num_training_steps": 1,
    "tasks_per_training_step": 1,
    "model": {"path": "tiny"},
    "rollout": {"horizon": HORIZON, "group_size": GROUP_SIZE, "max_prompt_tokens": 2000},
    "validation": {"num_tasks": 2, "test_num_tasks": 2},
    "environment": {
        "id": "longhaul/TextCraft-v0",
        "options": {"depth": 1},
        "isolation": "thread",
    },
    "optimizer": {"micro_batch_tokens": 4096},
}
BY_LOOP: dict[str, Any] = {"memory": {"kind": "full"}}
BY_PROGRAM: dict[str, Any] = {
    "agent": {"kind": "function", "function": "trainer.verl.test_played_by_program:play"}
}


def run_of(how: dict[str, Any], *, rows: str) -> RunConfig:
    optimizer = PLAYED["optimizer"] | {"rows": rows}
    return RunConfig.model_validate(PLAYED | how | {"optimizer": optimizer})


async def play(task: dict[str, object], endpoint: Endpoint) -> dict[str, object]:
    """What a user's agent would do: an environment of its own, prompts of its own, a client."""
    run = run_of(BY_LOOP, rows="merged")
    (entry,) = run.played_environments
    source = source_of(entry)
    template = prompt_template(entry, source.describe())
    memory, parser = memory_builder(entry, template=template)(), build_parser("tags")
    (played,) = (one for one in source.tasks(Split.TRAIN) if one.task_id == task["id"])
    environment = source.make(played)
    await environment.open()
    observation, success = await environment.reset(played), False
    async with openai.AsyncOpenAI(**endpoint.openai, max_retries=0) as client:
        while True:
            endpoint.step(anchor_state=observation.anchor)
            messages: Any = [
                {"role": message.role, "content": message.text}
                for message in memory.compose(observation)
            ]
            try:
                answer = await client.chat.completions.create(model="auto", messages=messages)
            except openai.BadRequestError:  # the episode has as many steps as it may have
                break
            reply = answer.choices[0].message.content or ""
            action = parser.parse(reply, observation.admissible_actions)
            result = await environment.step(action.text)
            endpoint.step(reward=result.reward)
            success = result.success
            if result.terminated or result.truncated:
                break
            context = MemoryContext(task=played, complete=_nobody)
            await memory.write(
                observation=observation, reply=reply, action=action.text, context=context
            )
            observation = result.observation
    await environment.close()
    return {"reward": 0.0, "success": success}


async def _nobody(prompt: object, **settings: object) -> Call:
    raise AssertionError("this memory asks nobody")


class SeededPolicy:
    """An engine that draws from what the prompt says can be done, by prompt and seed."""

    def __init__(self, tokenizer: Any) -> None:  # noqa: ANN401
        self._tokenizer = tokenizer

    async def generate(self, request_id: str, **asked: Any) -> SimpleNamespace:  # noqa: ANN401
        prompt, seed = asked["prompt_ids"], asked["sampling_params"]["seed"]
        digest = hashlib.sha256(f"{prompt} {seed}".encode()).digest()
        draw = random.Random(digest)
        text = self._tokenizer.decode(prompt)
        crafts = re.findall(r"craft \d+ [\w ]+ using [\w ,]+\d* ?[\w ]+", text)
        gets = [
            f"get {part.strip()}"
            for craft in crafts
            for part in craft[5:].split("using")[1].split(",")
        ]
        action = draw.choice([*crafts, *gets, "inventory"])
        tokens = self._tokenizer.encode(f"<action>{action}</action>", add_special_tokens=False)
        tokens.append(self._tokenizer.eos_token_id)
        if (on_tokens := asked.get("on_tokens")) is not None:
            on_tokens(tokens)
        return SimpleNamespace(
            token_ids=tokens,
            log_probs=[-draw.random() for _ in tokens],
            stop_reason="completed",
            extra_fields={"min_global_steps": 0},
        )


class Recorder:
    def __init__(self) -> None:
        self.episodes: list[EpisodeRecord] = []

    async def commit(self, records: Sequence[object]) -> None:
        self.episodes += [each for each in records if isinstance(each, EpisodeRecord)]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepare_model("tiny", tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def worker(model: Path, cpu_run: None) -> Generator[Any]:
    with one_worker(still_run(), model) as made:
        yield made


class Played:
    """A group's episodes, as one way of playing leaves them."""

    def __init__(self, model: Path, how: dict[str, Any], *, rows: str) -> None:
        from transformers import AutoTokenizer

        from longhaul_trainer.verl.agent_loop import EpisodeService

        self.run = run = run_of(how, rows=rows)
        tokenizer: Any = AutoTokenizer.from_pretrained(model)
        recorder = Recorder()
        (entry,) = run.played_environments
        task: Task = source_of(entry).tasks(Split.TRAIN)[0]

        def find(_name: str, *, max_pending: int) -> Recorder:
            return recorder

        async def group() -> list[list[Any]]:
            context = RunContext(
                run_id="run",
                attempt=0,
                recorder_name="none",
                config=run,
                descriptions=descriptions_of(run),
            )
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(RunRecorder, "find", find)
                engine: Any = SeededPolicy(tokenizer)
                service = EpisodeService(context, engine, tokenizer)
            playing = (
                service.play(
                    task,
                    phase="train",
                    training_step=1,
                    group_index=0,
                    sample_index=sample_index,
                    horizon=HORIZON,
                )
                for sample_index in range(GROUP_SIZE)
            )
            try:
                return await asyncio.gather(*playing)
            finally:
                await service.close()

        self.outputs = {
            f"train-1-0_{sample}_{place}": output
            for sample, outputs in enumerate(asyncio.run(group()))
            for place, output in enumerate(outputs)
        }
        self.records = sorted(recorder.episodes, key=lambda each: each.outcome.sample_index)
        failed = [each.outcome for each in self.records if isinstance(each.outcome, FailedEpisode)]
        assert not failed, failed[0].message

    @property
    def metadata(self) -> dict[str, RowMetadata]:
        fields = [output.extra_fields for output in self.outputs.values()]
        assert all(METADATA in each for each in fields)
        return dict(zip(self.outputs, read_metadata(fields), strict=True))

    def credited(self) -> TrainingStep:
        return TrainingStep.of(
            self.metadata,
            number=1,
            algorithm=self.run.algorithm,
            num_optimizer_steps=1,
            groups=["train-1-0"],
        ).credited()

    def update_rows(self) -> list[ReadRow]:
        """Rows as the learner reads them, old logprobs at a fixed distance from the sampled."""
        keys = list(self.outputs)
        lengths = [len(output.response_ids) for output in self.outputs.values()]
        columns = self.credited().columns(keys, lengths)
        return [
            ReadRow(
                prompt=output.prompt_ids,
                response=output.response_ids,
                mask=output.response_mask,
                old_logprobs=[value - 0.1 for value in output.response_logprobs],
                behavior_logprobs=output.response_logprobs,
                reference_logprobs=output.response_logprobs,
                advantages=columns["advantages"][place][: lengths[place]].tolist(),
                weights=columns["loss_weights"][place][: lengths[place]].tolist(),
                metadata=self.metadata[key],
            )
            for place, (key, output) in enumerate(self.outputs.items())
        ]


@pytest.fixture(scope="module", params=["merged", "step"])
def both(request: pytest.FixtureRequest, model: Path, cpu_run: None) -> tuple[Played, Played]:
    return tuple(Played(model, how, rows=request.param) for how in (BY_LOOP, BY_PROGRAM))  # type: ignore[return-value]


def test_the_policy_earns_different_returns(both: tuple[Played, Played]) -> None:
    """Without this, nothing below could fail."""
    returns = [sum(step.reward for step in record.outcome.steps) for record in both[0].records]

    assert len(set(returns)) > 1


def test_the_calls_have_the_same_tokens_and_logprobs(both: tuple[Played, Played]) -> None:
    by_loop, by_program = (
        [
            (step.reward, step.observation.anchor, [call.sampled for call in step.calls])
            for record in played.records
            for step in record.outcome.steps
        ]
        for played in both
    )

    assert by_program == by_loop


def test_the_rows_are_the_same(both: tuple[Played, Played]) -> None:
    by_loop, by_program = (
        {
            key: (
                output.prompt_ids,
                output.response_ids,
                output.response_mask,
                output.response_logprobs,
                output.reward_score,
            )
            for key, output in played.outputs.items()
        }
        for played in both
    )

    assert by_program == by_loop
    assert len(by_loop) == (GROUP_SIZE if both[0].run.optimizer.rows == "merged" else len(by_loop))


def test_the_advantages_are_the_same(both: tuple[Played, Played]) -> None:
    by_loop, by_program = (
        [(row.advantages, row.weights) for row in played.update_rows()] for played in both
    )

    assert by_program == by_loop
    assert any(value != 0 for advantages, _ in by_loop for value in advantages)


def test_the_loss_and_its_gradient_are_the_same(
    both: tuple[Played, Played],
    worker: Any,  # noqa: ANN401
) -> None:
    (expected, metrics), (found, of_program) = (
        update_of(worker, played.update_rows(), played.run.loss) for played in both
    )

    assert of_program["policy_loss"] == metrics["policy_loss"]
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    assert any(gradient.abs().max() > 0 for gradient in expected.values())
