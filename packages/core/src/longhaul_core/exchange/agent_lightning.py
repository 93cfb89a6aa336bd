"""agent-lightning's triplets: what was read, what was written, and what it was worth.

A line of JSONL is a rollout, as its `RolloutLegacy` prints itself: `rollout_id`, `final_reward`,
`triplets`, `metadata`. A triplet has `prompt` and `response` with `token_ids`, the response
`logprobs` too (`log_probs` in 1.x), a `reward` or null, and `metadata`. Text is no part of it: it
comes from `metadata.messages` and `response.text` where a writer left them, else by a tokenizer.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from pydantic import AliasChoices, Field, FiniteFloat, NonNegativeInt

from longhaul_core.exchange.chat import ChatMessage, GrowingSteps, Lenient, chat_json, strays
from longhaul_core.exchange.episodes import ImportedEpisode, prompt_id, with_return
from longhaul_core.exchange.facts import CallFacts, EpisodeFacts
from longhaul_core.exchange.reading import Value, validated
from longhaul_core.exchange.stored import StoredEpisode
from longhaul_core.types import Call, Message, SampledTokens

__all__ = ["Decode", "read_agent_lightning", "write_agent_lightning"]

Decode = Callable[[Sequence[int]], str]
"""The text of token ids."""


class _Prompt(Lenient):
    token_ids: list[NonNegativeInt] = Field(default_factory=list[int])


class _Response(_Prompt):
    logprobs: list[FiniteFloat] | None = Field(
        default=None, validation_alias=AliasChoices("logprobs", "log_probs")
    )
    text: str | None = None


class _TripletMetadata(CallFacts):
    messages: list[ChatMessage] | None = None
    agent_name: str | None = None


class _Triplet(Lenient):
    prompt: _Prompt
    response: _Response
    reward: FiniteFloat | None = None
    metadata: _TripletMetadata = Field(default_factory=_TripletMetadata)


class _Rollout(Lenient):
    rollout_id: str
    final_reward: FiniteFloat | None = None
    triplets: list[_Triplet]
    metadata: EpisodeFacts | None = None


def read_agent_lightning(
    values: Iterable[Value], *, decode: Decode | None = None
) -> Iterator[ImportedEpisode]:
    """An episode for each rollout, a step for each triplet.

    Args:
        values: Of a file.
        decode: The model's tokenizer, for triplets that have no text.
    """
    for value in values:
        rollout = validated(_Rollout, value)
        with value.place.errors():
            if not rollout.triplets:
                raise ValueError("field triplets: there is none, so the episode has no step")
            growing = GrowingSteps()
            for index, triplet in enumerate(rollout.triplets):
                _add(growing, triplet, index=index, decode=decode)
            steps = tuple(growing.made)
        if all(triplet.reward is None for triplet in rollout.triplets):
            steps = with_return(steps, rollout.final_reward or 0.0)
        facts = rollout.metadata or EpisodeFacts()
        first = steps[0].calls[0]
        task_id = prompt_id(first.messages[-1].text) if first.messages else rollout.rollout_id
        unread = frozenset(each for each in strays(rollout) if not each.startswith("metadata."))
        yield facts.imported(value.place, steps=steps, task_id=task_id, left_out=unread)


def _add(steps: GrowingSteps, triplet: _Triplet, *, index: int, decode: Decode | None) -> None:
    facts, response = triplet.metadata, triplet.response
    sampled = None
    if response.logprobs is not None:
        if len(response.logprobs) != len(response.token_ids):
            raise ValueError(
                f"field triplets.{index}.response.logprobs: {len(response.logprobs)} for "
                f"{len(response.token_ids)} token_ids"
            )
        sampled = SampledTokens(
            prompt_tokens=tuple(triplet.prompt.token_ids),
            action_tokens=tuple(response.token_ids),
            behavior_logprobs=tuple(response.logprobs),
            policy_version=facts.policy_version or 0,
        )
    text = response.text
    if text is None:
        if decode is None:
            raise ValueError(
                f"field triplets.{index}.response: has token_ids and no text; name the model's "
                "folder with --tokenizer"
            )
        text = decode(response.token_ids)
    messages: tuple[Message, ...] = ()
    if facts.messages is not None:
        messages = tuple(message.of_ours() for message in facts.messages)
    elif decode is not None:
        messages = (Message(role="user", content=decode(triplet.prompt.token_ids)),)
    call = Call(
        messages=messages,
        reply=text,
        sampled=sampled,
        trained=False,
        purpose=facts.purpose,
        agent=facts.agent or facts.agent_name or "",
        model=facts.model,
        finish_reason=facts.finish_reason,
        conversation=facts.conversation,
        continuation=facts.continuation,
    )
    observed = messages[-1].text if messages and facts.observation is None else facts.observation
    steps.add(
        (call,),
        step_index=facts.step_index,
        observation=observed or "",
        action=text if facts.action is None else facts.action,
        action_valid=facts.action_valid,
        reward=triplet.reward or 0.0,
    )


def write_agent_lightning(episode: StoredEpisode) -> Iterator[dict[str, Any]]:
    """A line for the episode: a triplet for each call of the model, with its text."""
    triplets: list[dict[str, Any]] = []
    for step, call, reward in episode.paid_calls():
        tokens = call.tokens
        messages = [chat_json(each, media=episode.media) for each in call.messages]
        triplets.append(
            {
                "prompt": {"token_ids": [] if tokens is None else list(tokens.prompt_tokens)},
                "response": {
                    "token_ids": [] if tokens is None else list(tokens.action_tokens),
                    "logprobs": None if tokens is None else tokens.logprobs,
                    "text": call.reply or "",
                },
                "reward": reward,
                "metadata": CallFacts.of(step, call, reward=reward, prefix=episode.prefix(call))
                | {"agent_name": call.agent or None, "messages": messages},
            }
        )
    if triplets:
        yield {
            "rollout_id": episode.detail.summary.episode_id,
            "final_reward": episode.episode_return,
            "triplets": triplets,
            "metadata": EpisodeFacts.of(episode),
        }
