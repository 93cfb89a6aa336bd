"""The policy of `learning.py`: a small Llama that begins by imitating the expert, and its sampler.

Shapes: N examples, B of a batch, T tokens of a prompt (the same for all), V words.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportAttributeAccessIssue=false
# tokenizers and transformers are untyped.

import asyncio
import json
import random
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from safetensors.torch import save_file
from tokenizers import AddedToken, Tokenizer, pre_tokenizers
from tokenizers.models import WordLevel
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerBase

from longhaul_core.policy import Completion, Prompt, Sampling
from longhaul_core.types import Call, FinishReason, Message, Split
from longhaul_envs.key_door.rooms import ACTIONS, Rooms
from longhaul_envs.key_door.tasks import KeyDoorOptions, tasks
from longhaul_trainer.models.folder import (
    MESSAGE_END,
    MESSAGE_START,
    PAD,
    LlamaShape,
    write_config,
)
from longhaul_trainer.rendering.renderer import ChatTemplateRenderer

FloatArray = npt.NDArray[np.float32]

SHAPE = LlamaShape(
    num_layers=2,
    hidden_size=64,
    intermediate_size=192,
    num_heads=2,
    num_key_value_heads=2,
    vocabulary_size=32,
    context_tokens=128,
    rope_theta=10000.0,
)
"""0.11 million parameters."""
WARM_START_SEED = 0
WARM_START_UPDATES = 300
DEMONSTRATED_STEPS = 50
ATTENTION = 0.25
WARM_START_BATCH = 128
WARM_START_RATE = 2e-3

OPTIONS = KeyDoorOptions()
WORDS = (
    *(PAD, MESSAGE_START, MESSAGE_END, *ACTIONS),
    *("key", "taken", "-", "door", "shut", "open", "goal", "level"),
    *map(str, range(2 * OPTIONS.room_size + 1)),
)
"""The vocabulary, in the order of its ids."""
UNKNOWN = "-"


def warm_started(folder: Path) -> Path:
    """Folder of the policy that every run starts from; the first call trains it."""
    model = folder / "model"
    if not (model / "model.safetensors").exists():
        model.mkdir(exist_ok=True)
        started = time.monotonic()
        write_config(model, SHAPE, dtype="float32")
        write_tokenizer(model)
        imitate(model)
        print(f"warm start: {time.monotonic() - started:.0f} s", flush=True)
    return model


def write_tokenizer(folder: Path) -> None:
    """One token for each word; of any other text that of `-`, which is no control token."""
    vocabulary = {word: number for number, word in enumerate(WORDS)}
    tokenizer: Any = Tokenizer(WordLevel(vocab=vocabulary, unk_token=UNKNOWN))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    special = [AddedToken(word, special=True, normalized=False) for word in WORDS[:3]]
    tokenizer.add_special_tokens(special)
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": MESSAGE_START,
        "eos_token": MESSAGE_END,
        "pad_token": PAD,
        "unk_token": UNKNOWN,
        "clean_up_tokenization_spaces": False,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")
    template = "{{ messages[-1]['content'] + '" + MESSAGE_END + "' }}"
    (folder / "chat_template.jinja").write_text(template, encoding="utf-8")


def imitate(folder: Path) -> None:
    """Random weights, trained for a while to make the expert's moves, into `folder`."""
    torch.set_num_threads(1)
    torch.manual_seed(WARM_START_SEED)
    model = LlamaForCausalLM(LlamaConfig.from_pretrained(folder))
    examples = list(distracted_examples())
    prompts_NT = torch.tensor([prompt for prompt, _ in examples])
    actions_N = torch.tensor([action for _, action in examples])
    optimizer = torch.optim.AdamW(model.parameters(), weight_decay=0.0)
    for update in range(WARM_START_UPDATES):
        rate = WARM_START_RATE * min(1.0, (update + 1) / 20) * (1 - update / WARM_START_UPDATES)
        for group in optimizer.param_groups:
            group["lr"] = rate
        chosen_B = torch.randint(len(examples), (WARM_START_BATCH,))
        logits_BV = next_token_logits(model, prompts_NT[chosen_B])
        loss = torch.nn.functional.cross_entropy(logits_BV, actions_N[chosen_B])
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    weights = {
        name: tensor.contiguous()
        for name, tensor in model.state_dict().items()
        if name != "lm_head.weight"  # tied to the embedding
    }
    save_file(weights, folder / "model.safetensors", {"format": "pt"})


def distracted_examples() -> Iterator[tuple[list[int], int]]:
    """A distracted expert's episodes on the training tasks: each observation and the action there.

    At the start and wherever it arrives it heads with probability `ATTENTION` for the place to go
    to, else for a corner of the room, drawn evenly.
    """
    number = {word: place for place, word in enumerate(WORDS)}
    draw = random.Random(WARM_START_SEED)
    for task in tasks(Split.TRAIN, OPTIONS):
        rooms = Rooms.laid_out(OPTIONS.room_size, task.seed)
        heading = rooms.at
        for _ in range(DEMONSTRATED_STEPS):
            there = rooms.at == heading == rooms.place_to_go()
            while rooms.at == heading and not there:
                attentive = draw.random() < ATTENTION
                heading = rooms.place_to_go() if attentive else draw.choice(rooms.room_corners())
                there = rooms.at == heading == rooms.place_to_go()
            action = rooms.action_toward(heading)
            yield (
                [number[word] for word in (*rooms.in_words().split(), MESSAGE_END)],
                number[action],
            )
            rooms = rooms.after(action)
            if rooms.is_won:
                break


def next_token_logits(model: LlamaForCausalLM, prompts_BT: torch.Tensor) -> torch.Tensor:
    """Logits of the reply's only token; the prompts are equally long, so none is padded."""
    return model(input_ids=prompts_BT, logits_to_keep=1, use_cache=False).logits[:, -1].float()


class TorchPolicy:
    """Samples replies of one token: all prompts that wait go through the model together."""

    def __init__(self, model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerBase) -> None:
        self._model = model
        self._words = [str(tokenizer.decode([token])) for token in range(len(WORDS))]
        self._logprobs: dict[tuple[int, ...], FloatArray] = {}
        """Of each prompt met since the last update; the same prompt is read once."""
        self._waiting: dict[tuple[int, ...], asyncio.Future[None]] = {}
        self.version = 0

    def updated(self) -> None:
        """Clear what was computed with the weights before the optimizer step."""
        self._logprobs.clear()
        self.version += 1

    async def act(self, prompt: Prompt, sampling: Sampling, *, episode_id: str) -> Completion:
        """See `Policy.act`."""
        del episode_id
        if prompt.tokens not in self._logprobs:
            if not self._waiting:
                asyncio.get_running_loop().call_soon(self._read_waiting)
            if prompt.tokens not in self._waiting:
                self._waiting[prompt.tokens] = asyncio.get_running_loop().create_future()
            await self._waiting[prompt.tokens]
        logprobs_V = self._logprobs[prompt.tokens]
        token = drawn_token(logprobs_V, sampling)
        return Completion(
            text=self._words[token],
            action_tokens=(token,),
            behavior_logprobs=(float(logprobs_V[token]),),
            policy_version=self.version,
            finish_reason=FinishReason.LENGTH,
        )

    def entropy(self, prompt_tokens: tuple[int, ...]) -> float:
        """In nats, of its next token after a prompt that it has answered since its last update."""
        logprobs_V = self._logprobs[prompt_tokens].astype(np.float64)
        return float(-(np.exp(logprobs_V) * logprobs_V).sum())

    def _read_waiting(self) -> None:
        waiting, self._waiting = self._waiting, {}
        with torch.no_grad():
            logits_BV = next_token_logits(self._model, torch.tensor(list(waiting)))
        for (tokens, future), logprobs_V in zip(
            waiting.items(), logits_BV.log_softmax(-1).numpy(), strict=True
        ):
            self._logprobs[tokens] = logprobs_V
            future.set_result(None)


def drawn_token(logprobs_V: FloatArray, sampling: Sampling) -> int:
    """The likeliest token at temperature 0, else one drawn by the seed; temperature 1 alone."""
    if sampling.temperature == 0:
        return int(logprobs_V.argmax())
    cumulative_V = np.exp(logprobs_V.astype(np.float64)).cumsum()
    uniform = (np.random.PCG64(sampling.seed).random_raw() >> 11) * 2.0**-53
    return int(cumulative_V.searchsorted(uniform * cumulative_V[-1], side="right"))


class CachedRenderer(ChatTemplateRenderer):
    """Renders the same messages once."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        super().__init__(tokenizer)
        self._rendered: dict[tuple[Message, ...], tuple[int, ...]] = {}

    def render(
        self,
        messages: Sequence[Message],
        *,
        earlier: Sequence[Call] = (),
        begins_reply: bool = True,
    ) -> tuple[int, ...]:
        """See `Renderer.render`; no prompt goes on from an earlier one here."""
        key = tuple(messages)
        if key not in self._rendered:
            self._rendered[key] = super().render(messages)
        return self._rendered[key]
