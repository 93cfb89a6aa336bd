"""Search as an environment: retrieval, answers, rewards, and questions that take two searches."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium.error import ResetNeeded

from longhaul_core.environment import Determinism
from longhaul_core.errors import ConfigError
from longhaul_core.types import Split
from longhaul_envs.play import act, expert_policy, play, start
from longhaul_envs.search.environment import Search
from longhaul_envs.search.scoring import contains_answer
from longhaul_envs.search.tasks import source
from search_files import CORPUS, QUESTIONS, write_jsonl, write_wordnet


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("files")
    return {
        "corpus": write_jsonl(folder / "corpus.jsonl", [*CORPUS]),
        "questions": write_jsonl(folder / "questions.jsonl", [*QUESTIONS]),
        "top_k": 2,
    }


@pytest.fixture(scope="module")
def tiny_wordnet(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_wordnet(tmp_path_factory.mktemp("tiny") / "wordnet"))


def begun(**options: Any) -> Search:  # noqa: ANN401
    environment = Search(**options)
    start(environment, environment.tasks(Split.TEST)[0])
    return environment


def test_a_search_shows_the_best_documents_and_an_answer_ends(files: dict[str, Any]) -> None:
    environment = begun(**files)
    question = environment.tasks(Split.TEST)[0].goal
    text, reward, terminated, _, info = environment.step("search[machine designed by whom]")
    assert text == (
        f"Question: {question}\nAnswers left: 1\n"
        "[1] Analytical Engine: A machine designed by Charles Babbage.\n"
        "[2] Difference engine: An earlier machine, by the same person."
    )
    assert (reward, terminated, info["action_accepted"]) == (0.0, False, True)
    text, reward, terminated, _, info = environment.step("answer[the charles babbage!]")
    assert text.endswith("Right.")
    assert (reward, terminated, info["success"]) == (1.0, True, True)
    with pytest.raises(ResetNeeded):
        environment.step("search[more]")


def test_search_r1s_tags_are_read_too(files: dict[str, Any]) -> None:
    environment = begun(**files)
    assert "[1] Charles Babbage" in act(environment, "<search> London </search>").observation.text
    assert act(environment, "<answer>Babbage</answer>").success


@pytest.mark.parametrize("max_answers", [1, 3])
def test_answers_are_counted(files: dict[str, Any], max_answers: int) -> None:
    environment = begun(**files, max_answers=max_answers)
    for left in range(max_answers - 1, -1, -1):
        text, reward, terminated, _, info = environment.step("answer[Ada]")
        assert f"Answers left: {left}" in text
        assert (reward, terminated, info["success"]) == (0.0, left == 0, False)
        assert "Babbage" not in text  # what would have been right is not told


def test_f1_is_paid_once_for_the_answer_that_ends_the_episode(files: dict[str, Any]) -> None:
    environment = begun(**files, reward="f1", max_answers=2)
    paid = [act(environment, "answer[charles x]") for _ in range(2)]
    assert [result.reward for result in paid] == [0.0, 0.5]
    assert not paid[-1].success


@pytest.mark.parametrize(
    ("action", "said"),
    [
        ("", "Not understood"),
        ("Babbage", "Not understood"),
        ("search[x", "Not understood"),
        ("<search>x</answer>", "Not understood"),
        ("search[  ]", "Nothing stands in search[]"),
        ("answer[" + "x" * 1001 + "]", "At most 1,000 characters, got 1,001"),
    ],
)
def test_what_is_not_understood_changes_nothing(
    files: dict[str, Any], action: str, said: str
) -> None:
    environment = begun(**files)
    before = act(environment, "search[London]").observation
    result = act(environment, action)
    assert said in result.observation.text
    assert (result.action_accepted, result.terminated) == (False, False)
    assert result.observation.anchor == before.anchor


def test_a_search_that_finds_nothing_is_an_answer_too(files: dict[str, Any]) -> None:
    result = act(begun(**files), "search[xyzzy]")
    assert result.action_accepted
    assert "No document has any of these words" in result.observation.text


def test_two_queries_that_show_the_same_are_one_state(files: dict[str, Any]) -> None:
    anchors = [
        act(begun(**files), query).observation.anchor
        for query in ("search[London]", "search[london 1791]", "search[machine]")
    ]
    assert anchors[0] == anchors[1] != anchors[2]


@pytest.fixture
def encoders(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """A module of the user's: counts of six words, and a wrong one."""
    lines = (
        "import numpy as np\n"
        "VOCABULARY = ['machine', 'designed', 'born', 'london', 'notes', 'engine']\n"
        "def counted_words(texts, *, queries):\n"
        "    assert all(queries == ('\\n' not in text) for text in texts)\n"
        "    rows = [[text.lower().count(word) for word in VOCABULARY] for text in texts]\n"
        "    return np.array([[*row, float(queries)] for row in rows], dtype=np.float32)\n"
        "def misshapen(texts, *, queries):\n"
        "    return np.zeros(len(texts), dtype=np.float32)\n"
    )
    (tmp_path / "encoders_of_ones_own.py").write_text(lines, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))  # pyright: ignore[reportUnknownMemberType]
    return "encoders_of_ones_own"


def test_an_encoder_of_ones_own_finds_by_vectors(files: dict[str, Any], encoders: str) -> None:
    dense = {**files, "retriever": "dense", "encoder": f"{encoders}:counted_words"}
    shown = act(begun(**dense), "search[born in LONDON]").observation.text
    assert "[1] Charles Babbage" in shown
    assert source(dense).describe().determinism is Determinism.FIRST_OBSERVATION


def test_vectors_of_ones_own_are_used_where_they_fit(
    files: dict[str, Any], encoders: str, tmp_path: Path
) -> None:
    vectors = np.eye(7, dtype=np.float16)[[3, 0, 1, 2]]  # the first document is at `london`
    np.save(tmp_path / "vectors.npy", vectors)
    dense = {**files, "retriever": "dense", "encoder": f"{encoders}:counted_words"}
    environment = begun(**dense, embeddings=str(tmp_path / "vectors.npy"))
    assert "[1] Ada Lovelace" in act(environment, "search[London]").observation.text

    np.save(tmp_path / "short.npy", vectors[:3])
    with pytest.raises(ConfigError, match=r"shape \(4, dimensions\).*float16 of shape \(3, 7\)"):
        begun(**dense, embeddings=str(tmp_path / "short.npy"))
    with pytest.raises(ConfigError, match="no embeddings at"):
        begun(**dense, embeddings="nowhere.npy")


def test_an_encoder_that_cannot_be_used_is_named(files: dict[str, Any], encoders: str) -> None:
    with pytest.raises(ConfigError, match="no_such_module"):
        begun(**files, retriever="dense", encoder="no_such_module:encode")
    with pytest.raises(ConfigError, match=r"must return an array of shape \(1, dimensions\)"):
        begun(**files, retriever="dense", encoder=f"{encoders}:misshapen")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"corpus": "x.jsonl"}, "corpus and questions are given together"),
        ({"corpus": "x.jsonl", "questions": "y.jsonl"}, "no corpus at x.jsonl"),
        ({"wordnet": "/nowhere"}, "Install Debian's package wordnet-base, or name a folder"),
        ({"retriever": "tfidf"}, "retriever must be bm25 or dense, got 'tfidf'"),
        ({"retriever": "dense"}, "encoder, package.module:name, is given with"),
        ({"embeddings": "x.npy"}, "embeddings are for retriever = 'dense'"),
        ({"top_k": 0}, "top_k must be from 1 to 50, got 0"),
        ({"top_k": "3"}, "top_k must be a whole number, got '3'"),
        ({"max_answers": 11}, "max_answers must be from 1 to 10, got 11"),
        ({"reward": "bleu"}, "reward must be exact_match or f1, got 'bleu'"),
    ],
)
def test_an_option_that_cannot_be_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Search(**options).tasks(Split.TRAIN)


def test_an_unknown_task_is_named(files: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="no question has the id 'test/q99'"):
        Search(**files).reset(options={"task_id": "test/q99"})


def test_close_gives_the_library_back(files: dict[str, Any]) -> None:
    environments = [begun(**files) for _ in range(4)]
    held = len(os.listdir("/proc/self/fd"))
    for environment in environments[1:]:
        environment.close()
    assert len(os.listdir("/proc/self/fd")) == held
    environments[0].close()
    assert len(os.listdir("/proc/self/fd")) < held


def refuse_shared_bridges(environment: Search) -> None:
    """A question's second document is in one split alone."""
    met: dict[str, Split] = {}
    for split in Split:
        for task in environment.tasks(split):
            assert met.setdefault(task.task_id.split("-")[-2], split) is split


def takes_two_searches(environment: Search, num_tasks: int) -> None:
    """No single search shows an answer; the expert's two do, and it solves every task."""
    for task in environment.tasks(Split.TEST)[:num_tasks]:
        start(environment, task)
        episode = play(environment, task, expert_policy, horizon=5)
        assert episode.success, task.task_id
        searches = [action for action in episode.actions if action.startswith("search[")]
        answer = episode.actions[-1].removeprefix("answer[")[:-1]
        assert len(searches) == 2
        assert contains_answer(episode.results[1].observation.text, [answer])
        for query in (searches[0], f"search[{task.goal}]"):
            start(environment, task)
            shown = act(environment, query).observation.text
            assert not contains_answer(shown, [answer]), (task.task_id, query)


def test_questions_of_a_small_wordnet_take_two_searches(tiny_wordnet: str) -> None:
    environment = Search(wordnet=tiny_wordnet, top_k=10)
    listed = [task for split in Split for task in environment.tasks(split)]
    # 120 chains, less those whose question happens to find the second document; `entity`, that
    # everything is a kind of, stands in every document and is never asked for
    assert 90 <= len(listed) <= 120
    assert {task.task_id.partition("/")[0] for task in listed} == {"member-part"}
    refuse_shared_bridges(environment)
    takes_two_searches(environment, len(listed))


def test_the_texts_of_a_small_wordnet_name_what_is_next(tiny_wordnet: str) -> None:
    environment = begun(wordnet=tiny_wordnet, top_k=1)
    text = act(environment, "search[cataaab]").observation.text
    assert text.splitlines()[2] == (
        '[1] cataaab, small cataaab: one of many; "it was small". It is a kind of entity. '
        "It is a member of herdaaab."
    )
    assert "[1] able: having the means." in act(environment, "search[able]").observation.text


@pytest.mark.slow
@pytest.mark.usefixtures("installed_wordnet")
def test_questions_of_wordnet_take_two_searches() -> None:
    environment = Search(top_k=10)
    counts = {split: len(environment.tasks(split)) for split in Split}
    assert counts == {Split.TRAIN: 1024, Split.VALIDATION: 256, Split.TEST: 256}
    refuse_shared_bridges(environment)
    takes_two_searches(environment, 24)
