"""Memory of the machine that a run is started on.

On a CPU the constants were measured on real runs, and everything is on this machine. On GPUs they
are estimates, of one node's part.
"""

import math
from dataclasses import dataclass

from longhaul_trainer.config import RunConfig
from longhaul_trainer.play.environments import known_descriptions
from longhaul_trainer.preflight.resources.model_size import ModelSize
from longhaul_trainer.verl.composed import Composed
from longhaul_trainer.verl.queue_rows import rows_of_a_training_step

GIB = 2**30

PROCESSES_BYTES = 3.0 * GIB
"""What Ray's, verl's and vLLM's processes hold around a model of no size; measured on the smoke
run, which takes 3.6 GiB in all."""
WORKER_BYTES = 1.0 * GIB
"""What each further worker of the learner and its engine hold beside them; measured on the smoke
run with two workers."""
GPU_PROCESSES_BYTES = 6.0 * GIB
"""On each GPU: a worker of the learner, and an engine's server and worker, each with torch, CUDA's
libraries and pinned buffers. Estimated."""
AGENT_LOOP_BYTES = 1.5 * GIB
"""A process that plays episodes, with verl, transformers and torch; measured on a CPU."""
ENVIRONMENT_BYTES = 30 << 20
"""A process of environments; measured on the packaged ones, of which 16 share a process."""
ACTIVATION_BYTES = 240
"""What a token leaves for the backward pass in each layer, per hidden unit: 60 numbers of 4 bytes,
with what the allocator keeps beside them; measured on the default run at 2,048 tokens at once,
15.0 GiB in all, of which it takes 9.3 at 512."""

PROMPT_TOKEN_BYTES = 24
REPLY_TOKEN_BYTES = 72
"""Of a row in TransferQueue: ids, whole ids and positions of each token in int64 (verl's
`AgentLoopWorkerTQ`); of a reply's token also its place in the reply, two masks, and up to six
columns of float32: logprobs, advantage and weights."""
PIXEL_BYTES = 24
"""Of a row's pictures in TransferQueue, as they are read: three colours, twice for the two frames
of a patch, in float32."""
COPIES_OF_ROWS = 3
"""In the queue, on the way, and with who reads them. Estimated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostMemory:
    """Bytes of one machine, by what holds them."""

    processes: float
    environments: float
    rows: float
    """Of a training step at its longest, in TransferQueue and around it, with their pictures."""
    model: float
    """Weights and training state that are in the machine's memory."""
    batch: float = 0.0
    """On a CPU: activations and logits of a micro-batch, and the engine's key-value cache."""

    @property
    def total(self) -> float:
        """All of it at once."""
        return self.processes + self.environments + self.rows + self.model + self.batch


def host_memory(
    run: RunConfig,
    composed: Composed,
    size: ModelSize,
    critic: ModelSize | None,
    *,
    environment_processes: int,
) -> HostMemory:
    """What the machine that `run` is started on holds.

    Args:
        run: The run.
        composed: Its settings of verl.
        size: Of the policy; of no parameters where it is not known.
        critic: Of the critic; None without one.
        environment_processes: That play at once.
    """
    rows = rows_of_a_training_step(run) or 0
    pictures = rows * _picture_bytes(run, size)
    rollout = run.rollout
    row_bytes = (
        PROMPT_TOKEN_BYTES * rollout.max_prompt_tokens
        + REPLY_TOKEN_BYTES * rollout.max_reply_tokens
    )
    if run.optimizer.rows == "merged":  # as many tokens as the longest call, whatever its rows
        rows = min(rows, run.tasks_per_training_step * (rollout.group_size + 1))
    of_device = _on_cpu if composed.device == "cpu" else _on_gpus
    processes, model, batch = of_device(run, composed, size, critic)
    return HostMemory(
        processes=processes,
        environments=float(ENVIRONMENT_BYTES * environment_processes),
        rows=float(COPIES_OF_ROWS * (rows * row_bytes + pictures)),
        model=model,
        batch=batch,
    )


def _picture_bytes(run: RunConfig, size: ModelSize) -> float:
    """Of a row's pictures, on average over an episode of the whole horizon, as far as is known.

    A row has those of its observation; where the whole history is shown and rows are not merged,
    those of all observations before as well. A picture of unknown size counts as the smallest that
    the model reads. What a program shows is not counted.
    """
    if size.sight is None or run.agent.is_program:
        return 0
    described = known_descriptions(run)
    most = run.rollout.max_prompt_tokens * size.sight.token_pixels
    shown = [0.0]
    for entry in run.played_environments:
        one = described.get(entry.id)
        if one is None or not one.shows_pictures:
            continue
        repeats = entry.memory.kind == "full" and run.optimizer.rows == "step"
        times = (min(run.rollout.horizon, entry.horizon or math.inf) + 1) / 2 if repeats else 1
        shown.append(min(most, times * size.sight.pixels(one.picture_pixels or 0)))
    return PIXEL_BYTES * max(shown)


def _on_cpu(
    run: RunConfig, composed: Composed, size: ModelSize, critic: ModelSize | None
) -> tuple[float, float, float]:
    """Bytes of processes, model and batch.

    Per parameter 4 bytes of weights, 4 of the copy that travels to the engine, the engine's own 4
    or 2, and 4 of a reference model if loss or reward needs one; per parameter that is trained 4
    each of gradient and two AdamW moments; weights, gradient and moments of a critic. Several
    workers share the weights' training state; each of them has whole weights and gradients for a
    moment, 4 bytes each, and copy, engine, cache and micro-batch of its own; engines that stand
    alone are further workers. For the tokens of a micro-batch `ACTIVATION_BYTES` a layer and
    hidden unit, and for those of its replies logits and their gradient, 4 bytes each, over the
    vocabulary. Where nothing is trained there are no gradients, moments, activations and logits.
    """
    workers, rollout = composed.workers_of_a_node, run.rollout
    engines = composed.num_engine_workers or workers
    trained = size.num_trained(composed.lora_rank, composed.lora_targets)
    reference = 4 if composed.has_reference and not composed.lora_rank else 0
    whole = 4 if workers > 1 else 0
    parameter_bytes = 4 + reference + workers * (4 + whole) + engines * composed.engine_bytes
    trained_bytes = 12 + workers * whole if composed.trains else 0
    critic_bytes = 0 if critic is None else 16 * critic.num_parameters
    tokens = composed.micro_batch_tokens
    row_tokens = rollout.max_prompt_tokens + rollout.max_reply_tokens
    reply_tokens = tokens * rollout.max_reply_tokens / row_tokens
    activations = ACTIVATION_BYTES * size.num_layers * size.hidden_size * tokens
    logits = 8 * reply_tokens * size.vocabulary_size
    loops = AGENT_LOOP_BYTES * composed.agent_loops if composed.agent_loops > 1 else 0.0
    return (
        PROCESSES_BYTES + (workers + composed.num_engine_workers - 1) * WORKER_BYTES + loops,
        float(parameter_bytes * size.num_parameters + trained_bytes * trained + critic_bytes),
        engines * run.engine.memory_gib * GIB
        + (workers * (activations + logits) if composed.trains else 0.0),
    )


def _on_gpus(
    run: RunConfig, composed: Composed, size: ModelSize, critic: ModelSize | None
) -> tuple[float, float, float]:
    """Bytes of processes, model and batch on one node.

    What stays: the reference model, which verl keeps in the machine's memory (`CPUOffloadPolicy`);
    with an adapter, the engine's weights while it sleeps (level 1). What comes and goes, of which
    the largest counts: a model that is loaded, whole, by one worker, or by each of them where
    output and embedding are tied (`get_init_weight_context_manager`), in the learner's precision;
    and whole weights on their way into a Hugging Face folder.
    """
    workers, engines = composed.workers_of_a_node, run.resources.num_engine_workers
    # On a cluster, of the learner's node or an engine's; here, of both.
    gpus = workers + engines if run.resources.ray_address is None else max(workers, engines)
    stays = 0.0
    if composed.has_reference and not composed.lora_rank:
        stays += composed.compute_bytes * size.num_parameters / composed.num_nodes
    if composed.lora_rank and composed.engine_sleeps:
        copies = workers / composed.tensor_parallel_size
        stays += copies * composed.engine_bytes * size.num_parameters
    models = [size] if critic is None else [size, critic]
    loaded = max(
        composed.parameter_bytes * model.num_parameters * (workers if model.tied else 1)
        for model in models
    )
    processes = (
        PROCESSES_BYTES
        + GPU_PROCESSES_BYTES * gpus
        + AGENT_LOOP_BYTES * composed.agent_loops / composed.num_nodes
    )
    return processes, stays + loaded, 0.0
