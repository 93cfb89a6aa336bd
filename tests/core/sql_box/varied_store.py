"""Two runs whose episodes vary in all that the cookbook asks about, and their records beside them.

Numbers come from one seeded generator. What a test expects is computed from the records, which
never went through a database.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from longhaul_core.advantages.gigpo import gigpo_credit
from longhaul_core.store import (
    EpisodeCredit,
    EpisodeRecord,
    GroupDecision,
    LossInputs,
    Metrics,
    StoreWriter,
)
from longhaul_core.types import (
    Call,
    FailedEpisode,
    FailureCause,
    FinishReason,
    Message,
    Observation,
    SampledTokens,
    Split,
    Step,
    StopReason,
    Task,
    Trajectory,
)
from store_samples import make_credit, make_loss_input, run_started

RUNS = ("first", "second")
ACTIONS = ("look", "go north", "take the key", "open the door")
ROOMS = ("a hall", "a Kitchen with 5% less light", "a cellar", "the garden")
TRAINING_STEPS = (1, 2, 3)
GROUPS = 4
GROUP_SIZE = 3
LIKE_GROUP = 1
"""All its episodes are alike, so that no advantage is other than zero."""
DISCARDED_GROUP = 2
"""Thrown away in training step 2, without credit."""
PANEL = 6
CALLS_OF_PLAN = 0.3


@dataclass(kw_only=True)
class World:
    """What was written."""

    seed: int = 0
    episodes: list[EpisodeRecord] = field(default_factory=list[EpisodeRecord])
    """Of the lineage."""
    credits: dict[str, EpisodeCredit] = field(default_factory=dict[str, EpisodeCredit])
    loss_inputs: list[LossInputs] = field(default_factory=list[LossInputs])
    discarded: dict[tuple[str, int, int], str] = field(
        default_factory=dict[tuple[str, int, int], str]
    )
    metrics: dict[tuple[str, int], float] = field(default_factory=dict[tuple[str, int], float])

    def of(self, run: str, *phases: str) -> list[EpisodeRecord]:
        """Episodes of a run's lineage in some phases, or in all."""
        return [
            one
            for one in self.episodes
            if one.run_id == run and (not phases or one.phase in phases)
        ]

    def steps(self, run: str, *phases: str) -> Iterator[tuple[EpisodeRecord, Step]]:
        for one in self.of(run, *phases):
            for step in one.outcome.steps:
                yield one, step


def act(step: Step) -> Call:
    """The call that chose the action."""
    return next(call for call in step.calls if call.purpose == "act")


def write_world(store: str, *, seed: int = 0) -> World:
    """Fill an empty store."""
    world = World(seed=seed)
    draw = random.Random(seed)
    with StoreWriter(store) as writer:
        for run in RUNS:
            writer.write([run_started(run)])
            _write_panel(writer, world, draw, run, training_step=0)
            for training_step in TRAINING_STEPS:
                _write_training_step(writer, world, draw, run, training_step)
            _write_panel(writer, world, draw, run, training_step=TRAINING_STEPS[-1])
            # What the resume takes back is in no answer.
            lost = World(seed=seed)
            _write_training_step(writer, lost, draw, run, TRAINING_STEPS[-1] + 1)
            writer.write([run_started(run, attempt=1, resumes_after=TRAINING_STEPS[-1])])
    return world


def _write_panel(
    writer: StoreWriter, world: World, draw: random.Random, run: str, *, training_step: int
) -> None:
    episodes = [
        _record(
            _episode(draw, _task(number, Split.VALIDATION), sample_index),
            run=run,
            phase="validation",
            training_step=training_step,
            group_index=number,
        )
        for number in range(PANEL)
        for sample_index in range(2)
    ]
    world.episodes += episodes
    writer.write(episodes)


def _write_training_step(
    writer: StoreWriter, world: World, draw: random.Random, run: str, training_step: int
) -> None:
    for group_index in range(GROUPS):
        task = _task(10 * (training_step % 2) + group_index, Split.TRAIN)
        if group_index == LIKE_GROUP:
            one = _episode(draw, task, 0, fails=False)
            group = [replace(one, sample_index=index) for index in range(GROUP_SIZE)]
        else:
            group = [_episode(draw, task, index) for index in range(GROUP_SIZE)]
        records = [
            _record(
                one, run=run, phase="train", training_step=training_step, group_index=group_index
            )
            for one in group
        ]
        discarded = group_index == DISCARDED_GROUP and training_step == 2
        decision = GroupDecision(
            run_id=run,
            attempt=0,
            training_step=training_step,
            group_index=group_index,
            resolved_training_step=training_step,
            update_index=None if discarded else group_index,
            discard_reason="no_signal" if discarded else None,
        )
        writer.write([*records, decision])
        world.episodes += records
        if discarded:
            world.discarded[run, training_step, group_index] = "no_signal"
            continue
        credits = _credits(draw, records)
        writer.write(credits)
        world.credits |= {credit.episode_id: credit for credit in credits}
        _write_loss_inputs(writer, world, draw, records, credits)
    value = draw.random()
    world.metrics[run, training_step] = value
    writer.write(
        [
            Metrics(
                run_id=run,
                attempt=0,
                training_step=training_step,
                values={"actor/entropy": value, "actor/other": 7.0},
            )
        ]
    )


def _record(
    outcome: Trajectory | FailedEpisode,
    *,
    run: str,
    phase: str,
    training_step: int,
    group_index: int,
) -> EpisodeRecord:
    assert phase in {"train", "validation"}
    return EpisodeRecord(
        run_id=run,
        attempt=0,
        phase="train" if phase == "train" else "validation",
        training_step=training_step,
        group_index=group_index,
        retry=0,
        outcome=outcome,
        group_size=GROUP_SIZE,
    )


def _task(number: int, split: Split) -> Task:
    return Task(
        environment="samples/Maze-v0" if number % 2 else "samples/House-v0",
        version="1",
        data_hash="d41d",
        task_id=f"{split.value}/{number:05}",
        seed=number,
        split=split,
        goal=f"leave maze {number}",
    )


def _episode(
    draw: random.Random, task: Task, sample_index: int, *, fails: bool = True
) -> Trajectory | FailedEpisode:
    steps: list[Step] = []
    for index in range(draw.randrange(2, 8)):
        steps.append(_step(draw, steps, index))
    shared: dict[str, Any] = {
        "task": task,
        "sample_index": sample_index,
        "seed": draw.randrange(2**40),
        "horizon": 7,
        "steps": tuple(steps),
        "started_at": 1_760_000_000.0,
        "duration_seconds": draw.random(),
    }
    if fails and draw.random() < 0.12:
        cause = draw.choice([FailureCause.ENVIRONMENT_TIMEOUT, FailureCause.POLICY_ERROR])
        return FailedEpisode(**shared, cause=cause, message=f"{cause.value}: no answer")
    success = draw.random() < 0.4
    stop = StopReason.TASK_SOLVED if success else StopReason.TASK_FAILED
    if not success and draw.random() < 0.5:
        stop = StopReason.HORIZON_REACHED
    return Trajectory(
        **shared,
        stop_reason=stop,
        success=success,
        final_observation=Observation(text="Outside."),
    )


def _step(draw: random.Random, before: Sequence[Step], index: int) -> Step:
    observation = Observation(
        text=f"You are in {draw.choice(ROOMS)}.", anchor_state=f"room {draw.randrange(3)}"
    )
    window = before[-2:]  # what came earlier is dropped
    messages = [Message(role="system", content="Leave the maze.")]
    for past in window:
        messages += [
            Message(role="user", content=f"{past.index}: {past.observation.text}"),
            Message(role="assistant", content=act(past).reply),
        ]
    messages.append(Message(role="user", content=f"{index}: {observation.text}"))
    calls = [_call(draw, "act", messages, dropped=len(before) - len(window), index=index)]
    if draw.random() < CALLS_OF_PLAN:
        calls.insert(0, _call(draw, "plan", messages[-1:], dropped=0, index=index))
    streak = bool(before) and draw.random() < 0.5
    return Step(
        index=index,
        observation=observation,
        calls=tuple(calls),
        action=before[-1].action if streak else draw.choice(ACTIONS),
        action_valid=draw.random() < 0.7,
        reward=draw.choice([0.0, 0.0, 0.25, 1.0]),
        environment_seconds=draw.random(),
    )


def _call(
    draw: random.Random, purpose: str, messages: Sequence[Message], *, dropped: int, index: int
) -> Call:
    count = draw.randrange(1, 6)
    return Call(
        messages=tuple(messages),
        reply=f"{purpose} {draw.randrange(10**6)}",
        sampled=SampledTokens(
            prompt_tokens=tuple(range(5 + index * 3 + draw.randrange(4))),
            action_tokens=tuple(draw.randrange(1000) for _ in range(count)),
            behavior_logprobs=tuple(float(np.float32(-3 * draw.random())) for _ in range(count)),
            policy_version=index,
        ),
        purpose=purpose,
        dropped_exchanges=dropped,
        finish_reason=draw.choice([FinishReason.STOP, FinishReason.STOP, FinishReason.LENGTH]),
        queue_seconds=draw.random(),
        generate_seconds=draw.random(),
    )


def _credits(draw: random.Random, records: Sequence[EpisodeRecord]) -> list[EpisodeCredit]:
    """GiGPO's, of shaped rewards; the learner's logprobs differ from the sampler's."""
    played = [one for one in records if isinstance(one.outcome, Trajectory)]
    if len(played) < 2:
        return []
    shaped = [
        np.array([step.reward - 0.1 * (not step.action_valid) for step in one.outcome.steps])
        for one in played
    ]
    anchors = [[step.observation.anchor for step in one.outcome.steps] for one in played]
    credits: list[EpisodeCredit] = []
    for record, rewards, credit in zip(
        played, shaped, gigpo_credit(shaped, anchors, discount=0.95), strict=True
    ):
        made = make_credit(record, episode_advantage=credit.episode_advantage)
        credits.append(
            replace(
                made,
                shaped_rewards=tuple(map(float, rewards)),
                step_advantages=tuple(credit.step_advantages),
                returns_to_go=tuple(credit.returns_to_go),
                advantages=tuple(credit.advantages),
                calls=tuple(
                    replace(
                        call,
                        advantage=credit.advantages[call.step_index],
                        policy_logprobs=tuple(
                            float(np.float32(logprob + draw.gauss(0, 0.1)))
                            for logprob in call.policy_logprobs or ()
                        ),
                    )
                    for call in made.calls
                ),
            )
        )
    return credits


def _write_loss_inputs(
    writer: StoreWriter,
    world: World,
    draw: random.Random,
    records: Sequence[EpisodeRecord],
    credits: Sequence[EpisodeCredit],
) -> None:
    """Most calls once; some never, some twice."""
    credited = {credit.episode_id for credit in credits}
    for record in records:
        if record.episode_id not in credited:
            continue
        made = make_loss_input(record, micro_batch=draw.randrange(1000))
        kept = replace(made, rows=tuple(row for row in made.rows if draw.random() < 0.9))
        again = replace(
            made,
            micro_batch=made.micro_batch + 1000,
            rows=tuple(row for row in made.rows if draw.random() < 0.1),
        )
        for inputs in (kept, again):
            if inputs.rows:
                writer.write([inputs])
                world.loss_inputs.append(inputs)
