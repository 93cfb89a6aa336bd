"""Corpora and questions of a user: read by place, and shared out without a leak."""

from pathlib import Path

import pytest

from longhaul_core.errors import ConfigError
from longhaul_core.types import Split
from longhaul_envs.search.corpus import (
    Corpus,
    Document,
    Questions,
    read_questions,
    write_questions,
)
from search_files import CORPUS, QUESTIONS, write_jsonl


def test_documents_of_both_shapes_are_found_by_their_place(tmp_path: Path) -> None:
    corpus = Corpus(Path(write_jsonl(tmp_path / "c.jsonl", [*CORPUS])), tmp_path / "places")

    assert len(corpus) == 4
    assert corpus[1] == Document("1", "Analytical Engine", "A machine designed by Charles Babbage.")
    assert corpus[2] == Document("2", "Charles Babbage", "Born in London in 1791.")
    assert [document.id for document in corpus] == ["0", "1", "2", "3"]


def test_the_places_are_made_once_and_name_the_content(tmp_path: Path) -> None:
    file = Path(write_jsonl(tmp_path / "c.jsonl", [*CORPUS]))
    first = Corpus(file, tmp_path / "places").data_hash
    made = (tmp_path / "places" / "places.npy").stat().st_mtime_ns

    assert Corpus(file, tmp_path / "places").data_hash == first
    assert (tmp_path / "places" / "places.npy").stat().st_mtime_ns == made
    write_jsonl(file, [*CORPUS[:3]])
    assert Corpus(file, tmp_path / "others").data_hash != first


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "line 5: not JSON"),
        ("[1]", "line 5: not a JSON object"),
        ('{"id": "4"}', r"line 5: a document is a JSON object with `id` and `contents`.*\['id'\]"),
        ('{"contents": "a"}', "line 5: a document is"),
        ('{"id": "4", "title": 4, "text": "a"}', "line 5: a document is"),
    ],
)
def test_a_line_that_is_no_document_is_named(tmp_path: Path, line: str, message: str) -> None:
    file = Path(write_jsonl(tmp_path / "c.jsonl", [*CORPUS]))
    with file.open("a", encoding="utf-8") as opened:
        opened.write(line)
    with pytest.raises(ConfigError, match=message):
        Corpus(file, tmp_path / "places")
    assert not (tmp_path / "places").exists()


def test_a_file_of_questions_is_shared_out_by_content(tmp_path: Path) -> None:
    again = {**QUESTIONS[0], "id": "again", "question": "  WHO designed engine number 0"}
    file = Path(write_jsonl(tmp_path / "q.jsonl", [*QUESTIONS, again]))
    questions = list(read_questions(file))

    assert len(questions) == 12
    assert {question.split for question in questions} == set(Split)
    assert questions[0].answers == ("Charles Babbage", "Babbage")


def test_a_folder_keeps_its_splits_less_what_stands_in_two(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "train.jsonl", [*QUESTIONS[:8]])
    write_jsonl(tmp_path / "dev.jsonl", [*QUESTIONS[6:10]])
    write_jsonl(tmp_path / "test.jsonl", [*QUESTIONS[9:]])
    split_of = {question.id: question.split for question in read_questions(tmp_path)}

    assert sorted(split_of) == [
        *(f"test/q{n}" for n in (10, 11, 9)),
        *(f"train/q{n}" for n in range(6)),
        *(f"validation/q{n}" for n in (6, 7, 8)),
    ]


def test_a_line_that_is_no_question_is_named(tmp_path: Path) -> None:
    file = Path(write_jsonl(tmp_path / "q.jsonl", [QUESTIONS[0], {"id": "1", "question": "Why?"}]))
    with pytest.raises(ConfigError, match="line 2: a question is a JSON object"):
        list(read_questions(file))
    with pytest.raises(ConfigError, match=r"dev\.jsonl"):
        list(read_questions(tmp_path))


def test_questions_come_back_as_they_were_and_cannot_be_changed(tmp_path: Path) -> None:
    listed = list(read_questions(Path(write_jsonl(tmp_path / "q.jsonl", [*QUESTIONS]))))
    write_questions(tmp_path, listed)
    questions = Questions(tmp_path)

    assert [q for split in Split for q in questions.of(split)] == sorted(
        listed, key=lambda question: [*Split].index(question.split)
    )
    assert questions[listed[3].id] == listed[3]
    with pytest.raises(ValueError, match="no question has the id 'q99'"):
        questions["q99"]


def test_two_questions_of_one_id_are_refused(tmp_path: Path) -> None:
    listed = list(read_questions(Path(write_jsonl(tmp_path / "q.jsonl", [*QUESTIONS]))))
    with pytest.raises(ConfigError, match="same id"):
        write_questions(tmp_path, [listed[0], listed[0]])
