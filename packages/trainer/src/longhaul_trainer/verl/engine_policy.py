"""verl's rollout server as a policy."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from typing import Any, cast

from verl.workers.rollout.llm_server import LLMServerClient
from verl.workers.rollout.replica import TokenOutput

from longhaul_core.policy import Completion, Prompt, Renderer, Sampling
from longhaul_core.types import FinishReason, pictures_of
from longhaul_trainer.rendering.pictures import PictureReader
from longhaul_trainer.verl.client import QUEUE_SECONDS, EngineClient


class EnginePolicy:
    """verl's rollout server as a `Policy`: token ids and pictures in, ids and logprobs out."""

    def __init__(
        self,
        server: LLMServerClient,
        renderer: Renderer,
        *,
        end_token: int | None,
        policy_version: Callable[[int], int],
        seeded: bool = True,
        pictures: PictureReader | None = None,
    ) -> None:
        """Prepare a policy; nothing is sampled yet.

        Args:
            server: Answers requests.
            renderer: Makes text of replies.
            end_token: By which the model ends a reply.
            policy_version: Optimizer steps behind the weights that came out of a training step.
            seeded: Whether each reply is drawn by its own seed, or by the engine's generator.
            pictures: Of a model that reads them; None sends tokens alone.
        """
        self._server = server
        self._renderer = renderer
        self._end_token = end_token
        self._policy_version = policy_version
        self._seeded = seeded
        self._pictures = pictures

    async def act(self, prompt: Prompt, sampling: Sampling, *, episode_id: str) -> Completion:
        """See `Policy.act`."""
        output = await self._server.generate(
            episode_id,
            prompt_ids=list(prompt.tokens),
            sampling_params=self._asked(sampling),
            **await self._shown(prompt),
        )
        return self._completion(output, sampling)

    async def stream(
        self,
        prompt: Prompt,
        sampling: Sampling,
        *,
        episode_id: str,
        on_tokens: Callable[[Sequence[int]], None],
    ) -> Completion:
        """See `StreamingPolicy.stream`."""
        num_handed = 0

        def hand_on(tokens: Sequence[int]) -> None:
            nonlocal num_handed
            num_handed += len(tokens)
            on_tokens(tokens)

        client = cast("EngineClient", self._server)
        output = await client.generate(
            episode_id,
            prompt_ids=list(prompt.tokens),
            sampling_params=self._asked(sampling),
            on_tokens=hand_on,
            **await self._shown(prompt),
        )
        completion = self._completion(output, sampling)
        if num_handed < len(completion.action_tokens):  # it was interrupted, see `client.py`
            on_tokens(completion.action_tokens[num_handed:])
        return completion

    async def _shown(self, prompt: Prompt) -> dict[str, Any]:
        """The prompt's pictures by verl's name; nothing for a model of text.

        Those that are not kept are decoded in a thread: a screenshot takes 10 ms.

        Raises:
            ValueError: They are not those that the tokens have places for.
        """
        if self._pictures is None:
            return {}
        self._pictures.require_places(prompt.tokens, prompt.messages)
        if not pictures_of(prompt.messages):
            return {}
        return {"image_data": await asyncio.to_thread(self._pictures.images, prompt.messages)}

    def _asked(self, sampling: Sampling) -> dict[str, object]:
        """By vLLM's names."""
        asked: dict[str, object] = {
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "top_k": -1,
            "repetition_penalty": 1.0,
            "logprobs": True,
            "max_tokens": sampling.max_tokens,
        }
        if sampling.stop:
            asked["stop"] = list(sampling.stop)
        if self._seeded:
            asked["seed"] = sampling.seed
        return asked | {name: json.loads(value) for name, value in sampling.altered}

    def _completion(self, output: TokenOutput, sampling: Sampling) -> Completion:
        """What came back, up to the first stop word."""
        tokens, logprobs = tuple(output.token_ids), output.log_probs
        if output.stop_reason == "aborted" or not tokens or logprobs is None:
            raise RuntimeError(f"the engine gave no reply (stop reason {output.stop_reason!r})")
        text, num_tokens, stopped = self._until_stop_word(tokens, sampling.stop)
        tokens = tokens[:num_tokens]
        return Completion(
            text=text,
            action_tokens=tokens,
            behavior_logprobs=tuple(logprobs[:num_tokens]),
            # A reply that waited for an update is finished by other weights than began it.
            policy_version=self._policy_version(output.extra_fields["min_global_steps"]),
            # verl reports replies that reached their limit as completed.
            finish_reason=FinishReason.LENGTH
            if len(tokens) >= sampling.max_tokens and tokens[-1] != self._end_token and not stopped
            else FinishReason.STOP,
            num_cached_tokens=output.extra_fields.get("num_cached_tokens"),
            queue_seconds=output.extra_fields.get(QUEUE_SECONDS, 0.0),
        )

    def _until_stop_word(
        self, tokens: tuple[int, ...], words: Sequence[str]
    ) -> tuple[str, int, bool]:
        """The text before the first stop word, the tokens with it, and whether there is one.

        An engine ends with the token that completes the word. Where the word was interrupted the
        engine read a part of it as prompt and went on: what it wrote after the word is left out.
        """
        text, num_tokens = self._renderer.decode(tokens), len(tokens)
        places = [(text.find(word) + len(word), word) for word in words if word in text]
        if not places:
            return text, num_tokens, False
        end, word = min(places)
        while num_tokens > 1 and word in self._renderer.decode(tokens[: num_tokens - 1]):
            num_tokens -= 1
        return text[: end - len(word)], num_tokens, True
