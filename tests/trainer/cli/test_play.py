"""Tests for `trainer play`, through the program that people type."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from typing_person import trainer

SOKOBAN = "longhaul/Sokoban-v0"
TASK = "6x6-1/00000"
PROGRAM = [sys.executable, "-c", "from longhaul_trainer.cli.main import main; main()"]


def test_a_person_solves_a_task_by_numbers_and_words(tmp_path: Path) -> None:
    picture = tmp_path / "room.png"
    typed = "?\n2\nleft\nleft\nleft\ndown\n"
    code, said, _ = trainer("play", SOKOBAN, "--task", TASK, "--picture", str(picture), typed=typed)

    assert code == 0
    assert f"{SOKOBAN} task {TASK} (test)" in said
    assert "1 up   2 left" in said
    assert "the expert: left" in said
    assert "step 1: reward 0" in said
    assert f"picture: {picture}" in said
    assert np.asarray(Image.open(picture)).shape == (192, 192, 3)


def test_an_end_is_told_with_the_score() -> None:
    moves = "?\n" * 20
    advice: list[str] = []
    said = ""
    for _ in range(20):  # as a person would who follows the expert
        typed = "".join(f"{move}\n" for move in advice) + moves
        _, said, _ = trainer("play", SOKOBAN, "--task", TASK, typed=typed)
        if "The episode is over" in said:
            break
        advice.append(said.rsplit("the expert: ", 1)[1].split()[0])

    assert "The episode is over: solved (terminated)." in said
    assert f"{len(advice)} steps, return 1" in said


def test_an_answer_that_is_no_action_is_asked_for_again_or_refused() -> None:
    code, said, _ = trainer("play", SOKOBAN, "--task", TASK, typed="99\n<tag>\x1b[2J\n")

    assert code == 0
    assert "there are actions 1 to 2" in said
    assert "step 1: reward 0, not accepted" in said
    assert "1 steps, return 0" in said


def test_an_observation_of_a_picture_is_written_to_a_file_that_is_named() -> None:
    _, said, _ = trainer("play", SOKOBAN, "--task", TASK, "--option", "observation=image")

    path = Path(said.partition("picture: ")[2].split()[0])
    assert np.asarray(Image.open(path)).shape == (192, 192, 3)
    path.unlink()
    path.parent.rmdir()


def test_text_of_the_world_cannot_steer_the_terminal() -> None:
    """This world repeats what it is told."""
    module = ("--import-module", "broken_environments")
    code, said, _ = trainer("play", "broken/Echoing-v0", *module, typed="\x1b[2Jdoor\n")

    assert code == 0
    assert "\x1b[2J" not in said
    assert "number 200 \\x1b[2Jdoor" in said


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["longhaul/Nothing-v0"], "no environment 'longhaul/Nothing-v0' is installed; there are"),
        ([SOKOBAN, "--task", "nine"], "split 'test' has no task 'nine'; it has 256, such as 6x6-1"),
        ([SOKOBAN, "--option", "size"], "'size' is no option; write --option key=value"),
        ([SOKOBAN, "--option", "size=99"], "size must be from 5 to 10, got 99"),
        ([SOKOBAN, "--option", "sise=6"], "has no option 'sise'"),
    ],
)
def test_what_does_not_exist_is_refused_with_what_does(arguments: list[str], message: str) -> None:
    code, _, said = trainer("play", *arguments)

    assert code == 2
    assert message in said


def test_ctrl_c_leaves_with_the_score_and_its_own_code() -> None:
    process = subprocess.Popen(
        [*PROGRAM, "play", SOKOBAN, "--task", TASK],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(b"2\n")
    process.stdin.flush()
    read = b""
    while not (b"step 1" in read and read.endswith(b"action> ")):
        piece = os.read(process.stdout.fileno(), 4096)
        assert piece, read
        read += piece
    process.send_signal(signal.SIGINT)
    rest, errors = process.communicate(timeout=120)

    assert process.returncode == 130
    assert b"cancelled after 1 steps, return 0" in rest
    assert errors == b""
