"""Which attention the learner's models compute with: chosen here, for settings and doctor alike.

On GPUs rows are packed one after the other without padding, and must not read each other.
FlashAttention 2 knows where a row ends and skips what is outside it. Without the package
`flash-attn`, transformers keeps rows apart in SDPA by a mask over every two tokens of a
micro-batch: the numbers are the same, at a cost that grows with the square of
`optimizer.micro_batch_tokens`. verl also takes its kernel for log-probabilities from that package,
and without it loops over single tokens; its fused kernels, plain torch, do it in chunks and
never hold the logits of a whole micro-batch.

Nothing here imports torch or verl: `trainer doctor` and `trainer check` ask too.
"""

import importlib.metadata

from longhaul_trainer.config import RunConfig

FLASH, SDPA = "flash_attention_2", "sdpa"
"""transformers' names of the two that are chosen from."""

ATTENTION = "actor_rollout_ref.model.override_config.attn_implementation"
"""verl's setting, by which `[verl]` may name another one."""


def gpu_attention(run: RunConfig) -> str:
    """Transformers' name of the attention that a run on GPUs computes with.

    What `[verl]` names, or else FlashAttention 2 where `flash-attn` is installed and the run
    computes in bfloat16, which is all that it can, or else SDPA.
    """
    if ATTENTION in run.verl:
        return str(run.verl[ATTENTION])
    fits = run.model.engine_dtype == "bfloat16"
    return FLASH if fits and flash_attention_version() is not None else SDPA


def flash_attention_version() -> str | None:
    """Version of the installed `flash-attn`; None without it.

    The distribution decides: FlashAttention 4 is another one with the same import name.
    """
    try:
        return importlib.metadata.version("flash-attn")
    except importlib.metadata.PackageNotFoundError:
        return None
