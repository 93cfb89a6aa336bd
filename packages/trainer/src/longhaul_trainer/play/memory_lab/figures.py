"""Figures of prompts that a memory composed for stored episodes: lengths, prefix cache, lost words.

Everything is counted over the prompts of an `EpisodeFigures`, one for each episode and memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from longhaul_core.text import words_in
from longhaul_core.types import Call, Step, Trajectory

__all__ = [
    "EpisodeFigures",
    "LostWord",
    "MemoryFigures",
    "figures_of",
    "lost_words",
    "num_kept_tokens",
    "summed_up",
    "tokens_of",
    "words_of",
]

_PERCENTILE = 95

Tokens = Sequence[int]


class LostWord(NamedTuple):
    """A word of an action that the prompt showed where the action was chosen, and here does not."""

    episode_id: str
    step_index: int
    """Of the action."""
    word: str
    """In lower case."""
    seen_at: int
    """The last step, up to that of the action, whose observation has the word."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeFigures:
    """One episode under one memory."""

    prompt_lengths: tuple[int, ...]
    """Tokens of the prompt of each action that the memory got to."""
    num_steps: int
    """That the stored episode has: more than prompts where a limit on tokens ended it here."""
    num_shortened: int
    """Prompts of actions from which exchanges were dropped to make them fit."""
    num_prompt_tokens: int
    """Of all calls, those of plans and summaries included."""
    num_kept_tokens: int
    """Of those; see `num_kept_tokens`."""
    num_compared: int
    """Actions whose stored prompt is there to look for lost words in."""
    lost: tuple[LostWord, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryFigures:
    """All episodes under one memory."""

    mean_tokens: float
    """Of a prompt of an action."""
    high_tokens: float
    """Their 95th percentile."""
    growth: float | None
    """Tokens by which such a prompt is longer than the one of the step before: the slope within
    episodes by least squares; None where no episode has two."""
    kept_share: float
    """Of all prompt tokens, in [0, 1]."""
    episode_tokens: float
    """Prompt tokens of all calls, an episode in the mean."""
    computed_tokens: float
    """Of those, what the prefix cache does not keep."""
    num_prompts: int
    """Prompts of actions."""
    num_shortened: int
    num_unreached: int
    """Steps of the stored episodes that a limit on tokens cut off here."""
    num_compared: int
    """Actions whose stored prompt is there to look for lost words in."""
    lost: tuple[LostWord, ...]

    @property
    def num_losing(self) -> int:
        """Actions with a lost word."""
        return len({(each.episode_id, each.step_index) for each in self.lost})


def figures_of(
    again: Trajectory, *, recorded: Trajectory, episode_id: str, first_of_group: Tokens = ()
) -> EpisodeFigures:
    """What one memory made of one episode.

    Args:
        again: The episode as this memory composes it, with the tokens of its prompts.
        recorded: As it was played.
        episode_id: Of the recorded one.
        first_of_group: Prompt and reply that another episode of its group began with here.
    """
    earlier = [np.asarray(first_of_group)]
    num_tokens = num_kept = 0
    for call in (call for step in again.steps for call in step.calls):
        prompt = _prompt(call)
        num_tokens += len(prompt)
        num_kept += num_kept_tokens(prompt, earlier)
        earlier.append(np.asarray(tokens_of(call)))
    acts = [act for step in again.steps if (act := step.act) is not None]
    return EpisodeFigures(
        prompt_lengths=tuple(len(_prompt(act)) for act in acts),
        num_steps=len(recorded.steps),
        num_shortened=sum(act.dropped_exchanges > 0 for act in acts),
        num_prompt_tokens=num_tokens,
        num_kept_tokens=num_kept,
        num_compared=sum(
            _is_compared(step, here)
            for step, here in zip(recorded.steps, again.steps, strict=False)
        ),
        lost=tuple(lost_words(again, recorded=recorded, episode_id=episode_id)),
    )


def tokens_of(call: Call) -> Tokens:
    """What an engine keeps of a call: its prompt and its reply."""
    return () if call.sampled is None else (*_prompt(call), *call.sampled.action_tokens)


def _prompt(call: Call) -> Tokens:
    return () if call.sampled is None else call.sampled.prompt_tokens


def num_kept_tokens(prompt: Tokens, earlier: Iterable[NDArray[np.int64]]) -> int:
    """Tokens of a prompt that an engine need not compute again.

    The longest beginning that it shares with one of the earlier texts, but for its last token,
    from which the reply follows. An engine keeps whole blocks (16 tokens in vLLM), and forgets them
    when it has no room: this is the most that it can keep.
    """
    tokens = np.asarray(prompt)
    longest = max((_num_shared(tokens, text) for text in earlier), default=0)
    return max(0, min(longest, len(prompt) - 1))


def _num_shared(one: NDArray[np.int64], other: NDArray[np.int64]) -> int:
    length = min(len(one), len(other))
    differ = np.flatnonzero(one[:length] != other[:length])
    return int(differ[0]) if len(differ) else length


def lost_words(again: Trajectory, *, recorded: Trajectory, episode_id: str) -> Iterable[LostWord]:
    """Words of stored actions that their stored prompts showed, and the prompts here do not.

    Only words that the text of an observation has, up to the action's step. What a prompt's fixed
    parts and its list of actions say, it says under any memory.
    """
    seen_at: dict[str, int] = {}
    for step, here in zip(recorded.steps, again.steps, strict=False):
        seen_at |= dict.fromkeys(words_of([step.observation.text]), step.index)
        before, now = step.act, here.act
        if before is None or now is None or not _is_compared(step, here):
            continue
        candidates = (words_of([step.action]) & seen_at.keys()) - _words_read(now)
        for word in sorted(candidates & _words_read(before)):
            yield LostWord(episode_id, step.index, word, seen_at[word])


def _is_compared(stored: Step, here: Step) -> bool:
    return stored.act is not None and bool(stored.act.messages) and here.act is not None


def words_of(texts: Iterable[str]) -> set[str]:
    """The different words and numbers of texts, as `words_in` has them."""
    return {word for text in texts for word in words_in(text)}


def _words_read(call: Call) -> set[str]:
    asked = (tool for message in call.messages for tool in message.tool_calls)
    return words_of(
        [message.text for message in call.messages] + [f"{t.name} {t.arguments}" for t in asked]
    )


def summed_up(episodes: Sequence[EpisodeFigures]) -> MemoryFigures:
    """The figures of several episodes under one memory.

    Args:
        episodes: At least one, with a prompt.
    """
    lengths = np.array([n for each in episodes for n in each.prompt_lengths])
    num_tokens = sum(each.num_prompt_tokens for each in episodes)
    num_kept = sum(each.num_kept_tokens for each in episodes)
    return MemoryFigures(
        mean_tokens=float(lengths.mean()),
        high_tokens=float(np.percentile(lengths, _PERCENTILE)),
        growth=_growth([each.prompt_lengths for each in episodes]),
        kept_share=num_kept / num_tokens,
        episode_tokens=num_tokens / len(episodes),
        computed_tokens=(num_tokens - num_kept) / len(episodes),
        num_prompts=len(lengths),
        num_shortened=sum(each.num_shortened for each in episodes),
        num_unreached=sum(each.num_steps - len(each.prompt_lengths) for each in episodes),
        num_compared=sum(each.num_compared for each in episodes),
        lost=tuple(lost for each in episodes for lost in each.lost),
    )


def _growth(episodes: Sequence[Sequence[int]]) -> float | None:
    """The slope of lengths over steps, with an intercept of its own for each episode."""
    products = squares = 0.0
    for lengths in episodes:
        places = np.arange(len(lengths)) - (len(lengths) - 1) / 2
        products += float(places @ np.asarray(lengths, dtype=float))
        squares += float(places @ places)
    return products / squares if squares else None
