"""Tests for `longhaul_trainer.verl.learning_rate`."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from verl_process import IMPORTS_VERL

pytestmark = IMPORTS_VERL


class OneWeight:
    """The learner's engine with one weight, whose gradient is always 1."""

    def __init__(self, *, warmup: int, kind: str = "constant") -> None:
        from longhaul_trainer.verl.cpu.learner import ResponseLogitsEngine

        self.weight = torch.nn.Parameter(torch.zeros(1, dtype=torch.float64))
        self.optimizer: Any = torch.optim.SGD([self.weight], lr=0.1)
        self.engine: Any = object.__new__(ResponseLogitsEngine)
        self.engine.rank = 0
        self.engine.optimizer_config = SimpleNamespace(
            lr_scheduler_type=kind,
            lr_warmup_steps=warmup,
            lr_warmup_steps_ratio=0.0,
            total_training_steps=8,
            min_lr_ratio=0.0,
            num_cycles=0.5,
            zero_indexed_step=True,
        )
        self.engine.lr_scheduler = self.engine._build_lr_scheduler(self.optimizer)

    def update(self) -> tuple[float, float]:
        """How far the weight moved, and the rate that is reported."""
        before = self.weight.item()
        self.weight.grad = torch.ones_like(self.weight)
        self.optimizer.step()
        return before - self.weight.item(), self.engine.lr_scheduler_step()


@pytest.mark.parametrize(
    ("warmup", "rates"),
    [
        (-1, [0.1, 0.1]),
        (0, [0.1, 0.1]),
        (1, [0.1, 0.1]),
        (4, [0.025, 0.05, 0.075, 0.1, 0.1]),
    ],
)
def test_the_first_of_the_rising_steps_moves_weights_and_reports_its_own_rate(
    warmup: int, rates: list[float]
) -> None:
    learner = OneWeight(warmup=warmup)
    for rate in rates:
        assert learner.update() == pytest.approx((rate, rate), abs=1e-12)


def test_a_rise_goes_on_from_a_checkpoint() -> None:
    learner, resumed = OneWeight(warmup=4), OneWeight(warmup=4)
    assert learner.update() == pytest.approx((0.025, 0.025))
    resumed.engine.lr_scheduler.load_state_dict(learner.engine.lr_scheduler.state_dict())
    resumed.optimizer.load_state_dict(learner.optimizer.state_dict())
    assert resumed.update() == pytest.approx((0.05, 0.05))


def test_another_kind_of_schedule_is_that_of_verl() -> None:
    learner = OneWeight(warmup=0, kind="cosine")
    rates = [learner.update()[1] for _ in range(8)]
    assert rates == sorted(rates, reverse=True)
    assert rates[0] > 0.09
    assert rates[-1] < 0.01
