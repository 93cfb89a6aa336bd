"""Tests for `longhaul_trainer.losses.nll`."""

import pytest
import torch
from torch.nn.functional import cross_entropy

from longhaul_trainer.losses import ActionTokens, nll_loss
from loss_tokens import OLD_LOGPROB, gradient_of, one_row


@pytest.mark.parametrize(
    ("ratio", "weight_of_episode", "gradient"),
    [
        (1.0, 1.0, -1.0),
        (4.0, 1.0, -1.0),  # nothing is clipped, however likely the reply became
        (0.01, 1.0, -1.0),
        (1.0, 2.5, -2.5),
        (1.0, 0.0, 0.0),
    ],
)
def test_matches_the_hand_worked_token(
    ratio: float, weight_of_episode: float, gradient: float
) -> None:
    tokens = one_row([ratio], [weight_of_episode], [0.25])

    found = nll_loss(tokens)

    assert gradient_of(tokens, found) == [[pytest.approx(0.25 * gradient)]]
    logprob = OLD_LOGPROB + torch.tensor(ratio, dtype=torch.float64).log().item()
    assert found.loss.item() == pytest.approx(0.25 * gradient * logprob)
    assert found.clipped.item() == 0.0


@pytest.mark.parametrize("seed", range(20))
def test_is_torchs_cross_entropy_of_the_imitated_tokens(seed: int) -> None:
    random = torch.Generator().manual_seed(seed)
    logits_BTV = torch.randn(3, 7, 11, generator=random, dtype=torch.float64, requires_grad=True)
    labels_BT = torch.randint(11, (3, 7), generator=random)
    trained_BT = torch.rand(3, 7, generator=random) < 0.6
    trained_BT[0, 0] = True
    weights_BT = trained_BT.double() / trained_BT.sum()
    logprobs_BT = logits_BTV.log_softmax(-1).gather(-1, labels_BT[..., None])[..., 0]
    tokens = ActionTokens(
        policy_logprobs_BT=logprobs_BT,
        old_logprobs_BT=torch.zeros(3, 7, dtype=torch.float64),
        advantages_BT=torch.ones(3, 7, dtype=torch.float64),
        loss_weights_BT=weights_BT,
        actions_BT=torch.zeros(3, 7, dtype=torch.int64),
    )

    (ours,) = torch.autograd.grad(nll_loss(tokens).loss, logits_BTV, retain_graph=True)

    reference = cross_entropy(
        logits_BTV.flatten(0, 1), labels_BT.masked_fill(~trained_BT, -100).flatten()
    )
    (theirs,) = torch.autograd.grad(reference, logits_BTV)
    assert nll_loss(tokens).loss.item() == pytest.approx(reference.item(), abs=1e-12)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)
    assert theirs.abs().max() > 1e-3
