"""ATIF, Harbor's Agent Trajectory Interchange Format (RFC 0001): 1.x is read, 1.7 is written.

A trajectory is one JSON object: `steps` of the system, the user and the agent. An agent's step is
one reply, with the tools that it asked for, what came back (`observation`), and `metrics` with
token ids and logprobs. What ATIF has no field for is in `extra`, where it leaves room.
"""

import json
from collections.abc import Iterable, Iterator
from importlib.metadata import version
from typing import Any, Literal

from pydantic import Field, FiniteFloat, NonNegativeInt

from longhaul_core.exchange.chat import ChatTool, GrowingSteps, Lenient, strays, tool_json
from longhaul_core.exchange.episodes import ImportedEpisode, prompt_id, with_return
from longhaul_core.exchange.facts import CallFacts, EpisodeFacts
from longhaul_core.exchange.reading import Value, validated
from longhaul_core.exchange.stored import StoredEpisode
from longhaul_core.store.queries import CallDetail, StepDetail
from longhaul_core.types import Call, Message, SampledTokens, Step, Tool, ToolCall

__all__ = ["ATIF_VERSION", "read_atif", "write_atif"]

ATIF_VERSION = "ATIF-v1.7"


class _Part(Lenient):
    type: str
    text: str | None = None


Content = str | list[_Part]


class _ToolCall(Lenient):
    tool_call_id: str
    function_name: str
    arguments: dict[str, Any] = Field(default_factory=dict)


class _Result(Lenient):
    source_call_id: str | None = None
    content: Content | None = None


class _Observation(Lenient):
    results: list[_Result] = Field(default_factory=list[_Result])


class _Metrics(Lenient):
    prompt_tokens: NonNegativeInt | None = None
    completion_tokens: NonNegativeInt | None = None
    cached_tokens: NonNegativeInt | None = None
    cost_usd: FiniteFloat | None = None
    prompt_token_ids: list[NonNegativeInt] | None = None
    completion_token_ids: list[NonNegativeInt] | None = None
    logprobs: list[FiniteFloat] | None = None


class _Step(Lenient):
    step_id: int
    source: Literal["system", "user", "agent"]
    timestamp: str | None = None
    message: Content | None = ""
    model_name: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[_ToolCall] | None = None
    observation: _Observation | None = None
    metrics: _Metrics | None = None
    llm_call_count: NonNegativeInt | None = None
    extra: CallFacts | None = None


class _Agent(Lenient):
    name: str
    version: str
    model_name: str | None = None
    tool_definitions: list[ChatTool] | None = None


class _Trajectory(Lenient):
    schema_version: str = Field(pattern=r"^ATIF-v1\.\d+$")
    agent: _Agent
    steps: list[_Step]
    session_id: str | None = None
    trajectory_id: str | None = None
    extra: EpisodeFacts | None = None


def read_atif(values: Iterable[Value]) -> Iterator[ImportedEpisode]:
    """An episode for each trajectory; its agent's steps are its steps."""
    for value in values:
        trajectory = validated(_Trajectory, value)
        with value.place.errors():
            steps, told, final = _Reading(trajectory).read()
            if not steps:
                raise ValueError("field steps: there is none of the agent")
        facts = trajectory.extra or EpisodeFacts()
        if all(step.extra is None or step.extra.reward is None for step in trajectory.steps):
            steps = with_return(steps, facts.episode_return or 0.0)
        if not facts.final_observation:
            facts = facts.model_copy(update={"final_observation": final})
        left_out = frozenset(name for name in strays(trajectory) if not name.startswith("extra."))
        yield facts.imported(value.place, steps=steps, task_id=prompt_id(told), left_out=left_out)


class _Reading:
    """Walks through a trajectory: what was said so far is the next reply's prompt."""

    def __init__(self, trajectory: _Trajectory) -> None:
        self._trajectory = trajectory
        self._said: list[Message] = []
        self._new: list[str] = []
        self._steps = GrowingSteps()
        self._first = ""

    def read(self) -> tuple[tuple[Step, ...], str, str]:
        """The steps, what was said before the first, and what after the last."""
        agent = self._trajectory.agent
        tools = tuple(tool.of_ours() for tool in agent.tool_definitions or ())
        for step in self._trajectory.steps:
            text = _text(step.message)
            if step.source != "agent":
                self._said.append(Message(role=step.source, content=text))
                if step.source == "user":
                    self._new.append(text)
            else:
                if not self._steps.made:
                    self._first = "\n".join(message.text for message in self._said)
                self._add(step, text, tools)
            self._hear(step)
        return tuple(self._steps.made), self._first, "\n".join(self._new)

    def _add(self, step: _Step, text: str, tools: tuple[Tool, ...]) -> None:
        facts = step.extra or CallFacts()
        calls = () if step.llm_call_count == 0 else (_call(step, facts, self._said, text, tools),)
        action = facts.action
        if action is None:
            action = text or "; ".join(
                f"{call.function_name} {json.dumps(call.arguments, ensure_ascii=False)}"
                for call in step.tool_calls or ()
            )
        observed = "\n".join(self._new) if facts.observation is None else facts.observation
        self._steps.add(
            calls,
            step_index=facts.step_index,
            observation=observed,
            action=action,
            action_valid=facts.action_valid,
            reward=facts.reward or 0.0,
        )
        self._said.append(_said(step, text))
        self._new = []

    def _hear(self, step: _Step) -> None:
        asked = {call.tool_call_id for call in step.tool_calls or ()}
        for result in () if step.observation is None else step.observation.results:
            text = _text(result.content)
            self._new.append(text)
            if result.source_call_id in asked:
                answer = Message(role="tool", content=text, tool_call_id=result.source_call_id)
            else:
                answer = Message(role="user", content=text)
            self._said.append(answer)


def _text(content: Content | None) -> str:
    """Texts one below the other; of a picture, which is a file of its own, that there was one."""
    if content is None or isinstance(content, str):
        return content or ""
    return "\n".join(part.text if part.text is not None else f"[{part.type}]" for part in content)


def _asked(step: _Step) -> tuple[ToolCall, ...]:
    return tuple(
        ToolCall(
            id=call.tool_call_id,
            name=call.function_name,
            arguments=json.dumps(call.arguments, ensure_ascii=False),
        )
        for call in step.tool_calls or ()
    )


def _said(step: _Step, text: str) -> Message:
    return Message(
        role="assistant",
        content=text,
        tool_calls=_asked(step),
        reasoning=step.reasoning_content or "",
    )


def _call(
    step: _Step, facts: CallFacts, said: list[Message], text: str, tools: tuple[Tool, ...]
) -> Call:
    metrics = step.metrics or _Metrics()
    sampled = None
    if metrics.completion_token_ids is not None and metrics.logprobs is not None:
        if len(metrics.logprobs) != len(metrics.completion_token_ids):
            raise ValueError(
                f"step_id {step.step_id}, field metrics.logprobs: {len(metrics.logprobs)} for "
                f"{len(metrics.completion_token_ids)} completion_token_ids"
            )
        sampled = SampledTokens(
            prompt_tokens=tuple(metrics.prompt_token_ids or ()),
            action_tokens=tuple(metrics.completion_token_ids),
            behavior_logprobs=tuple(metrics.logprobs),
            policy_version=facts.policy_version or 0,
        )
    thought = step.reasoning_content
    return Call(
        messages=tuple(said),
        reply=f"<think>{thought}</think>{text}" if thought else text,
        sampled=sampled,
        trained=False,
        tools=tools,
        tool_calls=_asked(step),
        purpose=facts.purpose,
        agent=facts.agent,
        model=step.model_name or facts.model,
        finish_reason=facts.finish_reason,
        conversation=facts.conversation,
        continuation=facts.continuation,
        cost_usd=metrics.cost_usd,
        num_cached_tokens=metrics.cached_tokens,
    )


def write_atif(episode: StoredEpisode) -> Iterator[dict[str, Any]]:
    """The episode as one trajectory: a step of the agent for each call, all agents together."""
    summary = episode.detail.summary
    steps = [{"step_id": number, **step} for number, step in enumerate(_written(episode), start=1)]
    calls = [call for step in episode.detail.steps for call in step.calls]
    tools = {tool.name: tool for call in calls for tool in call.tools}
    agent: dict[str, Any] = {"name": "longhaul", "version": version("longhaul-core")}
    if tools:
        agent["tool_definitions"] = [tool_json(tool) for tool in tools.values()]
    costs = [call.cost_usd for call in calls if call.cost_usd is not None]
    yield {
        "schema_version": ATIF_VERSION,
        "session_id": summary.run_id,
        "trajectory_id": summary.episode_id,
        "agent": agent,
        "steps": steps,
        "final_metrics": {
            "total_prompt_tokens": summary.num_prompt_tokens,
            "total_completion_tokens": summary.num_action_tokens,
            "total_cost_usd": sum(costs) if costs else None,
            "total_steps": len(steps),
        },
        "extra": EpisodeFacts.of(episode),
    }


def _written(episode: StoredEpisode) -> Iterator[dict[str, Any]]:
    steps = episode.detail.steps
    first = next((call for step in steps for call in step.calls), None)
    told = [] if first is None else [each.text for each in first.messages if each.role == "system"]
    for text in told:
        yield {"source": "system", "message": text}
    if steps:
        yield {"source": "user", "message": steps[0].observation or ""}
    for place, step in enumerate(steps):
        following = steps[place + 1].observation if place + 1 < len(steps) else None
        if place + 1 == len(steps):
            following = episode.detail.final_observation
        yield from _agent_steps(step, episode=episode, following=following or "")


def _agent_steps(
    step: StepDetail, *, episode: StoredEpisode, following: str
) -> Iterator[dict[str, Any]]:
    observation = {"results": [{"content": following}]} if following else None
    if not step.calls:
        extra = {
            "step_index": step.step_index,
            "observation": step.observation,
            "action": step.action,
            "action_valid": step.action_valid,
            "reward": step.reward,
        }
        made: dict[str, Any] = {
            "source": "agent",
            "message": step.action,
            "llm_call_count": 0,
            "extra": extra,
        }
        yield made if observation is None else made | {"observation": observation}
    for place, call in enumerate(step.calls):
        last = place + 1 == len(step.calls)
        made = {
            "source": "agent",
            "message": call.reply or "",
            "llm_call_count": 1,
            "extra": CallFacts.of(
                step, call, reward=step.reward if last else 0.0, prefix=episode.prefix(call)
            ),
        }
        if call.model:
            made["model_name"] = call.model
        if call.tool_calls:
            made["tool_calls"] = [_tool_call_json(each) for each in call.tool_calls]
        made["metrics"] = _metrics_json(call)
        if last and observation is not None:
            made["observation"] = _answered(call, observation, following)
        yield made


def _answered(call: CallDetail, observation: dict[str, Any], following: str) -> dict[str, Any]:
    if len(call.tool_calls) != 1:
        return observation
    return {"results": [{"source_call_id": call.tool_calls[0].id, "content": following}]}


def _tool_call_json(call: ToolCall) -> dict[str, Any]:
    try:
        arguments = json.loads(call.arguments)
    except ValueError:
        arguments = None
    if not isinstance(arguments, dict):  # the model may write anything, ATIF holds an object
        arguments = {"arguments": call.arguments}
    return {"tool_call_id": call.id, "function_name": call.name, "arguments": arguments}


def _metrics_json(call: CallDetail) -> dict[str, Any]:
    found: dict[str, Any] = {
        "prompt_tokens": call.num_prompt_tokens,
        "completion_tokens": call.num_action_tokens,
        "cached_tokens": call.num_cached_tokens,
        "cost_usd": call.cost_usd,
    }
    if call.tokens is not None:
        found |= {
            "prompt_token_ids": list(call.tokens.prompt_tokens),
            "completion_token_ids": list(call.tokens.action_tokens),
            "logprobs": call.tokens.logprobs,
        }
    return {name: value for name, value in found.items() if value is not None}
