"""Memory of a GPU: what the learner takes, what the engine beside it, and the least that will do.

Estimates: no GPU was at hand to measure them on. They are sums over tensors whose sizes are known,
and two constants for what is not.
"""

from dataclasses import dataclass

from longhaul_trainer.preflight.resources.model_size import ModelSize
from longhaul_trainer.verl.composed import Composed

GIB = 2**30

PROCESS_BYTES = 1.5 * GIB
"""CUDA's context and libraries, NCCL's buffers and what torch's allocator loses to fragments, of
each process on a GPU. Estimated."""

CHUNK_TOKENS = 512
"""Tokens that verl's fused kernels make logits of at a time (`FusedLinearForPPOFunction`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuMemory:
    """Bytes of one GPU of the learner, by what holds them."""

    weights: float
    """Sharded over the learner's GPUs: all of the model's, and an adapter's."""
    moments: float
    """Two of AdamW for each parameter that is trained, in the weights' precision; sharded."""
    critic: float
    """Weights, gradients and moments of the critic; sharded."""
    gradients: float
    """Of what is trained, sharded."""
    gathered: float
    """What FSDP2 has together at once, in the precision that computes: two layers, the embedding
    and the output, and as much again for their gradients before they are shared out."""
    activations: float
    """Of a micro-batch's tokens: see `activation_bytes_of_a_token`, and the mask over every two
    tokens that SDPA keeps packed rows apart by, 1 byte, with its copy that is added, 2 bytes. Where
    pictures are read all of its tokens may be theirs, with what their patches leave."""
    logits: float
    """In fused kernels four numbers of float32 for each of 512 tokens and the vocabulary, and the
    output's gradient. Else two numbers in the precision that computes for every token of a
    micro-batch, and two more for the entropy, whose gradient keeps the probabilities."""
    engine_weights: float
    """Of the engine, sharded by tensor parallelism."""
    engine_cache: float
    """Keys and values of the longest call, the least that an engine begins with."""
    engine_share: float
    """`engine.gpu_memory_utilization`: of the whole GPU. 0 where engines have others."""
    engine_sleeps: bool
    """Whether the engine's memory is free while the learner computes."""

    @property
    def resident(self) -> float:
        """What stays while episodes are played."""
        return self.weights + self.moments + self.critic + PROCESS_BYTES

    @property
    def learning(self) -> float:
        """What the learner holds at its fullest: in the backward pass, or in AdamW's step.

        That step makes a number for each parameter that is trained (torch's `foreach`).
        """
        backward = self.gathered + self.activations + self.logits
        return self.resident + self.gradients + max(backward, self.moments / 2)

    @property
    def engine(self) -> float:
        """The least that an engine can do with."""
        return self.engine_weights + self.engine_cache + PROCESS_BYTES

    @property
    def smallest(self) -> float:
        """Memory of the smallest GPU that carries the run: learning, playing, and the engine."""
        awake = 0.0 if self.engine_sleeps else self.engine_share
        needed = [self.learning / (1 - awake)] if awake < 1 else [float("inf")]
        if self.engine_share:
            beside = 1 - self.engine_share
            needed.append(self.resident / beside if beside else float("inf"))
            needed.append(self.engine / self.engine_share)
        return max(needed)


def gpu_memory(
    composed: Composed, size: ModelSize, critic: ModelSize | None, *, longest_call: int
) -> GpuMemory:
    """What a GPU of the learner holds.

    Args:
        composed: Of the run.
        size: Of the policy.
        critic: Of the critic, all of which is trained; None without one.
        longest_call: Tokens of prompt and reply.

    Where nothing is trained there are no moments, gradients, activations and logits.
    """
    learns = float(composed.trains)
    shards, number = composed.num_shards, composed.parameter_bytes
    trained = size.num_trained(composed.lora_rank, composed.lora_targets)
    whole = size.num_parameters + (trained if composed.lora_rank else 0)
    tokens = composed.micro_batch_tokens / composed.ranks_of_a_row
    computed = composed.compute_bytes
    gathered = 2 * computed * (2 * size.layer_parameters + size.embedding_parameters)
    if critic is not None:
        other = 2 * computed * (2 * critic.layer_parameters + critic.embedding_parameters)
        gathered = max(gathered, other)
    mask = 3 * tokens**2 if composed.masked_attention else 0
    activations = tokens * activation_bytes_of_a_token(
        size, computed, checkpointing=composed.gradient_checkpointing
    )
    if critic is not None:
        activations = max(
            activations,
            tokens
            * activation_bytes_of_a_token(
                critic, computed, checkpointing=composed.critic_checkpointing
            ),
        )
    cache = 2 * composed.engine_bytes * size.num_layers * size.key_value_width * longest_call
    return GpuMemory(
        weights=number * whole / shards,
        moments=learns * 2 * number * trained / shards,
        critic=0.0 if critic is None else 4 * number * critic.num_parameters / shards,
        gradients=learns * number * trained / shards,
        gathered=gathered,
        activations=learns * (activations + mask),
        logits=learns * _logit_bytes(composed, size, tokens),
        engine_weights=composed.engine_bytes * size.num_parameters / composed.tensor_parallel_size,
        engine_cache=cache / composed.tensor_parallel_size,
        engine_share=0.0 if composed.engine_is_apart else composed.gpu_share,
        engine_sleeps=composed.engine_sleeps,
    )


def activation_bytes_of_a_token(size: ModelSize, number: int, *, checkpointing: bool) -> float:
    """What a token leaves for the backward pass in all layers.

    A layer of Llama's form keeps eleven vectors of the hidden size (the inputs of its two norms,
    the norms in float32 and their outputs, the queries before and after rotation, what attention
    and its projection get), three of the keys' width, and four of the perceptron's. With
    checkpoints each layer keeps its input alone, and one layer at a time has all of it. A token of
    a picture leaves as much for each of its patches in the layers that read pictures.

    Args:
        size: Of the model.
        number: Bytes of a number.
        checkpointing: Whether activations are computed again.
    """
    parts = [(1, size.num_layers, size.hidden_size, size.key_value_width, size.mlp_width)]
    if (sight := size.sight) is not None:
        widths = sight.hidden_size, sight.hidden_size, sight.mlp_width
        parts.append((sight.token_patches, sight.num_layers, *widths))
    kept = 0
    for times, num_layers, hidden, keys, mlp in parts:
        layer = 11 * hidden + 3 * keys + 4 * mlp
        kept += times * (num_layers * hidden + layer if checkpointing else num_layers * layer)
    return number * kept


def _logit_bytes(composed: Composed, size: ModelSize, tokens: float) -> float:
    if composed.fused_logprobs:
        output = size.vocabulary_size * size.hidden_size * composed.compute_bytes
        return 4 * 4 * min(tokens, CHUNK_TOKENS) * size.vocabulary_size + output
    kept = 4 if composed.entropy else 2
    return kept * composed.compute_bytes * tokens * size.vocabulary_size
