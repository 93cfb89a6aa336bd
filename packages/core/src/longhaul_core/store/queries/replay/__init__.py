"""One episode as a person goes through it, each part read when it is looked at.

outline     numbers of all steps and calls, in columns: what a page needs before anything else
texts       observations, prompts and replies of some steps; each message once
tokens      of one call, with the text that they stand for
changes     what each prompt kept, dropped and added since the one before
transcript  the whole episode in order, each message once
verdicts    why an action counts as invalid
neighbours  the other episodes of its group, and the groups beside it
"""

from longhaul_core.store.queries.replay.changes import (
    LineChange,
    MessageChange,
    PromptChanges,
    message_changes,
    prompt_changes,
)
from longhaul_core.store.queries.replay.neighbours import Neighbours, neighbours
from longhaul_core.store.queries.replay.outline import (
    EpisodeOutline,
    episode_outline,
    outline_version,
)
from longhaul_core.store.queries.replay.steps import get_step
from longhaul_core.store.queries.replay.texts import EpisodeTexts, step_texts
from longhaul_core.store.queries.replay.tokens import CallTokenSlice, call_tokens
from longhaul_core.store.queries.replay.transcript import TranscriptStep, episode_transcript
from longhaul_core.store.queries.replay.verdicts import ReplyReader

__all__ = [
    "CallTokenSlice",
    "EpisodeOutline",
    "EpisodeTexts",
    "LineChange",
    "MessageChange",
    "Neighbours",
    "PromptChanges",
    "ReplyReader",
    "TranscriptStep",
    "call_tokens",
    "episode_outline",
    "episode_transcript",
    "get_step",
    "message_changes",
    "neighbours",
    "outline_version",
    "prompt_changes",
    "step_texts",
]
