"""What travels beside the rows of made-up episodes, built from a few numbers a step."""

from collections.abc import Sequence
from dataclasses import replace
from typing import NotRequired, TypedDict

import numpy as np

from longhaul_core.types import CreditedBy
from longhaul_trainer.training.spans import FloatArray, put_into_response
from longhaul_trainer.training.step_metadata import (
    CallSpan,
    EpisodeMetadata,
    GroupName,
    RowMetadata,
    StepMetadata,
)

GAP = 3
"""Tokens between two calls of a row."""


class MadeUpStep(TypedDict):
    """A step; what is left out is of no matter."""

    reward: float
    valid: NotRequired[bool]
    anchor: NotRequired[str]
    """Else one of its own."""
    tokens: NotRequired[int]
    """Of its one call; 2 if left out."""
    calls: NotRequired[Sequence[int]]
    """Tokens of each of its calls, in place of `tokens`; the last trained one that its own step
    credits chooses the action."""
    shares: NotRequired[Sequence[float]]
    """Their shares of the credit; 1 if left out."""
    credited_by: NotRequired[Sequence[CreditedBy]]
    """Which steps credit them; their own if left out."""
    trained: NotRequired[Sequence[bool]]
    """Which of them are trained; all if left out."""
    hook_reward: NotRequired[float]
    purposes: NotRequired[Sequence[str]]
    """Of its calls; `act` if left out."""
    agents: NotRequired[tuple[str, ...]]
    """Of its trained calls; the one without a name, if left out."""


def rows_of(
    group: GroupName,
    sample_index: int,
    steps: Sequence[MadeUpStep],
    *,
    session: int | None = None,
    per_row: int = 1,
    retry: int = 0,
    horizon: int = 20,
    prompt_tokens: int = 50,
    success: bool | None = None,
    truncated: bool = False,
    scored: bool = False,
    final_anchor: str = "",
    greedy: bool = False,
    demonstration: bool = False,
    hook_error: str = "",
    policy_version: int = 0,
) -> dict[str, RowMetadata]:
    """Rows of one episode by their keys.

    Args:
        group: That it was played in.
        sample_index: Its place there.
        steps: Its steps.
        session: As verl numbers it in the keys; `sample_index` if left out.
        per_row: Trained calls of a row, with gaps of `GAP` tokens between them.
        retry: See `EpisodeMetadata`, as for all that follows.
        horizon: See there.
        prompt_tokens: Of each call.
        success: Whether it is paid anything, if left out.
        truncated: See there.
        scored: See there.
        final_anchor: See there.
        greedy: See there.
        demonstration: See there.
        hook_error: See there.
        policy_version: Of each call.
    """
    total = sum(step["reward"] for step in steps)
    metadata = EpisodeMetadata(
        environment="samples/Rooms-v0",
        task_id=f"task {group.group_index}",
        training_step=group.training_step,
        group_index=group.group_index,
        sample_index=sample_index,
        retry=retry,
        horizon=horizon,
        success=total > 0 if success is None else success,
        episode_return=total,
        truncated=truncated,
        scored=scored,
        final_anchor=final_anchor,
        greedy=greedy,
        demonstration=demonstration,
        steps=tuple(
            StepMetadata(
                reward=step["reward"],
                action_valid=step.get("valid", True),
                anchor=step.get("anchor", f"{group}/{sample_index}/{index}"),
                trained_calls=tuple(call for call, _, _ in _trained(step)),
                prompt_tokens=prompt_tokens * len(_calls(step)),
                action_tokens=sum(_calls(step)),
                agents=step.get("agents", ("",) if _trained(step) else ()),
                hook_reward=step.get("hook_reward"),
            )
            for index, step in enumerate(steps)
        ),
        hook_error=hook_error,
    )
    spans = [
        CallSpan(
            step=index,
            call=call,
            valued=call == _acting(step),
            start=0,
            prompt_tokens=prompt_tokens,
            action_tokens=tokens,
            policy_version=policy_version,
            credit_share=share,
            credited_by=_credited_by(step)[call],
            purpose=step.get("purposes", ("act",) * (call + 1))[call],
            split_reason="one_row_per_step",
        )
        for index, step in enumerate(steps)
        for call, tokens, share in _trained(step)
    ]
    rows: dict[str, RowMetadata] = {}
    for row, first in enumerate(range(0, len(spans), per_row)):
        rows[f"{group}_{sample_index if session is None else session}_{row}"] = RowMetadata(
            training_step=group.training_step,
            group_index=group.group_index,
            sample_index=sample_index,
            retry=retry,
            spans=_in_one_row(spans[first : first + per_row]),
            episode=metadata if row == 0 else None,
            demonstration=demonstration,
        )
    return rows


def _credited_by(step: MadeUpStep) -> Sequence[CreditedBy]:
    return step.get("credited_by", (CreditedBy.STEP,) * len(_calls(step)))


def _acting(step: MadeUpStep) -> int:
    """Place of the call that chooses the action of a step with a trained call."""
    places = [place for place, _, _ in _trained(step)]
    acting = [place for place in places if _credited_by(step)[place] is CreditedBy.STEP]
    return (acting or places)[-1]


def _calls(step: MadeUpStep) -> Sequence[int]:
    return step.get("calls", (step.get("tokens", 2),))


def _trained(step: MadeUpStep) -> list[tuple[int, int, float]]:
    """Place, tokens and share of each trained call."""
    calls = _calls(step)
    shares = step.get("shares", (1.0,) * len(calls))
    trained = step.get("trained", (True,) * len(calls))
    return [
        (place, tokens, share)
        for place, (tokens, share) in enumerate(zip(calls, shares, strict=True))
        if trained[place]
    ]


def _in_one_row(spans: Sequence[CallSpan]) -> tuple[CallSpan, ...]:
    placed: list[CallSpan] = []
    for number, span in enumerate(spans):
        start = placed[-1].stop + GAP if placed else 0
        reason = None if number else span.split_reason
        placed.append(replace(span, start=start, split_reason=reason))
    return tuple(placed)


def span(
    *, step: int = 0, call: int = 0, start: int = 0, tokens: int = 1, prompt_tokens: int = 1
) -> CallSpan:
    """A call that chose its step's action."""
    return CallSpan(
        step=step,
        call=call,
        valued=True,
        start=start,
        prompt_tokens=prompt_tokens,
        action_tokens=tokens,
        policy_version=0,
        credit_share=1.0,
        credited_by=CreditedBy.STEP,
        purpose="act",
        split_reason=None,
    )


def beside(
    *spans: CallSpan, training_step: int = 1, group_index: int = 0, sample_index: int = 0
) -> RowMetadata:
    """What travels beside a row that is not the first of its episode."""
    return RowMetadata(
        training_step=training_step,
        group_index=group_index,
        sample_index=sample_index,
        retry=0,
        spans=spans,
        episode=None,
    )


def in_response(
    spans: Sequence[CallSpan], values: Sequence[FloatArray], *, num_tokens: int
) -> FloatArray:
    """The values of a row's response of so many tokens, and 0 in its gaps."""
    response_T = np.zeros(num_tokens)
    put_into_response(response_T, spans, values)
    return response_T
