"""The loss of rows of both kinds is a written-out one, however they are cut into micro-batches."""

from random import Random

import pytest
import torch

from longhaul_trainer.config import AlgorithmConfig
from longhaul_trainer.config.learning import LossConfig
from longhaul_trainer.training.demonstrations import Demonstrations
from longhaul_trainer.training.step_metadata import METADATA, GroupName, RowMetadata, packed
from longhaul_trainer.training.training_step import TrainingStep
from row_metadata import MadeUpStep, rows_of
from verl_process import IMPORTS_VERL

pytestmark = IMPORTS_VERL

COEFFICIENT = 0.3


class Drawn:
    """Random episodes of random groups, with random demonstrations beside them."""

    def __init__(self, seed: int) -> None:
        self._draw = Random(seed)
        groups = [GroupName(1, place) for place in range(self._draw.randint(1, 3))]
        self.sampled = self._rows(groups, self._draw.randint(2, 3))
        self.imitated = self._rows(groups, self._draw.randint(1, 2), demonstration=True)
        unit = self._draw.choice(["token", "step", "episode"])
        algorithm = AlgorithmConfig.model_validate({"name": "rloo", "loss_unit": unit})
        names = [str(group) for group in groups]
        self.demonstrations = Demonstrations.of(
            self.imitated,
            algorithm=algorithm,
            num_optimizer_steps=1,
            groups=names,
            purposes={},
            coefficient=COEFFICIENT,
        )
        self.step = TrainingStep.of(
            self.sampled, number=1, algorithm=algorithm, num_optimizer_steps=1, groups=names
        ).credited()
        self.rows = {**self.sampled, **self.imitated}
        lengths = {key: row.spans[-1].stop for key, row in self.rows.items()}
        random = torch.Generator().manual_seed(seed)
        # Of the row's one prompt token, whose prediction is the first of the response, and of it.
        self.logprobs = {
            key: (-2 * torch.rand(length + 1, generator=random).double()).requires_grad_()
            for key, length in lengths.items()
        }
        self.old = {
            key: (logprobs[:-1] + 0.3 * torch.randn(len(logprobs) - 1, generator=random)).detach()
            for key, logprobs in self.logprobs.items()
        }
        columns = [
            part.columns([*rows], [lengths[key] for key in rows])
            for part, rows in ((self.step, self.sampled), (self.demonstrations, self.imitated))
        ]
        self.columns = {
            name: dict(
                zip(
                    self.rows, [*columns[0][name].unbind(), *columns[1][name].unbind()], strict=True
                )
            )
            for name in ("advantages", "loss_weights")
        }

    def _rows(
        self, groups: list[GroupName], size: int, *, demonstration: bool = False
    ) -> dict[str, RowMetadata]:
        def step() -> MadeUpStep:
            return {"reward": self._draw.random(), "tokens": self._draw.randint(1, 4)}

        return {
            key: row
            for group in groups
            for place in range(size)
            for key, row in rows_of(
                group,
                place,
                [step() for _ in range(self._draw.randint(1, 5))],
                session=place + 10 * demonstration,
                per_row=self._draw.randint(1, 3),
                demonstration=demonstration,
            ).items()
        }

    def loss(self, settings: LossConfig) -> torch.Tensor:
        """The sum over micro-batches of one to three rows, as verl adds them up."""
        keys = [*self.rows]
        self._draw.shuffle(keys)
        total = torch.zeros((), dtype=torch.float64)
        while keys:
            number = self._draw.randint(1, 3)
            total = total + self._micro_batch(keys[:number], settings)
            keys = keys[number:]
        return total

    def _micro_batch(self, keys: list[str], settings: LossConfig) -> torch.Tensor:
        from verl.utils import tensordict_utils as tu

        from longhaul_trainer.verl.loss import policy_loss

        def jagged(rows: list[torch.Tensor]) -> torch.Tensor:
            return torch.nested.as_nested_tensor(rows, layout=torch.jagged)

        old = [self.old[key] for key in keys]
        data = tu.get_tensordict(
            {
                "prompts": jagged([torch.ones(1, dtype=torch.int64)] * len(keys)),
                "responses": jagged([torch.ones(len(row), dtype=torch.int64) for row in old]),
                "old_log_probs": jagged(old),
                "ref_log_prob": jagged([row - 0.2 for row in old]),
                "extra_fields": [{METADATA: packed(self.rows[key])} for key in keys],
            }
            | {name: jagged([rows[key] for key in keys]) for name, rows in self.columns.items()},
            non_tensor_dict={"dp_size": 1},
        )
        logprobs = torch.cat([self.logprobs[key] for key in keys])
        loss, metrics = policy_loss({"log_probs": logprobs}, data, settings=settings)
        self.trained_weight = getattr(self, "trained_weight", 0.0) + (
            metrics["trained_weight"].aggregate()
        )
        return loss

    def written_out(self, settings: LossConfig) -> torch.Tensor:
        """PPO with a divergence over what was sampled, and a mean likelihood, token by token."""
        total = torch.zeros((), dtype=torch.float64)
        for call in self.step.calls:
            now, old = (
                of[call.row][call.span.start : call.span.stop] for of in (self.logprobs, self.old)
            )
            for token, before in zip(now, old, strict=True):
                ratio = (token - before).exp()
                clipped = ratio.clamp(1 - settings.clip_low, 1 + settings.clip_high)
                gained = torch.minimum(ratio * call.advantage, clipped * call.advantage)
                if call.advantage < 0:
                    gained = gained.maximum(settings.dual_clip * torch.tensor(call.advantage))
                distance = (before - 0.2 - token) ** 2 / 2
                total = total + call.loss_weight * (settings.kl_coefficient * distance - gained)
        for call in self.demonstrations.calls:
            share = call.loss_weight / COEFFICIENT
            now = self.logprobs[call.row][call.span.start : call.span.stop]
            total = total - COEFFICIENT * share * now.sum()
        return total


@pytest.mark.parametrize("kl_coefficient", [0.0, 0.4])
@pytest.mark.parametrize("seed", range(25))
def test_the_gradient_is_that_of_the_written_out_loss(seed: int, kl_coefficient: float) -> None:
    drawn = Drawn(seed)
    settings = LossConfig(kl_coefficient=kl_coefficient, kl_kind="k2")
    leaves = [*drawn.logprobs.values()]

    ours = torch.autograd.grad(drawn.loss(settings), leaves)
    theirs = torch.autograd.grad(drawn.written_out(settings), leaves, allow_unused=True)

    for key, found, expected in zip(drawn.logprobs, ours, theirs, strict=True):
        assert expected is not None, key
        torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-8)
    shares = [call.loss_weight * call.span.action_tokens for call in drawn.demonstrations.calls]
    assert sum(shares) == pytest.approx(COEFFICIENT)
    assert drawn.trained_weight == pytest.approx(1.0, rel=1e-6)  # demonstrations are not in it
