"""verl's FSDP engine with logits for sampled tokens alone, and adapters merged in full precision.

verl computes logits, log-probabilities and entropy for every token of a row. Most of a row
is prompt, or, between the actions of a merged row, what a later prompt adds; a vocabulary of
49,152 makes each of those tokens as dear as a layer or two, and nothing ever reads the
result. Rows are padded on the left here, so that replies end in the same column, and the
model's head is asked only for columns that predict a sampled token of some row. The numbers
of the sampled tokens are the same; those of other tokens are 0. A model that reads pictures is
called as verl has changed it, and gives the logits of all columns.

Shapes: B rows, N tokens of all of them, R of their replies, S of those sampled, L tokens of the
longest row, K columns that are requested, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self

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
        ids: Any = micro_batch["input_ids"]  # torch's stubs know no nested tensors
        positions: Any = micro_batch["position_ids"]
        row_N, column_N = left_padded_places(ids.offsets())
        num_rows, longest = len(ids), int(column_N.max()) + 1
        tokens_BL = ids.values().new_zeros(num_rows, longest)
        mask_BL = torch.zeros_like(tokens_BL)
        tokens_BL[row_N, column_N] = ids.values()
        mask_BL[row_N, column_N] = 1
        # Of a model that reads pictures, text, time, height and width have their own: [4, B, L].
        positions_BL = positions.values().new_zeros(
            *positions.values().shape[:-1], num_rows, longest
        )
        positions_BL[..., row_N, column_N] = positions.values()
        sampled = Sampled.of(micro_batch)
        columns_S = longest - 1 - sampled.from_the_end_S  # the one before a token predicts it
        columns_K, place_S = columns_S.unique(return_inverse=True)
        model_inputs = {
            "input_ids": tokens_BL,
            "attention_mask": mask_BL,
            "position_ids": positions_BL,
        }
        output_args: dict[str, Any] = {"sampled": sampled, "place_S": place_S}
        if reads_pictures(getattr(self.module, "config", None)):
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
        sampled: Sampled = output_args["sampled"]
        logits_BKV = output.logits[:, output_args.get("columns", slice(None))]
        logits_SV = logits_BKV[sampled.row_S, output_args["place_S"]].float()
        logits_SV = logits_SV / float(micro_batch["temperature"])
        chosen_S = logits_SV.gather(-1, sampled.token_S.unsqueeze(-1)).squeeze(-1)
        outputs = {"log_probs": sampled.in_rows(chosen_S - logits_SV.logsumexp(-1))}
        if tu.get_non_tensor_data(micro_batch, "calculate_entropy", default=False):
            outputs["entropy"] = sampled.in_rows(entropy_from_logits(logits_SV))
        return outputs


def left_padded_places(offsets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Row and column of each token where nested rows are padded on the left, by their offsets."""
    lengths_B = offsets.diff()
    row_N = torch.arange(len(lengths_B)).repeat_interleave(lengths_B)
    end_N = offsets[1:][row_N]
    return row_N, lengths_B.max() - end_N + torch.arange(len(row_N))


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampled:
    """The S sampled tokens of a micro-batch, row by row.

    A row that only fills up has none, and its last token stands for one: it has no gradient, but
    the backward pass of a micro-batch of such rows needs a path.
    """

    row_S: torch.Tensor
    from_the_end_S: torch.Tensor
    """Places from the end of its row; the last token's is 1."""
    token_S: torch.Tensor
    offsets: torch.Tensor
    """Of the rows."""

    @classmethod
    def of(cls, micro_batch: TensorDict) -> Self:
        """Those of its rows, whose replies are at their ends."""
        mask: Any = micro_batch["loss_mask"]
        ids: Any = micro_batch["input_ids"]
        ends_B = mask.offsets()[1:]
        reply_R = torch.arange(len(ends_B)).repeat_interleave(mask.offsets().diff())
        sampled_R = mask.values() != 0
        num_sampled_B = reply_R[sampled_R].bincount(minlength=len(ends_B))
        sampled_R[ends_B[num_sampled_B == 0] - 1] = True
        place_S = sampled_R.nonzero().squeeze(-1)
        row_S = reply_R[place_S]
        from_the_end_S = ends_B[row_S] - place_S
        return cls(
            row_S=row_S,
            from_the_end_S=from_the_end_S,
            token_S=ids.values()[ids.offsets()[1:][row_S] - from_the_end_S],
            offsets=ids.offsets(),
        )

    def in_rows(self, values_S: torch.Tensor) -> torch.Tensor:
        """Nested rows: the values of sampled tokens one place to the left of them, and zeros."""
        place_S = self.offsets[1:][self.row_S] - self.from_the_end_S - 1
        values_N = values_S.new_zeros(int(self.offsets[-1])).index_put((place_S,), values_S)
        return torch.nested.nested_tensor_from_jagged(values_N, self.offsets)
