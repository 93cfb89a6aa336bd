"""A training run for tests of the audit: made up episodes, credited by the real pipeline.

What the trainer would hand to the writer is built here, so that a test can plant a fault in it.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random

import numpy as np
import torch

from longhaul_core.horizons import HorizonState
from longhaul_core.store import (
    CallCredit,
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
    Continuation,
    CreditedBy,
    FailedEpisode,
    FailureCause,
    Message,
    Observation,
    Picture,
    Step,
    StopReason,
    Trajectory,
)
from longhaul_trainer.config import RunConfig
from longhaul_trainer.play.horizons import horizon_schedule
from longhaul_trainer.training.credit import CriticValues, TrainedCall, TrainedEpisode
from longhaul_trainer.training.demonstrations import Demonstrations
from longhaul_trainer.training.merging import (
    cut_into_rows,
    metadata_of,
    trained_calls,
    with_choices,
)
from longhaul_trainer.training.run_records import call_credit
from longhaul_trainer.training.step_metadata import (
    CallSpan,
    Episode,
    EpisodeMetadata,
    GroupName,
    RowKey,
    RowMetadata,
    Rows,
)
from longhaul_trainer.training.training_step import TrainingStep
from pictures import png
from steps import one_call_step, sampled_of, with_call
from store_samples import make_entropies, make_task

RUN = "run"
ROWS_PER_MICRO_BATCH = 5


@dataclass
class PlayedStep:
    """What one training step hands to the writer."""

    training_step: int
    episodes: list[EpisodeRecord]
    decisions: list[GroupDecision] = field(default_factory=list[GroupDecision])
    greedy: list[EpisodeRecord] = field(default_factory=list[EpisodeRecord])
    demonstrations: list[EpisodeRecord] = field(default_factory=list[EpisodeRecord])
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
            *self.demonstrations,
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
    program: bool = False,
    conversations: bool = False,
    summaries: bool = False,
) -> PlayedStep:
    """A training step as it should be: played, credited, read by the loss and measured.

    With `program`, steps have calls for other purposes too, and most show a picture. With
    `conversations`, calls are of several that take turns. With `summaries`, a memory asks for one
    after each action.
    """
    change = as_program if program else as_conversations if conversations else _as_it_is
    if summaries:
        change = as_summarised
    if config.imitation.imitates:
        change = as_compared if config.imitation.compares_steps else as_imitated
    draw = Random(f"{seed}/{training_step}")
    tries = partial(
        _tries,
        config,
        draw,
        failure_rate=failure_rate,
        attempt=attempt,
        horizon=horizon,
        most_tokens=most_tokens,
    )
    played = PlayedStep(
        training_step,
        [
            change(record)
            for group in range(config.tasks_per_training_step)
            for sample_index in range(config.rollout.group_size)
            for record in tries((training_step, group, sample_index))
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
    if config.imitation.coefficient_at(training_step) > 0:
        played.demonstrations = [
            as_imitated(replace(record, phase="demonstration", group_size=None))
            for group in range(config.tasks_per_training_step)
            for place in range(config.imitation.beside_each_group)
            for record in tries((training_step, group, place))
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
        (r.phase == "demonstration", r.training_step, r.group_index, r.outcome.sample_index): r
        for r in (*played.episodes, *played.demonstrations)
        if isinstance(r.outcome, Trajectory)
    }
    found = credited(as_if or config, played)
    played.credits = [
        _credit_record(
            config,
            records[
                episode.metadata.demonstration,
                episode.metadata.training_step,
                episode.metadata.group_index,
                episode.metadata.sample_index,
            ],
            episode,
            training_step=played.training_step,
        )
        for episode in (*found.credit, *found.demonstrations.episodes)
    ]
    played.trained = found.credit


def credited(config: RunConfig, played: PlayedStep) -> TrainingStep:
    """What the trainer makes of the episodes that ended."""
    taken = [(d.training_step, d.group_index) for d in played.decisions if not d.discard_reason]
    rows = rows_of_episodes(
        config,
        [
            record
            for record in (*played.episodes, *played.greedy)
            if (record.training_step, record.group_index) in taken
        ],
    )
    of_groups = [str(GroupName(*group)) for group in taken]
    updates = config.optimizer.optimizer_steps_per_training_step
    demonstrations = Demonstrations.of(
        rows_of_episodes(config, played.demonstrations),
        algorithm=config.algorithm,
        num_optimizer_steps=updates,
        groups=of_groups,
        purposes=config.loss.purposes,
        coefficient=config.imitation.coefficient_at(played.training_step),
    )
    step = TrainingStep.of(
        rows,
        number=played.training_step,
        algorithm=config.algorithm,
        num_optimizer_steps=updates,
        groups=of_groups,
        preferences=config.imitation.preferences,
        purposes=config.loss.purposes,
    ).with_demonstrations(demonstrations)
    if config.imitation.preferences is not None:
        step = step.with_gains(
            policy=drawn_responses(step, "policy"), reference=drawn_responses(step, "reference")
        )
    if config.algorithm.uses_critic:
        step = step.with_values(values_of(rows))
    if config.algorithm.reward_kl_coefficient > 0:
        divergences = {
            episode.name: 0.3 * np.arange(len(episode.played.metadata.steps))
            for episode in step.selection.episodes
        }
        step = replace(step, reference_kl=divergences)
    return step.credited()


def drawn_logprobs(whose: str, episode: Episode, span: CallSpan) -> tuple[float, ...]:
    """Of each token of an imitated reply, in float32 as models compute them."""
    draw = Random(f"{whose} of {episode}, {span.step}, {span.call}")
    return tuple(float(np.float32(draw.uniform(-3, 0))) for _ in range(span.action_tokens))


def drawn_responses(step: TrainingStep, whose: str) -> dict[str, torch.Tensor]:
    """The same by rows, with something else in the gaps."""
    found: dict[str, torch.Tensor] = {}
    for episode in step.selection.episodes:
        for row in episode.played.rows:
            spans = [span for of_row, span in episode.played.calls if of_row == row]
            response_T = torch.full((spans[-1].stop,), -7.0)
            for span in spans:
                drawn = drawn_logprobs(whose, episode.name, span)
                response_T[span.start : span.stop] = torch.tensor(drawn)
            found[row] = response_T
    return found


def values_of(rows: Rows) -> CriticValues:
    """Values as of a critic, in float32 as it computes, and the same for the same row."""

    def drawn(name: str, number: int) -> np.ndarray:
        draw = Random(name)
        values = np.array([draw.uniform(-1, 1) for _ in range(number)], dtype=np.float32)
        return values.astype(np.float64)

    return CriticValues(
        {key: drawn(key, row.spans[-1].stop) for key, row in rows.items()},
        {
            RowKey.parse(key).episode: float(drawn(f"the end of {key}", 1)[0])
            for key, row in rows.items()
            if row.episode is not None and row.episode.truncated
        },
    )


def rows_of_episodes(config: RunConfig, episodes: Sequence[EpisodeRecord]) -> Rows:
    """What travels beside the rows of the episodes that ended, by verl's keys."""
    rows: dict[str, RowMetadata] = {}
    for record in episodes:
        if not isinstance(record.outcome, Trajectory):
            continue
        metadata = _metadata(config, record, record.outcome)
        beside = metadata.greedy or metadata.demonstration
        session = metadata.sample_index + beside * config.rollout.group_size
        cut = cut_into_rows(
            record.outcome.steps,
            form=config.optimizer.rows,
            max_row_tokens=config.optimizer.max_row_tokens,
        )
        for number, row in enumerate(cut):
            key = f"train-{record.training_step}-{record.group_index}_{session}_{number}"
            rows[key] = RowMetadata(
                training_step=metadata.training_step,
                group_index=metadata.group_index,
                sample_index=metadata.sample_index,
                retry=metadata.retry,
                spans=row.spans,
                episode=None if number else metadata,
                demonstration=metadata.demonstration,
            )
    return rows


def _metadata(config: RunConfig, record: EpisodeRecord, outcome: Trajectory) -> EpisodeMetadata:
    hooks = [step.reward - 0.1 * step.index for step in outcome.steps]
    metadata = metadata_of(
        outcome,
        group=GroupName(record.training_step, record.group_index),
        retry=record.retry,
        phase=record.phase,
        anchor_texts=config.algorithm.anchor_similarity is not None,
        hook_rewards=None if config.algorithm.reward_shaping is None else hooks,
    )
    return with_choices(metadata, outcome) if config.imitation.compares_steps else metadata


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
            for row in loss_input_rows(credit, outcome_of(played, credit))
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
        for tokens, logprobs in zip(
            [one.tokens for one in trained_calls(outcome_of(played, credit).steps)],
            logprobs_of(credit),
            strict=True,
        )
        if tokens.policy_version == config.policy_version(played.training_step - 1)
        and tokens.behavior_logprobs is not None
        for behavior, policy in zip(tokens.behavior_logprobs, logprobs, strict=True)
    ]
    played.metrics = {
        "actor/optimizer_steps": len({c.optimizer_step_index for c in played.credits})
        if learns
        else 0,
        "agreement/logprob_difference_max": float(max(differences, default=0.0)),
    }


def loss_input_rows(
    credit: EpisodeCredit, outcome: Trajectory | FailedEpisode
) -> list[list[LossInput]]:
    """The calls of each row as the loss reads them."""
    rows: list[list[LossInput]] = []
    newest: dict[tuple[int, int], list[LossInput]] = {}
    for call in credit.calls:
        made = outcome.steps[call.step_index].calls[call.call_index]
        # A call has the place of its purpose, see as_program.
        stream = (call.call_index, made.conversation)
        if call.split_reason is not None:
            newest[stream] = []
            rows.append(newest[stream])
        newest[stream].append(loss_input(credit, call, row_index=0))
    return rows


def consume_values(played: PlayedStep) -> None:
    """What the critic's loss reads of the credited episodes, an optimizer step at a time."""
    for part in sorted({episode.optimizer_step for episode in played.trained}):
        rows = [
            critic_loss_input(episode, call)
            for episode in played.trained
            if episode.optimizer_step == part
            for call in episode.calls
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


def critic_loss_input(episode: TrainedEpisode, call: TrainedCall) -> CriticLossInput:
    """One call as the critic's loss reads it, in float32."""
    weights = call.value_weights.astype(np.float32)
    target = float(np.float32(call.value_target))
    (places,) = weights.nonzero()
    return CriticLossInput(
        training_step=episode.metadata.training_step,
        group_index=episode.metadata.group_index,
        sample_index=episode.metadata.sample_index,
        retry=episode.metadata.retry,
        step_index=call.span.step,
        call_index=call.span.call,
        row_index=0,
        num_tokens=len(places),
        first_token=int(places[0]) if len(places) else None,
        target_low=target if len(places) else None,
        target_high=target if len(places) else None,
        weight_low=float(weights[places].min()) if len(places) else None,
        weight_high=float(weights[places].max()) if len(places) else None,
    )


def loss_input(credit: EpisodeCredit, call: CallCredit, *, row_index: int) -> LossInput:
    """One call as the loss reads it, in float32."""
    assert call.policy_logprobs is not None
    logprobs = np.array(call.policy_logprobs, dtype=np.float32)
    advantages = np.array(call.token_advantages or (call.advantage,), dtype=np.float32)
    weight = float(np.float32(call.loss_weight))
    return LossInput(
        training_step=credit.training_step,
        group_index=credit.group_index,
        sample_index=credit.sample_index,
        retry=credit.retry,
        step_index=call.step_index,
        call_index=call.call_index,
        row_index=row_index,
        phase=credit.phase,
        num_tokens=len(logprobs),
        advantage_low=float(advantages.min()),
        advantage_high=float(advantages.max()),
        weight_low=weight,
        weight_high=weight,
        old_logprob_sum=float(logprobs.astype(np.float64).sum()),
    )


def logprobs_of(credit: EpisodeCredit) -> list[tuple[float, ...]]:
    """Policy logprobs of each trained call."""
    return [call.policy_logprobs or () for call in credit.calls]


def outcome_of(played: PlayedStep, credit: EpisodeCredit) -> Trajectory | FailedEpisode:
    """The episode that a credit is of."""
    every = (*played.episodes, *played.demonstrations)
    return next(r.outcome for r in every if r.episode_id == credit.episode_id)


def behavior_logprobs_of(record: EpisodeRecord, call: TrainedCall) -> tuple[float, ...]:
    """The engine's logprobs of a call."""
    sampled = record.outcome.steps[call.span.step].calls[call.span.call].sampled
    assert sampled is not None
    assert sampled.behavior_logprobs is not None
    return sampled.behavior_logprobs


_CONVERSATIONS = (
    (0, Continuation.START),
    (0, Continuation.EXACT),
    (1, Continuation.FORKED),
    (1, Continuation.REWRITTEN),
    (0, Continuation.EXACT),
    (2, Continuation.START),
)
"""Of each step of an episode. A later prompt goes on from all earlier ones of a full memory, but
for the conversation in the midst, which has other tokens."""


def _as_it_is(record: EpisodeRecord) -> EpisodeRecord:
    return record


def as_imitated(record: EpisodeRecord) -> EpisodeRecord:
    """The episode as one that is imitated, whose replies nobody sampled."""
    steps = tuple(with_call(step, behavior_logprobs=None) for step in record.outcome.steps)
    return replace(record, outcome=replace(record.outcome, steps=steps))


def as_compared(record: EpisodeRecord) -> EpisodeRecord:
    """The same, with steps that take three actions in the states, and read the state's prompt."""
    imitated, draw = as_imitated(record), Random(record.episode_id)
    steps = tuple(
        replace(
            with_call(step, prompt_tokens=tuple(step.observation.anchor.encode())),
            action=draw.choice(["left", "right", "up"]),
        )
        for step in imitated.outcome.steps
    )
    return replace(imitated, outcome=replace(imitated.outcome, steps=steps))


def as_conversations(record: EpisodeRecord) -> EpisodeRecord:
    """The episode as a program would have played it whose conversations take turns and fork."""

    def others(tokens: tuple[int, ...], conversation: int) -> tuple[int, ...]:
        return tuple(token + 100_000 for token in tokens) if conversation == 1 else tokens

    steps = tuple(
        with_call(
            step,
            conversation=conversation,
            continuation=continuation,
            prompt_tokens=others(sampled_of(step).prompt_tokens, conversation),
            action_tokens=others(sampled_of(step).action_tokens, conversation),
        )
        for step, (conversation, continuation) in zip(
            record.outcome.steps, _CONVERSATIONS, strict=False
        )
    )
    assert len(steps) == len(record.outcome.steps)
    return replace(record, outcome=replace(record.outcome, steps=steps))


def as_program(record: EpisodeRecord) -> EpisodeRecord:
    """The episode as a program would have played it that plans, remembers and is judged.

    Beside the call that acts, each step has one that plans, whose share of the credit is half,
    and those of some have an untrained one, or one of a hosted model. Two of three observations
    have a picture, which is in the messages of this step and of the next.
    """
    draw = Random(record.episode_id)
    steps: list[Step] = []
    shown: list[Picture] = []
    for step in record.outcome.steps:
        (act,) = step.calls
        tokens = sampled_of(step)
        if draw.random() < 0.7:
            shown.append(
                Picture.of(png(draw.choice(("red", "green", "blue")), width=step.index + 1))
            )
        seen = replace(step.observation, pictures=tuple(shown[-1:]))
        question = Message(role="user", content=("What now?", *shown[-2:]))
        aside = replace(
            tokens,
            action_tokens=tokens.action_tokens[:1] * 2,
            behavior_logprobs=(draw.uniform(-3, 0),) * 2,
        )
        plan = replace(
            act,
            purpose="plan",
            agent="planner",
            credit_share=0.5,
            sampled=aside,
            messages=(question,),
        )
        others = [
            replace(act, purpose="remember", trained=False),
            replace(act, purpose="judge", model="hosted", sampled=None, trained=False),
        ]
        calls = [plan, replace(act, messages=(question,)), *others[: draw.randrange(3)]]
        steps.append(replace(step, observation=seen, calls=tuple(calls)))
    return replace(record, outcome=replace(record.outcome, steps=tuple(steps)))


def as_summarised(record: EpisodeRecord) -> EpisodeRecord:
    """The episode as a loop would have played it whose memory has the model summarise.

    Each step has a second call, whose share of the credit is half of the next step's.
    """
    draw = Random(record.episode_id)
    steps: list[Step] = []
    for step in record.outcome.steps:
        (act,) = step.calls
        tokens = sampled_of(step)
        number = draw.randint(1, 4)
        summary = replace(
            act,
            purpose="remember",
            credit_share=0.5,
            credited_by=CreditedBy.NEXT_STEP,
            sampled=replace(
                tokens,
                action_tokens=tokens.action_tokens[:1] * number,
                behavior_logprobs=tuple(draw.uniform(-3, 0) for _ in range(number)),
            ),
        )
        steps.append(replace(step, calls=(act, summary)))
    return replace(record, outcome=replace(record.outcome, steps=tuple(steps)))


def _credit_record(
    config: RunConfig, record: EpisodeRecord, episode: TrainedEpisode, *, training_step: int
) -> EpisodeCredit:
    return EpisodeCredit(
        run_id=RUN,
        attempt=record.attempt,
        phase=record.phase,
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
        calls=tuple(
            call_credit(
                call,
                policy_logprobs=drawn_logprobs("policy", episode.name, call.span)
                if config.imitation.imitates or record.phase == "demonstration"
                else tuple(logprob - 1e-5 for logprob in behavior_logprobs_of(record, call)),
                policy_entropies=make_entropies(call.span.action_tokens),
                by_token=episode.credit.token_advantages is not None,
                reference_logprob_sum=None
                if config.imitation.preferences is None
                else sum(drawn_logprobs("reference", episode.name, call.span)),
            )
            for call in episode.calls
        ),
        trained=record.training_step > config.critic.warmup_training_steps,
        optimizer_step_index=episode.optimizer_step,
        values=episode.step_values,
        value_targets=episode.credit.value_targets,
        final_value=episode.final_value,
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
                    with_call(step, behavior_logprobs=(0.0,) * len(sampled_of(step).action_tokens))
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
        before = sampled_of(made[-1]) if made else None
        known = before.prompt_tokens + before.action_tokens if before else ()
        gap = tuple(draw.randrange(1000) for _ in range(draw.randint(0, 3)))
        own = sampled_of(step).prompt_tokens
        prompt = own if draw.random() < 0.2 else known + gap
        made.append(with_call(step, prompt_tokens=prompt if made else own))
    return tuple(made)
