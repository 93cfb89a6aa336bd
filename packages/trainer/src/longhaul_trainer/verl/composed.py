"""Settings of verl that decide what a run takes: the only place that reads them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from longhaul_core.errors import ConfigError
from longhaul_trainer.config import RunConfig

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from longhaul_trainer.run.device import Device

ROLLOUT, ACTOR = "actor_rollout_ref.rollout", "actor_rollout_ref.actor"

BYTES = {"float32": 4, "fp32": 4, "bfloat16": 2, "bf16": 2}
"""Of a number, by the names that we and verl give its precision."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Composed:
    """Settings of verl that decide what a run takes."""

    device: Device
    trains: bool
    """Whether weights are changed, and not evaluated or served alone."""
    num_nodes: int
    workers_of_a_node: int
    num_engine_workers: int
    """GPUs of engines that stand alone, over all nodes."""
    num_shards: int
    """Workers that share the learner's parameters, gradients and moments."""
    ranks_of_a_row: int
    """GPUs that share a row out among themselves."""
    storage_units: int
    agent_loops: int
    parameter_bytes: int
    """Of a number of the learner's weights, gradients and moments, and of its checkpoints."""
    compute_bytes: int
    engine_bytes: int
    lora_rank: int
    lora_targets: tuple[str, ...] | None
    """Names of the matrices that an adapter is beside; None for all of the layers'."""
    gradient_checkpointing: bool
    fused_logprobs: bool
    """Whether logits are made in chunks and never for a whole micro-batch."""
    masked_attention: bool
    """Whether packed rows are kept apart by a mask over every two tokens."""
    micro_batch_tokens: int
    has_reference: bool
    has_critic: bool
    critic_checkpointing: bool
    entropy: bool
    engine_sleeps: bool
    """Whether engine and learner take turns on a GPU."""
    gpu_share: float
    """Of a GPU's memory that the engine takes."""
    tensor_parallel_size: int
    weight_bucket_bytes: int
    saved: frozenset[str]
    """What verl writes into a checkpoint of the policy, by its names."""
    saves_adapter_alone: bool
    critic_saved: frozenset[str]
    """And into one of the critic."""

    @property
    def num_workers(self) -> int:
        """Of the learner, over all nodes."""
        return self.num_nodes * self.workers_of_a_node

    @property
    def engine_is_apart(self) -> bool:
        """Whether engines have GPUs of their own."""
        return self.num_engine_workers > 0


def compose(run: RunConfig, device: Device, *, trains: bool = True) -> Composed:
    """Read verl's settings for `run`.

    Args:
        run: The run.
        device: `"cpu"` or `"gpu"`.
        trains: Whether it is trained, and not its model evaluated or served alone.

    Raises:
        ConfigError: If the `[verl]` table cannot be.
        MachineError: If verl is not installed, or is another one.
    """
    from longhaul_trainer.verl.settings import settings_without_files

    # A run that may not be trained is evaluated; who starts a training has refused it before.
    evaluates = not trains or bool(run.training_problems())
    settings = settings_without_files(run, device=device, only_validate=evaluates)
    return read(settings, run, device, trains=trains)


def read(settings: DictConfig, run: RunConfig, device: Device, *, trains: bool = True) -> Composed:
    """As `compose`, of settings that are there.

    Raises:
        ConfigError: If a size of the `[verl]` table cannot be.
    """
    from omegaconf import OmegaConf

    def setting(name: str, default: object = None) -> Any:  # noqa: ANN401  verl decides the type
        found: object = OmegaConf.select(settings, name, throw_on_missing=False)
        return default if found is None else found

    num_nodes, workers = int(setting("trainer.nnodes")), int(setting("trainer.n_gpus_per_node"))
    apart = not setting("actor_rollout_ref.hybrid_engine")
    fsdp_size = int(setting(f"{ACTOR}.fsdp_config.fsdp_size", -1))
    if fsdp_size == 0:
        raise ConfigError(
            f"[verl] {ACTOR}.fsdp_config.fsdp_size is 0: a shard group has at least 1 GPU, and -1, "
            "verl's default, makes one of all"
        )
    rank = int(setting("actor_rollout_ref.model.lora_rank", 0))
    loss_kl = bool(setting(f"{ACTOR}.use_kl_loss"))
    attention = str(setting("actor_rollout_ref.model.override_config.attn_implementation", ""))
    return Composed(
        device=device,
        trains=trains,
        num_nodes=num_nodes,
        workers_of_a_node=workers,
        num_engine_workers=int(setting(f"{ROLLOUT}.nnodes"))
        * int(setting(f"{ROLLOUT}.n_gpus_per_node"))
        if apart
        else 0,
        num_shards=num_nodes * workers if fsdp_size < 0 else min(fsdp_size, num_nodes * workers),
        ranks_of_a_row=int(setting(f"{ACTOR}.ulysses_sequence_parallel_size", 1)),
        storage_units=int(setting("transfer_queue.backend.SimpleStorage.num_data_storage_units")),
        agent_loops=int(setting(f"{ROLLOUT}.agent.num_workers")),
        parameter_bytes=BYTES[setting(f"{ACTOR}.fsdp_config.model_dtype", run.model.dtype)],
        compute_bytes=BYTES[run.model.engine_dtype],
        engine_bytes=BYTES[setting(f"{ROLLOUT}.dtype")],
        lora_rank=rank,
        lora_targets=_targets(setting("actor_rollout_ref.model.target_modules", "all-linear")),
        gradient_checkpointing=bool(
            setting("actor_rollout_ref.model.enable_gradient_checkpointing")
        ),
        fused_logprobs=bool(setting("actor_rollout_ref.model.use_fused_kernels")),
        masked_attention=not attention.startswith("flash_attention"),
        micro_batch_tokens=int(setting(f"{ACTOR}.ppo_max_token_len_per_gpu")),
        # An adapter's base is its reference.
        has_reference=loss_kl or bool(setting("algorithm.use_kl_in_reward")),
        has_critic=bool(setting("critic.enable")),
        critic_checkpointing=bool(setting("critic.model.enable_gradient_checkpointing")),
        entropy=float(setting(f"{ACTOR}.entropy_coeff")) > 0,
        engine_sleeps=bool(setting(f"{ROLLOUT}.free_cache_engine")) and not apart,
        gpu_share=float(setting(f"{ROLLOUT}.gpu_memory_utilization")),
        tensor_parallel_size=int(setting(f"{ROLLOUT}.tensor_model_parallel_size")),
        weight_bucket_bytes=int(
            setting(f"{ROLLOUT}.checkpoint_engine.update_weights_bucket_megabytes")
        )
        << 20,
        saved=frozenset(map(str, setting(f"{ACTOR}.checkpoint.save_contents"))),
        saves_adapter_alone=bool(setting(f"{ACTOR}.checkpoint.save_lora_only", False)),
        critic_saved=frozenset(map(str, setting("critic.checkpoint.save_contents", ()))),
    )


def _targets(value: object) -> tuple[str, ...] | None:
    """A pattern over names, which verl also takes, is counted as all of them."""
    return None if isinstance(value, str) else tuple(map(str, cast("list[str]", value)))
