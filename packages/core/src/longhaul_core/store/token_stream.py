"""Token ids of an episode as the store keeps them: one compressed stream, a block for each call.

A prompt repeats most of the prompt before it in its stream: what leads both is left out, and what
stands at another place, as under a window memory or where a conversation forks, is found by zstd,
whose window holds the episode's last million bytes. A block is read after those before it. Four
bytes ahead of each are its CRC-32, so that a block which is not what was written is never read as
other tokens.
"""

import sys
import zlib
from typing import Generic, NamedTuple, TypeVar

from longhaul_core.errors import StoreError
from longhaul_core.store.packing import pack_tokens, shared_prefix_length
from longhaul_core.types import SampledTokens

if sys.version_info >= (3, 14):
    from compression.zstd import (
        CompressionParameter,
        ZstdCompressor,
        ZstdDecompressor,
        ZstdError,
    )
else:
    from backports.zstd import (
        CompressionParameter,
        ZstdCompressor,
        ZstdDecompressor,
        ZstdError,
    )

__all__ = ["LatestPrompts", "Stream", "TokenReader", "TokenWriter"]

PromptT = TypeVar("PromptT")

_OPTIONS: dict[int, int] = {
    CompressionParameter.compression_level: 1,
    CompressionParameter.window_log: 20,
}
_CHECK_BYTES = 4
_TOKEN_BYTES = 4


class Stream(NamedTuple):
    """The calls of an episode whose prompts extend each other, if any do."""

    agent: str
    purpose: str
    conversation: int


class LatestPrompts(Generic[PromptT]):
    """Of one episode's calls with tokens, in order: the prompt whose beginning the next one shares.

    It is that of its stream's last call; of a conversation's first, that of the last call of its
    agent and purpose, which a fork goes on from and a new conversation has the instructions of.
    """

    def __init__(self) -> None:
        self._of_streams: dict[Stream, PromptT] = {}
        self._of_programs: dict[tuple[str, str], PromptT] = {}

    def before(self, stream: Stream) -> PromptT | None:
        """What the next call of `stream` shares its beginning with; None for an agent's first."""
        if stream in self._of_streams:
            return self._of_streams[stream]
        return self._of_programs.get(stream[:2])

    def add(self, stream: Stream, prompt: PromptT) -> None:
        """The next call, which is of `stream`."""
        self._of_streams[stream] = self._of_programs[stream[:2]] = prompt


class TokenWriter:
    """Packs the tokens of one episode's calls, which must be given in order."""

    def __init__(self) -> None:
        self._zstd = ZstdCompressor(options=_OPTIONS)
        self._prompts = LatestPrompts[tuple[int, ...]]()

    def packed(self, tokens: SampledTokens, *, stream: Stream) -> tuple[int, bytes]:
        """Tokens of the next call.

        Args:
            tokens: Read and written in it.
            stream: What the call is of.

        Returns:
            How many leading prompt tokens equal those of the prompt before by `LatestPrompts`, and
            are left out; and the block that holds the other prompt tokens and the reply's.

        Raises:
            StoreError: A token id does not fit in 32 bits.
        """
        prompt = tokens.prompt_tokens
        shared = shared_prefix_length(prompt, self._prompts.before(stream) or ())
        self._prompts.add(stream, prompt)
        plain = pack_tokens(prompt[shared:]) + pack_tokens(tokens.action_tokens)
        block = self._zstd.compress(plain, mode=ZstdCompressor.FLUSH_BLOCK)
        return shared, _check(block) + block


class TokenReader:
    """Reads the blocks of one episode, which must be given in order from the first."""

    def __init__(self) -> None:
        self._zstd = ZstdDecompressor()
        self._gap = False

    def read(
        self, blob: bytes | None, *, counts: tuple[int, int], call: str
    ) -> tuple[bytes, bytes] | None:
        """The next call's tokens, packed int32; None once they are pruned, or one before was.

        Args:
            blob: What `TokenWriter` packed.
            counts: How many tokens its parts have: the prompt without what it shares, and the
                reply.
            call: Its name, for an error.

        Raises:
            StoreError: The block is not what was written, or has another number of tokens.
        """
        self._gap = self._gap or blob is None
        if self._gap or blob is None:
            return None
        check, block = blob[:_CHECK_BYTES], blob[_CHECK_BYTES:]
        try:
            plain = self._zstd.decompress(block) if check == _check(block) else None
        except (ZstdError, EOFError) as error:
            raise StoreError(f"the tokens of {call} cannot be read: {error}") from error
        if plain is None:
            raise StoreError(
                f"the tokens of {call} are damaged: {len(blob)} bytes are not those that were "
                "written; read the episode without its tokens, or restore the store from a copy"
            )
        if len(plain) != _TOKEN_BYTES * sum(counts):
            raise StoreError(
                f"the tokens of {call} are {len(plain) // _TOKEN_BYTES}, "
                f"but its row counts {sum(counts)}"
            )
        reply_begins = _TOKEN_BYTES * counts[0]
        return plain[:reply_begins], plain[reply_begins:]


def _check(block: bytes) -> bytes:
    return zlib.crc32(block).to_bytes(_CHECK_BYTES, "little")
