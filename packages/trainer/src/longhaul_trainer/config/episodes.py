"""How episodes are played: environment, limits, memory, prompt and action format."""

from collections.abc import Generator, Mapping
from typing import Annotated, Literal

from pydantic import Field

from longhaul_core.horizons import stage_problems
from longhaul_trainer.config.section import Section

Scalar = bool | int | float | str
Option = Scalar | list[Scalar]
"""What a free table (`environment.options`) may hold."""

StageHorizon = Annotated[int, Field(ge=1, strict=True)]


class EnvironmentConfig(Section):
    """Which environment, and how its code is kept from hurting the run."""

    id: str = Field(default="longhaul/TextCraft-v0", min_length=1)
    """Gymnasium id of an environment with text observations and text actions."""
    options: Mapping[str, Option] = {}
    """Keyword arguments of the environment, such as its difficulty."""
    import_modules: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """Python modules to import first; they register your own environments with Gymnasium."""
    isolation: Literal["process", "thread"] = "process"
    """`process` survives environments that hang or crash; `thread` is for trusted, quick ones."""
    reset_deadline_seconds: float = Field(default=60.0, gt=0)
    """A reset that takes longer fails its episode."""
    step_deadline_seconds: float = Field(default=30.0, gt=0)
    """A step that takes longer fails its episode."""
    max_observation_characters: int = Field(default=1_000_000, ge=1)
    """A longer observation, its admissible actions and anchor state included, fails its episode."""
    num_workers: int = Field(default=8, ge=1)
    """Environments alive at once; with `process` isolation, worker processes."""


class RolloutConfig(Section):
    """How many episodes are played, how long they may be, how replies are sampled."""

    group_size: int = Field(default=8, ge=1)
    """Episodes per task (G), compared with each other: a group of one has no comparison and
    teaches nothing, but where `algorithm.name` compares with something else (`remax`, `gae`,
    `reinforce_plus_plus`)."""
    horizon: int = Field(default=20, ge=1)
    """Longest episode, in steps; an episode that reaches it is truncated. Where the horizon grows
    (`horizon_schedule`), the final one, which validation and tests play from the start."""
    temperature: float = Field(default=1.0, gt=0)
    """Of sampling while training; validation is greedy. At 0 a group's episodes would be equal."""
    top_p: float = Field(default=1.0, gt=0, le=1)
    """Nucleus sampling while training; below 1 the sampler's logprobs differ from the learner's."""
    max_reply_tokens: int = Field(default=64, ge=1)
    """Longest reply of one step."""
    max_prompt_tokens: int = Field(default=512, ge=1)
    """Longest prompt of one step; the memory drops its oldest exchanges to make a prompt fit."""
    max_episode_tokens: int | None = Field(default=None, ge=1)
    """Prompt and reply tokens of a whole episode; an episode that spends them is truncated."""
    concurrent_episodes: int = Field(default=64, ge=1)
    """Episodes in flight at once; each goes at its own pace."""
    policy_deadline_seconds: float = Field(default=300.0, gt=0)
    """A reply that takes longer fails its episode; unless trainer.mode = "sync" it has a day more,
    since it may have to wait for an update."""
    max_retries: int = Field(default=1, ge=0)
    """Further tries of an episode that failed, under `on_failure = "retry"`."""
    on_failure: Literal["retry", "leave_out"] = "retry"
    """A failed episode is played again, or left out of its group; it is never scored 0."""

    def conflicts(self) -> Generator[str]:
        """A step must fit the episode, and a retry must be possible."""
        step_tokens = self.max_prompt_tokens + self.max_reply_tokens
        if self.max_episode_tokens is not None and self.max_episode_tokens < step_tokens:
            yield (
                f"max_episode_tokens = {self.max_episode_tokens} is less than one full step, "
                f"max_prompt_tokens + max_reply_tokens = {self.max_prompt_tokens} + "
                f"{self.max_reply_tokens} = {step_tokens}; raise it to at least {step_tokens}"
            )
        if self.on_failure == "retry" and self.max_retries == 0:
            yield (
                'on_failure = "retry" with max_retries = 0 retries nothing; raise max_retries '
                'to 1 or more, or say on_failure = "leave_out"'
            )


class HorizonScheduleConfig(Section):
    """How the horizon of training episodes grows towards `rollout.horizon`."""

    kind: Literal["fixed", "stepwise", "linear", "success_gated"] = "fixed"
    """`rollout.horizon` throughout; by stages of equal length (ScalingInter-RL); evenly with each
    training step; by stages, each begun when the one before goes well."""
    stages: Annotated[tuple[StageHorizon, ...], Field(strict=False)] = ()
    """Rising horizons, the last one `rollout.horizon`; for `stepwise` and `success_gated` only."""
    training_steps_per_stage: int = Field(default=100, ge=1)
    """Length of each stage but the last, which has no end; `stepwise` reads it."""
    start: int = Field(default=1, ge=1)
    """Horizon of the first training step; `linear` reads it."""
    end_training_step: int = Field(default=100, ge=2)
    """First training step at `rollout.horizon`; `linear` reads it."""
    success_threshold: float = Field(default=0.5, gt=0, le=1)
    """Success rate that begins the next stage; `success_gated` reads it."""
    success_window: int = Field(default=5, ge=1)
    """Training steps of the stage, the last ones, that the success rate is taken over."""

    def conflicts(self) -> Generator[str]:
        """Stages are told to a schedule that has some, and rise."""
        if self.kind in ("stepwise", "success_gated"):
            yield from stage_problems(self.stages)
        elif self.stages:
            yield (
                f'stages = {list(self.stages)} are not read by kind = "{self.kind}"; say '
                'kind = "stepwise" or "success_gated", or leave them out'
            )


class MemoryConfig(Section):
    """What of an episode's past its next prompt shows."""

    kind: Literal["none", "window", "full"] = "window"
    """The current observation alone, the last exchanges, or all of them as chat turns."""
    size: int = Field(default=2, ge=1)
    """Exchanges that a `window` shows; the other kinds do not read it."""


class PromptConfig(Section):
    """The words around an observation."""

    system: str | None = None
    """System message; left out, the environment's own."""
    instruction: str | None = None
    """Line at the end of each prompt; left out, the environment's own."""
    list_actions: bool = True
    """Show the admissible actions where the environment names them."""
    reply_prefix: str = ""
    """Put at the end of the prompt, as if the reply began with it, e.g. `<action>`."""


class ActionsConfig(Section):
    """How a reply becomes an action."""

    format: Literal["tags", "json", "plain"] = "tags"
    """`<action>…</action>`, `{"action": "…"}`, or the reply's first line that is not empty."""
    require_thinking: bool = False
    """A reply without a `<think>…</think>` part is invalid; for `tags` only."""

    def conflicts(self) -> Generator[str]:
        """Thinking needs a format with a place for it."""
        if self.require_thinking and self.format != "tags":
            yield (
                f'require_thinking = true needs format = "tags", got format = "{self.format}", '
                "which has no place for thinking"
            )


class MixedEnvironmentConfig(EnvironmentConfig):
    """One of several environments that a run mixes, with its share of the tasks.

    It has every key of `[environment]`, and its own `[environments.prompt]`,
    `[environments.memory]` and `[environments.actions]`, with the keys of `[prompt]`, `[memory]`
    and `[actions]`, which a run of several environments does not have.
    """

    weight: float = Field(default=1.0, gt=0)
    """Share of the training tasks, relative to the other environments' weights."""
    horizon: int | None = Field(default=None, ge=1)
    """Longest episode here, in steps, whatever the horizon schedule allows; left out, no cap."""
    prompt: PromptConfig = PromptConfig()
    memory: MemoryConfig = MemoryConfig()
    actions: ActionsConfig = ActionsConfig()

    def conflicts(self) -> Generator[str]:
        """A prefix of the reply must leave room for what the action format asks for."""
        if self.actions.require_thinking and "<action>" in self.prompt.reply_prefix:
            yield (
                f"prompt.reply_prefix = {self.prompt.reply_prefix!r} opens the action before "
                "actions.require_thinking = true can be met; drop one of them"
            )
