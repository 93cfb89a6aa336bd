"""How an episode is cut into rows: one per trained call, or one of calls that extend each other.

A call continues the row of the last trained call of its stream (the same agent, for the same
purpose, in the same conversation) where its prompt begins with that call's prompt and reply, token
by token. What the engine read and wrote is then one sequence, and the learner reads it once instead
of once per call. Conversations of a program may run beside each other: each has its rows. One that
forked from another repeats its beginning as a prompt, which is not trained again.
Nothing is tokenised again: where the tokens differ, for whatever reason, a new row begins, with
its `SplitReason`. Calls that are not trained are in no row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import Literal, NamedTuple, TypeVar

from longhaul_core.rollout.recorded import prompt_hash
from longhaul_core.store.packing import content_hash
from longhaul_core.store.records import Phase
from longhaul_core.types import (
    Call,
    Continuation,
    Picture,
    SampledTokens,
    SplitReason,
    Step,
    Trajectory,
    pictures_of,
)
from longhaul_trainer.training.repeated_tokens import num_repeated_tokens
from longhaul_trainer.training.step_metadata import (
    CallSpan,
    EpisodeMetadata,
    GroupName,
    RowMetadata,
    StepMetadata,
)

RowForm = Literal["step", "merged"]

T = TypeVar("T", int, float)


class SampledCall(NamedTuple):
    """A call that is trained, and where it was made."""

    step: Step
    place: int
    """0-based, among the step's calls."""
    call: Call
    tokens: SampledTokens
    """The call's."""

    @property
    def pictures(self) -> tuple[Picture, ...]:
        """Of the call's prompt, in order; a model of text reads none of them."""
        return pictures_of(self.call.messages)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Trained calls of one stream of an episode, each of which extends the one before it."""

    reason: SplitReason
    """Why the row begins with its first call."""
    calls: tuple[SampledCall, ...]

    @property
    def prompt_tokens(self) -> tuple[int, ...]:
        """The prompt of the first call."""
        return self.calls[0].tokens.prompt_tokens

    @property
    def response_tokens(self) -> list[int]:
        """The first reply, the gap before the second, the second reply, and so on."""
        last = self.calls[-1].tokens
        whole = last.prompt_tokens + last.action_tokens
        return list(whole[len(self.prompt_tokens) :])

    @property
    def pictures(self) -> tuple[Picture, ...]:
        """Those of all its prompts, in order: the last one goes on from the others."""
        return self.calls[-1].pictures

    @property
    def starts(self) -> list[int]:
        """0-based place in the response of each reply's first token."""
        return [len(call.tokens.prompt_tokens) - len(self.prompt_tokens) for call in self.calls]

    @property
    def response_mask(self) -> list[int]:
        """1 where a token was sampled, 0 in a gap."""
        ones = [[1] * len(call.tokens.action_tokens) for call in self.calls]
        return self._in_replies(ones, gap=0)

    @property
    def response_logprobs(self) -> list[float]:
        """Behavior logprobs; 0 in a gap, and in a reply that nobody sampled."""
        logprobs = [
            call.tokens.behavior_logprobs or [0.0] * len(call.tokens.action_tokens)
            for call in self.calls
        ]
        return self._in_replies(logprobs, gap=0.0)

    @property
    def spans(self) -> tuple[CallSpan, ...]:
        """Where each call is."""
        return tuple(
            CallSpan(
                step=step.index,
                call=place,
                valued=call is _valued(step),
                start=start,
                prompt_tokens=len(tokens.prompt_tokens),
                action_tokens=len(tokens.action_tokens),
                policy_version=tokens.policy_version,
                credit_share=call.credit_share,
                credited_by=call.credited_by,
                purpose=call.purpose,
                split_reason=None if number else self.reason.value,
            )
            for number, ((step, place, call, tokens), start) in enumerate(
                zip(self.calls, self.starts, strict=True)
            )
        )

    def _in_replies(self, values: Sequence[Sequence[T]], *, gap: T) -> list[T]:
        ends = [
            start + len(call.tokens.action_tokens)
            for start, call in zip(self.starts, self.calls, strict=True)
        ]
        gaps = [0, *(start - end for end, start in zip(ends, self.starts[1:], strict=False))]
        return [
            value
            for length, of_call in zip(gaps, values, strict=True)
            for value in chain([gap] * length, of_call)
        ]


def trained_calls(steps: Sequence[Step]) -> list[SampledCall]:
    """The calls of `steps` that are trained, in the order that they were made."""
    return [
        SampledCall(step, place, call, call.sampled)
        for step in steps
        for place, call in enumerate(step.calls)
        if call.trained and call.sampled is not None
    ]


def cut_into_rows(
    steps: Sequence[Step], *, form: RowForm, max_row_tokens: int | None = None
) -> list[Row]:
    """The rows of an episode, in the order of their first calls; each trained call is in one.

    Args:
        steps: Of one episode, in order.
        form: One row per call, or merged rows.
        max_row_tokens: Longest row of several calls, prompt and gaps included; None for no
            such limit. A call that is longer by itself has a row of its own. A merged row is
            as long as the prompt and reply of its last call.
    """
    rows: list[tuple[SplitReason, list[SampledCall]]] = []
    newest: dict[tuple[str, str, int], list[SampledCall]] = {}
    for trained in trained_calls(steps):
        call = trained.call
        stream = (call.agent, call.purpose, call.conversation)
        reason = (
            split_reason(newest[stream][-1], trained, form=form, max_row_tokens=max_row_tokens)
            if stream in newest
            else first_reason(call)
        )
        if reason is None:
            newest[stream].append(trained)
        else:
            newest[stream] = [trained]
            rows.append((reason, newest[stream]))
    return [Row(reason=reason, calls=tuple(calls)) for reason, calls in rows]


def first_reason(call: Call) -> SplitReason:
    """Why the first trained call of its stream begins a row."""
    if call.continuation is Continuation.FORKED:
        return SplitReason.FORKED
    return SplitReason.NEW_CONVERSATION if call.conversation else SplitReason.FIRST_STEP


def split_reason(
    before: SampledCall, after: SampledCall, *, form: RowForm, max_row_tokens: int | None
) -> SplitReason | None:
    """Why a call cannot continue the row that ends with the call `before` it; None if it can.

    Of several reasons the first in this order: form, prompt, policy, length.
    """
    if form == "step":
        return SplitReason.ONE_ROW_PER_STEP
    tokens = after.tokens
    read_and_written = before.tokens.prompt_tokens + before.tokens.action_tokens
    if tokens.prompt_tokens[: len(read_and_written)] != read_and_written:
        return SplitReason.PROMPT_CHANGED
    # Two pictures of one size have the same tokens.
    if after.pictures[: len(before.pictures)] != before.pictures:
        return SplitReason.PROMPT_CHANGED
    if tokens.policy_version != before.tokens.policy_version:
        return SplitReason.POLICY_CHANGED
    num_tokens = len(tokens.prompt_tokens) + len(tokens.action_tokens)
    if max_row_tokens is not None and num_tokens > max_row_tokens:
        return SplitReason.ROW_FULL
    return None


def _valued(step: Step) -> Call | None:
    """The trained call before which a critic's value of the step is read; None without one.

    It is the last one that acts, as in an episode loop; a program's may have none for that purpose.
    """
    trained = [call for call in step.calls if call.trained]
    return next((call for call in reversed(trained) if call.purpose == "act"), None) or (
        trained[-1] if trained else None
    )


def beside_rows(rows: Sequence[Row], metadata: EpisodeMetadata) -> list[RowMetadata]:
    """What travels beside each row of an episode.

    Args:
        rows: All of them, in order.
        metadata: Of the episode; the first row carries it.
    """
    return [
        RowMetadata(
            training_step=metadata.training_step,
            group_index=metadata.group_index,
            sample_index=metadata.sample_index,
            retry=metadata.retry,
            spans=row.spans,
            episode=None if place else metadata,
            demonstration=metadata.demonstration,
        )
        for place, row in enumerate(rows)
    ]


def metadata_of(
    trajectory: Trajectory,
    *,
    group: GroupName,
    retry: int,
    phase: Phase = "train",
    anchor_texts: bool = False,
    hook_rewards: Sequence[float] | None = None,
    hook_error: str = "",
) -> EpisodeMetadata:
    """What the trainer must know of `trajectory`.

    Args:
        trajectory: The episode.
        group: That it was played in.
        retry: How many tries of it failed before.
        phase: What it was played for.
        anchor_texts: Let anchor states travel as they are, and not as their hashes: an estimator
            that takes similar states together compares their texts.
        hook_rewards: One for each step, of `algorithm.reward_shaping`; None without it.
        hook_error: Why that function returned nothing.
    """

    def anchor(state: str) -> str:
        return state if anchor_texts else content_hash(state)

    calls = [call for step in trajectory.steps for call in step.calls]
    repeated = iter(num_repeated_tokens(calls))
    hooks = (None,) * len(trajectory.steps) if hook_rewards is None else hook_rewards
    return EpisodeMetadata(
        environment=trajectory.task.environment,
        task_id=trajectory.task.task_id,
        training_step=group.training_step,
        group_index=group.group_index,
        sample_index=trajectory.sample_index,
        retry=retry,
        horizon=trajectory.horizon,
        success=trajectory.success,
        episode_return=trajectory.episode_return,
        truncated=trajectory.stop_reason.truncated,
        scored=trajectory.scored,
        final_anchor=anchor(trajectory.final_observation.anchor),
        greedy=phase == "baseline",
        demonstration=phase == "demonstration",
        steps=tuple(
            StepMetadata(
                reward=step.reward,
                action_valid=step.action_valid,
                anchor=anchor(step.observation.anchor),
                trained_calls=tuple(place for place, call in enumerate(step.calls) if call.trained),
                prompt_tokens=sum(len(c.sampled.prompt_tokens) for c in step.calls if c.sampled),
                action_tokens=sum(len(c.sampled.action_tokens) for c in step.calls if c.sampled),
                cached_tokens=_cached_tokens(step),
                agents=tuple(sorted({call.agent for call in step.calls if call.trained})),
                hook_reward=hook,
                continuations=tuple(
                    call.continuation for call in step.calls if call.continuation is not None
                ),
                overridden_calls=sum(bool(call.overridden) for call in step.calls),
                repeated_tokens=sum(islice(repeated, len(step.calls))),
            )
            for step, hook in zip(trajectory.steps, hooks, strict=True)
        ),
        hook_error=hook_error,
    )


def with_spelled_marks(
    metadata: EpisodeMetadata, trajectory: Trajectory, *, spells_mark: Callable[[str], bool]
) -> EpisodeMetadata:
    """`metadata` with the steps that newly read what spells a control token of the model's.

    That is their observation, and of a program's calls the texts of users and tools that no step
    before had. Replies are left out: a model's own tags of thoughts and calls are control tokens.
    """
    known: set[str] = set()
    marked: list[StepMetadata] = []
    for step, played in zip(metadata.steps, trajectory.steps, strict=True):
        sent = {
            message.text
            for call in played.calls
            if call.continuation is not None
            for message in call.messages
            if message.role in ("user", "tool")
        }
        new = {played.observation.text, *(sent - known)}
        known |= sent
        marked.append(replace(step, spells_mark=any(map(spells_mark, new))))
    return replace(metadata, steps=tuple(marked))


def with_choices(metadata: EpisodeMetadata, trajectory: Trajectory) -> EpisodeMetadata:
    """`metadata` with what each step read and did, where steps make pairs."""
    return replace(
        metadata,
        steps=tuple(
            replace(step, prompt=prompt_hash(played), action=played.action)
            for step, played in zip(metadata.steps, trajectory.steps, strict=True)
        ),
    )


def _cached_tokens(step: Step) -> int | None:
    counts = [call.num_cached_tokens for call in step.calls if call.sampled is not None]
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None
