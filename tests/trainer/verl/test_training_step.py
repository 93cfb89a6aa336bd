"""Whole training steps through verl's real FSDP worker, by the trainer's own function.

Episodes are credited by the pipeline and handed to the worker as the trainer does it, one
call an optimizer step. Only TransferQueue is left out: rows are looked up by their keys.
The worker runs in this process, with the tiny model in float32; its steps change no weight.
"""

import shutil
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import cycle
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
import torch
from sqlalchemy.orm import Session
from transformers import AutoModelForCausalLM

from audited_run import (
    RUN,
    PlayedStep,
    consume_values,
    credit,
    credited,
    logprobs_of,
    make_config,
    outcome_of,
    play,
    run_started,
)
from longhaul_core.advantages.estimators import ESTIMATORS
from longhaul_core.audit import audit_run, one_line
from longhaul_core.store import Metrics, open_store, read_only_engine
from longhaul_trainer.config import RunConfig
from longhaul_trainer.losses.registry import LOSSES
from longhaul_trainer.training.step_metadata import GroupName, RowMetadata
from longhaul_trainer.training.training_step import TrainingStep
from row_metadata import MadeUpStep, rows_of
from steps import sampled_of, with_call
from trainer.verl.updates import (
    MAX_ERROR,
    TEMPERATURE,
    Gradients,
    Reports,
    Row,
    WriterBehind,
    columns_of,
    error,
    expected_gradients,
    reply_logprobs,
    still_run,
)
from verl_process import IMPORTS_VERL, one_worker

pytestmark = IMPORTS_VERL


@pytest.fixture(scope="module")
def plain(model_folder: Path) -> Any:  # noqa: ANN401  transformers' own classes are untyped
    return AutoModelForCausalLM.from_pretrained(
        model_folder, dtype=torch.float32, attn_implementation="sdpa"
    )


@pytest.fixture(scope="module")
def worker(model_folder: Path, cpu_run: None) -> Generator[Any]:
    with one_worker(still_run(), model_folder) as made:
        yield made


Tokens = tuple[int, ...]
Logprobs = tuple[float, ...]


# A training step


@dataclass
class Watched:
    """What the optimizer of a worker did."""

    num_steps: int = 0
    gradients: list[Gradients] = field(default_factory=list[Gradients])
    """Before each of its steps, clipped."""


@contextmanager
def watched(worker: Any) -> Generator[Watched]:  # noqa: ANN401
    """Count the steps of torch's optimizer itself, and keep the gradients that they take."""
    seen = Watched()
    engine = worker.actor.engine

    def before(*_: object) -> None:
        seen.gradients.append(
            {n: p.grad.full_tensor().clone() for n, p in engine.module.named_parameters()}
        )

    def after(*_: object) -> None:
        seen.num_steps += 1

    hooks = [
        engine.optimizer.register_step_pre_hook(before),
        engine.optimizer.register_step_post_hook(after),
    ]
    try:
        yield seen
    finally:
        for hook in hooks:
            hook.remove()


class RowsByKey:
    """Stands where verl's worker group stands, and looks rows up instead of fetching them."""

    def __init__(self, worker: Any, rows: Mapping[str, Row]) -> None:  # noqa: ANN401
        self._worker = worker
        self._rows = rows
        self._dispatch_info = {"actor": [0]}

    def update_actor(self, asked: Any) -> dict[str, Any]:  # noqa: ANN401
        from verl.utils import tensordict_utils as tu

        batch = tu.get_tensordict(
            columns_of([self._rows[key].read for key in asked.keys]),
            non_tensor_dict=dict(asked.extra_info),
        )
        return {"metrics": tu.get(self._worker.update_actor(batch), "metrics")}


def train(
    worker: Any,  # noqa: ANN401
    config: RunConfig,
    found: TrainingStep,
    rows: Mapping[str, Row],
    *,
    writer: Any = None,  # noqa: ANN401
) -> tuple[Watched, dict[str, Any]]:
    """Update as the trainer does it.

    Args:
        worker: The real one.
        config: What is trained.
        found: The credit of the training step.
        rows: Row key → the row with its credit.
        writer: Gets what the loss read.
    """
    from transfer_queue import KVBatchMeta

    from longhaul_trainer.verl.loss_inputs import MicroBatchReports, ReportedLoss
    from longhaul_trainer.verl.trainer import LonghaulTrainer

    trainer: Any = LonghaulTrainer.__new__(LonghaulTrainer)  # no cluster, no engine
    updates = config.optimizer.optimizer_steps_per_training_step
    parts = {part: found.selection.keys_of(part) for part in range(updates)}
    trainer._run, trainer._step = config, found.with_updates(parts)
    trainer.global_steps = 1
    trainer.actor_rollout_wg = RowsByKey(worker, rows)
    keys = [key for of_part in parts.values() for key in of_part]
    tags = [{"seq_len": len(rows[key].prompt + rows[key].reply)} for key in keys]
    batch = KVBatchMeta(keys=keys, tags=tags, partition_id="train")
    worker.set_loss_fn(
        ReportedLoss(
            config.loss,
            MicroBatchReports(run_id=RUN, attempt=0, find_writer=lambda: writer or Reports()),
        )
    )
    metrics: dict[str, Any] = {}
    with watched(worker) as seen:
        trainer._update_actor(batch, metrics)
    return seen, metrics


def credited_rows(
    found: TrainingStep, tokens: Mapping[str, tuple[Tokens, Tokens, Logprobs, Logprobs]]
) -> dict[str, Row]:
    """The rows of a credit, one a step.

    Args:
        found: The credit.
        tokens: Row key → prompt, reply, and the reply's old and behavior logprobs.
    """
    rows: dict[str, Row] = {}
    for episode in found.credit:
        for call in episode.calls:
            prompt, reply, old, behavior = tokens[call.row]
            (advantage,) = set(call.token_advantages.tolist())
            rows[call.row] = Row(
                prompt=prompt,
                reply=reply,
                old_logprobs=old,
                behavior_logprobs=behavior,
                reference_logprobs=old,
                advantage=advantage,
                weight=call.loss_weight,
                group=episode.metadata.group_index,
                sample_index=episode.metadata.sample_index,
                step=call.span.step,
            )
    return rows


def made_up(
    lengths: Mapping[tuple[int, int], tuple[int, float]],
    config: RunConfig,
    plain: Any = None,  # noqa: ANN401
) -> tuple[TrainingStep, dict[str, Row]]:
    """Credit and rows of episodes whose replies have 1, 2, 3, 1, … tokens.

    Args:
        lengths: Group and sample_index → number of steps, and the return, paid at the end.
        config: How to credit.
        plain: Gives the old logprobs, so that the update is on policy; None makes them -1.
    """
    beside: dict[str, RowMetadata] = {}
    tokens: dict[str, tuple[Tokens, Tokens, Logprobs, Logprobs]] = {}
    for (group, sample_index), (num_steps, episode_return) in lengths.items():
        draw = Random(f"{group}/{sample_index}")
        steps: list[MadeUpStep] = []
        for step in range(num_steps):
            prompt = tuple(draw.randrange(5, 4096) for _ in range(4))
            reply = tuple(draw.randrange(5, 4096) for _ in range(1 + step % 3))
            old = (-1.0,) * len(reply) if plain is None else model_logprobs(plain, prompt, reply)
            tokens[f"train-1-{group}_{sample_index}_{step}"] = prompt, reply, old, old
            reward = episode_return if step == num_steps - 1 else 0.0
            steps.append({"reward": reward, "anchor": "", "tokens": len(reply)})
        beside |= rows_of(GroupName(1, group), sample_index, steps, prompt_tokens=4)
    found = TrainingStep.of(
        beside,
        number=1,
        algorithm=config.algorithm,
        num_optimizer_steps=config.optimizer.optimizer_steps_per_training_step,
        groups=[f"train-1-{group}" for group in range(config.tasks_per_training_step)],
    ).credited()
    return found, credited_rows(found, tokens)


def model_logprobs(plain: Any, prompt: Sequence[int], reply: Sequence[int]) -> Logprobs:  # noqa: ANN401
    """What the model makes of a reply."""
    with torch.no_grad():
        return tuple(reply_logprobs(plain, prompt, reply)[0].tolist())


# The number of optimizer steps


@pytest.mark.parametrize(
    ("signal", "updates", "num_rows"),
    [  # every pair of two of them
        *[("all episodes", 1, 20), ("all episodes", 2, 200), ("all episodes", 5, 20)],
        *[("one group", 1, 200), ("one group", 2, 20), ("one group", 5, 200)],
        *[("none", 1, 20), ("none", 2, 200), ("none", 5, 20)],
    ],
)
def test_the_optimizer_takes_the_steps_that_are_configured_however_many_rows_there_are(
    worker: Any,  # noqa: ANN401
    signal: str,
    updates: int,
    num_rows: int,
) -> None:
    num_groups, group_size = 10, 2
    config = make_config(
        tasks_per_training_step=num_groups,
        optimizer__optimizer_steps_per_training_step=updates,
        algorithm__name="grpo",
        rollout__group_size=group_size,
    )
    with_signal = {"all episodes": range(num_groups), "one group": [3], "none": []}[signal]
    num_steps = num_rows // (num_groups * group_size)
    lengths = {
        (group, sample_index): (num_steps, float(sample_index) if group in with_signal else 0.0)
        for group in range(num_groups)
        for sample_index in range(group_size)
    }
    found, rows = made_up(lengths, config)
    assert len(rows) == num_rows

    seen, metrics = train(worker, config, found, rows)

    assert seen.num_steps == updates
    assert metrics["actor/optimizer_steps"] == updates


# The share of an episode in the gradient


def by_definition(
    plain: Any,  # noqa: ANN401
    episodes: Sequence[tuple[float, Sequence[Row]]],
    *,
    unit: str,
    tokens_per_episode: int,
) -> Gradients:
    """Gradient of the mean over units of `-advantage * logprob`, written out for each unit.

    Args:
        plain: Transformers' model.
        episodes: Advantage and steps of each.
        unit: What weighs the same.
        tokens_per_episode: Stands for the length of an episode, for `fixed_token`.
    """
    plain.zero_grad()
    losses = [
        [-advantage * reply_logprobs(plain, row.prompt, row.reply)[0] for row in steps]
        for advantage, steps in episodes
    ]
    if unit == "token":
        loss = torch.cat([step for steps in losses for step in steps]).mean()
    elif unit == "step":
        loss = torch.stack([step.mean() for steps in losses for step in steps]).mean()
    elif unit == "episode":
        loss = torch.stack([torch.cat(steps).mean() for steps in losses]).mean()
    else:
        loss = torch.stack([torch.cat(steps).sum() for steps in losses]).mean()
        loss = loss / tokens_per_episode
    loss.backward()
    return {name: p.grad.clone() for name, p in plain.named_parameters()}


@pytest.mark.parametrize("unit", ["token", "step", "episode", "fixed_token"])
def test_an_episode_of_40_steps_and_one_of_4_weigh_as_configured(
    worker: Any,  # noqa: ANN401
    plain: Any,  # noqa: ANN401
    unit: str,
) -> None:
    fixed = {"algorithm__tokens_per_episode": 100} if unit == "fixed_token" else {}
    config = make_config(
        tasks_per_training_step=1,
        optimizer__optimizer_steps_per_training_step=1,
        optimizer__micro_batch_tokens=8192,
        algorithm__name="rloo",
        algorithm__loss_unit=unit,
        rollout__group_size=2,
        rollout__temperature=TEMPERATURE,
        **fixed,
    )
    credit, rows = made_up({(0, 0): (40, 1.0), (0, 1): (4, 0.25)}, config, plain)

    seen, _ = train(worker, config, credit, rows)

    episodes = [
        (advantage, [row for row in rows.values() if row.sample_index == sample_index])
        for sample_index, advantage in enumerate((0.75, -0.75))
    ]
    assert [len(steps) for _, steps in episodes] == [40, 4]
    expected = {
        one: by_definition(plain, episodes, unit=one, tokens_per_episode=100)
        for one in ("token", "step", "episode", "fixed_token")
    }
    (found,) = seen.gradients
    assert error(found, expected[unit]) <= MAX_ERROR
    for other in expected.keys() - {unit}:
        assert error(found, expected[other]) > 100 * MAX_ERROR


# Every estimator, and every loss


def as_sampled(plain: Any, played: PlayedStep) -> None:  # noqa: ANN401
    """Give every token of the episodes the logprob that the model has for it."""
    for place, record in enumerate(played.episodes):
        steps = tuple(
            with_call(
                step,
                behavior_logprobs=model_logprobs(
                    plain, sampled_of(step).prompt_tokens, sampled_of(step).action_tokens
                ),
            )
            for step in record.outcome.steps
        )
        outcome = replace(record.outcome, steps=steps)
        played.episodes[place] = replace(record, outcome=outcome)


def rows_of_played(played: PlayedStep, found: TrainingStep) -> dict[str, Row]:
    """The rows of the credited episodes, with what they are to be trained with."""
    tokens: dict[str, tuple[Tokens, Tokens, Logprobs, Logprobs]] = {}
    for one in played.credits:
        outcome = outcome_of(played, one)
        for step, old in zip(outcome.steps, logprobs_of(one), strict=True):
            key = f"train-1-{one.group_index}_{one.sample_index}_{step.index}"
            own = sampled_of(step)
            tokens[key] = own.prompt_tokens, own.action_tokens, old, own.behavior_logprobs or ()
    return credited_rows(found, tokens)


@pytest.fixture(scope="module")
def empty_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("empty") / "store.db"
    open_store(path).dispose()
    return path


HELD = (
    *("advantage", "loss_weights", "loss_weight_sum", "optimizer_steps", "logprob_agreement"),
    *("loss_input_tokens", "loss_input_advantage", "loss_input_weight", "loss_input_logprobs"),
    *("loss_input_once", "loss_input_all", "loss_input_nothing_else"),
)
"""Rules of the audit that the worker's report and the credit must have been held to."""


@pytest.mark.parametrize(
    ("name", "kind"),
    # what is imitated has a training of its own
    [*zip(ESTIMATORS, cycle([kind for kind in LOSSES if kind != "nll"]), strict=False)],
)
def test_every_estimator_and_every_loss_trains_what_the_audit_expects(
    worker: Any,  # noqa: ANN401
    plain: Any,  # noqa: ANN401
    empty_store: Path,
    tmp_path: Path,
    name: str,
    kind: str,
) -> None:
    config = make_config(
        algorithm__name=name,
        algorithm__invalid_action_penalty=0.1,
        algorithm__invalid_action_penalty_on="action"
        if ESTIMATORS[name].penalises_actions
        else "return",
        loss={"kind": kind},
        rollout__temperature=TEMPERATURE,
    )
    played = play(config, 1)
    as_sampled(plain, played)
    credit(config, played)
    found = credited(config, played)
    rows = rows_of_played(played, found)
    store = shutil.copy(empty_store, tmp_path / "store.db")

    with WriterBehind(store) as writer:
        writer.write([run_started(config)])
        writer.write([*played.episodes, *played.greedy, *played.decisions, *played.credits])
        if config.algorithm.uses_critic:  # another worker reads values: see test_critic_worker
            consume_values(played)
            writer.write(played.critic_loss_inputs)
        seen, metrics = train(worker, config, found, rows, writer=writer)
        values = {
            "actor/optimizer_steps": float(metrics["actor/optimizer_steps"]),
            "agreement/logprob_difference_max": largest_difference(rows.values()),
        }
        writer.write([Metrics(run_id=RUN, attempt=0, training_step=1, values=values)])
    engine = read_only_engine(store)
    with Session(engine) as session:
        report = audit_run(session, RUN)
    engine.dispose()

    assert [one_line(finding) for finding in report.findings] == []
    counts = {rule.name: rule.num_checked for rule in report.rules}
    assert {rule for rule in HELD if not counts[rule]} == set()
    assert len(seen.gradients) == 2
    for part, gradient in enumerate(seen.gradients):
        members = [rows[key] for key in found.selection.keys_of(part)]
        assert error(gradient, expected_gradients(plain, members, config.loss)) <= MAX_ERROR


def largest_difference(rows: Iterable[Row]) -> float:
    """Between behavior and policy logprobs, as the store has them."""
    return max(
        abs(float(np.float32(behavior)) - float(np.float32(policy)))
        for row in rows
        for behavior, policy in zip(row.behavior_logprobs, row.old_logprobs, strict=True)
    )
