"""Merged and unmerged rows of the same recorded episodes give the same gradient.

Through verl's real FSDP worker with the tiny model, in this process. What goes into the update
is what the trainer makes of the episodes: cut into rows, credited, spread over the responses.
"""

from collections.abc import Generator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from longhaul_core.store.records import LossInputs
from longhaul_trainer.config import AlgorithmConfig
from longhaul_trainer.config.learning import LossConfig
from steps import sampled_of
from trainer.verl.recorded_episodes import Recorded
from trainer.verl.updates import (
    MAX_ERROR,
    Gradients,
    Reports,
    error,
    reply_logprobs,
    still_run,
    update_of,
)
from verl_process import IMPORTS_VERL, one_worker

pytestmark = IMPORTS_VERL

EVERYWHERE: dict[str, object] = {
    "importance_cap": 1.5,
    "kl_coefficient": 0.3,
    "entropy_coefficient": 0.05,
}
LOSSES = {
    f"{kind}, importance by {level}": LossConfig.model_validate(
        EVERYWHERE
        | {"kind": kind, "clip_low": clip, "clip_high": 1.2 * clip}
        | {"importance_sampling": level, "kl_kind": "k2" if kind == "ppo" else "k3"}
    )
    for kind, clip in (("ppo", 0.15), ("gspo", 0.02), ("cispo", 0.15))
    for level in ("token", "sequence")
}
UNITS: dict[str, dict[str, object]] = {
    "token": {},
    "step": {},
    "episode": {},
    "fixed_token": {"tokens_per_episode": 50},
}


PAIRS = [
    (list(LOSSES)[2 * kind + (kind + place) % 2], unit)
    for place, unit in enumerate(UNITS)
    for kind in range(3)
]
"""Every kind of loss and every level of its ratios with every unit."""


def algorithm(unit: str) -> AlgorithmConfig:
    return AlgorithmConfig.model_validate({"name": "gigpo", "loss_unit": unit} | UNITS[unit])


@pytest.fixture(scope="module")
def plain(model_folder: Path) -> Any:  # noqa: ANN401  transformers' own classes are untyped
    return AutoModelForCausalLM.from_pretrained(
        model_folder, dtype=torch.float32, attn_implementation="sdpa"
    )


@pytest.fixture(scope="module")
def worker(model_folder: Path, cpu_run: None) -> Generator[Any]:
    with one_worker(still_run(), model_folder) as made:
        yield made


@pytest.fixture(scope="module")
def recorded(plain: Any) -> Recorded:  # noqa: ANN401
    return Recorded(plain, [7, 2, 5])


@pytest.mark.parametrize(("kind", "unit"), PAIRS)
def test_merged_rows_give_the_gradient_of_a_row_for_each_step(
    worker: Any,  # noqa: ANN401
    recorded: Recorded,
    kind: str,
    unit: str,
) -> None:
    loss = LOSSES[kind]
    by_step, merged = (recorded.rows(form, algorithm(unit)) for form in ("step", "merged"))
    assert len(by_step) == 14
    assert len(merged) == 3 + 2  # after each fourth step, of seven and of five

    expected, metrics = update_of(worker, by_step, loss)
    found, merged_metrics = update_of(worker, merged, loss, micro_batch_tokens=100)

    assert error(found, expected) <= MAX_ERROR
    for name in ("policy_loss", "clip_fraction", "ratio_mean", "policy_divergence"):
        total = float(np.sum(merged_metrics[name]))
        assert total == pytest.approx(float(np.sum(metrics[name])), rel=1e-3, abs=1e-6)
    assert 0 < float(np.sum(merged_metrics["clip_fraction"])) < 1


def test_the_head_is_asked_for_what_was_sampled_and_for_no_gap(
    worker: Any,  # noqa: ANN401
    recorded: Recorded,
) -> None:
    (longest, *_) = sorted(
        recorded.rows("merged", algorithm("token")), key=lambda row: -len(row.metadata.spans)
    )
    asked: list[int] = []

    def count(_: object, given: tuple[torch.Tensor]) -> None:
        asked.append(given[0].shape[1])

    hook = worker.actor.engine.module.lm_head.register_forward_pre_hook(count)
    try:
        update_of(worker, [longest], LOSS)
    finally:
        hook.remove()

    assert asked == [sum(longest.mask)]
    assert sum(longest.mask) < len(longest.mask)


def test_rows_of_a_limited_length_give_it_too(
    worker: Any,  # noqa: ANN401
    recorded: Recorded,
) -> None:
    loss = LOSSES["gspo, importance by sequence"]
    by_step = recorded.rows("step", algorithm("token"))
    merged = recorded.rows("merged", algorithm("token"), max_row_tokens=20)
    assert 5 < len(merged) < 14

    expected, _ = update_of(worker, by_step, loss)

    assert error(update_of(worker, merged, loss)[0], expected) <= MAX_ERROR


LOSS = LOSSES["ppo, importance by token"]


def test_a_wrong_weight_on_one_action_of_a_merged_row_would_be_seen(
    worker: Any,  # noqa: ANN401
    recorded: Recorded,
) -> None:
    merged = recorded.rows("merged", algorithm("token"))
    place = merged[0].metadata.spans[1]
    weights = list(merged[0].weights)
    weights[place.start : place.stop] = [2 * w for w in weights[place.start : place.stop]]
    wrong = [replace(merged[0], weights=weights), *merged[1:]]

    expected, _ = update_of(worker, recorded.rows("step", algorithm("token")), LOSS)

    assert error(update_of(worker, wrong, LOSS)[0], expected) > 100 * MAX_ERROR


def test_a_token_of_a_gap_that_is_trained_would_be_seen(
    worker: Any,  # noqa: ANN401
    recorded: Recorded,
) -> None:
    merged = recorded.rows("merged", algorithm("token"))
    gap = merged[0].metadata.spans[0].stop
    assert merged[0].mask[gap] == 0
    mask, weights = list(merged[0].mask), list(merged[0].weights)
    advantages = list(merged[0].advantages)
    mask[gap], weights[gap], advantages[gap] = 1, weights[0], advantages[0]
    wrong = [replace(merged[0], mask=mask, weights=weights, advantages=advantages), *merged[1:]]

    expected, _ = update_of(worker, recorded.rows("step", algorithm("token")), LOSS)

    assert error(update_of(worker, wrong, LOSS)[0], expected) > 100 * MAX_ERROR


def test_actions_whose_bounds_are_lost_would_be_seen(
    worker: Any,  # noqa: ANN401
    recorded: Recorded,
) -> None:
    loss = LOSSES["gspo, importance by sequence"]
    merged = recorded.rows("merged", algorithm("token"))
    wrong = [
        replace(row, metadata=replace(row.metadata, spans=row.metadata.spans[:1])) for row in merged
    ]

    expected, _ = update_of(worker, recorded.rows("step", algorithm("token")), loss)

    assert error(update_of(worker, wrong, loss)[0], expected) > 100 * MAX_ERROR


def test_the_loss_reports_the_same_steps_of_either_form(
    worker: Any,  # noqa: ANN401
    recorded: Recorded,
) -> None:
    reports = {form: Reports() for form in ("step", "merged")}
    for form, writer in reports.items():
        rows = recorded.rows("merged" if form == "merged" else "step", algorithm("step"))
        update_of(worker, rows, LOSS, writer=writer, micro_batch_tokens=100)

    steps = {
        form: sorted(
            (
                replace(step, row_index=0)
                for record in writer.records
                if isinstance(record, LossInputs)
                for step in record.rows
            ),
            key=lambda step: (step.sample_index, step.step_index),
        )
        for form, writer in reports.items()
    }
    assert len(steps["step"]) == 14
    assert steps["merged"] == steps["step"]


# An episode of 40 steps and one of 4


@pytest.fixture(scope="module")
def long_and_short(plain: Any) -> Recorded:  # noqa: ANN401
    return Recorded(plain, [40, 4], on_policy=True, breaks=False)


MeanGradients = dict[bool, list[tuple[Gradients, int, int]]]


@pytest.fixture(scope="module")
def mean_gradients(plain: Any, long_and_short: Recorded) -> MeanGradients:  # noqa: ANN401
    """Of both episodes, by whether the mean is over steps."""
    return {
        by_step: [mean_gradient(plain, long_and_short, index, by_step=by_step) for index in (0, 1)]
        for by_step in (False, True)
    }


def mean_gradient(
    plain: Any,  # noqa: ANN401
    recorded: Recorded,
    sample_index: int,
    *,
    by_step: bool,
) -> tuple[Gradients, int, int]:
    """Of an episode's mean policy loss; how many steps and tokens it has.

    The mean is over its tokens, or over its steps of the mean over a step's tokens.
    """
    (episode,) = (
        e
        for e in recorded.credit("step", algorithm("token")).credit
        if e.metadata.sample_index == sample_index
    )
    steps = [sampled_of(step) for step in recorded.trajectories[sample_index].steps]
    num_tokens = sum(len(step.action_tokens) for step in steps)
    plain.zero_grad()
    for step, advantage in zip(steps, episode.credit.advantages, strict=True):
        logprobs, _ = reply_logprobs(plain, step.prompt_tokens, step.action_tokens)
        share = 1 / (len(steps) * len(logprobs)) if by_step else 1 / num_tokens
        (-share * advantage * logprobs.sum()).backward()
    gradients = {name: p.grad.clone() for name, p in plain.named_parameters()}
    return gradients, len(steps), num_tokens


@pytest.mark.parametrize("form", ["step", "merged"])
@pytest.mark.parametrize("unit", UNITS)
def test_a_long_episode_and_a_short_one_weigh_as_configured(
    worker: Any,  # noqa: ANN401
    mean_gradients: MeanGradients,
    long_and_short: Recorded,
    unit: str,
    form: Any,  # noqa: ANN401
) -> None:
    long, short = mean_gradients[unit == "step"]
    assert (long[1], short[1]) == (40, 4)
    shares = {
        "token": [tokens / (long[2] + short[2]) for tokens in (long[2], short[2])],
        "step": [40 / 44, 4 / 44],
        "episode": [1 / 2, 1 / 2],
        "fixed_token": [tokens / (2 * 50) for tokens in (long[2], short[2])],
    }[unit]
    expected = {n: shares[0] * long[0][n] + shares[1] * short[0][n] for n in long[0]}

    rows = long_and_short.rows(form, algorithm(unit))
    found, _ = update_of(worker, rows, LossConfig())

    assert len(rows) == (2 if form == "merged" else 44)
    assert error(found, expected) <= MAX_ERROR
    other = {n: shares[1] * long[0][n] + shares[0] * short[0][n] for n in long[0]}
    assert unit == "episode" or error(found, other) > 100 * MAX_ERROR
