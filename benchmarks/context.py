"""What the prompts of a long episode cost under each memory, and what its rows hold.

One episode of random admissible actions is recorded; its actions are then played again with each
memory, through the real episode loop, chat template and tokenizer. Prints the prompt tokens of
single steps, how many of them a prompt begins with like the one before, with the instruction in
either place (what an engine that keeps earlier prompts need not read again), and what the learner
reads: prompts, gaps and trained tokens of one row per step, and of the rows that the trainer merges
where a prompt goes on from the step before it.

    uv run python benchmarks/context.py
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
# transformers is typed in part.

import asyncio
import random
from dataclasses import replace
from itertools import pairwise
from statistics import mean
from typing import Any, get_args

from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from longhaul_core.actions import ActionFormat, ActionParser
from longhaul_core.memory import InstructionPlace, build_memory
from longhaul_core.policy import Completion, Prompt, Sampling
from longhaul_core.rollout import Agent, EpisodeLimits, EpisodeSpec, run_episode
from longhaul_core.types import Observation, Split, Step, Task, Trajectory
from longhaul_envs.play import play
from longhaul_trainer.config import RunConfig
from longhaul_trainer.models import prepare_model
from longhaul_trainer.play.environments import (
    RunEnvironments,
    environment_spec,
    prompt_template,
    source_of,
    task_panel,
)
from longhaul_trainer.rendering.renderer import ChatTemplateRenderer
from longhaul_trainer.training.merging import Row, cut_into_rows

NUM_STEPS = 50
KINDS = ("none", "window", "full")
"""Memories that ask the model nothing: the replies are recorded actions."""
SHOWN = (1, 10, 25, 50)
RUN = RunConfig.model_validate(
    {
        "num_training_steps": 1,
        "tasks_per_training_step": 1,
        "environment": {"id": "longhaul/Sokoban-v0", "isolation": "thread"},
        "rollout": {"horizon": NUM_STEPS, "max_prompt_tokens": 100_000},
        "optimizer": {"micro_batch_tokens": 200_000},
    }
)


class Replay:
    """Writes recorded actions, one after another."""

    def __init__(self, actions: tuple[str, ...], tokenizer: PreTrainedTokenizerBase) -> None:
        self._actions = iter(actions)
        self._tokenizer: Any = tokenizer

    async def act(self, prompt: Prompt, sampling: Sampling, *, episode_id: str) -> Completion:
        """The next action, with the end that a model writes."""
        text = f"<action>{next(self._actions)}</action>"
        tokens = self._tokenizer.encode(text, add_special_tokens=False)
        tokens = (*tokens, self._tokenizer.eos_token_id)
        return Completion(
            text=text,
            action_tokens=tokens,
            behavior_logprobs=(0.0,) * len(tokens),
            policy_version=0,
        )


def recorded_actions(task: Task) -> tuple[str, ...]:
    """Random admissible actions, and no more than the episode takes."""
    draw = random.Random(0)

    def choose(environment: object, observation: Observation) -> str | None:
        return draw.choice(observation.admissible_actions or ())

    environment = environment_spec(RUN.environment).make()
    try:
        return play(environment, task, choose, horizon=NUM_STEPS).actions
    finally:
        environment.close()


async def replayed(
    kind: str,
    task: Task,
    actions: tuple[str, ...],
    tokenizer: PreTrainedTokenizerBase,
    *,
    place: InstructionPlace = "user",
) -> tuple[Step, ...]:
    """The steps of the episode under one memory."""
    (played,) = RUN.played_environments
    template = prompt_template(played, source_of(played).describe())
    template = replace(template, instruction_place=place)
    outcome = await run_episode(
        EpisodeSpec(task=task, seed=0),
        agent=Agent(
            policy=Replay(actions, tokenizer),
            renderer=ChatTemplateRenderer(tokenizer),
            parser=ActionParser(format=ActionFormat.TAGS),
            build_memory=lambda: build_memory(kind, size=2, template=template),
        ),
        make_environment=RunEnvironments(RUN),
        limits=EpisodeLimits(horizon=NUM_STEPS, max_prompt_tokens=RUN.rollout.max_prompt_tokens),
    )
    assert isinstance(outcome, Trajectory), outcome
    return outcome.steps


def prompts_of(steps: tuple[Step, ...]) -> list[tuple[int, ...]]:
    """The prompt tokens of each step's one call."""
    calls = [call.sampled for step in steps for call in step.calls]
    return [sampled.prompt_tokens for sampled in calls if sampled is not None]


def share_begun_alike(prompts: list[tuple[int, ...]]) -> tuple[float, float]:
    """Leading tokens that a prompt shares with the one before: their mean, and their share."""
    alike = [
        next((n for n, (a, b) in enumerate(zip(*pair, strict=False)) if a != b), len(pair[0]))
        for pair in pairwise(prompts)
    ]
    return mean(alike), sum(alike) / sum(map(len, prompts[1:]))


def summary_of(rows: list[Row]) -> str:
    """What the learner reads of some rows."""
    prompts = sum(len(row.prompt_tokens) for row in rows)
    responses = sum(len(row.response_tokens) for row in rows)
    trained = sum(sum(row.response_mask) for row in rows)
    return (
        f"{len(rows):>4} rows {prompts:>9,} prompt tokens {responses - trained:>7,} in gaps "
        f"{trained:>6,} trained {prompts + responses:>9,} in all"
    )


def main() -> None:
    """Print one block for each memory."""
    tokenizer = PreTrainedTokenizerFast.from_pretrained(str(prepare_model("smollm2")))
    task = task_panel(RUN, Split.VALIDATION).tasks[0]
    actions = recorded_actions(task)
    print(f"{RUN.environment.id}, task {task.task_id}, {len(actions)} steps, SmolLM2's tokenizer")
    for kind in KINDS:
        steps = asyncio.run(replayed(kind, task, actions, tokenizer))
        prompts = [len(prompt) for prompt in prompts_of(steps)]
        at = ", ".join(f"{step}: {prompts[step - 1]:,}" for step in SHOWN if step <= len(prompts))
        print(f"\n{kind}")
        print(f"  prompt tokens of step {at}")
        print(f"  last prompt against the tenth: {prompts[-1] / prompts[9]:.2f} x")
        for place in get_args(InstructionPlace):
            placed = asyncio.run(replayed(kind, task, actions, tokenizer, place=place))
            tokens, share = share_begun_alike(prompts_of(placed))
            print(
                f"  begins like the prompt before: {tokens:.0f} tokens, {share:.0%}, with "
                f'prompt.instruction_place = "{place}"'
            )
        print(f"  rows = step:   {summary_of(cut_into_rows(steps, form='step'))}")
        print(f"  rows = merged: {summary_of(cut_into_rows(steps, form='merged'))}")


if __name__ == "__main__":
    main()
