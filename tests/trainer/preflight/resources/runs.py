"""Runs and models of round numbers, whose sums can be worked out by hand."""

from dataclasses import replace

from longhaul_trainer.config import RunConfig
from longhaul_trainer.preflight.resources.model_size import ModelSize, Sight
from longhaul_trainer.run.device import Device
from longhaul_trainer.verl.composed import Composed, compose

GIB = 2**30
MIB = 2**20

ROUND = ModelSize(
    num_parameters=1000 * MIB,
    vocabulary_size=1024,
    num_layers=2,
    hidden_size=512,
    mlp_width=1024,
    key_value_width=128,
    tied=True,
    linear_widths={"q_proj": 1024, "o_proj": 1024},
)


SEEING = replace(
    ROUND,
    sight=Sight(
        num_layers=3,
        hidden_size=64,
        mlp_width=128,
        token_pixels=1024,
        token_patches=4,
        least_pixels=4096,
    ),
)


def a_run(**sections: object) -> RunConfig:
    smallest: dict[str, object] = {
        "num_training_steps": 1,
        "tasks_per_training_step": 1,
        "rollout": {"max_prompt_tokens": 96, "max_reply_tokens": 32},
    }
    return RunConfig.model_validate(smallest | sections)


def composed(device: Device, **sections: object) -> Composed:
    """Settings of a run; `changes` are put over what the run composes to."""
    return compose(a_run(**sections), device)


def flash(settings: Composed) -> Composed:
    """As with flash-attn."""
    return replace(settings, fused_logprobs=False, masked_attention=False)
