"""verl's own configuration, derived from ours: the only writer of it.

`verl_settings` starts from verl's defaults, so a key that verl renames or drops fails
here, with the key in the error, before anything starts. The same function serves GPUs and the CPU;
the CPU's differences stand together in `_cpu`.
"""

from __future__ import annotations

import copy
import difflib
import functools
import importlib.util
from collections.abc import Mapping, Set
from pathlib import Path
from typing import NamedTuple, get_args

from hydra import compose, initialize_config_dir
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from longhaul_core.errors import ConfigError, MachineError
from longhaul_trainer.config import RunConfig
from longhaul_trainer.config.agent_loops import num_agent_loops
from longhaul_trainer.config.learning import CheckpointConfig
from longhaul_trainer.config.machine import ALL_LINEAR
from longhaul_trainer.config.run import Tracker
from longhaul_trainer.config.toml import toml_value
from longhaul_trainer.models.vision import (
    has_linear_attention,
    needs_flash_attn_to_pack,
    reads_pictures,
)
from longhaul_trainer.verl.attention import ATTENTION, SDPA, TORCH_FLASH, gpu_attention
from longhaul_trainer.verl.queue_rows import most_rows
from longhaul_trainer.verl.weight_choice import BACKEND, weight_transfer

Value = bool | int | float | str | list[str] | list[float] | None

AGENT_LOOP = "longhaul"
"""Name of our agent loop in verl's registry."""

KL_KINDS = {"k1": "kl", "k2": "mse", "k3": "low_var_kl"}
"""Our names of the KL estimators, and verl's."""

SHORT_DTYPE = {"float32": "fp32", "bfloat16": "bf16"}

LEFT_OUT = (
    "actor_rollout_ref.actor.checkpoint.save_lora_only",
    "actor_rollout_ref.actor.fsdp_config.mixed_precision.",
    "actor_rollout_ref.ref.fsdp_config.mixed_precision.",
    "critic.fsdp.mixed_precision.",
    "critic.ppo_infer_max_token_len_per_gpu",
    "actor_rollout_ref.rollout.enable_sleep_mode",
    "actor_rollout_ref.model.lora.merge",
)
"""Settings that verl's classes have and its YAML files do not show."""

_BY_TOKENS = "micro-batches are by tokens here; set optimizer.micro_batch_tokens"
_ONE_PASS = (
    "each row is read once in a training step, in the optimizer step of its episode; see "
    "optimizer.optimizer_steps_per_training_step"
)
_IN_THE_STORE = "every episode is in the run's store, those of validation too"
_GROUPS_OF_EPISODES = "groups are chosen by episodes here; say sampling.dynamic = true"
_CREDIT_IS_OURS = "rewards are the environment's; algorithm.reward_shaping names one of your own"
_OTHER_ADAPTER = "that is Megatron's; set model.lora_rank, lora_alpha and lora_target_modules"

REPLACED: Mapping[str, str] = {
    "model_engine": (
        "the learner is trained by FSDP2 alone; verl's other engines (Megatron, VeOmni, "
        "TorchTitan) are not supported, since this trainer's losses and checkpoints were never "
        "tried with them; leave it out"
    ),
    "actor_rollout_ref.rollout.name": (
        "replies are sampled by vLLM alone; SGLang and TensorRT-LLM take seeds, logprobs and "
        "weights in other ways, which this trainer does not support; leave it out"
    ),
    "actor_rollout_ref.rollout.val_kwargs": (
        "validation samples as validation.temperature and validation.samples_per_task say"
    ),
    "actor_rollout_ref.rollout.multi_turn": (
        "episodes are played by this trainer; set rollout.horizon and [environment]"
    ),
    "actor_rollout_ref.rollout.log_prob_micro_batch_size": _BY_TOKENS,
    "actor_rollout_ref.ref.log_prob_micro_batch_size": _BY_TOKENS,
    "actor_rollout_ref.actor.ppo_micro_batch_size": _BY_TOKENS,
    "actor_rollout_ref.actor.ppo_epochs": _ONE_PASS,
    "actor_rollout_ref.actor.shuffle": _ONE_PASS,
    "actor_rollout_ref.actor.policy_loss.": "the loss is ours; set loss.kind",
    "actor_rollout_ref.actor.clip_ratio": "the loss is ours; set loss.clip_low and loss.clip_high",
    "actor_rollout_ref.actor.loss_agg_mode": "the loss is ours; set algorithm.loss_unit",
    "actor_rollout_ref.actor.loss_scale_factor": (
        "the loss is ours; set algorithm.tokens_per_episode"
    ),
    "actor_rollout_ref.model.lora.rank": _OTHER_ADAPTER,
    "actor_rollout_ref.model.lora.alpha": _OTHER_ADAPTER,
    "actor_rollout_ref.model.lora.target_modules": _OTHER_ADAPTER,
    "critic.ppo_micro_batch_size": _BY_TOKENS,
    "critic.forward_micro_batch_size": _BY_TOKENS,
    "critic.cliprange_value": "the critic's loss is ours; set critic.clip_range",
    "critic.loss_agg_mode": "the critic's loss is ours; set algorithm.loss_unit",
    "algorithm.gamma": "advantages are ours; set algorithm.discount",
    "algorithm.lam": "advantages are ours; set algorithm.gae_lambda",
    "algorithm.norm_adv_by_std_in_grpo": "advantages are ours; set algorithm.scale_by_std",
    "algorithm.filter_groups": _GROUPS_OF_EPISODES,
    "trainer.v1.sampler.sync_refill_failed_groups": _GROUPS_OF_EPISODES,
    "trainer.use_v1": "this trainer stands on verl's V1 trainers alone",
    "trainer.resume_from_path": "`trainer resume RUN` goes on with a run",
    "trainer.max_actor_ckpt_to_keep": "set checkpoint.keep_last",
    "trainer.max_critic_ckpt_to_keep": "set checkpoint.keep_last",
    "trainer.rollout_data_dir": _IN_THE_STORE,
    "trainer.validation_data_dir": _IN_THE_STORE,
    "trainer.log_val_generations": _IN_THE_STORE,
    "data.": "tasks and prompts are the run's own: [environment], [prompt] and [rollout]",
    "custom_reward_function.": _CREDIT_IS_OURS,
    "reward_model.": _CREDIT_IS_OURS,
    "reward.": _CREDIT_IS_OURS,
}
"""Beginnings of verl's names that this trainer does not read, or that it reads elsewhere: why, and
what to set. `[verl]` may hold none of them, since nothing would come of it."""

CRITIC_ATTENTION = "critic.model.override_config.attn_implementation"
REMOVE_PADDING = "actor_rollout_ref.model.use_remove_padding"
CRITIC_REMOVE_PADDING = "critic.model.use_remove_padding"
PICTURE_MODULES = r".*\.visual\..*"
"""Modules of the part of a model that reads pictures, as PEFT finds them."""
FUSED_KERNELS = "actor_rollout_ref.model.use_fused_kernels"
SEQUENCE_PARALLEL = "ulysses_sequence_parallel_size"
"""Last part of the settings that share a row out among GPUs: of the actor, reference and critic."""

AGENT_LOOPS = "actor_rollout_ref.rollout.agent.num_workers"
"""What `rollout.agent_loops` decides."""
QUEUE = "transfer_queue.backend.SimpleStorage"
QUEUE_ROWS = f"{QUEUE}.total_storage_size"
LOG_STATS = "actor_rollout_ref.rollout.disable_log_stats"

OVERRIDABLE = frozenset(
    {
        QUEUE_ROWS,
        "trainer.project_name",
        "trainer.logger",
        LOG_STATS,
        *(
            f"{engine}.mixed_precision.{name}"
            for engine in (
                "actor_rollout_ref.actor.fsdp_config",
                "actor_rollout_ref.ref.fsdp_config",
                "critic.fsdp",
            )
            for name in ("reduce_dtype", "buffer_dtype")
        ),
    }
)
"""What no section of a run decides and `[verl]` may: ours is a default."""

RELIED_ON = frozenset(
    {
        "data.dataloader_num_workers",
        "actor_rollout_ref.hybrid_engine",
        "actor_rollout_ref.model.lora.merge",
        "actor_rollout_ref.actor.use_dynamic_bsz",
        "actor_rollout_ref.actor.checkpoint.load_contents",
        "actor_rollout_ref.actor.strategy",
        "actor_rollout_ref.actor.fsdp_config.strategy",
        "actor_rollout_ref.ref.fsdp_config.strategy",
        "actor_rollout_ref.rollout.calculate_log_probs",
        "actor_rollout_ref.rollout.agent.default_agent_loop",
        "actor_rollout_ref.rollout.agent.agent_loop_config_path",
        "reward.num_workers",
        "algorithm.adv_estimator",
        "critic.enable",
        "critic.strategy",
        "critic.use_dynamic_bsz",
        "critic.ppo_epochs",
        "critic.shuffle",
        "critic.checkpoint.load_contents",
        "critic.fsdp.strategy",
        "trainer.device",
        "trainer.total_epochs",
        "trainer.default_local_dir",
        "trainer.resume_mode",
        "trainer.v1.separate_async.parameter_sync_step",
        "transfer_queue.enable",
    }
)
"""What no section of a run decides and `[verl]` may not either: code here depends on the value."""

CRITIC_ON_CPU: Mapping[str, Value] = {
    CRITIC_REMOVE_PADDING: False,
    CRITIC_ATTENTION: SDPA,
    "critic.fsdp.use_torch_compile": False,
    "critic.fsdp.reshard_after_forward": False,
    "critic.fsdp.use_no_sync_for_gradient_accumulation": True,
}
"""What the critic needs there."""

TO_RESUME = ["model", "optimizer", "extra"]
"""What verl loads of a checkpoint that a run goes on from."""


class Paths(NamedTuple):
    """Where a run's files are."""

    model: Path
    """Hugging Face folder of the starting weights."""
    checkpoints: Path
    agent_loops: Path
    """YAML file that names our agent loop to verl."""
    critic: Path | None = None
    """Hugging Face folder of the critic's starting weights; None without one."""


def verl_settings(
    run: RunConfig, *, paths: Paths, device: str, only_validate: bool = False
) -> DictConfig:
    """The complete configuration of verl for `run`.

    Args:
        run: What is to be trained.
        paths: Where the run's files are.
        device: `"cpu"` or `"gpu"`.
        only_validate: Stop after the validation that comes before training.

    Raises:
        ConfigError: If the `[verl]` table names a setting that verl does not have, or one that
            this function derives from the run or relies on, or the device cannot do what the run
            asks for, or a training could not learn.
        MachineError: If this verl lacks a setting that is derived.
    """
    if not only_validate and (problems := run.training_problems()):
        raise ConfigError("\n".join(problems))
    config = copy.deepcopy(_defaults())
    derived = _derived(run, paths) | _weights(run, device)
    if run.algorithm.uses_critic and not only_validate:
        derived |= _critic(run, paths, device)
    if only_validate:
        derived |= {"trainer.val_only": True, "trainer.val_before_train": True}
    derived |= _queue(run, device)
    of_device = _cpu(run) if device == "cpu" else _gpu(run)
    derived |= of_device
    _refuse_missing(config, derived)
    fixed = RELIED_ON
    if device == "cpu":
        fixed |= of_device.keys() | CRITIC_ON_CPU.keys()
    _refuse_unknown(config, run.verl, derived, fixed=fixed)
    with open_dict(config):
        for name, value in (derived | dict(run.verl)).items():
            OmegaConf.update(config, name, value, force_add=True)
    return config


@functools.cache
def _defaults() -> DictConfig:
    """What verl's YAML files say, for FSDP and vLLM; composing them takes a second."""
    with initialize_config_dir(str(_config_folder()), version_base=None):
        return compose(
            "ppo_trainer",
            overrides=["actor_rollout_ref.rollout.name=vllm", "model_engine=dp"],
        )


def require_known_settings(run: RunConfig, *, device: str, only_validate: bool = False) -> None:
    """Refuse a `[verl]` table that `verl_settings` would refuse, before anything is started.

    Args:
        run: What is to be trained.
        device: `"cpu"` or `"gpu"`.
        only_validate: As for `verl_settings`.

    Raises:
        ConfigError: As `verl_settings`.
    """
    settings_without_files(run, device=device, only_validate=only_validate)


def settings_without_files(
    run: RunConfig, *, device: str, only_validate: bool = False
) -> DictConfig:
    """As `verl_settings`, for who asks before the run has files: their paths are empty.

    Args:
        run: What is to be trained.
        device: `"cpu"` or `"gpu"`.
        only_validate: As for `verl_settings`.

    Raises:
        ConfigError: As `verl_settings`.
        MachineError: As `verl_settings`.
    """
    nowhere = Path()
    return verl_settings(
        run,
        paths=Paths(model=nowhere, checkpoints=nowhere, agent_loops=nowhere, critic=nowhere),
        device=device,
        only_validate=only_validate,
    )


def _config_folder() -> Path:
    """Of verl's YAML files; verl itself, with torch, is not imported for them."""
    found = importlib.util.find_spec("verl")
    if found is None or not found.submodule_search_locations:
        raise MachineError("verl is not installed; `uv sync` in a checkout installs it")
    return Path(found.submodule_search_locations[0]) / "trainer" / "config"


def agent_loop_file(run_context: Path) -> Path:
    """A file beside `run_context` that names our agent loop to verl, and that file to the loop."""
    path = run_context.with_suffix(".yaml")
    entry = {
        "name": AGENT_LOOP,
        "_target_": "longhaul_trainer.verl.agent_loop.EpisodeAgentLoop",
        "run_context": str(run_context),
    }
    path.write_text(OmegaConf.to_yaml(OmegaConf.create([entry])), encoding="utf-8")
    return path


def _derived(run: RunConfig, paths: Paths) -> dict[str, Value]:
    rollout, algorithm, loss, optimizer = run.rollout, run.algorithm, run.loss, run.optimizer
    validates = run.validation.num_tasks > 0
    importance = None if loss.importance_sampling == "none" else loss.importance_sampling
    updates = optimizer.optimizer_steps_per_training_step
    actor, sampler = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
    return {
        "data.train_batch_size": run.tasks_per_training_step,
        "data.max_prompt_length": rollout.max_prompt_tokens,
        "data.max_response_length": rollout.max_reply_tokens,
        "data.dataloader_num_workers": 0,
        "actor_rollout_ref.model.path": str(paths.model),
        **_chat_template(run),
        "actor_rollout_ref.model.enable_gradient_checkpointing": run.model.gradient_checkpointing,
        **_adapter(run),
        f"{actor}.ppo_mini_batch_size": run.tasks_per_training_step // updates,
        f"{actor}.use_dynamic_bsz": True,
        f"{actor}.ppo_max_token_len_per_gpu": optimizer.micro_batch_tokens,
        f"{actor}.entropy_coeff": loss.entropy_coefficient,
        f"{actor}.use_kl_loss": loss.kl_coefficient > 0,
        f"{actor}.kl_loss_coef": loss.kl_coefficient,
        f"{actor}.kl_loss_type": KL_KINDS[loss.kl_kind],
        f"{actor}.optim.lr": optimizer.learning_rate,
        f"{actor}.optim.weight_decay": optimizer.weight_decay,
        f"{actor}.optim.betas": list(optimizer.betas),
        f"{actor}.optim.clip_grad": optimizer.max_gradient_norm,
        f"{actor}.optim.lr_warmup_steps": optimizer.warmup_training_steps * updates,
        f"{actor}.grad_clip": optimizer.max_gradient_norm,
        f"{actor}.checkpoint.save_contents": checkpoint_contents(run.checkpoint),
        f"{actor}.checkpoint.load_contents": TO_RESUME,
        f"{sampler}.n": rollout.group_size,
        f"{sampler}.temperature": rollout.temperature,
        f"{sampler}.top_p": rollout.top_p,
        f"{sampler}.val_kwargs.n": run.validation.samples_per_task,
        f"{sampler}.val_kwargs.temperature": run.validation.temperature,
        f"{sampler}.val_kwargs.do_sample": run.validation.temperature > 0,
        f"{sampler}.dtype": run.model.engine_dtype,
        f"{sampler}.max_model_len": rollout.max_prompt_tokens + rollout.max_reply_tokens,
        f"{sampler}.max_num_seqs": run.engine.max_sequences,
        f"{sampler}.max_num_batched_tokens": run.engine.max_batched_tokens,
        f"{sampler}.gpu_memory_utilization": run.engine.gpu_memory_utilization,
        f"{sampler}.tensor_model_parallel_size": run.engine.tensor_parallel_size,
        f"{sampler}.calculate_log_probs": True,
        f"{sampler}.seed": run.seed,
        f"{sampler}.checkpoint_engine.update_weights_bucket_megabytes": (
            run.engine.weight_bucket_megabytes
        ),
        # How long a request waited for the engine is among them.
        LOG_STATS: False,
        f"{sampler}.agent.default_agent_loop": AGENT_LOOP,
        f"{sampler}.agent.agent_loop_config_path": str(paths.agent_loops),
        "reward.num_workers": 0,
        "algorithm.adv_estimator": "grpo",
        "critic.enable": False,
        # verl's way to ask for the reference's log-probabilities; the reward is ours.
        "algorithm.use_kl_in_reward": algorithm.reward_kl_coefficient > 0
        or run.imitation.preferences is not None,
        "algorithm.kl_penalty": KL_KINDS[algorithm.reward_kl_kind],
        "algorithm.kl_ctrl.kl_coef": algorithm.reward_kl_coefficient,
        "algorithm.rollout_correction.rollout_is": importance,
        "algorithm.rollout_correction.rollout_is_threshold": loss.importance_cap,
        "trainer.total_training_steps": run.num_training_steps,
        "trainer.total_epochs": 10**9,
        "trainer.project_name": "longhaul",
        "trainer.experiment_name": run.name,
        "trainer.logger": ["console"],
        "trainer.nnodes": run.resources.num_nodes,
        "trainer.n_gpus_per_node": run.resources.num_workers,
        "trainer.default_local_dir": str(paths.checkpoints),
        "trainer.resume_mode": "auto",
        "trainer.save_freq": run.checkpoint.every or run.num_training_steps,
        "trainer.test_freq": (run.validation.every or run.num_training_steps) if validates else -1,
        "trainer.val_before_train": run.validation.before and validates,
        "transfer_queue.enable": True,
        **_turns(run),
        **_fsdp(run),
    }


def _chat_template(run: RunConfig) -> dict[str, Value]:
    """Of the models that are written; prompts are rendered by ourselves."""
    text = run.model.chat_template
    if text is None:
        return {}
    # OmegaConf would take the rest for the name of another setting.
    return {"actor_rollout_ref.model.custom_chat_template": text.replace("${", r"\${")}


def _adapter(run: RunConfig) -> dict[str, Value]:
    """Of a low-rank adapter; a checkpoint then leaves out the weights that stay as they were."""
    model, modules = run.model, list(run.model.lora_target_modules)
    if model.lora_rank == 0:
        return {"actor_rollout_ref.model.lora_rank": 0}
    derived: dict[str, Value] = {
        "actor_rollout_ref.model.lora_rank": model.lora_rank,
        "actor_rollout_ref.model.lora_alpha": model.adapter_alpha,
        "actor_rollout_ref.model.target_modules": (
            ALL_LINEAR if modules == [ALL_LINEAR] else modules
        ),
        "actor_rollout_ref.actor.checkpoint.save_lora_only": True,
    }
    if reads_pictures(model.path):  # vLLM's adapters are of text alone, unless it is told otherwise
        derived["actor_rollout_ref.model.exclude_modules"] = PICTURE_MODULES
    return derived


def checkpoint_contents(checkpoint: CheckpointConfig) -> list[str]:
    """What the policy's checkpoints hold, by verl's names."""
    of_resume = TO_RESUME if checkpoint.optimizer else []
    return [*of_resume, *(["hf_model"] if checkpoint.huggingface else [])]


def _queue(run: RunConfig, device: str) -> dict[str, Value]:
    """TransferQueue: as many processes as the run asks for, with room for all its rows.

    verl's eight processes would each reserve a processor of Ray's, and its limit of 100,000 rows
    ends a run that has more of them at once.
    """
    units = run.resources.storage_units
    if units is None:
        units = 1 if device == "cpu" else 2 * run.resources.num_nodes
    return {f"{QUEUE}.num_data_storage_units": units, QUEUE_ROWS: most_rows(run)}


def _turns(run: RunConfig) -> dict[str, Value]:
    """How playing and learning take turns."""
    trainer = run.trainer
    derived: dict[str, Value] = {
        "trainer.v1.trainer_mode": trainer.mode,
        # verl counts the training steps that a group spans, the one that plays it among them.
        "trainer.v1.sampler.max_off_policy_threshold": trainer.max_staleness + 1,
        "trainer.v1.sampler.max_off_policy_strategy": trainer.on_stale,
    }
    if trainer.mode != "sync":
        derived[f"trainer.v1.{trainer.mode}.num_warmup_batches"] = trainer.prefetch_batches
    if trainer.mode == "separate_async":
        rollout = "actor_rollout_ref.rollout"
        derived |= {
            "actor_rollout_ref.hybrid_engine": False,
            # A training step takes its groups at once, so for verl it is one mini-batch.
            "trainer.v1.separate_async.parameter_sync_step": 1,
            "actor_rollout_ref.actor.ppo_mini_batch_size": run.tasks_per_training_step,
            f"{rollout}.nnodes": run.resources.num_engine_nodes,
            f"{rollout}.n_gpus_per_node": run.resources.num_engine_workers,
            # The engine gets whole weights: an adapter is merged into them on the way.
            "actor_rollout_ref.model.lora.merge": True,
        }
    return derived


def _weights(run: RunConfig, device: str) -> dict[str, Value]:
    """How weights reach separate engines, unless `[verl]` says it."""
    if run.trainer.mode != "separate_async":
        return {}
    way = weight_transfer(run, device=device)
    if way is None or BACKEND in run.verl:
        return {}
    if way == "nccl":
        return {BACKEND: "nccl"}
    transfer = "actor_rollout_ref.rollout.checkpoint_engine"
    return {
        BACKEND: "longhaul_tcp",
        f"{transfer}.custom_backend_module": "longhaul_trainer.verl.weight_transfer",
        f"{transfer}.engine_kwargs.longhaul_tcp.dtype": run.model.engine_dtype,
    }


def _fsdp(run: RunConfig) -> dict[str, Value]:
    """The training engine; learner and reference compute in the precision that samples."""
    derived: dict[str, Value] = {"actor_rollout_ref.actor.strategy": "fsdp2"}
    for role, dtype in (("actor", run.model.dtype), ("ref", run.model.engine_dtype)):
        engine = f"actor_rollout_ref.{role}.fsdp_config"
        derived |= {
            f"{engine}.strategy": "fsdp2",
            f"{engine}.model_dtype": SHORT_DTYPE[dtype],
            f"{engine}.dtype": run.model.engine_dtype,
            # The precision of the forward pass; `dtype` alone leaves it at bfloat16.
            f"{engine}.mixed_precision.param_dtype": SHORT_DTYPE[run.model.engine_dtype],
            f"{engine}.mixed_precision.reduce_dtype": "fp32",
            f"{engine}.mixed_precision.buffer_dtype": "fp32",
        }
    return derived


def _critic(run: RunConfig, paths: Paths, device: str) -> dict[str, Value]:
    """The critic worker of verl, on FSDP; its loss is ours (`critic_loss`)."""
    optimizer, updates = run.optimizer, run.optimizer.optimizer_steps_per_training_step
    if paths.critic is None:
        raise ValueError("a run with a critic needs the folder of its weights")
    dtype, warmup = run.model.engine_dtype, run.critic.warmup_training_steps
    derived: dict[str, Value] = {
        "critic.enable": True,
        # verl trains the policy from this training step on.
        "trainer.critic_warmup": warmup + 1 if warmup else 0,
        "critic.model.path": str(paths.critic),
        "critic.model.enable_gradient_checkpointing": run.model.gradient_checkpointing,
        "critic.strategy": "fsdp2",
        "critic.ppo_mini_batch_size": run.tasks_per_training_step // updates,
        "critic.use_dynamic_bsz": True,
        "critic.ppo_max_token_len_per_gpu": optimizer.micro_batch_tokens,
        # verl takes this one for training too.
        "critic.ppo_infer_max_token_len_per_gpu": optimizer.micro_batch_tokens,
        "critic.ppo_epochs": 1,
        "critic.shuffle": False,
        "critic.optim.lr": run.critic.learning_rate,
        "critic.optim.weight_decay": optimizer.weight_decay,
        "critic.optim.betas": list(optimizer.betas),
        "critic.optim.clip_grad": optimizer.max_gradient_norm,
        "critic.optim.lr_warmup_steps": optimizer.warmup_training_steps * updates,
        "critic.grad_clip": optimizer.max_gradient_norm,
        "critic.checkpoint.save_contents": TO_RESUME if run.checkpoint.optimizer else [],
        "critic.checkpoint.load_contents": TO_RESUME,
        "critic.fsdp.strategy": "fsdp2",
        "critic.fsdp.model_dtype": SHORT_DTYPE[run.model.dtype],
        "critic.fsdp.dtype": dtype,
        "critic.fsdp.mixed_precision.param_dtype": SHORT_DTYPE[dtype],
        "critic.fsdp.mixed_precision.reduce_dtype": "fp32",
        "critic.fsdp.mixed_precision.buffer_dtype": "fp32",
    }
    if device == "cpu":
        derived |= CRITIC_ON_CPU
    return derived


def _gpu(run: RunConfig) -> dict[str, Value]:
    derived: dict[str, Value] = {
        "trainer.device": "cuda",
        AGENT_LOOPS: num_agent_loops(run, device="gpu"),
    }
    return derived | _gpu_attention(run)


def _gpu_attention(run: RunConfig) -> dict[str, Value]:
    """Attention and log-probabilities of packed rows; `[verl]` may say each of them itself."""
    attention = gpu_attention(run)
    skips = attention.startswith("flash_attention")
    flash = skips and attention != TORCH_FLASH
    for name, size in run.verl.items():
        if name.endswith(f".{SEQUENCE_PARALLEL}") and size != 1 and not flash:
            raise ConfigError(
                f"verl.{name} = {size}: verl shares a row out among GPUs in FlashAttention alone, "
                f"and with {attention!r} each GPU would read its own part only; install flash-attn"
            )
    derived: dict[str, Value] = {ATTENTION: attention, FUSED_KERNELS: not flash}
    packs = flash or (skips and not needs_flash_attn_to_pack(run.model.path))
    if not packs and reads_pictures(run.model.path):
        # Its packed rows are kept apart by FlashAttention alone.
        derived[REMOVE_PADDING] = derived[CRITIC_REMOVE_PADDING] = False
    if run.algorithm.uses_critic:
        derived[CRITIC_ATTENTION] = attention
    return {name: value for name, value in derived.items() if name not in run.verl}


def _cpu(run: RunConfig) -> dict[str, Value]:
    if run.engine.tensor_parallel_size > 1:
        raise ConfigError(
            f"engine.tensor_parallel_size = {run.engine.tensor_parallel_size} spans GPUs; on a CPU "
            "each worker has an engine of its own, so it is 1"
        )
    actor, sampler = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
    engine = f"{sampler}.engine_kwargs.vllm"
    return {
        "trainer.device": "cpu",
        REMOVE_PADDING: False,
        # The engine takes whole weights: an adapter is merged into them on the way.
        "actor_rollout_ref.model.lora.merge": True,
        ATTENTION: SDPA,
        f"{actor}.use_torch_compile": False,
        f"{actor}.fsdp_config.use_torch_compile": False,
        # There is no other card to shard to: gathering and scattering per micro-batch only copies.
        f"{actor}.fsdp_config.reshard_after_forward": False,
        f"{actor}.fsdp_config.use_no_sync_for_gradient_accumulation": True,
        "actor_rollout_ref.ref.use_torch_compile": False,
        "actor_rollout_ref.ref.fsdp_config.use_torch_compile": False,
        f"{sampler}.enforce_eager": True,
        # Of a prompt that is read in parts vLLM turns back the random numbers of the request, which
        # those of a CPU cannot do: the engine would end. So a pass holds a whole prompt.
        f"{sampler}.enable_chunked_prefill": False,
        # vLLM keeps states of linear attention for later prompts only where it reads in parts.
        f"{sampler}.enable_prefix_caching": not has_linear_attention(run.model.path),
        f"{sampler}.max_num_batched_tokens": max(
            run.engine.max_batched_tokens,
            run.rollout.max_prompt_tokens + run.rollout.max_reply_tokens,
        ),
        f"{sampler}.free_cache_engine": False,
        f"{sampler}.enable_sleep_mode": False,
        f"{sampler}.load_format": "safetensors",
        AGENT_LOOPS: num_agent_loops(run, device="cpu"),
        f"{engine}.worker_extension_cls": "longhaul_trainer.verl.cpu.engine.CpuWorkerExtension",
        f"{engine}.distributed_executor_backend": "uni",
        f"{engine}.kv_cache_memory_bytes": int(run.engine.memory_gib * 2**30),
    }


def _refuse_missing(config: DictConfig, derived: Mapping[str, object]) -> None:
    """A verl that renamed or dropped what we set must not go on with its own default."""
    missing = [name for name in derived if not name.startswith(LEFT_OUT) and not _has(config, name)]
    if missing:
        raise MachineError(
            f"the installed verl has no setting {', '.join(missing)}; "
            "`uv sync` installs the version that this one is written for"
        )


def _refuse_unknown(
    config: DictConfig,
    table: Mapping[str, object],
    derived: Mapping[str, object],
    *,
    fixed: Set[str],
) -> None:
    """Refuse names that verl does not have, and those whose value is decided elsewhere."""
    problems: list[str] = []
    logger = table.get("trainer.logger", [])
    ours = [name for name in get_args(Tracker) if isinstance(logger, list) and name in logger]
    if ours:
        problems.append(
            f"verl.trainer.logger: verl would start a second {' and '.join(ours)} in each attempt; "
            f"say trackers = {toml_value(ours)}"
        )
    for name in table:
        replaced = next((why for start, why in REPLACED.items() if name.startswith(start)), None)
        if replaced is not None:
            problems.append(f"verl.{name}: {replaced}")
        elif name == AGENT_LOOPS:
            asked = toml_value(table[name])
            problems.append(f"verl.{name}: say rollout.agent_loops = {asked}")
        elif name in fixed and name in derived:
            problems.append(
                f"verl.{name} = {table[name]!r}: the trainer relies on "
                f"{derived[name]!r}; leave it out"
            )
        elif name in derived and name not in OVERRIDABLE:
            problems.append(f"verl.{name}: set by the run's own sections; change it there")
        elif name not in derived and not _has(config, name):
            close = difflib.get_close_matches(name, _names(config), n=1)
            hint = f"; did you mean {close[0]!r}?" if close else ""
            problems.append(f"verl.{name}: verl has no such setting{hint}")
    if problems:
        raise ConfigError("\n".join(problems))


def _has(config: DictConfig, name: str) -> bool:
    """Whether verl knows `name`; anything may stand below a table that verl leaves open."""
    parent: object = config
    for part in name.split("."):
        if isinstance(parent, DictConfig) and part in parent:
            try:
                parent = parent[part]
            except OmegaConfBaseException:
                return True
        else:
            return isinstance(parent, DictConfig) and len(parent) == 0
    return True


def _names(config: DictConfig, prefix: str = "") -> list[str]:
    names: list[str] = []
    for key in map(str, config):
        name = f"{prefix}{key}"
        names.append(name)
        if not OmegaConf.is_interpolation(config, key) and not OmegaConf.is_missing(config, key):
            value = config[key]
            if isinstance(value, DictConfig):
                names += _names(value, f"{name}.")
    return names
