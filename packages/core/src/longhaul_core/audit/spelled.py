"""Texts that spell the name of a control token, and what prompts have of them.

A control token is known by the shape of its name: no other token of a vocabulary has letters
between brackets. Its name stands in a prompt as often as the template wrote the token, and as often
as texts spell it. What texts spell must be other tokens, so the prompt has the name at least as
often in other tokens as in texts. That holds whatever the template writes.

Only tokens that occur in the run matter, and only episodes whose texts spell one are read whole.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence

from sqlalchemy.orm import Session

from longhaul_core.audit.evidence import CallKey, SpelledMark
from longhaul_core.store import queries
from longhaul_core.store.queries import PromptMessage

__all__ = [
    "REPLY_TAGS",
    "Marks",
    "marks_among",
    "num_as_text",
    "num_in_texts",
    "read_marks",
    "spelled_marks",
]

Marks = Mapping[str, frozenset[int]]
"""Names of control tokens, and the tokens of that name; those that occur in the run alone."""

REPLY_TAGS = frozenset(
    {
        "<think>",
        "</think>",
        "<tool_call>",
        "</tool_call>",
        "[TOOL_CALLS]",
        "[ARGS]",
        "[CALL_ID]",
        "<｜tool▁calls▁begin｜>",
        "<｜tool▁calls▁end｜>",
        "<｜tool▁call▁begin｜>",
        "<｜tool▁call▁end｜>",
        "<｜tool▁sep｜>",
    }
)
"""Of thoughts and calls: in an assistant's text the renderer leaves them control tokens."""
_THOUGHT_ENDS = "</think>"
"""Templates leave out of earlier replies what is before."""
_SHAPE = re.compile(r"<[^<>\s]*[^\W\d_][^<>]*>|\[[^\[\]\s]*[^\W\d_][^\[\]\s]*\]")
_OPENINGS = (b"<", b"[")


def read_marks(session: Session, *, run_id: str) -> Marks:
    """The control tokens that occur in a run's prompts and replies."""
    return marks_among(
        dict(queries.token_pieces_that_begin(session, run_id=run_id, letters=_OPENINGS))
    )


def marks_among(pieces: Mapping[int, bytes]) -> Marks:
    """The control tokens among tokens, by the shape of what they stand for."""
    marks: defaultdict[str, set[int]] = defaultdict(set)
    for token, piece in pieces.items():
        name = piece.decode(errors="replace")
        if _SHAPE.fullmatch(name):
            marks[name].add(token)
    return {name: frozenset(tokens) for name, tokens in marks.items()}


def spelled_marks(
    session: Session, marks: Marks, *, run_id: str, episode_ids: Collection[str]
) -> dict[CallKey, tuple[SpelledMark, ...] | None]:
    """See `Evidence.spelled_marks`.

    Args:
        session: Only read from.
        marks: Of the run.
        run_id: The run.
        episode_ids: Trained ones.
    """
    spelled: dict[CallKey, tuple[SpelledMark, ...] | None] = {}
    for episode_id in queries.episodes_that_spell(
        session, marks, in_replies=marks.keys() - REPLY_TAGS, episode_ids=episode_ids
    ):
        sampled = Counter[str]()
        for step in queries.get_episode(session, episode_id=episode_id).steps:
            for call in step.calls:
                counts = num_in_texts(marks, call.messages) if call.trained else {}
                if counts:
                    key = (episode_id, step.step_index, call.call_index)
                    prompt = () if call.tokens is None else call.tokens.prompt_tokens
                    pieces = queries.token_pieces(session, run_id=run_id, token_ids=prompt)
                    readable = call.tokens is not None and pieces.keys() >= set(prompt)
                    spelled[key] = (
                        tuple(
                            SpelledMark(
                                name=name,
                                num_in_texts=count,
                                num_as_text=num_as_text(name, marks, prompt, pieces),
                                num_sampled=sampled[name],
                            )
                            for name, count in counts.items()
                        )
                        if readable
                        else None
                    )
                if call.tokens is not None:  # its last token ends it, and is no part of its text
                    within = Counter(call.tokens.action_tokens[:-1])
                    for name, tokens in marks.items():
                        sampled[name] += sum(within[token] for token in tokens)
    return spelled


def num_in_texts(marks: Marks, messages: Sequence[PromptMessage]) -> dict[str, int]:
    """How often the texts of messages spell each name; names that they do not spell are left out.

    Of an assistant's text what is before the end of its thoughts does not count, and neither do
    `REPLY_TAGS`. Thoughts that were sent apart and calls of tools do not count.

    Args:
        marks: Whose names.
        messages: Of a prompt.
    """
    counts = Counter[str]()
    for message in messages:
        replied = message.role == "assistant"
        text = message.text.rpartition(_THOUGHT_ENDS)[2] if replied else message.text
        for name in marks:
            if not (replied and name in REPLY_TAGS):
                counts[name] += text.count(name)
    return {name: count for name, count in counts.items() if count}


def num_as_text(name: str, marks: Marks, prompt: Sequence[int], pieces: Mapping[int, bytes]) -> int:
    """How often other tokens of a prompt than the control token of a name spell it together.

    Args:
        name: One of the marks.
        marks: Of the run.
        prompt: Token ids.
        pieces: The bytes of each.
    """
    control = marks[name]
    text = b"".join(b"\0" if token in control else pieces[token] for token in prompt)
    return text.count(name.encode())
