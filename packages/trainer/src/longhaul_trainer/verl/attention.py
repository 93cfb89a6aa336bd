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

from longhaul_core.errors import ConfigError
from longhaul_trainer.config import RunConfig
from longhaul_trainer.models.vision import model_type

FLASH, SDPA = "flash_attention_2", "sdpa"
"""transformers' names of the package's FlashAttention and of SDPA."""
TORCH_FLASH = "flash_attention_torch"
"""Ours of torch's FlashAttention; transformers takes a name with `flash` in it for one."""

TORCH_FLASH_FAMILIES = frozenset(
    {"granite", "llama", "mistral", "olmo2", "phi3", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe"}
    | {"qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe", "qwen3_5", "qwen3_5_moe"}
)
"""By `model_type`: models that were compared with SDPA, row by row. transformers asks no model
whether it can do without a mask, and some others cannot."""

ATTENTION = "actor_rollout_ref.model.override_config.attn_implementation"
"""verl's setting, by which `[verl]` may name another one."""


def gpu_attention(run: RunConfig) -> str:
    """Transformers' name of the attention that a run on GPUs computes with.

    What `[verl]` names, or else FlashAttention where the run computes in bfloat16, which is all
    that it can: that of `flash-attn` where it is installed, or else torch's for
    `TORCH_FLASH_FAMILIES`; or else SDPA.

    Raises:
        ConfigError: If `[verl]` names torch's, and the run is none for it.
    """
    misfit = _torch_flash_misfit(run)
    if ATTENTION in run.verl:
        if run.verl[ATTENTION] == TORCH_FLASH and misfit is not None:
            raise ConfigError(f'verl.{ATTENTION} = "{TORCH_FLASH}" {misfit}; leave it out')
        return str(run.verl[ATTENTION])
    if run.model.engine_dtype != "bfloat16":
        return SDPA
    if flash_attention_version() is not None:
        return FLASH
    return TORCH_FLASH if misfit is None else SDPA


def _torch_flash_misfit(run: RunConfig) -> str | None:
    """Why a run cannot compute with torch's kernels; a folder that cannot be read is no reason."""
    if run.model.engine_dtype != "bfloat16":
        return f'computes in bfloat16, and model.engine_dtype is "{run.model.engine_dtype}"'
    paths = {run.model.path, run.critic.path or run.model.path}
    others = {model_type(path) for path in paths} - TORCH_FLASH_FAMILIES - {""}
    if others:
        return f"is for models of {', '.join(sorted(TORCH_FLASH_FAMILIES))}, not {min(others)}"
    return None


def flash_attention_version() -> str | None:
    """Version of the installed `flash-attn`; None without it.

    The distribution decides: FlashAttention 4 is another one with the same import name.
    """
    try:
        return importlib.metadata.version("flash-attn")
    except importlib.metadata.PackageNotFoundError:
        return None
