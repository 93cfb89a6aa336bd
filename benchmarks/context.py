"""What the prompts of a long episode cost under each memory.

One episode of random admissible actions is recorded; its actions are then played again with each
memory, through the real episode loop, chat template and tokenizer. Prints the prompt tokens of
single steps and of the whole episode, and what the learner would read: one row per step, as it
is, and rows joined wherever a prompt continues the row before it token for token.

    uv run python benchmarks/context.py
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
# transformers is typed in part.

import asyncio
import random
from typing import Any

from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from longhaul_core.actions import ActionFormat, ActionParser
from longhaul_core.memory import MemoryKind, build_memory
from longhaul_core.policy import Completion, Prompt, Sampling
from longhaul_core.rollout import Agent, EpisodeLimits, EpisodeSpec, run_episode
from longhaul_core.types import Observation, Split, Step, Task, Trajectory
from longhaul_envs.play import play
from longhaul_trainer.config import RunConfig
from longhaul_trainer.environments import (
    environment_factory,
    environment_spec,
    prompt_template,
    task_panel,
)
from longhaul_trainer.models import prepare_model
from longhaul_trainer.verl.renderer import ChatTemplateRenderer

NUM_STEPS = 50
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

    environment = environment_spec(RUN).make()
    try:
        return play(environment, task, choose, horizon=NUM_STEPS).actions
    finally:
        environment.close()


async def replayed(
    kind: MemoryKind, task: Task, actions: tuple[str, ...], tokenizer: PreTrainedTokenizerBase
) -> tuple[Step, ...]:
    """The steps of the episode under one memory."""
    outcome = await run_episode(
        EpisodeSpec(task=task, seed=0),
        agent=Agent(
            policy=Replay(actions, tokenizer),
            renderer=ChatTemplateRenderer(tokenizer),
            parser=ActionParser(format=ActionFormat.TAGS),
            build_memory=lambda: build_memory(kind, size=2, template=prompt_template(RUN)),
        ),
        make_environment=environment_factory(RUN),
        limits=EpisodeLimits(horizon=NUM_STEPS, max_prompt_tokens=RUN.rollout.max_prompt_tokens),
    )
    assert isinstance(outcome, Trajectory), outcome
    return outcome.steps


def joined_rows(steps: tuple[Step, ...]) -> list[int]:
    """Tokens of each row if a step joined the row before it whenever its prompt continues it."""
    rows: list[tuple[int, ...]] = []
    for step in steps:
        if rows and step.prompt_tokens[: len(rows[-1])] == rows[-1]:
            rows[-1] = step.prompt_tokens + step.action_tokens
        else:
            rows.append(step.prompt_tokens + step.action_tokens)
    return list(map(len, rows))


def main() -> None:
    """Print one block for each memory."""
    tokenizer = PreTrainedTokenizerFast.from_pretrained(str(prepare_model("smollm2")))
    task = task_panel(RUN, Split.VALIDATION).tasks[0]
    actions = recorded_actions(task)
    print(f"{RUN.environment.id}, task {task.task_id}, {len(actions)} steps, SmolLM2's tokenizer")
    for kind in MemoryKind:
        steps = asyncio.run(replayed(kind, task, actions, tokenizer))
        prompts = [len(step.prompt_tokens) for step in steps]
        trained = sum(len(step.action_tokens) for step in steps)
        rows = joined_rows(steps)
        at = ", ".join(f"{step}: {prompts[step - 1]:,}" for step in SHOWN if step <= len(prompts))
        print(f"\n{kind.value}")
        print(f"  prompt tokens of step {at}")
        print(f"  last prompt against the tenth: {prompts[-1] / prompts[9]:.2f} x")
        read = sum(prompts) + trained
        print(f"  the learner reads {read:,} tokens in {len(steps)} rows, one per step")
        print(f"  joined on exact prefixes: {sum(rows):,} tokens in {len(rows)} rows")
        print(f"  trained tokens either way: {trained:,}")


if __name__ == "__main__":
    main()
