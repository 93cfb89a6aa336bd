"""Search as a Gymnasium environment of text: look things up, then answer."""

import json
from typing import Any

import numpy as np
from gymnasium.error import ResetNeeded
from numpy.typing import NDArray

from longhaul_core.text import shortened
from longhaul_envs.packaged import PackagedEnv
from longhaul_envs.pictures import text_picture
from longhaul_envs.search import tasks as task_list
from longhaul_envs.search.corpus import Document, Question
from longhaul_envs.search.expert import next_action
from longhaul_envs.search.library import Library
from longhaul_envs.search.scoring import exact_match, f1

__all__ = ["Search"]

_MAX_WRITTEN = 1000
"""Characters of a query or an answer."""
_MAX_SHOWN = 4000
"""Characters of a document."""


class Search(PackagedEnv[str, task_list.SearchOptions]):
    """Answer a question by searching a collection of documents.

    Task:
        A question. The default ones take two searches: the first document names what the second
        search is for.
    Action:
        `search[QUERY]` and `answer[TEXT]`, or Search-R1's `<search>QUERY</search>` and
        `<answer>TEXT</answer>`; at most 1,000 characters between. Anything else changes nothing.
    Reward:
        Of the answer that ends the episode: 1.0 if it is a right one but for case, punctuation
        and articles, else 0.0; with `reward = "f1"`, its F1 with the closest right one.
    Episode end:
        Terminated by a right answer, or by the last one of `max_answers`. Never truncated here.
    Seed:
        `options={"task_id": ...}` chooses the question, and the seed then decides nothing.
        Without it the seed draws one of the training split.
    Info:
        `anchor_state`: the question, the answers that are left, and the documents in sight.
        `success`: a right answer was given. `action_accepted`. No admissible actions: queries and
        answers are free.
    """

    packaged = task_list.source

    def __init__(self, **options: Any) -> None:  # noqa: ANN401  those of the source
        super().__init__(**options)
        self._library: Library | None = None
        self._question: Question | None = None
        self._shown: tuple[Document, ...] = ()
        self._note = ""
        self._answers_left = 0

    def expert_action(self) -> str | None:
        """The next search, or the answer; None for a question whose way is not known."""
        if self._question is None:
            return None
        return next_action(self._question, {document.id for document in self._shown})

    def goal_parts(self) -> tuple[str, ...]:
        """The answer."""
        return ("answer",)

    def mistaken_action(self, part: str) -> str | None:
        """The expert's search, or the title of a document in sight in place of the answer."""
        action = self.expert_action()
        if self._question is None or action is None or not action.startswith("answer["):
            return action
        right = {answer.casefold() for answer in self._question.answers}
        titles = (shown.title for shown in self._shown if shown.title.casefold() not in right)
        return next((f"answer[{title}]" for title in titles), None)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed)
        if self._library is None:
            self._library = task_list.open_library(self.options)
        if options is not None and "task_id" in options:
            self._question = self._library.question(str(options["task_id"]))
        else:
            self._question = task_list.draw(self.options, self.np_random)
        self._shown, self._note = (), ""
        self._answers_left = self.options.max_answers
        return self._observe(), self._info(accepted=True, success=False)

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        if self._library is None or self._question is None or not self._answers_left:
            raise ResetNeeded("there is no episode, or it is over; reset before the next step")
        kind, written = _read(action)
        reward, right = 0.0, False
        if kind == "search":
            self._search(self._library, written)
        elif kind == "answer":
            right = exact_match(written, self._question.answers)
            self._answers_left = 0 if right else self._answers_left - 1
            self._note = "Right." if right else "Not right."
            if not self._answers_left:
                reward = self._reward(self._question, written)
        else:
            self._note = written
        info = self._info(accepted=bool(kind), success=right)
        return self._observe(), reward, not self._answers_left, False, info

    def render(self) -> NDArray[np.uint8]:
        return text_picture(self._observe())

    def close(self) -> None:
        self._library, self._question = None, None

    def _search(self, library: Library, query: str) -> None:
        found = library.retriever.search(query, limit=self.options.top_k)
        self._shown = tuple(library.corpus[place] for place in found)
        self._note = "" if found else "No document has any of these words."

    def _reward(self, question: Question, answer: str) -> float:
        if self.options.reward == "f1":
            return f1(answer, question.answers)
        return float(exact_match(answer, question.answers))

    def _observe(self) -> str:
        question = "" if self._question is None else self._question.text
        lines = [f"Question: {question}", f"Answers left: {self._answers_left}"]
        for number, document in enumerate(self._shown, start=1):
            text = shortened(document.text, _MAX_SHOWN)
            lines.append(f"[{number}] {document.title}: {text}")
        return "\n".join([*lines, self._note] if self._note else lines)

    def _info(self, *, accepted: bool, success: bool) -> dict[str, Any]:
        question = "" if self._question is None else self._question.id
        shown = [document.id for document in self._shown]
        return {
            "anchor_state": json.dumps([question, self._answers_left, shown]),
            "success": success,
            "action_accepted": accepted,
        }


def _read(action: str) -> tuple[str, str]:
    """`search` or `answer` and what is written, or nothing and what is wrong."""
    text = action.strip()
    for kind in ("search", "answer"):
        for opening, closing in ((f"{kind}[", "]"), (f"<{kind}>", f"</{kind}>")):
            begins = text[: len(opening)].lower() == opening
            ends = text[-len(closing) :].lower() == closing
            if not begins or not ends or len(text) < len(opening) + len(closing):
                continue
            written = text[len(opening) : -len(closing)].strip()
            if not written:
                return "", f"Nothing stands in {opening}{closing}."
            if len(written) > _MAX_WRITTEN:
                return "", f"At most {_MAX_WRITTEN:,} characters, got {len(written):,}."
            return kind, written
    return "", "Not understood. Write search[QUERY] or answer[TEXT]."
