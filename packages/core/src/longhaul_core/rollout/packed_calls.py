"""Calls of an open episode in little memory.

A tuple of 4,000 token ids takes 140 kB; packed they are 16. A program may have many episodes open
for long, each with the whole prompt of each of its calls.
"""

from array import array
from dataclasses import replace

from longhaul_core.policy import PROMPT_END
from longhaul_core.types import Call, SampledTokens

__all__ = ["LARGEST_TOKEN", "PackedCall", "packed_tokens"]

LARGEST_TOKEN = 2**31 - 1
"""That is kept, and that the store takes."""


def packed_tokens(tokens: tuple[int, ...]) -> "array[int]":
    """Four bytes for each token.

    Raises:
        OverflowError: One does not lie in [0, `LARGEST_TOKEN`].
    """
    return array("i", tokens)


class PackedCall:
    """A call whose tokens are packed: 4 bytes for each, and 8 for a logprob."""

    __slots__ = ("_logprobs", "_num_prompt_tokens", "_policy_version", "bare", "tokens", "trained")

    def __init__(self, call: Call) -> None:
        """Keep a call."""
        self.bare = replace(call, sampled=None, trained=False)
        """The call without its tokens."""
        self.trained = call.trained
        self.tokens: array[int] | None = None
        """Read and written; None where nobody knows them."""
        self._num_prompt_tokens = self._policy_version = 0
        self._logprobs: array[float] | None = None
        if call.sampled is not None:
            self.tokens = packed_tokens(call.sampled.prompt_tokens + call.sampled.action_tokens)
            self._num_prompt_tokens = len(call.sampled.prompt_tokens)
            self._policy_version = call.sampled.policy_version
            logprobs = call.sampled.behavior_logprobs
            self._logprobs = None if logprobs is None else array("d", logprobs)

    def whole(self) -> Call:
        """The call as it was."""
        return self._with_prompt_from(0)

    def without_prompt(self) -> Call:
        """The call with the last `PROMPT_END` tokens of its prompt: who has it writes what follows.

        To unpack 4,000 tokens takes as long as to render 20 new words.
        """
        return self._with_prompt_from(max(0, self._num_prompt_tokens - PROMPT_END))

    def followed_by(self, added: tuple[int, ...]) -> tuple[int, ...]:
        """The tokens of its prompt and its reply, and then these.

        Raises:
            ValueError: Nobody knows its tokens.
        """
        if self.tokens is None:
            raise ValueError("a call without tokens cannot be gone on from")
        return tuple((self.tokens + packed_tokens(added)).tolist())

    def _with_prompt_from(self, first: int) -> Call:
        if self.tokens is None:
            return self.bare
        place = self._num_prompt_tokens
        sampled = SampledTokens(
            prompt_tokens=tuple(self.tokens[first:place].tolist()),
            action_tokens=tuple(self.tokens[place:].tolist()),
            behavior_logprobs=None if self._logprobs is None else tuple(self._logprobs),
            policy_version=self._policy_version,
        )
        return replace(self.bare, sampled=sampled, trained=self.trained)
