"""Which attention the learner's models compute with: chosen here, for settings and doctor alike.

On GPUs rows are packed one after the other without padding, and must not read each other.
FlashAttention knows where a row ends and skips what is outside it. torch brings its kernels, which
`longhaul_trainer.verl.torch_flash` hands to transformers. SDPA keeps rows apart by a mask over
every two tokens of a micro-batch: the numbers are the same, at a cost that grows with the square of
`optimizer.micro_batch_tokens`.

verl takes its kernel for log-probabilities from the package as well, and without it loops over
single tokens; its fused kernels, plain torch, do it in chunks and never hold the logits of a whole
micro-batch.

Nothing here imports torch or verl: `trainer doctor` and `trainer check` ask too.
"""

import importlib.metadata

from longhaul_trainer.config import RunConfig

FLASH, SDPA = "flash_attention_2", "sdpa"
"""transformers' names of the package's FlashAttention and of SDPA."""
TORCH_FLASH = "flash_attention_torch"
"""Ours of torch's FlashAttention; transformers takes a name with `flash` in it for one."""

ATTENTION = "actor_rollout_ref.model.override_config.attn_implementation"
"""verl's setting, by which `[verl]` may name another one."""


def gpu_attention(run: RunConfig) -> str:
    """Transformers' name of the attention that a run on GPUs computes with.

    What `[verl]` names, or else FlashAttention where the run computes in bfloat16, which is all
    that it can: that of `flash-attn` where it is installed, or else torch's.
    """
    if ATTENTION in run.verl:
        return str(run.verl[ATTENTION])
    if run.model.engine_dtype != "bfloat16":
        return SDPA
    return FLASH if flash_attention_version() is not None else TORCH_FLASH


def flash_attention_version() -> str | None:
    """Version of the installed `flash-attn`; None without it.

    The distribution decides: FlashAttention 4 is another one with the same import name.
    """
    try:
        return importlib.metadata.version("flash-attn")
    except importlib.metadata.PackageNotFoundError:
        return None
