"""A store with real episodes in it: TextCraft, played and learnt by `SoftmaxPolicy`.

Everything in it was played through the episode loop, credited by GiGPO and written by
the store's writer. One task's environment breaks in the middle of an episode, so there
are failures too. Takes a few seconds. From the command line:

    python tests/apps/sample_store.py FILE
"""

import asyncio
import json
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from apps.softmax_policy import ByteTokenizer, SoftmaxPolicy, tokens_of
from fakes import FailingEnvironment
from longhaul_core.actions import ActionParser
from longhaul_core.advantages import loss_weights
from longhaul_core.advantages.gigpo import gigpo_credit
from longhaul_core.environment import Environment
from longhaul_core.gym import GymEnvironmentSpec, thread_environments
from longhaul_core.memory import PromptTemplate, WindowMemory
from longhaul_core.rollout import (
    Agent,
    EpisodeLimits,
    EpisodeResult,
    EpisodeRunner,
    EpisodeSpec,
    episode_seed,
    run_episode,
)
from longhaul_core.store.records import (
    CallCredit,
    EpisodeCredit,
    EpisodeRecord,
    Evaluation,
    GroupDecision,
    Metrics,
    PanelTasks,
    Phase,
    PolicyVersion,
    RunEnded,
    RunStarted,
    TokenPieces,
)
from longhaul_core.store.writer import StoreWriter
from longhaul_core.types import Split, Step, Task, Trajectory
from longhaul_envs.textcraft.environment import TextCraft

NUM_TRAINING_STEPS = 12
TASKS_PER_TRAINING_STEP = 4
GROUP_SIZE = 4
PANEL = "fixed"
RUN_ID = "20260101-sample-0001"
GAME = GymEnvironmentSpec(
    environment_id="longhaul/TextCraft-v0",
    options={"depth": 2, "distractors": 1, "subgoal_reward": 0.25},
    import_modules=("longhaul_envs.registry",),
)
FIRST_TASK = 5
TEXTCRAFT = TextCraft(depth=2, distractors=1, subgoal_reward=0.25)


def train_tasks(number: int) -> tuple[Task, ...]:
    """Of TextCraft, from the one on whose first group is without a signal."""
    return TEXTCRAFT.tasks(Split.TRAIN, FIRST_TASK + number)[FIRST_TASK:]


@dataclass(kw_only=True)
class SampleRun:
    """One run of the small policy, written as it goes."""

    writer: StoreWriter
    run_id: str
    broken_task: str
    """Its environment fails at the third step."""
    tokenizer: ByteTokenizer = field(default_factory=ByteTokenizer)

    def __post_init__(self) -> None:
        self.policy = SoftmaxPolicy(self.tokenizer)
        self._textcraft = thread_environments(GAME)
        self.train_tasks = train_tasks(NUM_TRAINING_STEPS * TASKS_PER_TRAINING_STEP)
        self.panel_tasks = TEXTCRAFT.tasks(Split.VALIDATION, 8)

    def start(self) -> None:
        """Announce the run."""
        config = {
            "name": "textcraft",
            "environment": dict(GAME.options),
            "algorithm": {"name": "gigpo"},
        }
        self.writer.write(
            [
                RunStarted(
                    run_id=self.run_id,
                    name="textcraft-softmax",
                    kind="train",
                    attempt=0,
                    config_json=json.dumps(config),
                    provenance_json="{}",
                    started_at=time.time(),
                    num_training_steps=NUM_TRAINING_STEPS,
                ),
                PanelTasks(
                    run_id=self.run_id, name=PANEL, split=Split.VALIDATION, tasks=self.panel_tasks
                ),
            ]
        )

    async def train(self, num_training_steps: int = NUM_TRAINING_STEPS) -> None:
        """Validate, train, validate."""
        await self.validate(training_step=0)
        for training_step in range(1, num_training_steps + 1):
            await self.train_once(training_step)
        await self.validate(training_step=num_training_steps)

    def finish(self) -> None:
        """Say that the run ended well."""
        self.writer.write(
            [
                RunEnded(
                    run_id=self.run_id,
                    attempt=0,
                    status="finished",
                    message="",
                    ended_at=time.time(),
                )
            ]
        )
        self.writer.flush()

    async def train_once(self, training_step: int) -> None:
        """One training step: play, credit, learn, record."""
        first = (training_step - 1) * TASKS_PER_TRAINING_STEP
        tasks = self.train_tasks[first : first + TASKS_PER_TRAINING_STEP]
        results = await self._play(tasks, "train", training_step, GROUP_SIZE, temperature=1.0)
        groups = [
            [
                one.outcome
                for one in results
                if one.spec.group_index == index and isinstance(one.outcome, Trajectory)
            ]
            for index in range(len(tasks))
        ]
        retries = {
            (one.spec.group_index, one.spec.sample_index): one.spec.retry
            for one in results
            if isinstance(one.outcome, Trajectory)
        }
        self.writer.write(
            [
                GroupDecision(
                    run_id=self.run_id,
                    attempt=0,
                    training_step=training_step,
                    group_index=index,
                    resolved_training_step=training_step,
                    update_index=index,
                )
                for index in range(len(tasks))
            ]
        )
        comparable = {i: group for i, group in enumerate(groups) if len(group) >= 2}
        lessons: list[tuple[Step, float]] = []
        weights = iter(
            loss_weights(
                [
                    [len(tokens_of(step).action_tokens) for step in one.steps]
                    for group in comparable.values()
                    for one in group
                ],
                loss_unit="episode",
            )
        )
        for index, group in comparable.items():
            credits = self._credit(group, index, training_step, retries, weights)
            self.writer.write(credits)
            for trajectory, credit in zip(group, credits, strict=True):
                lessons += zip(trajectory.steps, credit.advantages, strict=True)
        self.policy.learn(lessons, learning_rate=4.0)
        played = [one for group in groups for one in group]
        self.writer.write(
            [
                PolicyVersion(
                    run_id=self.run_id,
                    attempt=0,
                    version=self.policy.version,
                    training_step=training_step,
                    created_at=time.time(),
                ),
                Metrics(
                    run_id=self.run_id,
                    attempt=0,
                    training_step=training_step,
                    values={
                        "train/mean_return": float(np.mean([one.episode_return for one in played])),
                        "train/weight_norm": float(np.linalg.norm(self.policy.weights)),
                        "train/num_failures": float(len(results) - len(played)),
                    },
                ),
                TokenPieces(run_id=self.run_id, pieces=self.tokenizer.vocabulary),
            ]
        )
        self.writer.flush()

    async def validate(self, training_step: int) -> None:
        """Play the panel greedily and record the result."""
        results = await self._play(
            self.panel_tasks, "validation", training_step, group_size=1, temperature=0.0
        )
        played = [one.outcome for one in results if isinstance(one.outcome, Trajectory)]
        self.writer.write(
            [
                Evaluation(
                    run_id=self.run_id,
                    attempt=0,
                    training_step=training_step,
                    panel=PANEL,
                    split=Split.VALIDATION,
                    num_episodes=len(played),
                    mean_return=float(np.mean([one.episode_return for one in played])),
                    success_rate=float(np.mean([one.success for one in played])),
                ),
                TokenPieces(run_id=self.run_id, pieces=self.tokenizer.vocabulary),
            ]
        )
        self.writer.flush()

    async def _play(
        self,
        tasks: Sequence[Task],
        phase: Phase,
        training_step: int,
        group_size: int,
        *,
        temperature: float,
    ) -> list[EpisodeResult]:
        agent = Agent(
            policy=self.policy,
            renderer=self.tokenizer,
            parser=ActionParser(),
            build_memory=lambda: WindowMemory(size=2, template=TEMPLATE),
            temperature=temperature,
        )
        runner = EpisodeRunner(concurrency=8)
        by = partial(
            run_episode,
            agent=agent,
            make_environment=self._environment,
            limits=EpisodeLimits(horizon=14, max_prompt_tokens=2000),
        )
        places = [(group, sample) for group in range(len(tasks)) for sample in range(group_size)]
        results = await asyncio.gather(
            *(
                runner.play(
                    EpisodeSpec(
                        task=tasks[group_index],
                        seed=episode_seed(
                            7,
                            training_step=training_step,
                            group_index=group_index,
                            sample_index=sample_index,
                            phase=phase,
                        ),
                        group_index=group_index,
                        sample_index=sample_index,
                    ),
                    by,
                )
                for group_index, sample_index in places
            )
        )
        self.writer.write(
            [
                EpisodeRecord(
                    run_id=self.run_id,
                    attempt=0,
                    phase=phase,
                    training_step=training_step,
                    group_index=result.spec.group_index,
                    retry=result.spec.retry,
                    outcome=result.outcome,
                    group_size=group_size,
                )
                for result in results
            ]
        )
        return results

    def _environment(self, task: Task) -> Environment:
        if task.task_id == self.broken_task:
            return FailingEnvironment(where="step", turn=2)
        return self._textcraft(task)

    def _credit(
        self,
        group: Sequence[Trajectory],
        group_index: int,
        training_step: int,
        retries: dict[tuple[int, int], int],
        weights: Iterator[tuple[float, ...]],
    ) -> list[EpisodeCredit]:
        credits = gigpo_credit(
            [np.array([step.reward for step in one.steps]) for one in group],
            [[step.observation.anchor for step in one.steps] for one in group],
            discount=0.95,
        )
        return [
            EpisodeCredit(
                run_id=self.run_id,
                attempt=0,
                phase="train",
                training_step=training_step,
                trained_training_step=training_step,
                group_index=group_index,
                sample_index=trajectory.sample_index,
                retry=retries[group_index, trajectory.sample_index],
                episode_advantage=credit.episode_advantage,
                step_advantages=credit.step_advantages,
                shaped_rewards=tuple(step.reward for step in trajectory.steps),
                returns_to_go=credit.returns_to_go,
                advantages=credit.advantages,
                loss_weights=of_steps,
                calls=tuple(
                    CallCredit(
                        step_index=step.index,
                        call_index=0,
                        advantage=advantage,
                        loss_weight=weight,
                        policy_logprobs=self.policy.learner_logprobs(step),
                        policy_entropies=self.policy.learner_entropies(step),
                    )
                    for step, advantage, weight in zip(
                        trajectory.steps, credit.advantages, of_steps, strict=True
                    )
                ),
                trained=True,
                optimizer_step_index=0,
            )
            for trajectory, credit, of_steps in zip(group, credits, weights, strict=False)
        ]


TEMPLATE = PromptTemplate(
    system="You craft items. Answer with one action in <action></action>.",
    instruction="What is the next action?",
)


def write_sample_store(
    url: str, *, run_id: str = RUN_ID, num_training_steps: int = NUM_TRAINING_STEPS
) -> SampleRun:
    """Play a run into the store at `url`, the whole one or its beginning; the run at its end."""
    writer = StoreWriter(url)
    tasks = train_tasks(12)
    run = SampleRun(writer=writer, run_id=run_id, broken_task=tasks[9].task_id)
    run.start()
    asyncio.run(run.train(num_training_steps))
    run.finish()
    writer.close()
    return run


if __name__ == "__main__":
    write_sample_store(sys.argv[1])
