"""Steps of one call, built from flat values, and the same steps with other tokens."""

from dataclasses import replace
from typing import Any, cast

from longhaul_core.types import (
    Call,
    FinishReason,
    Message,
    Observation,
    SampledTokens,
    Step,
)


def one_call_step(
    index: int,
    observation: Observation,
    *,
    prompt_tokens: tuple[int, ...],
    action_tokens: tuple[int, ...],
    behavior_logprobs: tuple[float, ...],
    messages: tuple[Message, ...] = (),
    reply: str = "",
    action: str = "",
    action_valid: bool = True,
    reward: float = 0.0,
    policy_version: int = 0,
    finish_reason: FinishReason = FinishReason.STOP,
    num_cached_tokens: int | None = None,
    queue_seconds: float = 0.0,
    generate_seconds: float = 0.0,
    environment_seconds: float = 0.0,
) -> Step:
    """A step whose action one call of the trained policy chose."""
    call = Call(
        messages=messages,
        reply=reply,
        sampled=SampledTokens(
            prompt_tokens=prompt_tokens,
            action_tokens=action_tokens,
            behavior_logprobs=behavior_logprobs,
            policy_version=policy_version,
        ),
        finish_reason=finish_reason,
        num_cached_tokens=num_cached_tokens,
        queue_seconds=queue_seconds,
        generate_seconds=generate_seconds,
    )
    return Step(
        index=index,
        observation=observation,
        calls=(call,),
        action=action,
        action_valid=action_valid,
        reward=reward,
        environment_seconds=environment_seconds,
    )


def with_call(step: Step, **changes: object) -> Step:
    """`step`, of one call, with fields of that call or of its tokens replaced."""
    (call,) = step.calls
    assert call.sampled is not None
    given = cast("dict[str, Any]", changes)
    of_tokens = {
        name: given.pop(name) for name in SampledTokens.__dataclass_fields__ if name in given
    }
    return replace(
        step, calls=(replace(call, sampled=replace(call.sampled, **of_tokens), **given),)
    )


def sampled_of(step: Step) -> SampledTokens:
    """The tokens of a step of one call."""
    (call,) = step.calls
    assert call.sampled is not None
    return call.sampled
