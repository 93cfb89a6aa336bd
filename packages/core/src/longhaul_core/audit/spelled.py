"""Texts that spell the name of a control token, and what prompts have of them.

A control token is known by the shape of its name: no other token of a vocabulary has letters
between brackets. Its name stands in a prompt as often as the template wrote the token, and as often
as texts spell it. What texts spell must be other tokens, so the prompt has the name at least as
often in other tokens as in texts. That holds whatever the template writes.

Only tokens that occur in the run matter, and only episodes whose texts spell one are read whole.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence

from sqlalchemy.orm import Session

from longhaul_core.audit.evidence import CallKey, SpelledMark, key_of
from longhaul_core.audit.tables import CallTexts, MessageTexts, ObservationText
from longhaul_core.store import queries
from longhaul_core.store.message_text import Source, message_numbers

__all__ = ["REPLY_TAGS", "Marks", "RunMarks", "marks_among", "num_in_text", "texts_of"]

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


class RunMarks:
    """The control tokens that occur in a run's prompts and replies."""

    def __init__(self, session: Session, *, run_id: str) -> None:
        """Read them.

        Args:
            session: Only read from.
            run_id: The run.
        """
        self._session = session
        self._run_id = run_id
        self._marks = marks_among(
            dict(queries.token_pieces_that_begin(session, run_id=run_id, letters=_OPENINGS))
        )
        self._names = {token: name for name, tokens in self._marks.items() for token in tokens}
        self._texts: dict[int, bytes] = {}
        """See `texts_of`; of the tokens of prompts so far."""

    def in_texts(self, episode_ids: Collection[str]) -> dict[CallKey, Counter[str]]:
        """How often the texts of each trained call's messages spell each name.

        Args:
            episode_ids: Of the episodes asked about; calls that spell none are left out.

        Raises:
            StoreError: A message repeats a text that is not in the store.
        """
        chosen = queries.episodes_that_spell(
            self._session,
            self._marks.keys(),
            in_replies=self._marks.keys() - REPLY_TAGS,
            episode_ids=episode_ids,
        )
        texts: defaultdict[str, dict[Source, str]] = defaultdict(dict)
        for row in queries.rows_of_episodes(
            self._session, ObservationText, "observations", episode_ids=chosen
        ):
            texts[row.episode_id][Source("o", row.step_index)] = row.text
        calls = [*queries.rows_of_episodes(self._session, CallTexts, "calls", episode_ids=chosen)]
        for call in calls:
            source = Source("r", call.step_index, call.call_index)
            texts[call.episode_id][source] = call.reply or ""
        messages = [
            *queries.rows_of_episodes(self._session, MessageTexts, "messages", episode_ids=chosen)
        ]
        for message in messages:
            texts[message.episode_id][Source("m", message.number)] = message.own_lines
        counts: dict[tuple[str, int], dict[str, int]] = {}
        for message in messages:
            text = message.whole(texts[message.episode_id])
            if found := num_in_text(self._marks, text, role=message.role):
                counts[message.episode_id, message.number] = found
        spelled: defaultdict[CallKey, Counter[str]] = defaultdict(Counter)
        for call in calls:
            for number in message_numbers(call.messages_json) if call.trained else ():
                if found := counts.get((call.episode_id, number)):
                    spelled[key_of(call)].update(found)
        return spelled

    def in_prompt(
        self, counts: Mapping[str, int], prompt: Sequence[int], *, sampled: Mapping[str, int]
    ) -> tuple[SpelledMark, ...] | None:
        """What a prompt has of the names that its texts spell; None where pieces were removed.

        Args:
            counts: How often its texts spell each.
            prompt: Token ids.
            sampled: How often earlier replies of the episode have each control token.
        """
        unknown = set(prompt) - self._texts.keys()
        if unknown:
            pieces = queries.token_pieces(self._session, run_id=self._run_id, token_ids=unknown)
            if len(pieces) < len(unknown):
                return None
            self._texts |= texts_of(pieces, self._marks)
        text = b"".join(map(self._texts.__getitem__, prompt))
        return tuple(
            SpelledMark(
                name=name,
                num_in_texts=count,
                num_as_text=text.count(name.encode()),
                num_sampled=sampled.get(name, 0),
            )
            for name, count in counts.items()
        )

    def in_reply(self, tokens: Sequence[int]) -> Iterator[str]:
        """The control tokens of a reply but for its last token, which may end it."""
        return (self._names[token] for token in tokens[:-1] if token in self._names)


def marks_among(pieces: Mapping[int, bytes]) -> Marks:
    """The control tokens among tokens, by the shape of what they stand for."""
    marks: defaultdict[str, set[int]] = defaultdict(set)
    for token, piece in pieces.items():
        name = piece.decode(errors="replace")
        if _SHAPE.fullmatch(name):
            marks[name].add(token)
    return {name: frozenset(tokens) for name, tokens in marks.items()}


def num_in_text(marks: Marks, text: str, *, role: str) -> dict[str, int]:
    """How often the text of a message spells each name; names that it does not spell are left out.

    Of an assistant's text what is before the end of its thoughts does not count, and neither do
    `REPLY_TAGS`. Thoughts that were sent apart and calls of tools are no text.

    Args:
        marks: Whose names.
        text: Of the message, its parts one below the other.
        role: Of the message.
    """
    if role == "assistant":
        text = text.rpartition(_THOUGHT_ENDS)[2]
        marks = {name: tokens for name, tokens in marks.items() if name not in REPLY_TAGS}
    return {name: count for name in marks if (count := text.count(name))}


def texts_of(pieces: Mapping[int, bytes], marks: Marks) -> dict[int, bytes]:
    """What tokens have of a prompt's text: control tokens nothing that is in any name.

    Args:
        pieces: The bytes that each token stands for.
        marks: Names of control tokens.
    """
    control = frozenset(token for tokens in marks.values() for token in tokens)
    return {token: b"\0" if token in control else piece for token, piece in pieces.items()}
