"""A policy small enough to read whole, that samples, scores and learns for real.

It reads the admissible actions out of its prompt, draws one reply from a softmax over
linear features, and reports the exact probability of every token it wrote: replies are
cut into tokens, and a token's probability is the mass of the replies that go on that
way. REINFORCE moves the weights. So a sample store has true logprobs, true failures to
answer properly, and curves that rise because something was learnt.
"""

import math
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np

from longhaul_core.policy import Completion, Prompt, Sampling
from longhaul_core.types import Call, Message, SampledTokens, Step

NUM_FEATURES = 6
STRAY_REPLIES = (
    "I look around.",
    "<action>craft everything</action>",
    "先想一想：<action>合成木板</action> 🪵",
    "<think>if a < b & b > c</think>\n<action>שלום עולם</action>",
    '<script>alert(1)</script><img src="x" onerror="alert(2)"> [link](http://example.com)',
)
"""What an untrained model also says; none of them is an accepted action."""


class ByteTokenizer:
    """Words cut into pieces of at most five bytes, so some tokens split a character."""

    def __init__(self) -> None:
        self._ids: dict[bytes, int] = {}

    def encode(self, text: str) -> tuple[int, ...]:
        words = re.findall(rb"\s?[^\s]+|\s+", text.encode())
        pieces = [word[at : at + 5] for word in words for at in range(0, len(word), 5)]
        return tuple(self._ids.setdefault(piece, len(self._ids)) for piece in pieces)

    @property
    def vocabulary(self) -> Mapping[int, bytes]:
        """The bytes of every token met so far."""
        return {number: piece for piece, number in self._ids.items()}

    def render(
        self,
        messages: Sequence[Message],
        *,
        earlier: Sequence[Call] = (),
        begins_reply: bool = True,
    ) -> tuple[int, ...]:
        turns = (f"<|im_start|>{one.role}\n{one.text}<|im_end|>\n" for one in messages)
        return self.encode("".join(turns) + "<|im_start|>assistant\n")

    def decode(self, tokens: Sequence[int]) -> str:
        pieces = self.vocabulary
        return b"".join(pieces[token] for token in tokens).decode()


def acted(step: Step) -> Call:
    """The call that chose the action."""
    assert step.act is not None
    return step.act


def tokens_of(step: Step) -> SampledTokens:
    """The tokens of that call."""
    sampled = acted(step).sampled
    assert sampled is not None
    return sampled


class SoftmaxPolicy:
    """Chooses among the admissible actions and some stray replies."""

    def __init__(self, tokenizer: ByteTokenizer) -> None:
        self._tokenizer = tokenizer
        self.weights = np.zeros(NUM_FEATURES)
        self.version = 0

    async def act(self, prompt: Prompt, sampling: Sampling, *, episode_id: str) -> Completion:
        replies, features = self._choices(prompt.messages)
        probabilities = self._probabilities(features, sampling.temperature)
        generator = np.random.default_rng(sampling.seed)
        choice = int(generator.choice(len(replies), p=probabilities))
        tokens = [self._tokenizer.encode(reply) for reply in replies]
        return Completion(
            text=replies[choice],
            action_tokens=tokens[choice],
            behavior_logprobs=token_logprobs(tokens[choice], tokens, probabilities),
            policy_version=self.version,
        )

    def learner_logprobs(self, step: Step) -> tuple[float, ...]:
        """Logprobs of a step's tokens under the weights of now."""
        replies, features = self._choices(acted(step).messages)
        tokens = [self._tokenizer.encode(reply) for reply in replies]
        return token_logprobs(
            tokens_of(step).action_tokens, tokens, self._probabilities(features, 1.0)
        )

    def learner_entropies(self, step: Step) -> tuple[float, ...]:
        """Entropy of the next token, in nats, at each of a step's tokens, likewise."""
        replies, features = self._choices(acted(step).messages)
        tokens = [self._tokenizer.encode(reply) for reply in replies]
        return token_entropies(
            tokens_of(step).action_tokens, tokens, self._probabilities(features, 1.0)
        )

    def learn(self, steps: Sequence[tuple[Step, float]], *, learning_rate: float) -> None:
        """One REINFORCE step over (step, advantage) pairs."""
        gradient = np.zeros(NUM_FEATURES)
        for step, advantage in steps:
            replies, features = self._choices(acted(step).messages)
            expected = self._probabilities(features, 1.0) @ features
            gradient += advantage * (features[replies.index(acted(step).reply)] - expected)
        self.weights = self.weights + learning_rate * gradient / len(steps)
        self.version += 1

    def _probabilities(self, features: np.ndarray, temperature: float) -> np.ndarray:
        scores = features @ self.weights / max(temperature, 1e-3)
        exponentials = np.exp(scores - scores.max())
        return exponentials / exponentials.sum()

    def _choices(self, messages: Sequence[Message]) -> tuple[list[str], np.ndarray]:
        """Every reply that can be drawn, with its features."""
        prompt = messages[-1].text
        listed = re.search(r"^Actions: (.*)$", prompt, re.MULTILINE)
        goal = re.search(r"^Goal: craft (.*)$", prompt, re.MULTILINE)
        held = re.search(r"^Inventory: (.*)$", prompt, re.MULTILINE)
        actions = listed[1].split(" | ") if listed else []
        goal_text, held_text = goal[1] if goal else "?", held[1] if held else ""
        recipes = [line for line in prompt.splitlines() if line.startswith("craft ")]
        rows = [_features(action, goal_text, held_text, recipes) for action in actions]
        rows += [[0.0] * (NUM_FEATURES - 1) + [1.0] for _ in STRAY_REPLIES]
        return [f"<action>{action}</action>" for action in actions] + [*STRAY_REPLIES], np.array(
            rows
        )


def token_logprobs(
    written: Sequence[int], replies: Sequence[Sequence[int]], probabilities: np.ndarray
) -> tuple[float, ...]:
    """Log of each written token's probability after the ones before it."""
    mass = [
        sum(
            float(probability)
            for reply, probability in zip(replies, probabilities, strict=True)
            if tuple(reply[:length]) == tuple(written[:length])
        )
        for length in range(len(written) + 1)
    ]
    return tuple(min(0.0, math.log(after / before)) for before, after in pairwise(mass))


def token_entropies(
    written: Sequence[int], replies: Sequence[Sequence[int]], probabilities: np.ndarray
) -> tuple[float, ...]:
    """Entropy, in nats, of the token that follows the ones before each written token."""
    found: list[float] = []
    for length in range(len(written)):
        mass: defaultdict[int, float] = defaultdict(float)
        for reply, probability in zip(replies, probabilities, strict=True):
            if len(reply) > length and tuple(reply[:length]) == tuple(written[:length]):
                mass[reply[length]] += float(probability)
        shares = np.array(list(mass.values())) / sum(mass.values())
        found.append(max(0.0, float(-(shares * np.log(shares)).sum())))
    return tuple(found)


def _features(action: str, goal: str, held: str, recipes: Sequence[str]) -> list[float]:
    verb, _, rest = action.partition(" ")
    item = rest.partition(" ")[2].partition(" using ")[0]
    makes_goal = verb == "craft" and item == goal
    wanted = any(line.partition(" using ")[0].endswith(goal) and item in line for line in recipes)
    return [
        float(makes_goal),
        float(verb == "craft"),
        float(verb == "get" and wanted),
        float(item in held),
        float(verb == "get"),
        0.0,
    ]
