"""Wordle: marks, guesses that are no words, the word list, and the expert."""

from pathlib import Path
from random import Random
from typing import Any

import pytest
from gymnasium.error import ResetNeeded
from hypothesis import given
from hypothesis import strategies as st

from longhaul_core.errors import ConfigError
from longhaul_core.types import Split
from longhaul_envs.wordle.environment import Wordle
from longhaul_envs.wordle.make_words import words_file
from longhaul_envs.wordle.words import mark_codes, marks, word_list

WORDS = st.text("abc", min_size=5, max_size=5)


@pytest.mark.parametrize(
    ("guess", "answer", "told"),
    [
        ("crane", "crane", "ggggg"),
        ("speed", "abide", "bbyby"),  # one e is in the answer: the first is marked
        ("eerie", "abide", "bbbyg"),  # its place comes first
        ("lolls", "hello", "byggb"),
        ("xxxxx", "crane", "bbbbb"),
    ],
)
def test_marks_by_hand(guess: str, answer: str, told: str) -> None:
    assert marks(guess, answer) == told


@given(WORDS, WORDS)
def test_codes_are_the_marks(guess: str, answer: str) -> None:
    code = 0
    for mark in marks(guess, answer):
        code = code * 3 + "byg".index(mark)
    assert mark_codes([guess, answer], [answer]).tolist() == [[code], [242]]


@given(WORDS, WORDS)
def test_a_letter_is_marked_as_often_as_both_words_have_it(guess: str, answer: str) -> None:
    told = marks(guess, answer)
    for letter in set(guess):
        marked = sum(g == letter and mark != "b" for g, mark in zip(guess, told, strict=True))
        assert marked == min(guess.count(letter), answer.count(letter))


def word_file(folder: Path, words: str) -> str:
    file = folder / "words.txt"
    file.write_text("\n".join(words.split()), encoding="utf-8")
    return str(file)


TEN = "crane slate abbey speed hello jolly zebra mango tulip cabin"


def test_an_episode_worked_by_hand(tmp_path: Path) -> None:
    environment = Wordle(words=word_file(tmp_path, TEN))
    word_ids = {
        environment.reset(options={"task_id": task.task_id})[1]["anchor_state"]: task.task_id
        for split in Split
        for task in environment.tasks(split)
    }
    text, _ = environment.reset(options={"task_id": word_ids["abbey: "]})
    assert text == "Goal: find the word of five letters\nGuesses left: 6"

    text, reward, terminated, _, info = environment.step(" Cabin ")
    assert text.splitlines()[1:] == ["c a b i n", "b y g b b", "Guesses left: 5"]
    assert (reward, terminated, info["action_accepted"]) == (0.0, False, True)
    text, reward, terminated, _, info = environment.step("zzzzz")
    assert text.splitlines()[3:] == [
        "(no word)",
        "Guesses left: 4",
        "That is no word of the list: a guess is used up",
    ]
    assert (reward, terminated, info["action_accepted"]) == (0.0, False, False)
    text, reward, terminated, truncated, info = environment.step("abbey")
    assert text.splitlines()[-1] == "You found it"
    assert (reward, terminated, truncated, info["success"]) == (1.0, True, False, True)
    with pytest.raises(ResetNeeded):
        environment.step("abbey")


@pytest.mark.parametrize(("reward", "paid"), [("found", 0.0), ("guesses", -6.0)])
def test_six_guesses_end_the_game(reward: str, paid: float) -> None:
    environment = Wordle(reward=reward)
    environment.reset(seed=0)
    steps = [environment.step("\u4f60\u597d<action>") for _ in range(6)]
    assert [terminated for _, _, terminated, _, _ in steps] == [False] * 5 + [True]
    assert sum(float(step[1]) for step in steps) == paid
    assert not steps[-1][4]["success"]


def test_the_packaged_list_is_made_of_wordnet(installed_wordnet: Path) -> None:
    packaged = Path(str(words_file.__globals__["__file__"])).with_name("words.txt")
    assert packaged.read_text(encoding="ascii") == words_file(installed_wordnet)


def test_the_packaged_list_carries_its_licence_and_common_answers() -> None:
    words = word_list()
    assert set(words.answers) < set(words.guesses)
    assert {"house", "water", "think"} <= set(words.answers)
    assert (len(words.guesses), len(words.answers)) == (4107, 1276)
    text = Path(str(words_file.__globals__["__file__"])).with_name("words.txt").read_text("ascii")
    assert "WordNet 3.0 Copyright 2006 by Princeton University" in text


def test_no_task_gives_its_word_away() -> None:
    environment = Wordle()
    for task in environment.tasks(Split.TEST):
        _, info = environment.reset(options={"task_id": task.task_id})
        word = info["anchor_state"].partition(":")[0]
        assert word not in f"{task.task_id} {task.goal} {task.data_hash}"


@pytest.mark.slow
def test_the_expert_finds_the_word_in_six_guesses() -> None:
    environment = Wordle()
    for task in Random(0).sample(environment.tasks(Split.TEST), 30):
        environment.reset(options={"task_id": task.task_id})
        terminated, info = False, {}
        while not terminated:
            _, _, terminated, _, info = environment.step(environment.expert_action())
        assert info["success"], task.task_id


def test_the_expert_knows_of_the_word_only_what_was_told() -> None:
    """Two words that were marked alike get the same advice."""
    environment = Wordle()
    advice: dict[str, set[str]] = {}
    for task in environment.tasks(Split.TEST, 60):
        environment.reset(options={"task_id": task.task_id})
        text, *_ = environment.step("stare")
        advice.setdefault(text, set()).add(environment.expert_action())
    assert all(len(said) == 1 for said in advice.values())
    assert len(advice) < 60


def test_a_list_of_ones_own_has_answers_of_ones_own(tmp_path: Path) -> None:
    marked = word_list(word_file(tmp_path, TEN.replace("crane", "crane*") + " toolong abc"))
    assert (len(marked.guesses), marked.answers) == (10, ("crane",))
    other = tmp_path / "all"
    other.mkdir()
    assert len(word_list(word_file(other, TEN)).answers) == 10


@pytest.mark.parametrize(
    ("words", "message"),
    [("crane slate", "must be from 10 to 20000 of 5 letters"), (TEN + " cr4ne", "a to z alone")],
)
def test_a_list_that_cannot_be_played_is_refused(tmp_path: Path, words: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Wordle(words=word_file(tmp_path, words))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"words": "/nowhere/at/all"}, "must name a text file that can be read"),
        ({"reward": "gold"}, "reward must be one of found, guesses, got 'gold'"),
    ],
)
def test_an_option_out_of_range_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Wordle(**options)


def test_an_unknown_task_is_refused() -> None:
    with pytest.raises(ValueError, match="no Wordle task is called"):
        Wordle().reset(options={"task_id": "house"})
