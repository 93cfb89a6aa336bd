"""A corpus and questions in the shapes of FlashRAG, and a WordNet database, a few lines long."""

import json
from pathlib import Path
from typing import Any

CORPUS: list[dict[str, Any]] = [
    {"id": "0", "contents": '"Ada Lovelace"\nShe wrote notes on the Analytical Engine.'},
    {"id": "1", "title": "Analytical Engine", "text": "A machine designed by Charles Babbage."},
    {"id": "2", "contents": '"Charles Babbage"\nBorn in London in 1791.'},
    {"id": "3", "contents": "Difference engine\nAn earlier machine, by the same person."},
]
QUESTIONS: list[dict[str, Any]] = [
    {
        "id": f"q{number}",
        "question": f"Who designed engine number {number}?",
        "golden_answers": ["Charles Babbage", "Babbage"],
        "metadata": {},
    }
    for number in range(12)
]

_LICENCE = "  1 This software and database is being provided to you, the LICENSEE, by  \n"


def write_jsonl(file: Path, rows: list[dict[str, Any]]) -> str:
    """Write `rows` as lines of JSON; the file's path."""
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(file)


def write_wordnet(folder: Path) -> Path:
    """Write a database as WordNet's manual page wndb(5) has it, of chains of three nouns.

    `catN` and `dogN` are members of `herdN`, which is part of `landN`; every noun is a kind of
    `entity`.
    """
    folder.mkdir()
    lines = ["00000001 03 n 01 entity 0 000 | that which is  \n"]
    for number in range(1, 61):
        cat, herd, land, dog = (f"{place}{number:07}" for place in (1, 2, 3, 4))
        word = _word(number)
        lines += [
            f"{cat} 05 n 02 cat{word} 0 small_cat{word} 0 002 @ 00000001 n 0000 #m {herd} n 0000 "
            '| one of many; "it was small"  \n',
            f"{dog} 05 n 01 dog{word} 0 002 @ 00000001 n 0000 #m {herd} n 0000 | one more  \n",
            f"{herd} 05 n 01 herd{word} 0 002 @ 00000001 n 0000 #p {land} n 0000 | a crowd  \n",
            f"{land} 05 n 01 land{word} 0 001 @ 00000001 n 0000 | all there is of it  \n",
        ]
    (folder / "data.noun").write_text(_LICENCE + "".join(lines), encoding="utf-8")
    verb = "00000009 29 v 01 breathe 0 001 @ 00000001 n 0000 01 + 02 00 | draw air  \n"
    (folder / "data.verb").write_text(_LICENCE + verb, encoding="utf-8")
    adjective = "00000010 00 a 01 able(p) 0 000 | having the means  \n"
    (folder / "data.adj").write_text(_LICENCE + adjective, encoding="utf-8")
    (folder / "data.adv").write_text(_LICENCE, encoding="utf-8")
    return folder


def _word(number: int) -> str:
    """A word of its own for each number, without digits."""
    return "".join("abcdefghij"[int(digit)] for digit in f"{number:04}")
