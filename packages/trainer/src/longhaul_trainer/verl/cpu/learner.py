"""verl's FSDP engine with logits for sampled tokens alone, and adapters merged in full precision.

verl computes logits, log-probabilities and entropy for every token of a row. Most of a row
is prompt, or, between the actions of a merged row, what a later prompt adds; a vocabulary of
49,152 makes each of those tokens as dear as a layer or two, and nothing ever reads the
result. Rows are padded on the left here, so that replies end in the same column, and the
model's head is asked only for columns that predict a sampled token of some row. The numbers
of the sampled tokens are the same; those of other tokens are 0. A model that reads pictures is
called as verl has changed it, and gives the logits of all columns.

Shapes: B rows, L tokens of the longest row, K columns that are requested, V vocabulary,
T sampled tokens of a row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from tensordict import TensorDict
from torch.distributed.tensor import DTensor
from transformers.modeling_outputs import CausalLMOutput
from verl.utils import tensordict_utils as tu
from verl.utils.fsdp_utils import merged_lora_context, normalize_peft_param_name
from verl.utils.torch_functional import entropy_from_logits
from verl.workers.engine.base import EngineRegistry
from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithLMHead

from longhaul_trainer.verl.learning_rate import RisingLearningRate
from longhaul_trainer.verl.parts import RowsInParts
from longhaul_trainer.verl.pictures import PicturesAsFeatures, patches_of, reads_pictures


@EngineRegistry.register(model_type="language_model", backend=["fsdp", "fsdp2"], device="cpu")
class ResponseLogitsEngine(
    RisingLearningRate, RowsInParts, PicturesAsFeatures, FSDPEngineWithLMHead
):
    """verl's language-model engine, for a machine without an accelerator."""

    module: torch.nn.Module

    def _build_fsdp_module(self, module: torch.nn.Module) -> torch.nn.Module:
        """Leave precision to FSDP2, which has cast weights and inputs already.

        Autocast on top of it would cast every weight again in every operation.
        """
        # verl registers the class through a decorator that hides its type.
        built = super()._build_fsdp_module(module)  # pyright: ignore[reportAttributeAccessIssue]
        self._autocast_dtype = torch.float32
        return built

    def _merged_lora_per_tensor_param(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Name and value of each weight with its adapter added, as the engine takes it.

        verl's rounds them to bfloat16 whatever the engine computes in, and sampler and learner
        would differ from the start. Each tensor is a copy: the weights are put back at the end.
        """
        with merged_lora_context(self.module, backup_adapters=True):
            for name, weight in normalize_peft_param_name(self.module.state_dict()).items():
                whole = weight.full_tensor() if isinstance(weight, DTensor) else weight
                yield name, whole.detach().clone()

    def prepare_model_inputs(
        self, micro_batch: TensorDict
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Left-padded rows, and the columns that predict sampled tokens."""
        rows = micro_batch["input_ids"].unbind(0)
        positions = micro_batch["position_ids"].unbind(0)
        longest = max(map(len, rows))
        # The column before a token predicts it.
        predicting = [
            longest - len(mask) - 1 + _sampled(mask) for mask in micro_batch["loss_mask"].unbind(0)
        ]
        columns_K = torch.cat(predicting).unique()
        model_inputs = {
            "input_ids": _left_padded(rows),
            "attention_mask": _left_padded([torch.ones_like(row) for row in rows]),
            "position_ids": _left_padded(positions),
        }
        places = [torch.searchsorted(columns_K, columns_T) for columns_T in predicting]
        output_args: dict[str, Any] = {"places": places}
        if model_inputs["position_ids"].dim() == 3:
            # Text, time, height and width have positions of their own: [4, B, L].
            model_inputs["position_ids"] = model_inputs["position_ids"].transpose(0, 1)
        if reads_pictures(self.module):
            output_args["columns"] = columns_K
        else:
            model_inputs["logits_to_keep"] = columns_K
        return model_inputs | patches_of(micro_batch), output_args

    def prepare_model_outputs(
        self,
        output: CausalLMOutput,
        output_args: dict[str, Any],
        micro_batch: TensorDict,
        logits_processor_func: object,
    ) -> dict[str, torch.Tensor]:
        """Log-probability, and entropy if requested, of sampled tokens; 0 elsewhere."""
        assert output.logits is not None
        columns_K = output_args.get("columns", slice(None))
        logits_BKV = output.logits[:, columns_K].float() / float(micro_batch["temperature"])
        calculate_entropy = tu.get_non_tensor_data(micro_batch, "calculate_entropy", default=False)
        entropy_BK = entropy_from_logits(logits_BKV) if calculate_entropy else None
        lengths = [len(row) for row in micro_batch["input_ids"].unbind(0)]
        replies = micro_batch["responses"].unbind(0)
        masks = micro_batch["loss_mask"].unbind(0)
        logprobs: list[torch.Tensor] = []
        entropies: list[torch.Tensor] = []
        for row, (length, reply, mask) in enumerate(zip(lengths, replies, masks, strict=True)):
            sampled_T, place_T = _sampled(mask), output_args["places"][row]
            logits_TV = logits_BKV[row, place_T]
            chosen_T = logits_TV.gather(-1, reply[sampled_T].unsqueeze(-1)).squeeze(-1)
            logprob_T = chosen_T - logits_TV.logsumexp(-1)
            logprobs.append(_in_row(logprob_T, sampled_T, num_reply=len(reply), length=length))
            if entropy_BK is not None:
                entropies.append(
                    _in_row(
                        entropy_BK[row, place_T], sampled_T, num_reply=len(reply), length=length
                    )
                )
        outputs = {"log_probs": torch.nested.as_nested_tensor(logprobs, layout=torch.jagged)}
        if entropies:
            outputs["entropy"] = torch.nested.as_nested_tensor(entropies, layout=torch.jagged)
        return outputs


def _left_padded(rows: Sequence[torch.Tensor]) -> torch.Tensor:
    """Rows whose last axis is that of their tokens, as one tensor."""
    longest = max(row.shape[-1] for row in rows)
    return torch.stack([torch.nn.functional.pad(row, (longest - row.shape[-1], 0)) for row in rows])


def _sampled(mask: torch.Tensor) -> torch.Tensor:
    """Places of the sampled tokens in a reply; its last one in a row that only fills up.

    Such a row has no gradient, but the backward pass of a micro-batch of such rows needs a path.
    """
    if not mask.any():
        return torch.tensor([len(mask) - 1], device=mask.device)
    return mask.nonzero().squeeze(-1)


def _in_row(
    values_T: torch.Tensor, sampled_T: torch.Tensor, *, num_reply: int, length: int
) -> torch.Tensor:
    """A row's values: those of the sampled tokens one place to the left of them, and zeros."""
    places_T = length - num_reply - 1 + sampled_T
    return values_T.new_zeros(length).index_put((places_T,), values_T)
