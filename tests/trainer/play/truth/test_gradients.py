"""The gradient that a credit makes: against differences of the logprobs that the sampler has."""

# pyright: reportUnknownMemberType=false
# (transformers annotates little of what it returns)

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

from longhaul_core.advantages.credit import FloatArray
from longhaul_core.types import SampledTokens
from longhaul_trainer.play import small_policy
from longhaul_trainer.play.small_policy import SmallModel
from longhaul_trainer.play.truth.gradients import gradients_of
from longhaul_trainer.play.truth.logprobs import reply_logprobs
from longhaul_trainer.play.truth.selection import Place
from trainer.play.truth.conftest import small_model

__all__ = ["small_model"]  # a fixture

TEMPERATURE = 0.7


def call(prompt: Sequence[int], reply: Sequence[int]) -> SampledTokens:
    return SampledTokens(
        prompt_tokens=tuple(prompt),
        action_tokens=tuple(reply),
        behavior_logprobs=(-1.0,) * len(reply),
        policy_version=0,
    )


CALLS: Mapping[Place, SampledTokens] = {
    ("one", 0): call([5, 9, 31], [17, 40]),
    ("one", 1): call([5, 9], [8]),
    ("two", 0): call([5, 9, 31], [17, 40]),
    ("two", 1): call([61, 12, 7, 30], [40, 8, 11]),
}
CREDIT: Sequence[Mapping[Place, float]] = (
    {("one", 0): 1.5, ("one", 1): -2.0, ("two", 0): 0.25, ("two", 1): 0.5},
    {("two", 1): -1.0, ("gone", 3): 7.0},
    {},
)


@pytest.fixture
def model(small_model: Path) -> SmallModel:
    loaded = SmallModel(small_model)
    loaded.model.double()
    return loaded


def objective(model: SmallModel, credit: Mapping[Place, float]) -> float:
    """The sum whose gradient it is, by the logprobs that draw replies."""
    known = [place for place in credit if place in CALLS]
    calls = [CALLS[place] for place in known]
    found = reply_logprobs(model, calls, temperature=TEMPERATURE, top_p=1.0)
    return sum(credit[place] * sum(each) for place, each in zip(known, found, strict=True))


def moved(model: SmallModel, direction: FloatArray, by: float) -> None:
    start = 0
    with torch.no_grad():
        for weight in model.model.parameters():
            stop = start + weight.numel()
            weight += by * torch.tensor(direction[start:stop]).reshape(weight.shape)
            start = stop


@pytest.mark.parametrize("most_logits", [1, 2**26])
def test_small_moves_change_the_logprobs_as_the_gradient_says(
    model: SmallModel, most_logits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(small_policy, "_MOST_LOGITS", most_logits)
    found = gradients_of(CALLS, model, temperature=TEMPERATURE)(CREDIT)
    assert found.shape == (3, model.num_parameters)
    random = np.random.default_rng(0)

    for group, credit in enumerate(CREDIT[:2]):
        slopes: list[float] = []
        for _ in range(4):
            direction = random.normal(size=model.num_parameters)
            moved(model, direction, 1e-4)
            above = objective(model, credit)
            moved(model, direction, -2e-4)
            below = objective(model, credit)
            moved(model, direction, 1e-4)
            slopes.append((above - below) / 2e-4)
            assert slopes[-1] == pytest.approx(float(found[group] @ direction), rel=2e-3)
        assert np.ptp(slopes) > 1.0
    assert not found[2].any()


def test_it_is_linear_and_equal_replies_add_up(model: SmallModel) -> None:
    of_groups = gradients_of(CALLS, model, temperature=TEMPERATURE)
    one, other, both = of_groups(
        [{("one", 0): 2.0}, {("two", 0): 3.0}, {("one", 0): 2.0, ("two", 0): 3.0}]
    )

    assert np.abs(one).max() > 0.01
    np.testing.assert_allclose(both, one + other, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(3 * one, 2 * other, rtol=1e-4, atol=1e-5)
