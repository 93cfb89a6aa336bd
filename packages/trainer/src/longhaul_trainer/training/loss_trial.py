"""A loss of the user's own is tried on a few tokens before anything expensive starts.

Tried is what every policy loss promises: see `longhaul_trainer.losses.tokens`.

Shapes: B = 2 rows, T = 5 tokens, of which the last of each row is not counted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import torch

from longhaul_core.errors import ConfigError, EnvironmentFailure, attributed_to
from longhaul_core.text import shortened
from longhaul_trainer.losses.tokens import ActionTokens, PolicyLoss
from longhaul_trainer.training.losses import SETTING, own_loss

if TYPE_CHECKING:
    from longhaul_trainer.config.learning import LossConfig

ADVICE = (
    "return longhaul_trainer.losses.weighted_sums(tokens, token_loss_BT=…, clipped_BT=…, "
    "ratio_BT=…), and put 0 where tokens.counted_BT() is false before anything is computed there"
)


def try_own_loss(settings: LossConfig) -> None:
    """Refuse a function that is no policy loss.

    Args:
        settings: Whose `kind` is `package.module:name`.

    Raises:
        ConfigError: If it cannot be imported, raises, returns anything but a `PolicyLoss` of
            finite scalars, has no gradient, or one at a token that is not counted, or if what it
            gives two rows is not the sum of what it gives each: micro-batches would not add up.
    """
    loss = own_loss(settings.kind)
    where = f"{SETTING} = {settings.kind!r}"

    def tried(rows: slice) -> tuple[PolicyLoss, torch.Tensor]:
        tokens = _tokens(rows)
        try:
            with attributed_to(EnvironmentFailure, where):
                found: object = loss(tokens, settings)
        except EnvironmentFailure as error:
            raise ConfigError(str(error)) from error
        _refuse_other_than_sums(found, where)
        return found, _gradient(found.loss, tokens, where)

    whole, gradient_BT = tried(slice(0, 2))
    if not gradient_BT.any():
        raise ConfigError(
            f"{where}: the gradient of its loss is 0 at every token, at advantages of 1, -1, 2 and "
            "-0.5; let tokens.policy_logprobs_BT carry it"
        )
    for name, value, *parts in zip(
        PolicyLoss._fields, whole, *(tried(slice(row, row + 1))[0] for row in range(2)), strict=True
    ):
        if not torch.isclose(value, sum(parts, torch.zeros(())), rtol=1e-3, atol=1e-5):
            raise ConfigError(
                f"{where}: the {name} of two rows is {value:g}, and of each alone it is "
                f"{' and '.join(f'{part:g}' for part in parts)}; it must be a sum over tokens by "
                "tokens.loss_weights_BT, or micro-batches would not add up. To get it, "
                f"{ADVICE}"
            )


def _tokens(rows: slice) -> ActionTokens:
    """Counted tokens with ratios around 1, and one in each row that does not count."""

    def of_rows(*numbers: list[float]) -> torch.Tensor:
        return torch.tensor(numbers)[rows]

    old_BT = of_rows([-0.7, -1.2, -0.1, -2.3, -0.6], [-0.4, -3.0, -0.9, -0.2, -torch.inf])
    moved_BT = of_rows([0.02, -0.1, 0.05, 0.4, 0.1], [-0.3, 0.001, 0.0, 0.1, 0.0])
    return ActionTokens(
        policy_logprobs_BT=(old_BT + moved_BT).requires_grad_(),
        old_logprobs_BT=old_BT,
        advantages_BT=of_rows([1.0, 1.0, -1.0, -1.0, 3.0], [2.0, -0.5, -0.5, -0.5, 0.0]),
        loss_weights_BT=of_rows([0.1, 0.1, 0.15, 0.15, 0.0], [0.2, 0.1, 0.1, 0.1, 0.0]),
        actions_BT=of_rows([0, 0, 1, 1, 1], [0, 1, 1, 1, 1]).long(),
        behavior_logprobs_BT=old_BT - 0.01,
    )


def _refuse_other_than_sums(found: object, where: str) -> None:
    if not isinstance(found, PolicyLoss):
        raise ConfigError(
            f"{where}: returned {shortened(repr(found), 200)}, expected a "
            f"longhaul_trainer.losses.PolicyLoss; {ADVICE}"
        )
    for name, value in zip(PolicyLoss._fields, cast("tuple[object, ...]", found), strict=True):
        if not isinstance(value, torch.Tensor) or value.shape != ():
            shape = list(value.shape) if isinstance(value, torch.Tensor) else type(value).__name__
            raise ConfigError(
                f"{where}: its {name} has the shape {shape}, expected a tensor of shape [], a sum "
                f"over rows and tokens; {ADVICE}"
            )
        if not value.isfinite():
            raise ConfigError(
                f"{where}: its {name} is {value.item()}, expected a finite number: a token that is "
                f"not counted may hold anything, infinities too; {ADVICE}"
            )


def _gradient(loss: torch.Tensor, tokens: ActionTokens, where: str) -> torch.Tensor:
    if not loss.requires_grad:
        raise ConfigError(
            f"{where}: its loss carries no gradient, so nothing would be learned; compute it from "
            "tokens.policy_logprobs_BT without detach() or item()"
        )
    (gradient_BT,) = torch.autograd.grad(loss, tokens.policy_logprobs_BT, materialize_grads=True)
    if not gradient_BT.isfinite().all() or gradient_BT[~tokens.counted_BT()].any():
        got = " ".join(repr(gradient_BT).split())
        raise ConfigError(
            f"{where}: the gradient of its loss at the tokens is {got}, expected finite numbers, "
            "and 0 at the tokens that are not counted, those with tokens.loss_weights_BT = 0; "
            f"{ADVICE}"
        )
    return gradient_BT
