# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
# (transformers annotates little of what it returns)
"""A small policy of text in this process: no engine is started, and many replies are one batch.

Each next token of all replies that are under way comes from one forward pass over their whole
texts, without a cache: for weights of this size that costs less than keeping one.

Shapes: N texts, T tokens of the longest, V tokens of the vocabulary, K tokens of a reply.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import safe_open
from transformers import AutoModelForCausalLM, AutoTokenizer

from longhaul_core.advantages.credit import FloatArray
from longhaul_core.policy import Completion, Prompt, Renderer, Sampling
from longhaul_core.store.records import TokenPieces
from longhaul_core.types import FinishReason
from longhaul_trainer.config import RunConfig
from longhaul_trainer.models.prepare import prepare_model
from longhaul_trainer.models.vision import reads_pictures
from longhaul_trainer.play.imitation.player import player_with
from longhaul_trainer.play.players import EnvironmentPlayer
from longhaul_trainer.rendering.pieces import token_pieces

__all__ = [
    "MOST_PARAMETERS",
    "SmallModel",
    "SmallPolicy",
    "is_small",
    "small_player",
    "token_shares",
    "token_texts",
]

MOST_PARAMETERS = 10_000_000
"""Of weights that are sampled here; larger ones are the engine's."""
_MOST_LOGITS = 2**26
"""Of one forward pass, 256 MiB in float32, and of those that are kept."""

Tokens = tuple[int, ...]


def is_small(folder: Path) -> bool:
    """Whether weights are sampled in this process: at most `MOST_PARAMETERS`, and text alone.

    Args:
        folder: Of a Hugging Face model; the weights are not read.
    """
    if reads_pictures(folder):
        return False
    num_parameters = 0
    for path in folder.glob("*.safetensors"):
        with safe_open(path, framework="numpy") as file:
            shapes = (file.get_slice(name).get_shape() for name in file.keys())  # noqa: SIM118
            num_parameters += sum(int(np.prod(shape)) for shape in shapes)
    return num_parameters <= MOST_PARAMETERS


class SmallModel:
    """Weights of a causal language model, in float32 on the CPU.

    The logits of texts are kept as far as there is room: where the memory is `none`, the same
    prompts come back again and again.
    """

    def __init__(self, folder: Path) -> None:
        """Load them. PyTorch then computes in one thread; others play the episodes.

        Args:
            folder: Of a Hugging Face model.
        """
        torch.set_num_threads(1)
        self.model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        of_model: int | list[int] | None = self.model.generation_config.eos_token_id
        of_tokenizer: int | None = AutoTokenizer.from_pretrained(folder).eos_token_id
        ends = [of_model] if isinstance(of_model, int) else of_model or []
        self.end_tokens: frozenset[int] = frozenset(
            [*ends, *([] if of_tokenizer is None else [of_tokenizer])]
        )
        """By which it ends a reply, as for vLLM those of both files."""
        self._known: dict[Tokens, FloatArray] = {}
        self._looking = threading.Lock()

    def next_logits(self, texts: Sequence[Tokens]) -> list[FloatArray]:
        """Of the token after each of N texts, each of shape (V,). Threads take turns."""
        with self._looking:
            if len(self._known) + len(texts) > self.most_kept:
                self._known.clear()
            new = [text for text in dict.fromkeys(texts) if text not in self._known]
            if new:
                found = self.last_logits(new, [1] * len(new))
                self._known |= {text: one[0] for text, one in zip(new, found, strict=True)}
            return [self._known[text] for text in texts]

    @property
    def num_parameters(self) -> int:
        """Of all weights, shared ones once."""
        return sum(each.numel() for each in self.model.parameters())

    @property
    def most_kept(self) -> int:
        """Texts whose next logits there is room for; more should not be asked for at once."""
        return max(1, _MOST_LOGITS // self.model.config.vocab_size)

    def last_logits(self, texts: Sequence[Tokens], numbers: Sequence[int]) -> Iterator[FloatArray]:
        """Of the tokens that follow the last places of each text, each of shape (its number, V).

        Memory holds those of one forward pass.
        """
        rows = self.rows_at_once(texts)
        for start in range(0, len(texts), rows):
            part = [list(text) for text in texts[start : start + rows]]
            with torch.inference_mode():
                logits_NTV = self.logits(part).numpy()
            of_part = zip(logits_NTV, part, numbers[start : start + rows], strict=True)
            for logits_TV, text, number in of_part:
                yield logits_TV[len(text) - number : len(text)].copy()

    def rows_at_once(self, texts: Sequence[Sequence[int]]) -> int:
        """Texts of one forward pass, at least 1, of which all logits have room."""
        return max(1, _MOST_LOGITS // (max(map(len, texts)) * self.model.config.vocab_size))

    def logits(self, texts: Sequence[list[int]]) -> torch.Tensor:
        """Of each place's next token, shape (N, T, V); places after a text's end mean nothing."""
        longest = max(map(len, texts))
        # What stands to the right of a place has no part in it, so the filling needs no mask.
        filled = [text + [0] * (longest - len(text)) for text in texts]
        return self.model(input_ids=torch.tensor(filled), use_cache=False).logits


def token_shares(logits_V: FloatArray, *, temperature: float, top_p: float) -> FloatArray:
    """The probability by which each token is drawn, as vLLM computes it, shape (V,).

    Args:
        logits_V: Of the next token.
        temperature: Above 0.
        top_p: Of the likeliest tokens that together have this much, at least one; in (0, 1].
    """
    scaled_V = logits_V.astype(np.float64) / temperature
    shares_V = np.exp(scaled_V - scaled_V.max())
    shares_V /= shares_V.sum()
    if top_p < 1.0:
        order_V = np.argsort(shares_V, kind="stable")
        dropped_V = np.cumsum(shares_V[order_V]) <= 1.0 - top_p
        dropped_V[-1] = False
        shares_V[order_V[dropped_V]] = 0.0
        shares_V /= shares_V.sum()
    return shares_V


@dataclass(slots=True, eq=False)
class _Reply:
    prompt: Tokens
    sampling: Sampling
    draw: np.random.Generator
    tokens: list[int] = field(default_factory=list[int])
    logprobs: list[float] = field(default_factory=list[float])
    stopped: bool = False

    @property
    def ended(self) -> bool:
        return self.stopped or len(self.tokens) == self.sampling.max_tokens

    def add(self, logits_V: FloatArray, ends: frozenset[int]) -> None:
        greedy = self.sampling.temperature == 0.0
        shares_V = token_shares(
            logits_V,
            temperature=1.0 if greedy else self.sampling.temperature,
            top_p=1.0 if greedy else self.sampling.top_p,
        )
        token = int(np.argmax(shares_V)) if greedy else _drawn(shares_V, self.draw.random())
        self.tokens.append(token)
        self.logprobs.append(float(np.log(shares_V[token])))
        self.stopped = token in ends


def _drawn(shares_V: FloatArray, place: float) -> int:
    """The token at a place of [0, 1) among the shares; never one without a share."""
    bounds_V = np.cumsum(shares_V)
    return int(np.searchsorted(bounds_V, place * bounds_V[-1], side="right"))


class SmallPolicy:
    """A `Policy` whose replies are drawn here, all that are under way together.

    A reply depends on its prompt, its seed and the weights; beside others it may differ where a
    draw falls within rounding of a bound.
    """

    def __init__(self, model: SmallModel, renderer: Renderer) -> None:
        """Nothing is sampled yet.

        Args:
            model: May be shared.
            renderer: Makes text of replies.
        """
        self._model, self._renderer = model, renderer
        self._open: list[_Reply] = []
        self._pass: asyncio.Task[None] | None = None

    async def act(self, prompt: Prompt, sampling: Sampling, *, episode_id: str) -> Completion:
        """See `Policy.act`.

        Raises:
            ValueError: The call has stop words, or settings that only the engine knows.
        """
        if sampling.stop or sampling.altered:
            raise ValueError(
                f"episode {episode_id} asks for {sampling.stop or sampling.altered}, and a small "
                "policy is drawn by temperature and top_p alone; no environment asks for more"
            )
        reply = _Reply(prompt.tokens, sampling, np.random.default_rng(sampling.seed))
        self._open.append(reply)
        try:
            while not reply.ended:
                if self._pass is None or self._pass.done():
                    self._pass = asyncio.create_task(self._next_tokens())
                await asyncio.shield(self._pass)
        finally:
            self._open.remove(reply)
        return Completion(
            text=self._renderer.decode(reply.tokens),
            action_tokens=tuple(reply.tokens),
            behavior_logprobs=tuple(reply.logprobs),
            policy_version=0,
            finish_reason=FinishReason.STOP if reply.stopped else FinishReason.LENGTH,
        )

    async def _next_tokens(self) -> None:
        """One more token of each reply under way."""
        replies = [reply for reply in self._open if not reply.ended]
        texts = [(*reply.prompt, *reply.tokens) for reply in replies]
        logits = await asyncio.to_thread(self._model.next_logits, texts)
        for reply, logits_V in zip(replies, logits, strict=True):
            reply.add(logits_V, self._model.end_tokens)


def token_texts(run: RunConfig, *, run_id: str) -> TokenPieces:
    """The text of every token that a run's small model may read or write.

    Raises:
        ConfigError: It cannot be had.
    """
    tokenizer = AutoTokenizer.from_pretrained(prepare_model(run.model.path))
    return TokenPieces(run_id=run_id, pieces=token_pieces(tokenizer, range(len(tokenizer))))


def small_player(run: RunConfig) -> EnvironmentPlayer:
    """Plays a run's environments by its small model, as training's episodes are played.

    Raises:
        ConfigError: Its model, or an environment as it describes it, cannot be had.
    """
    model = SmallModel(prepare_model(run.model.path))
    return player_with(run, lambda renderer: SmallPolicy(model, renderer))
