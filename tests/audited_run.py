"""A training run for tests of the audit: made up episodes, credited by the real pipeline.

What the trainer would hand to the writer is built here, so that a test can plant a fault in it.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from random import Random

import numpy as np

from longhaul_core.horizons import HorizonState
from longhaul_core.store import (
    CriticLossInput,
    CriticLossInputs,
    EpisodeCredit,
    EpisodeRecord,
    GroupDecision,
    LossInput,
    LossInputs,
    Metrics,
    Record,
    RunStarted,
)
from longhaul_core.types import (
    FailedEpisode,
    FailureCause,
    Observation,
    Step,
    StopReason,
    Trajectory,
)
from longhaul_trainer.config import RunConfig
from longhaul_trainer.horizons import horizon_schedule
from longhaul_trainer.training.credit import (
    CriticValues,
    StepCredit,
    TrainedEpisode,
    credit_training_step,
)
from longhaul_trainer.training.merging import cut_into_rows, notes_of
from longhaul_trainer.training.step_metadata import GroupName, RowKey, RowMetadata, without_greedy
from steps import one_call_step, with_call
from store_samples import make_task

RUN = "run"
ROWS_PER_MICRO_BATCH = 5


@dataclass
class PlayedStep:
    """What one training step hands to the writer."""

    training_step: int
    episodes: list[EpisodeRecord]
    decisions: list[GroupDecision] = field(default_factory=list[GroupDecision])
    greedy: list[EpisodeRecord] = field(default_factory=list[EpisodeRecord])
    credits: list[EpisodeCredit] = field(default_factory=list[EpisodeCredit])
    consumed: list[LossInputs] = field(default_factory=list[LossInputs])
    critic_loss_inputs: list[CriticLossInputs] = field(default_factory=list[CriticLossInputs])
    trained: tuple[TrainedEpisode, ...] = ()
    metrics: dict[str, float] = field(default_factory=dict[str, float])

    def records(self, *, attempt: int = 0) -> list[Record]:
        """All of it, in the order that it is written."""
        measured = Metrics(
            run_id=RUN, attempt=attempt, training_step=self.training_step, values=self.metrics
        )
        return [
            *self.episodes,
            *self.greedy,
            *self.decisions,
            *self.credits,
            *self.consumed,
            *self.critic_loss_inputs,
            measured,
        ]


def make_config(**settings: object) -> RunConfig:
    """Two optimizer steps of two groups of three episodes, and settings by their dotted names."""
    table: dict[str, object] = {
        "num_training_steps": 8,
        "tasks_per_training_step": 4,
        "rollout": {"group_size": 3, "horizon": 6},
        "optimizer": {"optimizer_steps_per_training_step": 2},
        "model": {"engine_dtype": "float32"},
    }
    for name, value in settings.items():
        section, _, key = name.rpartition("__")
        if section:
            inner = table.setdefault(section, {})
            assert isinstance(inner, dict)
            inner[key] = value
        else:
            table[name] = value
    return RunConfig.model_validate(table)


def run_started(config: RunConfig, *, attempt: int = 0, resumes_after: int | None = None) -> Record:
    """The record that an attempt at the run begins with."""
    return RunStarted(
        run_id=RUN,
        name="audited",
        kind="train",
        attempt=attempt,
        config_json=json.dumps(config.model_dump(mode="json")),
        provenance_json="{}",
        started_at=1_760_000_000.0 + attempt,
        num_training_steps=config.num_training_steps,
        resumes_after_training_step=resumes_after,
    )


def play(
    config: RunConfig,
    training_step: int,
    *,
    seed: int = 0,
    failure_rate: float = 0.0,
    attempt: int = 0,
    horizon: int | None = None,
    most_tokens: int = 5,
) -> PlayedStep:
    """A training step as it should be: played, credited, consumed and measured."""
    draw = Random(f"{seed}/{training_step}")
    played = PlayedStep(
        training_step,
        [
            record
            for group in range(config.tasks_per_training_step)
            for sample_index in range(config.rollout.group_size)
            for record in _tries(
                config,
                draw,
                (training_step, group, sample_index),
                failure_rate=failure_rate,
                attempt=attempt,
                horizon=horizon,
                most_tokens=most_tokens,
            )
        ],
    )
    played.decisions = [
        GroupDecision(
            run_id=RUN,
            attempt=attempt,
            training_step=training_step,
            group_index=group,
            resolved_training_step=training_step,
            update_index=group,
        )
        for group in range(config.tasks_per_training_step)
    ]
    if config.algorithm.name == "remax":
        played.greedy = [
            record
            for group in range(config.tasks_per_training_step)
            for record in _greedy_tries(
                config, draw, (training_step, group, 0), failure_rate=failure_rate, attempt=attempt
            )
        ]
    credit(config, played)
    consume(config, played)
    return played


ONE_AHEAD = {"mode": "colocate_async", "prefetch_batches": 1, "max_staleness": 1}
"""Settings of a trainer that plays one batch ahead."""


def play_ahead(config: RunConfig) -> list[PlayedStep]:
    """Three training steps of four groups each, with one batch played ahead.

    From the second on, half of the groups are of the training step before. Those of the first
    that are left over are thrown away in the third, which learned from none of them in time.
    """
    taken = {
        1: [(1, 0), (1, 1), (1, 2), (1, 3)],
        2: [(1, 4), (1, 5), (2, 0), (2, 1)],
        3: [(2, 2), (2, 3), (3, 0), (3, 1)],
    }
    left_over = {3: [(1, 6), (1, 7)]}
    steps: list[PlayedStep] = []
    for number, groups in taken.items():
        draw = Random(f"ahead/{number}")
        thrown_away = left_over.get(number, [])
        played = PlayedStep(
            number,
            [
                record
                for training_step, group in [*groups, *thrown_away]
                for sample_index in range(config.rollout.group_size)
                for record in _tries(
                    config,
                    draw,
                    (training_step, group, sample_index),
                    failure_rate=0.2,
                    attempt=0,
                    horizon=None,
                    most_tokens=5,
                )
            ],
        )
        if config.algorithm.name == "remax":
            played.greedy = [
                record
                for training_step, group in [*groups, *thrown_away]
                for record in _greedy_tries(
                    config, draw, (training_step, group, 0), failure_rate=0.2, attempt=0
                )
            ]
        played.decisions = [
            GroupDecision(
                run_id=RUN,
                attempt=0,
                training_step=training_step,
                group_index=group,
                resolved_training_step=number,
                update_index=None if place >= len(groups) else place,
                discard_reason="stale" if place >= len(groups) else None,
            )
            for place, (training_step, group) in enumerate([*groups, *thrown_away])
        ]
        credit(config, played)
        consume(config, played)
        steps.append(played)
    return steps


def credit(config: RunConfig, played: PlayedStep, *, as_if: RunConfig | None = None) -> None:
    """Credit the episodes by the trainer's own function.

    Args:
        config: Of the run.
        played: Gets the credits.
        as_if: The configuration that credit goes by, where it is not the run's.
    """
    records = {
        (r.training_step, r.group_index, r.outcome.sample_index): r
        for r in played.episodes
        if isinstance(r.outcome, Trajectory)
    }
    found = credited(as_if or config, played)
    played.credits = [
        _credit_record(
            config,
            records[note.training_step, note.group_index, note.sample_index],
            episode,
            training_step=played.training_step,
        )
        for episode in found.episodes
        for note in episode.notes[:1]
    ]
    played.trained = found.episodes


def credited(config: RunConfig, played: PlayedStep) -> StepCredit:
    """What the trainer makes of the episodes that ended."""
    taken = [(d.training_step, d.group_index) for d in played.decisions if not d.discard_reason]
    episodes = [
        record
        for record in (*played.episodes, *played.greedy)
        if (record.training_step, record.group_index) in taken
    ]
    notes, greedy = without_greedy(row_notes(config, episodes))
    return credit_training_step(
        notes,
        algorithm=config.algorithm,
        num_optimizer_steps=config.optimizer.optimizer_steps_per_training_step,
        groups=[str(GroupName(*group)) for group in taken],
        greedy=greedy if config.algorithm.name == "remax" else None,
        values=values_of(notes) if config.algorithm.uses_critic else None,
    )


def values_of(notes: RowMetadata) -> CriticValues:
    """What a critic might say, in float32 as it computes, and the same for the same row."""

    def said(name: str, number: int) -> np.ndarray:
        draw = Random(name)
        drawn = np.array([draw.uniform(-1, 1) for _ in range(number)], dtype=np.float32)
        return drawn.astype(np.float64)

    return CriticValues(
        {key: said(key, row[-1].stop) for key, row in notes.items()},
        {
            RowKey.parse(key)[:2]: float(said(f"the end of {key}", 1)[0])
            for key, row in notes.items()
            if row[-1].truncated
        },
    )


def row_notes(config: RunConfig, episodes: Sequence[EpisodeRecord]) -> RowMetadata:
    """Notes of the rows of the episodes that ended, by the rows' keys as verl writes them."""
    form, limit = config.optimizer.rows, config.optimizer.max_row_tokens

    def session(record: EpisodeRecord) -> int:
        greedy = record.phase == "baseline"
        return config.rollout.group_size if greedy else record.outcome.sample_index

    return {
        f"train-{r.training_step}-{r.group_index}_{session(r)}_{number}": tuple(
            note._replace(
                greedy=r.phase == "baseline",
                hook_reward=note.reward - 0.1 * note.step
                if config.algorithm.reward_shaping is not None
                else None,
                reference_kl=0.3 * note.step if config.algorithm.reward_kl_coefficient > 0 else 0.0,
            )
            for note in notes_of(
                row,
                r.outcome,
                group=GroupName(r.training_step, r.group_index),
                retry=r.retry,
            )
        )
        for r in episodes
        if isinstance(r.outcome, Trajectory)
        for number, row in enumerate(
            cut_into_rows(r.outcome.steps, form=form, max_row_tokens=limit)
        )
    }


def consume(config: RunConfig, played: PlayedStep) -> None:
    """What the loss reads of the credited episodes, and what the trainer measures."""
    updates = config.optimizer.optimizer_steps_per_training_step
    every_row = config.loss.kl_coefficient > 0 or config.loss.entropy_coefficient > 0
    played.consumed, played.critic_loss_inputs = [], []
    if config.algorithm.uses_critic:
        consume_values(played)
    learns = played.training_step > config.critic.warmup_training_steps
    for part in range(updates if learns else 0):
        rows = [
            row
            for credit in played.credits
            if credit.optimizer_step_index == part
            for row in loss_input_rows(credit)
        ]
        moving = [row for row in rows if any(s.advantage_low or s.advantage_high for s in row)]
        kept = rows if every_row else moving or rows[:1]
        for batch, start in enumerate(range(0, len(kept), ROWS_PER_MICRO_BATCH)):
            chunk = kept[start : start + ROWS_PER_MICRO_BATCH]
            played.consumed.append(
                LossInputs(
                    run_id=RUN,
                    attempt=played.episodes[0].attempt,
                    training_step=played.training_step,
                    optimizer_step_index=part,
                    rank=0,
                    micro_batch=batch,
                    rows=tuple(
                        replace(step, row_index=place)
                        for place, row in enumerate(chunk)
                        for step in row
                    ),
                )
            )
    differences = [
        abs(np.float32(policy) - np.float32(behavior))
        for credit in played.credits
        for step, logprobs in zip(
            outcome_of(played, credit).steps, logprobs_of(credit), strict=True
        )
        if step.policy_version == config.policy_version(played.training_step - 1)
        for behavior, policy in zip(step.behavior_logprobs, logprobs, strict=True)
    ]
    played.metrics = {
        "actor/optimizer_steps": len({c.optimizer_step_index for c in played.credits})
        if learns
        else 0,
        "agreement/logprob_difference_max": float(max(differences, default=0.0)),
    }


def loss_input_rows(credit: EpisodeCredit) -> list[list[LossInput]]:
    """The steps of each row as the loss reads them."""
    assert credit.split_reasons is not None
    rows: list[list[LossInput]] = []
    for index, reason in enumerate(credit.split_reasons):
        if reason is not None:
            rows.append([])
        rows[-1].append(loss_input(credit, index, row_index=0))
    return rows


def consume_values(played: PlayedStep) -> None:
    """What the critic's loss reads of the credited episodes, an optimizer step at a time."""
    for part in sorted({episode.optimizer_step for episode in played.trained}):
        rows = [
            critic_loss_input(episode, index)
            for episode in played.trained
            if episode.optimizer_step == part
            for index in range(len(episode.notes))
        ]
        played.critic_loss_inputs.append(
            CriticLossInputs(
                run_id=RUN,
                attempt=played.episodes[0].attempt,
                training_step=played.training_step,
                optimizer_step_index=part,
                rank=0,
                micro_batch=0,
                rows=tuple(replace(row, row_index=place) for place, row in enumerate(rows)),
            )
        )


def critic_loss_input(episode: TrainedEpisode, index: int) -> CriticLossInput:
    """One step as the critic's loss reads it, in float32."""
    note, step = episode.notes[index], episode.steps[index]
    weights = step.value_weights.astype(np.float32)
    target = float(np.float32(step.value_target))
    (places,) = weights.nonzero()
    return CriticLossInput(
        training_step=note.training_step,
        group_index=note.group_index,
        sample_index=note.sample_index,
        retry=note.retry,
        step_index=index,
        row_index=0,
        num_tokens=len(places),
        first_token=int(places[0]),
        target_low=target,
        target_high=target,
        weight_low=float(weights[places].min()),
        weight_high=float(weights[places].max()),
    )


def loss_input(credit: EpisodeCredit, index: int, *, row_index: int) -> LossInput:
    """One step as the loss reads it, in float32."""
    logprobs = np.array(logprobs_of(credit)[index], dtype=np.float32)
    tokens = credit.token_advantages
    advantages = np.array(
        tokens[index] if tokens else (credit.advantages[index],), dtype=np.float32
    )
    weight = float(np.float32(credit.loss_weights[index]))
    return LossInput(
        training_step=credit.training_step,
        group_index=credit.group_index,
        sample_index=credit.sample_index,
        retry=credit.retry,
        step_index=index,
        row_index=row_index,
        num_tokens=len(logprobs),
        advantage_low=float(advantages.min()),
        advantage_high=float(advantages.max()),
        weight_low=weight,
        weight_high=weight,
        old_logprob_sum=float(logprobs.astype(np.float64).sum()),
    )


def logprobs_of(credit: EpisodeCredit) -> tuple[tuple[float, ...], ...]:
    """Policy logprobs of each step."""
    assert credit.policy_logprobs is not None
    return credit.policy_logprobs


def outcome_of(played: PlayedStep, credit: EpisodeCredit) -> Trajectory | FailedEpisode:
    """The episode that a credit is of."""
    return next(r.outcome for r in played.episodes if r.episode_id == credit.episode_id)


def _credit_record(
    config: RunConfig, record: EpisodeRecord, episode: TrainedEpisode, *, training_step: int
) -> EpisodeCredit:
    return EpisodeCredit(
        run_id=RUN,
        attempt=record.attempt,
        phase="train",
        training_step=record.training_step,
        trained_training_step=training_step,
        group_index=record.group_index,
        sample_index=record.outcome.sample_index,
        retry=record.retry,
        episode_advantage=episode.credit.episode_advantage,
        step_advantages=episode.credit.step_advantages,
        shaped_rewards=episode.shaped_rewards,
        returns_to_go=episode.credit.returns_to_go,
        advantages=episode.credit.advantages,
        loss_weights=episode.loss_weights,
        policy_logprobs=tuple(
            tuple(logprob - 1e-5 for logprob in step.behavior_logprobs)
            for step in record.outcome.steps
        ),
        trained=record.training_step > config.critic.warmup_training_steps,
        optimizer_step_index=episode.optimizer_step,
        split_reasons=tuple(note.split_reason for note in episode.notes),
        values=episode.step_values,
        value_targets=episode.credit.value_targets,
        final_value=None if episode.values is None else episode.values.final,
        token_values=episode.token_values,
        token_advantages=episode.credit.token_advantages,
    )


def _tries(
    config: RunConfig,
    draw: Random,
    place: tuple[int, int, int],
    *,
    failure_rate: float,
    attempt: int,
    horizon: int | None,
    most_tokens: int,
) -> list[EpisodeRecord]:
    """One place of a group: up to two failures, and an episode if there were fewer."""
    training_step, group, sample_index = place
    limit = horizon or horizon_schedule(config).horizon(training_step, HorizonState())
    records: list[EpisodeRecord] = []
    for retry in range(2):
        failed = draw.random() < failure_rate
        num_steps = draw.randint(1, limit)
        version = config.policy_version(training_step - 1)
        steps = tuple(_step(draw, index, version, most_tokens) for index in range(num_steps))
        if config.memory.kind == "full":
            steps = _going_on(draw, steps)
        task = make_task(training_step * 100 + group)
        outcome = (
            FailedEpisode(
                task=task,
                sample_index=sample_index,
                seed=retry,
                horizon=limit,
                cause=FailureCause.ENVIRONMENT_ERROR,
                message="environment.step: it broke",
                steps=steps[:-1],
                started_at=1_760_000_000.0,
                duration_seconds=1.0,
            )
            if failed
            else Trajectory(
                task=task,
                sample_index=sample_index,
                seed=retry,
                horizon=limit,
                steps=steps,
                stop_reason=StopReason.HORIZON_REACHED
                if num_steps == limit
                else StopReason.TASK_SOLVED,
                success=num_steps < limit,
                final_observation=_final_observation(task.task_id, sample_index),
                started_at=1_760_000_000.0,
                duration_seconds=1.0,
            )
        )
        records.append(
            EpisodeRecord(
                run_id=RUN,
                attempt=attempt,
                phase="train",
                training_step=training_step,
                group_index=group,
                retry=retry,
                outcome=outcome,
                group_size=config.rollout.group_size,
            )
        )
        if not failed:
            break
    return records


def _greedy_tries(
    config: RunConfig,
    draw: Random,
    place: tuple[int, int, int],
    *,
    failure_rate: float,
    attempt: int,
) -> list[EpisodeRecord]:
    """The greedy episode of a group: nothing is likelier than what it says."""
    records = _tries(
        config,
        draw,
        place,
        failure_rate=failure_rate,
        attempt=attempt,
        horizon=None,
        most_tokens=3,
    )
    return [
        replace(
            record,
            phase="baseline",
            group_size=1,
            outcome=replace(
                record.outcome,
                steps=tuple(
                    with_call(step, behavior_logprobs=(0.0,) * len(step.action_tokens))
                    for step in record.outcome.steps
                ),
            ),
        )
        for record in records
    ]


def _step(draw: Random, index: int, policy_version: int, most_tokens: int) -> Step:
    num_tokens = draw.randint(1, most_tokens)
    return one_call_step(
        index,
        Observation(text=f"You are in room {draw.choice('aab')}{draw.randint(1, 2)}."),
        messages=(),
        prompt_tokens=(1, 2, 3),
        action_tokens=tuple(draw.randrange(1000) for _ in range(num_tokens)),
        behavior_logprobs=tuple(-3 * draw.random() for _ in range(num_tokens)),
        reply="<action>go</action>",
        action="go",
        action_valid=draw.random() < 0.8,
        reward=draw.choice((0.0, 0.0, 0.1, 0.5, 1.0, -0.3)),
        policy_version=policy_version,
    )


def _final_observation(task_id: str, sample_index: int) -> Observation:
    """Of a room that other episodes of the group may have gone on from."""
    draw = Random(f"{task_id}/{sample_index}")
    room = f"You are in room {draw.choice('aab')}{draw.randint(1, 2)}."
    if draw.random() < 0.5:
        return Observation(text="the end", anchor_state=room)
    return Observation(text=room)


def _going_on(draw: Random, steps: Sequence[Step]) -> tuple[Step, ...]:
    """The same steps, most of whose prompts go on from the step before."""
    made: list[Step] = []
    for step in steps:
        known = made[-1].prompt_tokens + made[-1].action_tokens if made else ()
        gap = tuple(draw.randrange(1000) for _ in range(draw.randint(0, 3)))
        prompt = step.prompt_tokens if draw.random() < 0.2 else known + gap
        made.append(with_call(step, prompt_tokens=prompt if made else step.prompt_tokens))
    return tuple(made)
