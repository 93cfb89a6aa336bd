"""The description of one training run.

A run is a TOML file that becomes a `RunConfig`. The classes are the only place where a
default is written. verl's own settings are derived from this object in
`longhaul_trainer.verl.settings`, never edited beside it; what is not modelled here goes
into the `[verl]` table under verl's own names.
"""

from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Annotated, Literal, Self, cast
from urllib.parse import parse_qs, urlsplit

from pydantic import (
    Field,
    SerializerFunctionWrapHandler,
    field_validator,
    model_serializer,
    model_validator,
)

from longhaul_core.components import is_own
from longhaul_core.errors import ConfigError
from longhaul_trainer.config.component_settings import Scalar
from longhaul_trainer.config.critic import CriticConfig
from longhaul_trainer.config.episodes import (
    ActionsConfig,
    AgentConfig,
    EnvironmentConfig,
    HorizonScheduleConfig,
    MemoryConfig,
    MixedEnvironmentConfig,
    PromptConfig,
    RolloutConfig,
)
from longhaul_trainer.config.evolution import EvolutionConfig
from longhaul_trainer.config.imitation import ImitationConfig, WarmStartConfig, as_imitation
from longhaul_trainer.config.learning import (
    AlgorithmConfig,
    CheckpointConfig,
    LossConfig,
    OptimizerConfig,
    TasksConfig,
    ValidationConfig,
)
from longhaul_trainer.config.machine import EngineConfig, ModelConfig, ResourcesConfig
from longhaul_trainer.config.retention import RetentionConfig
from longhaul_trainer.config.sampling import SamplingConfig
from longhaul_trainer.config.section import Conflicts, Remark, Section
from longhaul_trainer.config.toml import to_toml, toml_value
from longhaul_trainer.config.trainer import TrainerConfig
from longhaul_trainer.models.chat_template import chat_template_text
from longhaul_trainer.models.prepare import BUILT_IN_MODELS

OF_ONE_ENVIRONMENT = ("environment", "memory", "prompt", "actions")
"""Sections that a run of one environment has; with `environments`, each entry has its own."""

VerlValue = Scalar | list[Scalar]
Tracker = Literal["tensorboard", "mlflow", "wandb"]


class RunConfig(Section):
    """Everything needed to repeat a run."""

    name: str = Field(default="run", pattern=r"^[a-z0-9][a-z0-9._-]{0,39}$")
    """Part of the run's id: lower-case letters, digits, `.`, `_` and `-`, at most 40."""
    seed: int = Field(default=0, ge=0, lt=2**31)
    """Of the task order, everything else that is drawn and, as `rollout.reproducibility` says, the
    sampled tokens."""
    num_training_steps: int = Field(ge=1)
    """Batches of episodes that are played and learned from."""
    tasks_per_training_step: int = Field(ge=1)
    """Tasks, and so groups, of one training step."""
    runs_directory: str = Field(default="runs", min_length=1)
    """Folder that holds a folder for each run."""
    store: str = Field(default="longhaul.db", min_length=1)
    """SQLite file, or the URL of a PostgreSQL database, without its password."""
    trackers: Annotated[tuple[Tracker, ...], Field(strict=False)] = ()
    """Any of `tensorboard`, `mlflow` and `wandb`: what the store gets of each training step goes
    there too, by the run's id. Files lie in the run's folder, and W&B stays offline, unless
    `TENSORBOARD_DIR`, `MLFLOW_TRACKING_URI` or `WANDB_MODE` says otherwise."""
    trainer: TrainerConfig = TrainerConfig()
    model: ModelConfig = ModelConfig()
    environment: EnvironmentConfig = EnvironmentConfig()
    environments: Annotated[tuple[MixedEnvironmentConfig, ...], Field(strict=False)] = ()
    """Several environments in place of one, their tasks mixed by weight: a `[[environments]]` table
    each. A run has these, or `[environment]`, `[memory]`, `[prompt]` and `[actions]`."""
    tasks: TasksConfig = TasksConfig()
    rollout: RolloutConfig = RolloutConfig()
    warm_start: WarmStartConfig = WarmStartConfig()
    imitation: ImitationConfig = ImitationConfig()
    evolution: EvolutionConfig = EvolutionConfig()
    sampling: SamplingConfig = SamplingConfig()
    horizon_schedule: HorizonScheduleConfig = HorizonScheduleConfig()
    memory: MemoryConfig = MemoryConfig()
    agent: AgentConfig = AgentConfig()
    prompt: PromptConfig = PromptConfig()
    actions: ActionsConfig = ActionsConfig()
    algorithm: AlgorithmConfig = AlgorithmConfig()
    loss: LossConfig = LossConfig()
    critic: CriticConfig = CriticConfig()
    optimizer: OptimizerConfig = OptimizerConfig()
    validation: ValidationConfig = ValidationConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()
    retention: RetentionConfig = RetentionConfig()
    engine: EngineConfig = EngineConfig()
    resources: ResourcesConfig = ResourcesConfig()
    verl: Mapping[str, VerlValue] = {}
    """Settings of verl that are not modelled here, by their dotted names in verl's own config;
    a name that verl does not know is refused before the run starts."""

    @model_validator(mode="before")
    @classmethod
    def _imitation_leaves_out_reinforcement(cls, value: object) -> object:
        return as_imitation(value)

    @field_validator("verl", mode="before")
    @classmethod
    def _nested_tables_are_dotted_names(cls, value: object) -> object:
        return dotted(cast("Mapping[str, object]", value)) if isinstance(value, dict) else value

    @field_validator("store")
    @classmethod
    def _no_password_is_written_down(cls, value: str) -> str:
        address = urlsplit(value)
        in_query = any(name.startswith("pass") for name in parse_qs(address.query))
        if "://" in value and (address.password is not None or in_query):
            raise ValueError(
                "the address carries a password, which would be written into the run's folder; "
                "leave it out and set PGPASSWORD, or keep it in ~/.pgpass"
            )
        return value

    def conflicts(self) -> Generator[str]:
        """Rules that tie fields of different sections."""
        yield from self._environments_that_cannot_be_mixed()
        yield from self._what_a_program_does_not_read()
        yield from self._imitation_without_an_episode_loop()
        yield from self._engines_beside_the_learner()
        yield from self._agent_loops_without_a_share()
        updates = self.optimizer.optimizer_steps_per_training_step
        if self.tasks_per_training_step % updates:
            yield (
                f"tasks_per_training_step = {self.tasks_per_training_step} cannot be split into "
                f"optimizer.optimizer_steps_per_training_step = {updates} equal parts "
                f"({self.tasks_per_training_step} mod {updates} = "
                f"{self.tasks_per_training_step % updates}); a group must not straddle two updates"
            )
        yield from self._what_choosing_needs()
        horizon, growth = self.rollout.horizon, self.horizon_schedule
        if growth.stages and growth.stages[-1] != horizon:
            yield (
                f"horizon_schedule.stages end at {growth.stages[-1]} and rollout.horizon = "
                f"{horizon}; the last stage is the final horizon, which validation plays: set "
                "both to the same"
            )
        if growth.kind == "linear" and growth.start >= horizon:
            yield (
                f"horizon_schedule.start = {growth.start} must be less than rollout.horizon = "
                f'{horizon}, where kind = "linear" ends'
            )
        yield from self._rows_that_cannot_be()
        pass_k, group_size = self.algorithm.pass_k, self.rollout.group_size
        if group_size < 2 and self.algorithm.compares_episodes:
            yield (
                f"rollout.group_size = {group_size} leaves nothing to compare to algorithm.name = "
                f'"{self.algorithm.name}"; make it 2 or more'
            )
        if pass_k is not None and pass_k > group_size:
            yield (
                f"algorithm.pass_k = {pass_k} is more than rollout.group_size = {group_size}; "
                "the best is taken of attempts in one group"
            )
        yield from self._critic_contradictions()
        yield from self._baselines_without_agents()
        yield from self._memories_beyond_limits()
        yield from self._penalty_that_is_never_whole()
        if self.loss.purposes and self.algorithm.loss_unit == "fixed_token":
            yield (
                'algorithm.loss_unit = "fixed_token" divides the tokens of every purpose by '
                "algorithm.tokens_per_episode, and loss.purposes gives each a denominator of its "
                "own; take another unit, or leave loss.purposes out"
            )
        if self.resources.num_workers % self.engine.tensor_parallel_size:
            yield (
                f"engine.tensor_parallel_size = {self.engine.tensor_parallel_size} does not divide "
                f"resources.num_workers = {self.resources.num_workers}; an engine takes whole "
                "workers of one node"
            )
        if self.actions.require_thinking and "<action>" in self.prompt.reply_prefix:
            yield (
                f"prompt.reply_prefix = {self.prompt.reply_prefix!r} opens the action before "
                "actions.require_thinking = true can be met; drop one of them"
            )

    def _environments_that_cannot_be_mixed(self) -> Generator[str]:
        if not self.environments:
            return
        both = [name for name in OF_ONE_ENVIRONMENT if name in self.model_fields_set]
        if both:
            yield (
                f"environments and {', '.join(both)} are both given; with [[environments]] each "
                "entry has its own prompt, memory and actions: move them there, or describe one "
                "environment"
            )
        ids = [entry.id for entry in self.environments]
        for environment_id in sorted({one for one in ids if ids.count(one) > 1}):
            yield (
                f"environments: id {environment_id!r} is given {ids.count(environment_id)} times; "
                "a task is identified by environment and task id, so name each once"
            )
        for entry in self.environments:
            if entry.horizon is not None and entry.horizon > self.rollout.horizon:
                yield (
                    f"environments: horizon = {entry.horizon} of {entry.id!r} is more than "
                    f"rollout.horizon = {self.rollout.horizon}, which no episode exceeds; lower it "
                    "or leave it out"
                )
        if self.horizon_schedule.kind == "success_gated" and all(
            entry.horizon is not None and entry.horizon < self.rollout.horizon
            for entry in self.environments
        ):
            yield (
                "environments: every one has a horizon below rollout.horizon = "
                f'{self.rollout.horizon}, so horizon_schedule.kind = "success_gated" sees no '
                "episode of its last stages; leave one horizon out"
            )

    def _what_a_program_does_not_read(self) -> Generator[str]:
        """A program composes its prompts and reads its replies itself."""
        if self.tasks.source is not None and not self.agent.is_program:
            yield (
                f"tasks.source = {toml_value(self.tasks.source)} with agent.kind = "
                f'"{self.agent.kind}": an environment has tasks of its own, and these are a '
                'program\'s; set agent.kind = "command", "function" or "remote", or leave it out'
            )
        if not self.agent.is_program:
            return
        unread = ["memory", "prompt", "actions"]
        unread += ["environment", "environments"] if self.tasks.source is not None else []
        given = [name for name in unread if name in self.model_fields_set]
        if given:
            yield (
                f'{", ".join(given)} with agent.kind = "{self.agent.kind}"'
                + (" and tasks.source" if self.tasks.source is not None else "")
                + ": nothing reads them, since a program composes its prompts and reads its "
                "replies itself; leave them out"
            )

    def _imitation_without_an_episode_loop(self) -> Generator[str]:
        layers = self.imitation.new_model_layers
        if layers and self.model.path in BUILT_IN_MODELS:
            yield (
                f"imitation.new_model_layers = {layers} makes a model, and "
                f'model.path = "{self.model.path}" is one that is there; name a folder for it'
            )
        if self.warm_start.demonstrations and self.imitation.coefficient:
            yield (
                f"warm_start.demonstrations = {self.warm_start.demonstrations} with "
                f"imitation.coefficient = {self.imitation.coefficient:g}: what is imitated beside "
                "reinforcement learning is looked up before a warm start has it played; run "
                "`trainer demonstrate`, `imitate` and `train` after one another instead"
            )
        if self.algorithm.imitates != self.imitation.imitates:
            yield (
                f'algorithm.name = "{self.algorithm.name}" and [[imitation.sources]] go together: '
                "name the runs whose episodes are imitated, or take another estimator"
            )
        updates = self.optimizer.optimizer_steps_per_training_step
        if self.imitation.preferences is not None and updates > 1:
            yield (
                f"optimizer.optimizer_steps_per_training_step = {updates} with imitation.loss = "
                '"dpo": the log-probabilities that pairs are compared by are those before the '
                "first update; set it to 1, and tasks_per_training_step lower for more updates"
            )
        asking = [memory.kind for memory in self._memories if memory.kind == "summary"]
        if self.imitation.compares_steps and asking:
            yield (
                'imitation.pairs = "steps" with memory.kind = "summary": what a memory is asked '
                'after a step belongs to no action; set pairs = "episodes", or another memory'
            )
        if (self.loss.kind == "nll") != self.imitation.imitates:
            yield (
                'loss.kind = "nll" and [[imitation.sources]] go together: the likelihood of what '
                "was sampled by the policy itself is no goal; name sources, or take another loss"
            )
        if self.imitation.sources and self.agent.is_program:
            yield (
                f'imitation.sources with agent.kind = "{self.agent.kind}": a stored episode is '
                "played again by our loop, which no program takes part in; set agent.kind = "
                '"single_call"'
            )

    @property
    def played_environments(self) -> tuple[MixedEnvironmentConfig, ...]:
        """The environments of the run, whichever way they are described; at least one.

        A program's tasks of its own count as one, by the name of their source.
        """
        if self.tasks.source is not None:
            return (MixedEnvironmentConfig(id=self.tasks.name),)
        if self.environments:
            return self.environments
        described = dict(self.environment) | {
            "prompt": self.prompt,
            "memory": self.memory,
            "actions": self.actions,
        }
        # contradictions were reported with `environment`, and what else is wrong is still looked up
        return (MixedEnvironmentConfig.model_validate(described, context=Conflicts()),)

    def horizon_of(self, environment_id: str, *, scheduled: int) -> int:
        """Longest episode of an environment, in steps, where the schedule allows `scheduled`."""
        caps = {entry.id: entry.horizon for entry in self.environments}
        cap = caps.get(environment_id)
        return scheduled if cap is None else min(scheduled, cap)

    @model_serializer(mode="wrap")
    def _with_the_sections_it_reads(self, dump: SerializerFunctionWrapHandler) -> dict[str, object]:
        """One way of describing environments, as the run was described."""
        unread: tuple[str, ...] = OF_ONE_ENVIRONMENT if self.environments else ("environments",)
        if self.agent.is_program:
            unread += ("memory", "prompt", "actions")
        if self.tasks.source is not None:
            unread += ("environment",)
        return {name: value for name, value in dump(self).items() if name not in unread}

    @property
    def _memories(self) -> tuple[MemoryConfig, ...]:
        """Of the environments; `played_environments` are only there once the run is in order."""
        return tuple(entry.memory for entry in self.environments) or (self.memory,)

    def _penalty_that_is_never_whole(self) -> Generator[str]:
        """Known where a step trains one reply; with several it may be longer than any of them."""
        end, longest = self.algorithm.overlong_end_tokens, self.rollout.max_reply_tokens
        trains_one = self.agent.kind == "single_call" and not any(
            is_own(memory.kind) or memory.train_summaries for memory in self._memories
        )
        replies = "rollout.max_reply_tokens"
        if self.algorithm.overlong_unit == "episode":
            longest *= self.rollout.horizon
            replies = "rollout.horizon * rollout.max_reply_tokens"
        if end is not None and end > longest and trains_one:
            yield (
                f"algorithm.overlong_end_tokens = {end} is more than {replies} = {longest}; "
                "no reply would ever pay the whole penalty"
            )

    def _memories_beyond_limits(self) -> Generator[str]:
        for own, limit, bounded in (
            ("max_tokens", "max_prompt_tokens", "prompt"),
            ("max_summary_tokens", "max_reply_tokens", "reply"),
        ):
            longest = getattr(self.rollout, limit)
            for value in {getattr(memory, own) for memory in self._memories} - {None}:
                if value > longest:
                    yield (
                        f"memory.{own} = {value} is more than rollout.{limit} = {longest}, which "
                        f"bounds every {bounded}; lower it to that, or leave it out"
                    )

    def _rows_that_cannot_be(self) -> Generator[str]:
        longest_row = self.rollout.max_prompt_tokens + self.rollout.max_reply_tokens
        if self.optimizer.micro_batch_tokens < longest_row:
            yield (
                f"optimizer.micro_batch_tokens = {self.optimizer.micro_batch_tokens} is less than "
                "one full row, rollout.max_prompt_tokens + rollout.max_reply_tokens = "
                f"{self.rollout.max_prompt_tokens} + {self.rollout.max_reply_tokens} = "
                f"{longest_row}; raise it to at least {longest_row}"
            )

    def _rows_that_do_not_merge(self) -> Generator[Remark]:
        longest_row = self.rollout.max_prompt_tokens + self.rollout.max_reply_tokens
        kinds = {memory.kind for memory in self._memories}
        # What parts of one's own compose is not known; rows are cut by the tokens all the same.
        own_prompts = is_own(self.agent.kind) or self.agent.is_program
        may_merge = own_prompts or any(k == "full" or is_own(k) for k in kinds)
        if self.optimizer.rows == "merged" and not may_merge:
            yield Remark(
                'optimizer.rows = "merged" merges nothing with memory.kind = '
                f'"{min(kinds)}", whose prompts do not repeat earlier replies'
            )
        max_row_tokens = self.optimizer.max_row_tokens if self.optimizer.rows == "merged" else None
        if max_row_tokens is not None and max_row_tokens > longest_row:
            yield Remark(
                f"optimizer.max_row_tokens = {max_row_tokens} is more than any row can have: "
                "merged or not, it ends with a prompt and its reply, of at most "
                f"rollout.max_prompt_tokens + rollout.max_reply_tokens = {longest_row} tokens"
            )

    def _purposes_of_no_call(self) -> Generator[Remark]:
        """Known where agent and memories are built in."""
        memories = self._memories
        if (
            is_own(self.agent.kind)
            or self.agent.is_program
            or any(is_own(m.kind) for m in memories)
        ):
            return
        of_calls = {
            "act": True,
            "plan": self.agent.kind == "plan_then_act",
            "remember": any(m.kind == "summary" and m.train_summaries for m in memories),
        }
        trained = [purpose for purpose, is_trained in of_calls.items() if is_trained]
        for purpose in sorted(self.loss.purposes.keys() - trained):
            yield Remark(
                f"loss.purposes.{purpose} is the share of no call: this run trains calls to "
                f"{', '.join(trained)} alone"
            )

    def remarks(self) -> Generator[Remark]:
        """Settings that say nothing to the modes and kinds that were chosen."""
        yield from self._rows_that_do_not_merge()
        yield from self._purposes_of_no_call()
        warmup = self.optimizer.warmup_training_steps
        if warmup > self.num_training_steps:
            yield Remark(
                f"optimizer.warmup_training_steps = {warmup} is more than num_training_steps = "
                f"{self.num_training_steps}; the learning rate only rises"
            )
        mode, transfer = self.trainer.mode, self.engine.weight_transfer
        if mode != "separate_async" and transfer != "auto":
            yield Remark(
                f'engine.weight_transfer = "{transfer}" means nothing to trainer.mode = "{mode}", '
                "whose engines have their weights from beside them"
            )
        if not self.algorithm.uses_critic:
            for name in self.critic.changed():
                yield Remark(
                    f"critic.{name} = {toml_value(getattr(self.critic, name))} means nothing to "
                    f'algorithm.name = "{self.algorithm.name}", which has no critic',
                    "critic",
                )

    def _engines_beside_the_learner(self) -> Generator[str]:
        engines, mode = self.resources.num_engine_workers, self.trainer.mode
        if mode == "separate_async" and engines == 0:
            yield (
                'trainer.mode = "separate_async" needs engines beside the learner, and '
                "resources.num_engine_workers = 0; set how many GPUs of a node they take"
            )
        if mode != "separate_async" and engines > 0:
            yield (
                f"resources.num_engine_workers = {engines} is for trainer.mode = "
                f'"separate_async", got trainer.mode = "{mode}", whose engines share the '
                "learner's GPUs"
            )
        if engines % self.engine.tensor_parallel_size:
            yield (
                f"engine.tensor_parallel_size = {self.engine.tensor_parallel_size} does not divide "
                f"resources.num_engine_workers = {engines}; an engine takes whole workers of one "
                "node"
            )

    def _agent_loops_without_a_share(self) -> Generator[str]:
        asked, most = self.rollout.agent_loops, self.most_agent_loops
        if asked is not None and asked > most:
            yield (
                f"rollout.agent_loops = {asked}: each plays a share of "
                f"rollout.concurrent_episodes = {self.rollout.concurrent_episodes} in a share of "
                f"{self.least_workers}, at least one; ask for 1 to {most}, or raise both limits"
            )

    @property
    def episodes_of_a_group(self) -> int:
        """Episodes played for a training task, with those beside its group.

        They are a greedy one, and demonstrations.
        """
        beside = self.algorithm.needs_greedy_episode + self.imitation.beside_each_group
        return self.rollout.group_size + beside

    @property
    def most_agent_loops(self) -> int:
        """Most agent loops that leave each of them an episode and an environment."""
        return min(self.rollout.concurrent_episodes, *self.workers_by_environment)

    @property
    def workers_by_environment(self) -> tuple[int, ...]:
        """Environments alive at once, of each; as many programs as episodes."""
        if self.agent.is_program:
            return (self.rollout.concurrent_episodes,)
        return tuple(entry.num_workers for entry in self.environments or (self.environment,))

    @property
    def least_workers(self) -> str:
        """The smallest `num_workers` of the run's environments, for messages, by its setting."""
        if self.agent.is_program:
            return f'agent.kind = "{self.agent.kind}"'
        least = min(self.environments or (self.environment,), key=lambda entry: entry.num_workers)
        if not self.environments:
            return f"environment.num_workers = {least.num_workers}"
        return f"environments: num_workers = {least.num_workers} of {least.id!r}"

    @property
    def num_engines(self) -> int:
        """Engines of the run: each takes `engine.tensor_parallel_size` workers."""
        resources = self.resources
        workers = resources.num_workers * resources.num_nodes
        if self.trainer.mode == "separate_async":
            workers = resources.num_engine_workers * resources.num_engine_nodes
        return workers // self.engine.tensor_parallel_size

    def _baselines_without_agents(self) -> Generator[str]:
        reason = {
            "single_call": "has one agent",
            "plan_then_act": "has steps of two agents, which have one advantage",
        }.get(self.agent.kind)
        if self.algorithm.baseline_per_agent and reason is not None:
            yield (
                f'algorithm.baseline_per_agent = true: agent.kind = "{self.agent.kind}" {reason}; '
                "it is for programs of several agents"
            )

    def _critic_contradictions(self) -> Generator[str]:
        if self.algorithm.uses_critic and self.agent.kind == "plan_then_act":
            yield (
                'agent.kind = "plan_then_act" with a critic (algorithm.name = '
                f'"{self.algorithm.name}") would value steps by prompts with a plan, and the end '
                "of a truncated episode by one without; choose an estimator without a critic, or "
                'agent.kind = "single_call"'
            )
        warmup = self.critic.warmup_training_steps
        if warmup >= self.num_training_steps:
            yield (
                f"critic.warmup_training_steps = {warmup} leaves none of num_training_steps = "
                f"{self.num_training_steps} to the policy"
            )

    def training_problems(self) -> list[str]:
        """What a training refuses, and an evaluation, which moves no weight, does not."""
        if self.model.dtype == "float32":
            return []
        rate = self.optimizer.learning_rate
        return [
            f'model.dtype = "{self.model.dtype}" would train next to nothing: it has 8 bits, so '
            f"an update of optimizer.learning_rate = {rate:g} is rounded away from every weight "
            f"above {rate * 2**8:.2g}, and AdamW's moments stand still; set model.dtype = "
            '"float32". That takes 4 bytes a weight in place of 2, and 12 in place of 6 where it '
            "is trained, for its two moments; passes through the model stay in "
            f'model.engine_dtype = "{self.model.engine_dtype}"'
        ]

    def policy_version(self, training_step: int) -> int:
        """Optimizer steps behind the policy's weights when `training_step` training steps are over.

        While the critic warms up the policy takes none.
        """
        steps = max(0, training_step - self.critic.warmup_training_steps)
        return steps * self.optimizer.optimizer_steps_per_training_step

    def training_step_of(self, policy_version: int) -> int:
        """The last training step that `policy_version` optimizer steps can stand behind."""
        updates = self.optimizer.optimizer_steps_per_training_step
        return policy_version // updates + self.critic.warmup_training_steps

    def _what_choosing_needs(self) -> Generator[str]:
        """Only what compares episodes has groups to choose; stragglers are of `sync` alone."""
        mode, staleness = self.trainer.mode, self.trainer.max_staleness
        if mode == "sync" and staleness > 0 and not self.sampling.chooses:
            yield (
                f'trainer.max_staleness = {staleness} with trainer.mode = "sync", where no group '
                "waits for a later update; leave it out, set sampling.dynamic = true, or choose "
                "another mode"
            )
        if mode != "sync" and self.sampling.extra_tasks:
            yield (
                f"sampling.extra_tasks = {self.sampling.extra_tasks} with trainer.mode = "
                f'"{mode}", where an update does not wait for stragglers and a later one takes '
                "them; leave it out"
            )
        if self.sampling.chooses and not self.algorithm.compares_episodes:
            yield (
                "sampling.dynamic or sampling.extra_tasks with algorithm.name = "
                f'"{self.algorithm.name}", which compares no episodes of a group and learns from '
                "equal returns too; take another estimator"
            )

    def with_absolute_paths(self, base: Path) -> Self:
        """The same run with its store, runs and model paths absolute.

        Worker processes have working folders of their own, and `resume` may be called
        from anywhere.

        Args:
            base: Folder that relative paths start from.

        Raises:
            ConfigError: If a path is not UTF-8, as the files and addresses that hold it are, or the
                chat template's file cannot be read.
        """

        def absolute(path: str) -> str:
            return path if path in BUILT_IN_MODELS else str(base / Path(path).expanduser())

        critic = self.critic.path
        store = self.store.removeprefix("sqlite:///")
        if "://" not in store:
            store = str(base / Path(store).expanduser())
        run = self.model_copy(
            update={
                "runs_directory": str(base / Path(self.runs_directory).expanduser()),
                "store": store,
                "model": self.model.model_copy(
                    update={
                        "path": absolute(self.model.path),
                        "chat_template": chat_template_text(self.model.chat_template, base),
                    }
                ),
                "tasks": self.tasks.model_copy(update={"source": _file(self.tasks.source, base)}),
                "agent": self.agent.model_copy(
                    update={"working_directory": _folder(self.agent.working_directory, base)}
                ),
                "critic": self.critic.model_copy(
                    update={"path": None if critic is None else absolute(critic)}
                ),
            }
        )
        for name, value in dotted(run.model_dump(exclude_none=True)).items():
            if isinstance(value, str) and not _is_utf8(value):
                raise ConfigError(
                    f"{name} = {value!r} is not UTF-8; rename the folder, or work in another one"
                )
        return run

    def to_toml(self) -> str:
        """The whole configuration, defaults written out, as a TOML file that reads back equal."""
        return to_toml(self.model_dump(exclude_none=True))


def _is_utf8(text: str) -> bool:
    """Whether text is Unicode; Python has bytes of a path that are not as lone surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _file(path: str | None, base: Path) -> str | None:
    """An absolute path of a file; a part of one's own stays as it is."""
    return path if path is None or is_own(path) else _folder(path, base)


def _folder(path: str | None, base: Path) -> str | None:
    return None if path is None else str(base / Path(path).expanduser())


def dotted(table: Mapping[str, object], *, prefix: str = "") -> dict[str, object]:
    """Entries of nested tables under their dotted names: `{"a": {"b": 1}}` gives `{"a.b": 1}`.

    Raises:
        ValueError: If one name is given twice, or both holds a value and is a table.
    """
    flat: dict[str, object] = {}
    for key, value in table.items():
        name = f"{prefix}{key}"
        entries = (
            dotted(cast("Mapping[str, object]", value), prefix=f"{name}.")
            if isinstance(value, dict)
            else {name: value}
        )
        twice = flat.keys() & entries.keys()
        if twice:
            raise ValueError(f"{min(twice)!r} is given twice")
        flat.update(entries)
    for name in flat:
        inside = next((other for other in flat if other.startswith(f"{name}.")), None)
        if inside is not None:
            raise ValueError(f"{name!r} holds a value, so it cannot hold {inside!r}")
    return flat
