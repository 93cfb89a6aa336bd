"""Tests for `trainer data`, through the program that people type."""

from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from file_server import WORDS, serving
from longhaul_envs.data import DataFile, DataSet
from longhaul_envs.data_sets import DATA_SETS
from typing_person import trainer


def test_a_data_set_is_fetched_with_its_hash_and_then_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LONGHAUL_DATA", str(tmp_path))
    with serving() as server:
        files = (DataFile(url=server.url("words.txt")),)
        here = replace(DATA_SETS["boxoban"], files=files)
        monkeypatch.setitem(cast("dict[str, DataSet]", DATA_SETS), "boxoban", here)

        code, said, progress = trainer("data", "fetch", "boxoban")
        again = trainer("data", "fetch", "boxoban")

    assert (tmp_path / "boxoban" / "words.txt").read_bytes() == WORDS
    assert code == 0
    assert "(its publisher names none)" in said
    assert "words.txt" in progress
    assert again == (0, f"boxoban is in {tmp_path}/boxoban\n", "")
    assert len(server.requests) == 1
    states = {line.split()[0]: line for line in trainer("data")[1].splitlines() if line.strip()}
    assert "fetched" in states["boxoban"]


def test_the_list_of_data_shows_what_is_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LONGHAUL_DATA", str(tmp_path))
    (tmp_path / "webshop").mkdir()
    code, said, _ = trainer("data")
    states = {line.split()[0]: line for line in said.splitlines() if "longhaul/" in line}

    assert code == 0
    assert "put there" in states["webshop"]
    assert "missing, by hand" in states["wiki"]
    assert "missing" in states["boxoban"]
    assert "by hand" not in states["boxoban"]


def test_what_cannot_be_fetched_says_how_a_person_gets_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LONGHAUL_DATA", str(tmp_path))
    code, _, said = trainer("data", "fetch", "webshop")

    assert code == 2
    assert f"items_human_ins.json into {tmp_path}/webshop" in " ".join(said.split())

    code, _, said = trainer("data", "fetch", "nothing")
    assert code == 2
    assert "no data set is called 'nothing'; there are alfworld, appworld" in said
