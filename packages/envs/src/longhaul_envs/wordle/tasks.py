"""Wordle's tasks: a word to be found.

A task id is a hash of the word, so that neither a task list nor a log gives the answer away.
The word decides the split.
"""

from dataclasses import dataclass
from functools import cache

from longhaul_core.environment import EnvironmentPrompt
from longhaul_core.errors import ConfigError
from longhaul_core.types import Split, Task
from longhaul_envs.packaged import PackagedOptions, PackagedSource
from longhaul_envs.task_lists import content_hash, shared_out, stable_seed
from longhaul_envs.wordle.words import WordList, word_list

__all__ = ["NUM_GUESSES", "WordleOptions", "answer_of", "draw_answer", "source", "tasks"]

NUM_GUESSES = 6
_REWARDS = ("found", "guesses")
_ID_DIGITS = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class WordleOptions(PackagedOptions):
    """What can be chosen about Wordle."""

    environment_id = "longhaul/Wordle-v0"
    episodes_per_process = 16
    rules = ("reward",)

    words: str = ""
    """Path of a list of your own, a word a line; empty for the packaged one. Chooses tasks."""
    reward: str = "found"
    """`found`: 1 for the word. `guesses`: -1 for every other guess. A rule."""

    def __post_init__(self) -> None:
        if self.reward not in _REWARDS:
            raise ConfigError(f"reward must be one of {', '.join(_REWARDS)}, got {self.reward!r}")
        word_list(self.words)


def tasks(split: Split, options: WordleOptions, limit: int | None = None) -> tuple[Task, ...]:
    """The first `limit` tasks of `split`, in order of hash."""
    words = word_list(options.words)
    return tuple(
        options.task(
            _task_id(word),
            split,
            goal="find the word of five letters",
            seed=stable_seed(word),
            data_hash=words.data_hash,
        )
        for word in shared_out(words.answers)[split][:limit]
    )


def answer_of(task_id: str, words: WordList) -> str:
    """The word of a task id.

    Raises:
        ValueError: No word of the list has this id.
    """
    word = _answers(words).get(task_id)
    if word is None:
        raise ValueError(
            f"no Wordle task is called {task_id!r}; ids are the first {_ID_DIGITS} digits of the "
            "hash of a word of the list that `words` names"
        )
    return word


def draw_answer(words: WordList, seed: int) -> str:
    """One of all answers; the same seed draws the same one."""
    return words.answers[stable_seed(f"wordle {seed}") % len(words.answers)]


@cache
def _answers(words: WordList) -> dict[str, str]:
    return {_task_id(word): word for word in words.answers}


def _task_id(word: str) -> str:
    return content_hash(f"wordle {word}")[:_ID_DIGITS]


_PROMPT = EnvironmentPrompt(
    system=(
        "You look for an English word of five letters, and have six guesses. Each guess must be "
        "an English word of five letters. Below its letters stand marks: g, the letter is in its "
        "place; y, the word has the letter in another place; b, the word does not have it, or not "
        "once more."
    ),
    instruction="Which word do you guess?",
)


source = PackagedSource(
    WordleOptions,
    tasks,
    lambda options: options.description(
        summary="find a word of five letters in six guesses",
        prompt=_PROMPT,
        actions="an English word of five letters",
    ),
)
