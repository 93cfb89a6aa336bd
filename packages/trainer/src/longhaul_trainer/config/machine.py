"""What carries the run: model, sampling engine and machine."""

from collections.abc import Generator, Mapping
from typing import Annotated, Literal

from pydantic import Field, field_validator

from longhaul_trainer.config.component_settings import Scalar
from longhaul_trainer.config.section import Remark, Section
from longhaul_trainer.config.toml import toml_value

Precision = Literal["float32", "bfloat16"]

ALL_LINEAR = "all-linear"
"""PEFT's word for every linear layer but the output's."""


class ModelConfig(Section):
    """The model that is trained."""

    path: str = Field(default="smollm2", min_length=1)
    """`smollm2` (SmolLM2-135M-Instruct, packaged), `tiny` (random weights, for smoke runs),
    `tiny-moves` (random too, and mostly writes Sokoban's moves), `tiny-tools` (random too, and
    mostly writes calls of a tool), `tiny-vision` (random too; it reads pictures), or a Hugging Face
    folder. Of the models of folders, Qwen2-VL, Qwen2.5-VL, Qwen3-VL and Qwen3.5 read pictures."""
    pictures: Literal["read", "grey", "never"] = "read"
    """`read`: environments that show pictures need a model that reads them. `grey` shows it one of
    the same size that is grey all over, for a control that sees nothing. `never` agrees that this
    model reads none: prompts hold the text beside the pictures, and nothing of those."""
    chat_template: str | None = Field(default=None, min_length=1)
    """In place of the model's own chat template: a file with one in Jinja, the Jinja itself, or
    `chatml-thoughts`, which writes earlier turns with their thoughts, where Qwen3's own leaves
    those out and every prompt is tokenized anew. The run keeps the text, and so do its models."""
    chat_template_kwargs: Mapping[str, Scalar] = {}
    """Variables of the chat template, such as `{ enable_thinking = false }` for Qwen3."""
    dtype: Precision = "float32"
    """Precision of the learner's weights and of AdamW's moments, an adapter's too. Training needs
    `float32`, because bfloat16 rounds most updates away. An evaluation may take `bfloat16`."""
    engine_dtype: Precision = "bfloat16"
    """Precision of the sampling engine's weights, and of the learner's passes through the model."""
    lora_rank: int = Field(default=0, ge=0)
    """Train a low-rank adapter of this rank; 0 trains every weight."""
    lora_alpha: int | None = Field(default=None, ge=1)
    """What the adapter adds is multiplied by lora_alpha / lora_rank. Left out, it is the rank, so
    the factor is 1."""
    lora_target_modules: Annotated[
        tuple[Annotated[str, Field(min_length=1)], ...], Field(strict=False, min_length=1)
    ] = (ALL_LINEAR,)
    """Names of the layers that get an adapter, such as `["q_proj", "v_proj"]`, or `all-linear`:
    every linear layer but the output's. The part that reads pictures gets none."""
    gradient_checkpointing: bool = False
    """Recompute activations in the backward pass: less memory, more time."""

    @field_validator("lora_target_modules", mode="before")
    @classmethod
    def _one_name_is_a_list_of_one(cls, value: object) -> object:
        return (value,) if isinstance(value, str) else value

    def remarks(self) -> Generator[Remark]:
        """What an adapter has needs an adapter."""
        if self.lora_rank == 0:
            for name in ("lora_alpha", "lora_target_modules"):
                value = getattr(self, name)
                if value != type(self).model_fields[name].default:
                    yield Remark(
                        f"model.{name} = {toml_value(value)} means nothing to model.lora_rank = 0, "
                        "which trains every weight",
                        name,
                    )

    def conflicts(self) -> Generator[str]:
        """`all-linear` is a word, not a name."""
        if ALL_LINEAR in self.lora_target_modules and len(self.lora_target_modules) > 1:
            yield (
                f"model.lora_target_modules = {toml_value(self.lora_target_modules)}: "
                f'"{ALL_LINEAR}" is every linear layer; name it alone, or name layers'
            )

    @property
    def adapter_alpha(self) -> int:
        """What `lora_alpha` is, left out or not; its ratio to the rank scales the adapter."""
        return self.lora_rank if self.lora_alpha is None else self.lora_alpha


class EngineConfig(Section):
    """vLLM, which samples the replies."""

    max_sequences: int = Field(default=64, ge=1)
    """Replies sampled at once."""
    max_batched_tokens: int = Field(default=4096, ge=1)
    """Tokens in one pass of the engine; on a CPU at least those of the longest prompt and reply."""
    memory_gib: float = Field(default=2.0, gt=0)
    """Key-value cache, in GiB; on a CPU."""
    gpu_memory_utilization: float = Field(default=0.5, gt=0, le=1)
    """Share of a GPU's memory that the engine takes; on a GPU."""
    tensor_parallel_size: int = Field(default=1, ge=1)
    """GPUs that one engine spans."""
    weight_transfer: Literal["auto", "nccl", "tcp"] = "auto"
    """How new weights reach the engines of trainer.mode = "separate_async". `nccl`: verl broadcasts
    them from GPU to GPU, which needs cupy. `tcp`: through host memory, in the engine's precision.
    `auto`: `nccl` on GPUs where cupy is installed, else `tcp`."""
    weight_bucket_megabytes: int = Field(default=512, ge=1)
    """Size of the buffer in which weights travel to the engines. Without a GPU it must hold the
    largest tensor in float32."""

    def conflicts(self) -> Generator[str]:
        """One pass must hold a token of each sequence."""
        if self.max_batched_tokens < self.max_sequences:
            yield (
                f"engine.max_batched_tokens = {self.max_batched_tokens} is less than "
                "engine.max_sequences = "
                f"{self.max_sequences}; a pass must hold one token of each sequence"
            )


class ResourcesConfig(Section):
    """Where the run happens."""

    device: Literal["auto", "cpu", "gpu"] = "auto"
    """`auto` takes GPUs where the machine has them."""
    num_workers: int = Field(default=1, ge=1)
    """Training processes on each node; on a GPU machine, its GPUs."""
    num_nodes: int = Field(default=1, ge=1)
    """Machines of the Ray cluster that the run takes."""
    num_engine_workers: int = Field(default=0, ge=0)
    """Further GPUs on each engine node, for engines alone; of trainer.mode = "separate_async"."""
    num_engine_nodes: int = Field(default=1, ge=1)
    """Machines that have those."""
    storage_units: int | None = Field(default=None, ge=1)
    """Processes of TransferQueue, which hold the rows of a training step. Each takes one of Ray's
    logical processors. Left out, there are 2 for each of `num_nodes` on GPUs, and 1 on a CPU."""
    ray_address: str | None = Field(default=None, min_length=1)
    """Cluster to join, such as `auto` or `10.0.0.1:6379`, with a node on this machine; left out, a
    Ray of the run's own."""

    def conflicts(self) -> Generator[str]:
        """More nodes need a cluster to join, and this machine is one of them."""
        if self.ray_address is not None and self.ray_address.startswith("ray://"):
            yield (
                f'resources.ray_address = "{self.ray_address}" is of a Ray client, which has no '
                "node of its own; start the run on a node of the cluster, with "
                'resources.ray_address = "auto"'
            )
        if self.num_engine_nodes > 1 and self.ray_address is None:
            yield (
                f"resources.num_engine_nodes = {self.num_engine_nodes} needs "
                "resources.ray_address, "
                "the cluster to join; without it a run has the one machine it was started on"
            )
        if self.num_nodes > 1 and self.ray_address is None:
            yield (
                f"resources.num_nodes = {self.num_nodes} needs resources.ray_address, the "
                "cluster to join; "
                "without it a run has the one machine it was started on"
            )
