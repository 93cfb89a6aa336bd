"""The store that `viewer.py` reads: many episodes of a made-up household, written as a run does.

Nothing here is trained or sampled: texts are drawn from sentences whose words follow Zipf's law,
token ids are those of their words, and logprobs are drawn. What costs time in a store is as in a
run: how many rows there are, how long they are, how often a word occurs, how much prompts repeat.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from random import Random

from longhaul_core.store import (
    CallCredit,
    EpisodeCredit,
    EpisodeRecord,
    GroupDecision,
    Metrics,
    Record,
    RunEnded,
    RunStarted,
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

__all__ = [
    "EPISODES_PER_TRAINING_STEP",
    "EVERYWHERE",
    "MIDDLING",
    "RARE",
    "RUN_ID",
    "StoreShape",
    "records",
]

RUN_ID, SMALL_RUN_ID = "20260101-viewer-big", "20260102-viewer-small"
GROUP_SIZE, GROUPS_PER_TRAINING_STEP = 8, 16
EPISODES_PER_TRAINING_STEP = GROUP_SIZE * GROUPS_PER_TRAINING_STEP
EVERYWHERE, MIDDLING, RARE = "drawer", "lantern", "zeppelin"
"""Words in every observation, in one of 250, and in 20 of the whole store."""
LONG_STEPS = 50
"""Of one episode in a thousand."""
_NUM_LOGPROBS = 1 << 16
_FIRST_TOKEN, _NUM_WORDS = 1_000, 20_000


@dataclass(frozen=True, slots=True)
class StoreShape:
    """How big the store is to be."""

    num_episodes: int
    steps_per_episode: int
    """Mean; lengths are from half of it to one and a half."""


@dataclass(frozen=True, slots=True)
class _Piece:
    """Text with its tokens."""

    text: str
    tokens: tuple[int, ...]


class _Language:
    """Sentences to draw from."""

    def __init__(self, draw: Random) -> None:
        syllables = [a + b for a in "bdfghklmnprstvwz" for b in ("a", "e", "i", "o", "u", "ar")]
        words = sorted(
            {"".join(draw.choices(syllables, k=draw.randint(1, 4))) for _ in range(40_000)}
        )
        self._words = draw.sample(words, _NUM_WORDS)
        self._weights = list(accumulate(1 / (n + 10) for n in range(_NUM_WORDS)))
        self.sentences = [self._sentence(draw) for _ in range(20_000)]
        logprobs = [-abs(draw.gauss(0, 0.4)) for _ in range(_NUM_LOGPROBS)]
        self.logprobs = tuple(logprobs)
        self.learner_logprobs = tuple(each + draw.gauss(0, 0.01) for each in logprobs)
        self.learner_entropies = tuple(-each for each in logprobs)

    def _sentence(self, draw: Random) -> _Piece:
        chosen = draw.choices(range(_NUM_WORDS), cum_weights=self._weights, k=draw.randint(7, 13))
        text = " ".join(self._words[number] for number in chosen).capitalize() + "."
        return _Piece(text, (*(_FIRST_TOKEN + number for number in chosen), 13))

    def said(self, draw: Random, num_tokens: int) -> _Piece:
        """Sentences of at least so many tokens."""
        parts: list[_Piece] = []
        while sum(len(part.tokens) for part in parts) < num_tokens:
            parts.append(draw.choice(self.sentences))
        return _joined(parts)


def _joined(parts: Sequence[_Piece]) -> _Piece:
    return _Piece(
        " ".join(part.text for part in parts),
        tuple(token for part in parts for token in part.tokens),
    )


def _word(text: str) -> _Piece:
    return _Piece(text, (30_000 + len(text), 13))


def records(
    shape: StoreShape, *, seed: int = 0, done: Mapping[str, int] | None = None
) -> Iterator[list[Record]]:
    """Batches for `StoreWriter.write`: a group of a run each, with its decision and credit.

    Args:
        shape: How much.
        seed: Of all that is drawn; a training step is the same whatever was made before it.
        done: Training steps of each run that are in the store, and are left out.
    """
    language = _Language(Random(seed))
    for run_id, share, started_at in ((SMALL_RUN_ID, 0.1, 1.76e9), (RUN_ID, 0.9, 1.77e9)):
        num_steps = math.ceil(shape.num_episodes * share / EPISODES_PER_TRAINING_STEP)
        yield [
            RunStarted(
                run_id=run_id,
                name="viewer",
                kind="train",
                attempt=0,
                config_json='{"name": "viewer"}',
                provenance_json="{}",
                started_at=started_at,
                num_training_steps=num_steps,
            )
        ]
        for training_step in range((done or {}).get(run_id, 0) + 1, num_steps + 1):
            draw = Random(f"{seed}/{run_id}/{training_step}")
            made = _TrainingStep(
                draw=draw,
                language=language,
                shape=shape,
                run_id=run_id,
                number=training_step,
                skill=0.1 + 0.8 * training_step / num_steps,
                clock=started_at + 60.0 * training_step,
            )
            for group_index in range(GROUPS_PER_TRAINING_STEP):
                yield made.group(group_index)
            values = {f"metric/{name:02}": draw.random() for name in range(100)}
            yield [Metrics(run_id=run_id, attempt=0, training_step=training_step, values=values)]
        yield [
            RunEnded(
                run_id=run_id,
                attempt=0,
                status="finished",
                message="",
                ended_at=started_at + 60.0 * (num_steps + 1),
            )
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class _TrainingStep:
    """Draws the groups of one training step."""

    draw: Random
    language: _Language
    shape: StoreShape
    run_id: str
    number: int
    skill: float
    """Share of the episodes that are solved."""
    clock: float

    def group(self, group_index: int) -> list[Record]:
        """One group's episodes with the decision on it and their credit."""
        number = self.draw.randrange(2_000)
        task = Task(
            environment=f"longhaul/Household-v{number % 4}",
            version="1",
            data_hash="0",
            task_id=f"train/{number:05}",
            seed=number,
            split=Split.TRAIN,
            goal=self.language.sentences[number].text,
        )
        episodes = [
            EpisodeRecord(
                run_id=self.run_id,
                attempt=0,
                phase="train",
                training_step=self.number,
                group_index=group_index,
                retry=0,
                group_size=GROUP_SIZE,
                outcome=self.episode(task, sample),
            )
            for sample in range(GROUP_SIZE)
        ]
        played = [(each, each.outcome) for each in episodes if isinstance(each.outcome, Trajectory)]
        mean = sum(outcome.episode_return for _, outcome in played) / max(1, len(played))
        decision = GroupDecision(
            run_id=self.run_id,
            attempt=0,
            training_step=self.number,
            group_index=group_index,
            resolved_training_step=self.number,
            update_index=group_index,
        )
        credits = [_credit(self.language, each, outcome, mean) for each, outcome in played]
        return [*episodes, decision, *credits]

    def episode(self, task: Task, sample_index: int) -> Trajectory | FailedEpisode:
        """An attempt at a task; one of a hundred fails."""
        draw, mean = self.draw, self.shape.steps_per_episode
        length = draw.randint(mean - mean // 2, mean + mean // 2)
        if draw.random() < 0.001:
            length = LONG_STEPS
        solved = draw.random() < self.skill
        system = _joined(
            [
                _word("You are in a house. Answer with one action."),
                self.language.sentences[task.seed],
                self.language.said(Random(7), 260),
            ]
        )
        # Episodes of a group see the same in the beginning, as in a world without chance.
        world = Random(f"{task.seed}/{self.number}")
        steps: list[Step] = []
        past: list[_Piece] = []
        for index in range(length):
            parts = [
                _word(f"You open the {EVERYWHERE} {draw.randrange(100)}."),
                self.language.said(world if index < 2 else draw, 70),
            ]
            if draw.random() < 0.004:
                parts.append(_word(f"A {MIDDLING} stands there."))
            if draw.random() < 20 / (self.shape.num_episodes * mean):
                parts.append(_word(f"A {RARE} flies by."))
            seen = _joined(parts)
            reward = float(solved and index == length - 1)
            steps.append(self.step(index, system, past, seen, reward=reward))
            past = [*past[-1:], seen]
        if draw.random() < 0.01:
            return FailedEpisode(
                task=task,
                sample_index=sample_index,
                seed=draw.getrandbits(32),
                horizon=LONG_STEPS,
                cause=draw.choice((FailureCause.ENVIRONMENT_TIMEOUT, FailureCause.POLICY_ERROR)),
                message="environment.step: no answer within 5 s",
                steps=tuple(steps),
                started_at=self.clock,
                duration_seconds=5.0,
            )
        return Trajectory(
            task=task,
            sample_index=sample_index,
            seed=draw.getrandbits(32),
            horizon=LONG_STEPS,
            steps=tuple(steps),
            stop_reason=StopReason.TASK_SOLVED if solved else StopReason.HORIZON_REACHED,
            success=solved,
            final_observation=Observation(text="It is over."),
            started_at=self.clock + sample_index,
            duration_seconds=draw.uniform(5, 50),
        )

    def step(
        self, index: int, system: _Piece, past: Sequence[_Piece], seen: _Piece, *, reward: float
    ) -> Step:
        """A step under a window memory of two observations."""
        draw, language = self.draw, self.language
        action = f"open {EVERYWHERE} {draw.randrange(100)}"
        reply = _joined([language.said(draw, 58), _word(f"<action>{action}</action>")])
        filler = () if past else (_joined([language.sentences[0]] * 16),)
        user = (_word("You saw before:"), *filler, *past, _word("You see now:"), seen)
        first = draw.randrange(_NUM_LOGPROBS - 200)
        call = Call(
            messages=(
                Message(role="system", content=system.text),
                Message(role="user", content="\n".join(part.text for part in user)),
            ),
            reply=reply.text,
            sampled=SampledTokens(
                prompt_tokens=system.tokens + _joined(user).tokens,
                action_tokens=reply.tokens,
                behavior_logprobs=language.logprobs[first : first + len(reply.tokens)],
                policy_version=self.number - 1,
            ),
            finish_reason=FinishReason.STOP,
            num_cached_tokens=len(system.tokens),
            queue_seconds=0.01,
            generate_seconds=draw.uniform(0.2, 2.0),
        )
        return Step(
            index=index,
            observation=Observation(
                text=seen.text,
                admissible_actions=("open drawer", "close drawer", "look", action),
            ),
            calls=(call,),
            action=action,
            action_valid=draw.random() < 0.95,
            reward=reward,
            environment_seconds=0.01,
        )


def _credit(
    language: _Language, record: EpisodeRecord, played: Trajectory, mean: float
) -> EpisodeCredit:
    count = len(played.steps)
    advantage = played.episode_return - mean
    return EpisodeCredit(
        run_id=record.run_id,
        attempt=0,
        phase="train",
        training_step=record.training_step,
        trained_training_step=record.training_step,
        group_index=record.group_index,
        sample_index=played.sample_index,
        retry=0,
        episode_advantage=advantage,
        step_advantages=(0.0,) * count,
        shaped_rewards=tuple(step.reward for step in played.steps),
        returns_to_go=(played.episode_return,) * count,
        advantages=(advantage,) * count,
        loss_weights=(1 / count,) * count,
        calls=tuple(
            CallCredit(
                step_index=step.index,
                call_index=0,
                advantage=advantage,
                loss_weight=1 / count,
                policy_logprobs=language.learner_logprobs[: len(call.sampled.action_tokens)],
                policy_entropies=language.learner_entropies[: len(call.sampled.action_tokens)],
            )
            for step in played.steps
            for call in step.calls
            if call.sampled is not None
        ),
        trained=True,
        optimizer_step_index=0,
    )
