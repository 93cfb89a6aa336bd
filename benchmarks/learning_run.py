"""A training in one process: what verl's trainer does with Ray and vLLM, without them.

Episodes, memory, tasks, credit, loss and store are the product's own; the sampler and the loop
around the optimizer are plain torch. For `learning.py`, whose prompts are all of one length and
whose replies are one token.

Shapes: B rows, U distinct prompts among them, T = 1 token of a reply, V words.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportAttributeAccessIssue=false
# transformers is untyped.

import asyncio
import functools
import json
import os
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import torch
from learning_policy import WORDS, CachedRenderer, TorchPolicy, next_token_logits
from transformers import AutoTokenizer, LlamaForCausalLM

from longhaul_core.actions import build_parser
from longhaul_core.environment import StepResult
from longhaul_core.errors import LonghaulError
from longhaul_core.gym.convert import to_observation, to_step_result
from longhaul_core.memory import build_memory
from longhaul_core.rollout import Agent, EpisodeLimits, EpisodeSpec, episode_seed, run_episode
from longhaul_core.store import StoreWriter
from longhaul_core.store.records import (
    EpisodeRecord,
    Evaluation,
    LossInput,
    LossInputs,
    Metrics,
    PanelTasks,
    Phase,
    Record,
    RunEnded,
    RunStarted,
    TokenPieces,
)
from longhaul_core.tasks import Panel
from longhaul_core.types import FailedEpisode, Observation, SampledTokens, Split, Task, Trajectory
from longhaul_trainer.config import RunConfig
from longhaul_trainer.config.learning import LossConfig
from longhaul_trainer.losses import ActionTokens, ppo_loss
from longhaul_trainer.play.environments import (
    environment_spec,
    prompt_template,
    source_of,
    task_panel,
    task_stream,
)
from longhaul_trainer.rendering.pieces import token_pieces
from longhaul_trainer.run.context import RunContext
from longhaul_trainer.training.merging import beside_rows, cut_into_rows, metadata_of
from longhaul_trainer.training.run_records import RunRecords
from longhaul_trainer.training.step_metadata import GroupName, RowMetadata
from longhaul_trainer.training.training_step import TrainingStep

PROMPTS_AT_ONCE = 1024


class QuickEnvironment:
    """A Gymnasium environment that is called where the episode is; it never waits."""

    def __init__(self, make: Callable[[], gymnasium.Env[str, str]]) -> None:
        self._make = make

    async def open(self) -> None:
        """Nothing to wait for."""

    async def reset(self, task: Task) -> Observation:
        """See `Environment.reset`."""
        self._environment = self._make()
        return to_observation(
            *self._environment.reset(seed=task.seed, options={"task_id": task.task_id})
        )

    async def step(self, action: str) -> StepResult:
        """See `Environment.step`."""
        text, reward, terminated, truncated, info = self._environment.step(action)
        return to_step_result(text, reward, terminated=terminated, truncated=truncated, info=info)

    async def close(self) -> None:
        """Nothing is held."""


class OneProcessRun:
    """A training in this process: what verl's trainer does with Ray, without Ray."""

    def __init__(self, run: RunConfig, writer: StoreWriter, *, panel: Split) -> None:
        self._run = run
        self._writer = writer
        self._id = f"{run.name}-{time.time_ns() // 1_000_000}"
        self._model = LlamaForCausalLM.from_pretrained(run.model.path, dtype=torch.float32)
        self._optimizer = torch.optim.AdamW(
            self._model.parameters(),
            lr=run.optimizer.learning_rate,
            betas=run.optimizer.betas,
            weight_decay=run.optimizer.weight_decay,
        )
        self._panel = task_panel(run, panel)
        tokenizer: Any = AutoTokenizer.from_pretrained(run.model.path)
        self._tokenizer = tokenizer
        self._policy = TorchPolicy(self._model, tokenizer)
        renderer = CachedRenderer(tokenizer)
        (played,) = run.played_environments
        template = prompt_template(played, source_of(played).describe())
        self._agent = Agent(
            policy=self._policy,
            renderer=renderer,
            parser=build_parser(run.actions.format),
            build_memory=functools.partial(build_memory, run.memory.kind, template=template),
            temperature=run.rollout.temperature,
            max_reply_tokens=run.rollout.max_reply_tokens,
        )
        self._environment = environment_spec(run.environment)

    def go(self) -> None:
        """Train, validate, write everything down."""
        run = self._run
        pieces = token_pieces(self._tokenizer, range(len(WORDS)))
        self._writer.write(
            [
                RunStarted(
                    run_id=self._id,
                    name=run.name,
                    kind="train",
                    attempt=0,
                    config_json=json.dumps(run.model_dump(mode="json")),
                    provenance_json=json.dumps({"benchmark": "benchmarks/learning.py"}),
                    started_at=time.time(),
                    num_training_steps=run.num_training_steps,
                    pid=os.getpid(),
                ),
                PanelTasks(
                    run_id=self._id,
                    name=self._panel.split.value,
                    split=self._panel.split,
                    tasks=self._panel.tasks,
                ),
                TokenPieces(run_id=self._id, pieces=pieces),
            ]
        )
        stream = task_stream(run)
        if run.validation.before:
            self._validate(self._panel, training_step=0)
        for training_step in range(1, run.num_training_steps + 1):
            self._train_on(stream.next(run.tasks_per_training_step), training_step=training_step)
            if training_step % run.validation.every == 0:
                self._validate(self._panel, training_step=training_step)
        self._writer.write(
            [
                RunEnded(
                    run_id=self._id,
                    attempt=0,
                    status="finished",
                    message="",
                    ended_at=time.time(),
                )
            ]
        )

    def _play(
        self, wanted: Sequence[Task], *, phase: Phase, training_step: int, group_size: int
    ) -> list[EpisodeRecord]:
        """`group_size` episodes of each task, all at once."""
        run = self._run
        limits = EpisodeLimits(
            horizon=run.rollout.horizon, max_prompt_tokens=run.rollout.max_prompt_tokens
        )

        async def episode(task: Task, group_index: int, sample_index: int) -> EpisodeRecord:
            seed = episode_seed(
                run.seed,
                training_step=training_step,
                group_index=group_index,
                sample_index=sample_index,
                phase=phase,
            )
            outcome = await run_episode(
                EpisodeSpec(
                    task=task,
                    seed=seed,
                    group_index=group_index,
                    sample_index=sample_index,
                    retry=0,
                ),
                agent=self._agent,
                make_environment=lambda task: QuickEnvironment(self._environment.make),
                limits=limits,
            )
            if isinstance(outcome, FailedEpisode):
                raise LonghaulError(f"an episode failed: {outcome.message}")
            return EpisodeRecord(
                run_id=self._id,
                attempt=0,
                phase=phase,
                training_step=training_step,
                group_index=group_index,
                retry=0,
                outcome=outcome,
                group_size=group_size,
            )

        async def all_of_them() -> list[EpisodeRecord]:
            return await asyncio.gather(
                *(
                    episode(task, group_index, sample_index)
                    for group_index, task in enumerate(wanted)
                    for sample_index in range(group_size)
                )
            )

        return asyncio.run(all_of_them())

    def _train_on(self, batch: Sequence[Task], *, training_step: int) -> None:
        """One training step."""
        run = self._run
        started = time.perf_counter()
        episodes = self._play(
            batch, phase="train", training_step=training_step, group_size=run.rollout.group_size
        )
        played = time.perf_counter()
        outcomes = [trajectory_of(record) for record in episodes]
        groups = [GroupName(training_step, place) for place in range(len(batch))]
        calls = calls_of(run, episodes)
        step = TrainingStep.of(
            {key: row for key, (row, _) in calls.items()},
            number=training_step,
            algorithm=run.algorithm,
            num_optimizer_steps=run.optimizer.optimizer_steps_per_training_step,
            groups=[str(group) for group in groups],
        ).credited()
        logprobs = {
            key: torch.tensor(tokens.behavior_logprobs, dtype=torch.float64)
            for key, (_, tokens) in calls.items()
        }
        entropies = {
            key: torch.tensor([self._policy.entropy(tokens.prompt_tokens)], dtype=torch.float64)
            for key, (_, tokens) in calls.items()
        }
        made = RunRecords(
            RunContext(run_id=self._id, attempt=0, recorder_name="", config=run, descriptions={})
        )
        records: list[Record] = [
            *episodes,
            *made.decisions(training_step, taken=groups, thrown_away={}),
            *made.credit(
                training_step,
                episodes=step.credit,
                policy_logprobs=logprobs,
                policy_entropies=entropies,
            ),
        ]
        gradient_norms: list[float] = []
        for part in range(run.optimizer.optimizer_steps_per_training_step):
            rows = rows_of(step, calls, part)
            gradient_norms.append(self._update(rows))
            records.append(self._loss_inputs(rows, training_step, part))
            self._policy.updated()
        updated = time.perf_counter()
        records.append(made.policy_version(training_step))
        values = {
            "episodes/mean_return": float(np.mean([o.episode_return for o in outcomes])),
            "episodes/success_rate": float(np.mean([o.success for o in outcomes])),
            "episodes/mean_steps": float(np.mean([len(o.steps) for o in outcomes])),
            "groups/without_signal": float(step.groups_without_signal),
            "actor/optimizer_steps": float(len(gradient_norms)),
            "actor/grad_norm": float(np.mean(gradient_norms)),
            "agreement/logprob_difference_max": 0.0,  # sampler and learner are one model
            "timing_s/gen": played - started,
            "timing_s/update_actor": updated - played,
        }
        records.append(
            Metrics(run_id=self._id, attempt=0, training_step=training_step, values=values)
        )
        self._writer.write(records)

    def _update(self, rows: Sequence["Row"]) -> float:
        """One optimizer step on `rows`; the norm of its gradient before it is clipped."""
        settings = self._run.optimizer
        rising = settings.warmup_training_steps * settings.optimizer_steps_per_training_step
        for group in self._optimizer.param_groups:
            group["lr"] = settings.learning_rate * min(1.0, (self._policy.version + 1) / rising)
        self._optimizer.zero_grad()
        add_gradient(self._model, rows, self._run.loss)
        norm = torch.nn.utils.clip_grad_norm_(self._model.parameters(), settings.max_gradient_norm)
        self._optimizer.step()
        return float(norm)

    def _loss_inputs(self, rows: Sequence["Row"], training_step: int, part: int) -> LossInputs:
        return LossInputs(
            run_id=self._id,
            attempt=0,
            training_step=training_step,
            optimizer_step_index=part,
            rank=0,
            micro_batch=0,
            rows=tuple(row.loss_input(place) for place, row in enumerate(rows)),
        )

    def _validate(self, panel: Panel, *, training_step: int) -> None:
        """One sampled episode of each task of the panel."""
        phase: Phase = "test" if panel.split is Split.TEST else "validation"
        episodes = self._play(panel.tasks, phase=phase, training_step=training_step, group_size=1)
        outcomes = [trajectory_of(record) for record in episodes]
        score = Evaluation(
            run_id=self._id,
            attempt=0,
            training_step=training_step,
            panel=panel.split.value,
            split=panel.split,
            num_episodes=len(outcomes),
            mean_return=float(np.mean([o.episode_return for o in outcomes])),
            success_rate=float(np.mean([o.success for o in outcomes])),
        )
        self._writer.write([*episodes, score])


class Row(NamedTuple):
    """One call as the loss reads it."""

    prompt: tuple[int, ...]
    token: int
    old_logprob: float
    advantage: float
    weight: float
    training_step: int
    group_index: int
    sample_index: int
    step_index: int

    def loss_input(self, row_index: int) -> LossInput:
        """For the store, in the precision of the tensors."""
        advantage, weight = float(np.float32(self.advantage)), float(np.float32(self.weight))
        return LossInput(
            training_step=self.training_step,
            group_index=self.group_index,
            sample_index=self.sample_index,
            retry=0,
            step_index=self.step_index,
            call_index=0,
            row_index=row_index,
            num_tokens=1,
            advantage_low=advantage,
            advantage_high=advantage,
            weight_low=weight,
            weight_high=weight,
            old_logprob_sum=float(np.float32(self.old_logprob)),
        )


def trajectory_of(record: EpisodeRecord) -> Trajectory:
    """The episode; none fails here."""
    assert isinstance(record.outcome, Trajectory)
    return record.outcome


Calls = dict[str, tuple[RowMetadata, SampledTokens]]
"""By the key of its row, which holds nothing else here: what travels beside a call, its tokens."""


def calls_of(run: RunConfig, episodes: Sequence[EpisodeRecord]) -> Calls:
    """The calls of episodes."""
    found: Calls = {}
    for record in episodes:
        outcome = trajectory_of(record)
        group = GroupName(record.training_step, record.group_index)
        rows = cut_into_rows(outcome.steps, form=run.optimizer.rows)
        metadata = metadata_of(outcome, group=group, retry=0)
        for place, (row, beside) in enumerate(zip(rows, beside_rows(rows, metadata), strict=True)):
            found[f"{group}_{outcome.sample_index}_{place}"] = beside, row.calls[0].tokens
    return found


def rows_of(step: TrainingStep, calls: Calls, part: int) -> list[Row]:
    """The rows of one optimizer step that have a gradient; one of the others if none has."""
    rows = [
        Row(
            prompt=calls[call.row][1].prompt_tokens,
            token=calls[call.row][1].action_tokens[0],
            old_logprob=next(iter(calls[call.row][1].behavior_logprobs or ())),
            advantage=call.advantage,
            weight=call.loss_weight,
            training_step=episode.metadata.training_step,
            group_index=episode.metadata.group_index,
            sample_index=episode.metadata.sample_index,
            step_index=call.span.step,
        )
        for episode in step.credit
        if episode.optimizer_step == part
        for call in episode.calls
    ]
    return [row for row in rows if row.advantage != 0.0] or rows[:1]


def add_gradient(
    model: LlamaForCausalLM,
    rows: Sequence[Row],
    loss: LossConfig,
    *,
    prompts_at_once: int = PROMPTS_AT_ONCE,
) -> None:
    """Add the gradient of PPO's clipped loss over `rows` to the model's.

    A prompt that many rows share goes through the model once: the loss of a row needs nothing
    but the logits of its prompt, so the gradient is that of reading every row.

    Args:
        model: The policy.
        rows: Their prompts are equally long.
        loss: Of kind `ppo`, without other terms.
        prompts_at_once: In one pass of the model; memory alone depends on it.
    """
    prompts = list(dict.fromkeys(row.prompt for row in rows))
    for start in range(0, len(prompts), prompts_at_once):
        place = {prompt: n for n, prompt in enumerate(prompts[start : start + prompts_at_once])}
        chosen = [row for row in rows if row.prompt in place]
        logprobs_UV = next_token_logits(model, torch.tensor(list(place))).log_softmax(-1)
        places_B = torch.tensor([place[row.prompt] for row in chosen])
        tokens_B = torch.tensor([row.token for row in chosen])
        tokens = ActionTokens(
            policy_logprobs_BT=logprobs_UV[places_B, tokens_B].unsqueeze(-1),
            old_logprobs_BT=torch.tensor([[row.old_logprob] for row in chosen]),
            advantages_BT=torch.tensor([[row.advantage] for row in chosen]),
            loss_weights_BT=torch.tensor([[row.weight] for row in chosen]),
            actions_BT=torch.zeros(len(chosen), 1, dtype=torch.int64),
        )
        ppo_loss(
            tokens, clip_low=loss.clip_low, clip_high=loss.clip_high, dual_clip=loss.dual_clip
        ).loss.backward()
