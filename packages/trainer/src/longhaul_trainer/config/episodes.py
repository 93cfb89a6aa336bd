"""How episodes are played: environment, limits, memory, prompt and action format."""

from collections.abc import Generator, Mapping
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import Field, field_validator

from longhaul_core.actions import ActionFormat
from longhaul_core.horizons import stage_problems
from longhaul_core.memory import DEFAULT_TEMPLATE, MEMORIES, InstructionPlace
from longhaul_core.rollout import ACTINGS
from longhaul_trainer.config.calls import CallKind
from longhaul_trainer.config.component_settings import BuiltInOrOwn, EnvironmentOption
from longhaul_trainer.config.section import Remark, Section
from longhaul_trainer.config.toml import toml_value
from longhaul_trainer.config.upstreams import UpstreamConfig, no_key_is_written_down

StageHorizon = Annotated[int, Field(ge=1, strict=True)]


def _is_server_address(value: str) -> bool:
    try:
        address = urlsplit(value)
        has_port = address.port is not None
    except ValueError:  # a port that is no number
        return False
    rest = (address.path.strip("/"), address.query, address.fragment, address.username)
    return (
        address.scheme in ("http", "https")
        and bool(address.hostname)
        and (has_port and not any(rest))
    )


class EnvironmentConfig(Section):
    """The environment, and how its code is isolated from the run."""

    id: str = Field(default="longhaul/TextCraft-v0", min_length=1)
    """Gymnasium id of an environment with text observations and text actions."""
    options: Mapping[str, EnvironmentOption] = {}
    """Keyword arguments of the environment, such as its difficulty."""
    import_modules: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """Python modules to import first; they register your own environments with Gymnasium."""
    server: str | None = None
    """Address of the environment server that plays it, e.g. `http://127.0.0.1:8300`
    (`trainer serve-env`); left out, it is played on this machine. Its token, if it has one, is read
    from the environment variable `LONGHAUL_ENV_TOKEN`. The server must have been started with the
    same `options`, and with the same version where the environment is installed here too."""
    isolation: Literal["process", "thread"] = "process"
    """`process` survives environments that hang or crash; `thread` is for trusted, quick ones. Not
    read where a `server` plays."""
    reset_deadline_seconds: float = Field(default=60.0, gt=0)
    """A reset that takes longer fails its episode."""
    step_deadline_seconds: float = Field(default=30.0, gt=0)
    """A step that takes longer fails its episode."""
    max_observation_characters: int = Field(default=1_000_000, ge=1)
    """A longer observation, its admissible actions and anchor state included, fails its episode."""
    num_workers: int = Field(default=8, ge=1)
    """Environments alive at once, in the whole run; with `process` isolation each is in a worker
    process of its own, unless its class declares that several episodes may share one
    (`episodes_per_process`). Where a `server` plays, its sessions. Agent loops divide it among
    themselves (`rollout.agent_loops`)."""
    episodes_per_process: int | None = Field(default=None, ge=1)
    """Episodes that share a worker process at most; none for as many as the class declares, which
    it cannot exceed. Calls of one process are made one after the other: 1 where a step takes long,
    for more memory. Not read where a `server` plays."""

    @field_validator("server")
    @classmethod
    def _is_an_address(cls, value: str | None) -> str | None:
        if value is None or _is_server_address(value):
            return value
        raise ValueError(
            "must be an address of a scheme, a host and a port alone, such as "
            "http://127.0.0.1:8300; a token goes into LONGHAUL_ENV_TOKEN"
        )

    def conflicts(self) -> Generator[str]:
        """What a server plays is not imported here."""
        if self.server is not None and self.import_modules:
            yield (
                f"environment.import_modules = {list(self.import_modules)} is not read with "
                f"environment.server = {self.server!r}; import them where the server is started"
            )


class RolloutConfig(Section):
    """Episodes per task, their limits, and how replies are sampled."""

    group_size: int = Field(default=8, ge=1)
    """Episodes per task (G). They are compared with each other, so a group of one has no comparison
    and teaches nothing; it is allowed where `algorithm.name` compares with something else (`remax`,
    `gae`, `reinforce_plus_plus`)."""
    horizon: int = Field(default=20, ge=1)
    """Longest episode, in steps; an episode that reaches it is truncated. Where the horizon grows
    (`horizon_schedule`), the final one, which validation and tests play from the start."""
    temperature: float = Field(default=1.0, gt=0)
    """Of sampling while training; validation has its own (`validation.temperature`). At 0 a group's
    episodes would be equal."""
    top_p: float = Field(default=1.0, gt=0, le=1)
    """Nucleus sampling while training; below 1 the sampler's logprobs differ from the learner's."""
    max_reply_tokens: int = Field(default=64, ge=1)
    """Longest reply of one call of the model; a step has one, or several (`agent.kind`,
    `memory.kind = "summary"`)."""
    max_prompt_tokens: int = Field(default=512, ge=1)
    """Longest prompt of one call; the memory drops its oldest exchanges to make a prompt fit."""
    max_episode_tokens: int | None = Field(default=None, ge=1)
    """Prompt and reply tokens of all calls of an episode, plans and summaries included; an episode
    that spends them is truncated."""
    concurrent_episodes: int = Field(default=64, ge=1)
    """Episodes in flight at once, in the whole run; each goes at its own pace. Agent loops divide
    it among themselves, as `environment.num_workers`."""
    reproducibility: Literal["exact", "fast"] = "exact"
    """How replies are sampled. `exact`: each reply has a seed of its own, so a run that is repeated
    or resumed uses the same random numbers. `fast`: the engine's one generator draws for all
    replies of a pass at once, and no run repeats another's replies."""
    agent_loops: int | None = Field(default=None, ge=1)
    """Processes that play the episodes. Each has its share of `concurrent_episodes` and of
    `environment.num_workers`, in whole groups where there are enough, and plays some 100 steps a
    second with prompts of 1,600 tokens. Left out, the trainer's process plays on a CPU. On GPUs
    there is one for each engine and at least two, but not more than have room for a whole group
    each, and not more than a training step has tasks."""
    policy_deadline_seconds: float = Field(default=300.0, gt=0)
    """A reply that takes longer fails its episode. With asynchronous rollout the limit is a day
    longer, because a reply may wait for an update."""
    max_retries: int = Field(default=1, ge=0)
    """Further tries of an episode that failed, under `on_failure = "retry"`."""
    on_failure: Literal["retry", "leave_out"] = "retry"
    """A failed episode is played again, or left out of its group; it is never scored 0."""

    def conflicts(self) -> Generator[str]:
        """A step must fit the episode, and a retry must be possible."""
        step_tokens = self.max_prompt_tokens + self.max_reply_tokens
        if self.max_episode_tokens is not None and self.max_episode_tokens < step_tokens:
            yield (
                f"rollout.max_episode_tokens = {self.max_episode_tokens} is less than one full "
                "call, "
                "rollout.max_prompt_tokens + rollout.max_reply_tokens = "
                f"{self.max_prompt_tokens} + "
                f"{self.max_reply_tokens} = {step_tokens}; raise it to at least {step_tokens}"
            )
        if self.on_failure == "retry" and self.max_retries == 0:
            yield (
                'rollout.on_failure = "retry" with rollout.max_retries = 0 retries nothing; raise '
                'rollout.max_retries to 1 or more, or set rollout.on_failure = "leave_out"'
            )


class HorizonScheduleConfig(Section):
    """How the horizon of training episodes grows towards `rollout.horizon`."""

    kind: Literal["fixed", "stepwise", "linear", "success_gated"] = "fixed"
    """`fixed`: `rollout.horizon` throughout. `stepwise`: stages of equal length (ScalingInter-RL).
    `linear`: it grows evenly with each training step. `success_gated`: stages, each begun when the
    success rate of the one before reaches a threshold."""
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

    @property
    def has_stages(self) -> bool:
        """Whether the horizon grows by `stages`."""
        return self.kind in ("stepwise", "success_gated")

    def conflicts(self) -> Generator[str]:
        """Stages rise."""
        if self.has_stages:
            yield from (f"horizon_schedule.{line}" for line in stage_problems(self.stages))

    def remarks(self) -> Generator[Remark]:
        """Only a schedule with stages takes them."""
        if self.stages and not self.has_stages:
            yield Remark(
                f"horizon_schedule.stages = {list(self.stages)} means nothing to "
                f'horizon_schedule.kind = "{self.kind}"; it is for stepwise and success_gated',
                "stages",
            )


_OF_SOME_KINDS = {
    "max_earlier": ("key_events", "recall"),
    "summarize_every": ("summary",),
    "max_summary_tokens": ("summary",),
    "train_summaries": ("summary",),
}
"""Settings of `[memory]` that are for some kinds alone."""


class MemoryConfig(Section):
    """The part of an episode's past that its next prompt shows."""

    kind: Annotated[str, BuiltInOrOwn(dict.fromkeys(MEMORIES, ""))] = "window"
    """The current observation alone, the last exchanges, all of them as chat turns, or the last
    ones below a summary of those before, which the model itself writes, below those before in
    which something new was seen, or below those before that share words with the observation; or a
    memory of your own, which is called with `size=` and `template=` for each episode."""
    size: int = Field(default=2, ge=1)
    """The last exchanges, which are shown as they were; `none` and `full` do not read it."""
    max_earlier: int = Field(default=4, ge=1)
    """Most exchanges before the last `size` that are shown; for `key_events` and `recall` only."""
    max_tokens: int | None = Field(default=None, ge=1)
    """Longest prompt of an action that exchanges stand in, as the run's tokenizer counts it: the
    oldest are left out beyond it, and all of them where the observation alone makes it as long. At
    most `rollout.max_prompt_tokens`, which it is if left out. A hosted model, whose tokens nobody
    here knows, reads the prompt whole."""
    summarize_every: int = Field(default=4, ge=1)
    """Exchanges that go into the summary at a time: between `size` and `size + summarize_every - 1`
    are shown as they were; for `summary` only."""
    max_summary_tokens: int | None = Field(default=None, ge=1)
    """Longest summary, at most `rollout.max_reply_tokens`, which it is if left out; for `summary`
    only."""
    train_summaries: bool = False
    """Train the tokens of summaries too, with the advantage of the next step, whose prompt shows
    them; with a critic, of their own step, or of each token. They weigh as those of actions do,
    unless `loss.purposes` gives both a share; for `summary` only."""

    def remarks(self) -> Generator[Remark]:
        """Settings that are for other kinds."""
        if self.kind == "none" and self.max_tokens is not None:
            yield Remark(
                f"memory.max_tokens = {self.max_tokens} means nothing to memory.kind = "
                '"none", which shows no exchange',
                "max_tokens",
            )
        for name, kinds in _OF_SOME_KINDS.items():
            value = getattr(self, name)
            if self.kind not in kinds and value != type(self).model_fields[name].default:
                yield Remark(
                    f"memory.{name} = {toml_value(value)} means nothing to memory.kind = "
                    f'"{self.kind}"; it is for {" and ".join(kinds)}',
                    name,
                )


PROGRAMS = {
    "command": "a program of any language is started for each episode and plays it by itself",
    "function": "so does an asynchronous Python function, in the process of the agent loop",
    "remote": "runners on other machines play it by a command of theirs (`trainer runner`)",
}
"""Kinds of agent that play by themselves: they call the gateway, and nothing asks them."""


class AgentConfig(Section):
    """How an action is arrived at, or which program plays an episode by itself."""

    kind: Annotated[str, BuiltInOrOwn(dict.fromkeys(ACTINGS, "") | PROGRAMS)] = "single_call"
    """By one call of the model in each step, or by two (`plan_then_act`): it writes a plan first,
    and then the action with the plan in sight, and both are trained; or in a way of your own, which
    is called without arguments once for each process. Or an episode is played by a program that
    calls the model where an OpenAI, Anthropic or Google client would (the gateway)."""
    command: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """Words of the command that is started for each episode, e.g. `["python", "my_agent.py"]`; for
    `command` only. Its task is in the file that `LONGHAUL_TASK_FILE` names, and on its standard
    input; its last line of output that is JSON is its reward."""
    function: Annotated[str | None, BuiltInOrOwn({})] = None
    """Asynchronous function of your own that plays an episode, and returns its reward; for
    `function` only. It is called with the task's data and the gateway's endpoint."""
    working_directory: str | None = Field(default=None, min_length=1)
    """Folder that a command is started in; left out, a new one for each episode, which is removed
    after it."""
    environ: Mapping[str, str] = {}
    """Environment variables of a command, beside those that lead it to the gateway;
    `agent.environ.NAME=value` sets one on the command line. In a value `{question}` stands for what
    the task has under that key, and `{{question}}` for `{question}` itself. They are written into
    the run's folder, so no secret belongs here."""
    deadline_seconds: float = Field(default=3600.0, gt=0)
    """A program that takes longer is ended, and its episode has failed."""
    max_calls: int | None = Field(default=None, ge=1)
    """Most calls of an episode, those of other models included; it is truncated there. Left out,
    `rollout.horizon`, which counts the steps, and the limits on tokens end it."""
    max_memory_bytes: int | None = Field(default=None, ge=1)
    """Most memory of a command and all that it starts; left out, no limit."""
    max_processes: int | None = Field(default=None, ge=1)
    """Most processes of a command, itself included; left out, no limit."""
    max_output_bytes: int = Field(default=100_000_000, ge=1)
    """Most that a command may print."""
    grader: Annotated[str | None, BuiltInOrOwn({})] = None
    """Function of your own that scores an episode from its task, its calls and what the program
    left; left out, the program reports its reward."""
    allow_sampling: bool = False
    """Whether a program's own temperature and `top_p` are in force in training. Without it they are
    left out of account, and the run's are."""
    altered: Literal["ignore", "refuse", "allow"] = "ignore"
    """Of what makes the logprobs not those of the policy (penalties, `logit_bias`, `top_k`, a
    response format, guided decoding). `ignore`: the policy's calls are drawn without it, and the
    answer's header `Longhaul-Overridden` says so. `refuse`: with 400 in training. `allow`: in
    force, and the audit reports it."""
    model_names: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """Further names of the policy, beside `auto` and that of `model.path`, or patterns: for a
    program with a model's name in its code, such as `["gpt-4o-mini"]`, `["claude-*"]` or
    `["*"]`."""
    calls: Annotated[tuple[CallKind, ...], Field(strict=False)] = ()
    """Calls that are treated in a way of their own, such as titles: an `[[agent.calls]]` table for
    each kind."""
    upstreams: Mapping[str, UpstreamConfig] = {}
    """Models of other servers by the name that a program's requests give, for a judge or a teacher:
    an `[agent.upstreams.NAME]` table each. Their calls are stored with latency and cost, and never
    trained."""

    @field_validator("upstreams", mode="before")
    @classmethod
    def _no_key_is_written_down(cls, value: object) -> object:
        return no_key_is_written_down(value)

    host: str = Field(default="127.0.0.1", min_length=1)
    """Address at which runners reach the run, `0.0.0.0` for all of the machine's; for `remote`
    only. One that other machines reach needs the token of the environment variable
    `LONGHAUL_RUNNER_TOKEN`, here and for the runners."""
    port: int = Field(default=8400, ge=0, le=65_000)
    """Port of the first agent loop; those of the others follow. 0 is any free one, which a file in
    the run's folder `gateways` names; for `remote` only."""
    allowed_hosts: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """Names, besides addresses and `localhost`, by which runners and programs may call the run,
    such as that of a Kubernetes service; for `remote` only."""
    lost_seconds: float = Field(default=60.0, ge=1)
    """A runner that is not heard of for so long is lost, and its episodes have failed; for `remote`
    only."""

    @property
    def is_program(self) -> bool:
        """Whether the agent plays by itself, and the run answers its calls."""
        return self.kind in PROGRAMS

    @property
    def policy_names(self) -> tuple[str, ...]:
        """What a request may call the policy, patterns included, beside the model's own name."""
        return (*self.model_names, *(kind.model for kind in self.calls if kind.model))

    def conflicts(self) -> Generator[str]:
        """Each kind of agent has settings of its own."""
        of_kind = {"command": self.command, "function": self.function}
        for kind, value in of_kind.items():
            if self.kind == kind and not value:
                yield f'agent.kind = "{kind}" needs agent.{kind}, and got none'
        for name in self.model_names:
            if not name or name in self.upstreams:
                whose = f"that of agent.upstreams.{name}" if name else "empty"
                yield f"agent.model_names has {name!r}, which is {whose}; give another one"
        for kind in self.calls:
            if kind.model in self.upstreams:
                yield (
                    f"agent.calls has model = {kind.model!r}, which is that of "
                    f"agent.upstreams.{kind.model}, and never trained; leave it out"
                )
        of_commands = {
            "command",
            "working_directory",
            "environ",
            "max_memory_bytes",
            "max_processes",
            "max_output_bytes",
        }
        of_runners = {"host", "port", "allowed_hosts", "lost_seconds"}
        for name, field in type(self).model_fields.items():
            value = getattr(self, name)
            if name == "kind" or value == field.default:
                continue
            kinds = (
                ("command",)
                if name in of_commands
                else ("function",)
                if name == "function"
                else ("remote",)
                if name in of_runners
                else tuple(PROGRAMS)
            )
            if self.kind not in kinds:
                shown = "{…}" if name in ("upstreams", "calls") else toml_value(value)
                yield (
                    f"agent.{name} = {shown} means nothing to agent.kind = "
                    f'"{self.kind}"; it is for {" and ".join(map(repr, kinds))}: set one of them, '
                    "or leave it out"
                )


class PromptConfig(Section):
    """The words around an observation."""

    template: Annotated[
        str, BuiltInOrOwn({DEFAULT_TEMPLATE: "", "verl-agent": "", "agentgym": ""})
    ] = DEFAULT_TEMPLATE
    """How messages are laid out. `verl-agent` and `agentgym` are those authors' prompts word for
    word, for their environments; of the settings below they take `reply_prefix` alone. Or a
    subclass of `longhaul_core.memory.PromptTemplate` of your own, which gets them all."""
    system: str | None = None
    """System message; left out, the environment's own."""
    instruction: str | None = None
    """How to answer; left out, the environment's own."""
    instruction_place: InstructionPlace = "user"
    """Where the instruction is. `user`: the last line of each prompt's last message. `system`: the
    end of the system message, so that an episode's prompts share a longer beginning, which the
    engine's prefix cache keeps."""
    list_actions: bool = True
    """Show the admissible actions where the environment names them."""
    reply_prefix: str = ""
    """Put at the end of the prompt, as if the reply began with it, e.g. `<action>`."""


class ActionsConfig(Section):
    """How a reply becomes an action."""

    format: Annotated[str, BuiltInOrOwn({form.value: "" for form in ActionFormat})] = "tags"
    """`<action>…</action>`, `{"action": "…"}`, the reply's first line that is not empty,
    `Thought: … Action: …`, or a call of one of the environment's tools in the model's own syntax;
    or a parser of your own, which is called with `require_thinking=` and `reply_prefix=`."""
    require_thinking: bool = False
    """A reply without a thought is invalid: `<think>…</think>` for `tags` and `tool_call`, and
    `Thought: …` is one too for `react`; the others have no place for it."""

    def conflicts(self) -> Generator[str]:
        """Thinking needs a format with a place for it."""
        if self.require_thinking and self.format in ("json", "plain"):
            yield (
                'actions.require_thinking = true needs actions.format = "tags", got '
                f'actions.format = "{self.format}", '
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
        yield from super().conflicts()
        if self.actions.require_thinking and "<action>" in self.prompt.reply_prefix:
            yield (
                f"prompt.reply_prefix = {self.prompt.reply_prefix!r} opens the action before "
                "actions.require_thinking = true can be met; drop one of them"
            )
