"""Tests for `longhaul_trainer.training.checkpoints`."""

import itertools
import json
import os
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import pytest

from longhaul_trainer.run.directory import PanelScore
from longhaul_trainer.training.checkpoints import STATE_FILE, Checkpoint, CheckpointFolder

KILLED = 9
FILES = ("actor/model.pt", "actor/huggingface/config.json")


def save(
    checkpoints: CheckpointFolder,
    step: int,
    *,
    attempt: int = 0,
    score: float | None = None,
    num_unplayed: int = 0,
) -> None:
    """What the trainer does, with small weights."""
    folder = checkpoints.begin(step)
    (folder / "actor" / "huggingface").mkdir(parents=True)
    for name in FILES:
        (folder / name).write_text(f"{name} of {step}.{attempt}", encoding="utf-8")
    scores = {}
    if score is not None:
        num_played = 4 - num_unplayed
        played = PanelScore.of([(n, score, False) for n in range(num_played)], num_planned=4)
        scores = {str(step): asdict(played)}
    checkpoints.publish(step, {"training_step": step, "attempt": attempt, "scores": scores})


def is_whole(checkpoint: Checkpoint) -> bool:
    """Whether every file is there, and all of them belong together."""
    state = checkpoint.state()
    tag = f"{state['training_step']}.{state['attempt']}"
    return state["training_step"] == checkpoint.training_step and all(
        (checkpoint.folder / name).read_text(encoding="utf-8") == f"{name} of {tag}"
        for name in FILES
    )


def steps(checkpoints: CheckpointFolder) -> list[int]:
    return [checkpoint.training_step for checkpoint in checkpoints.complete()]


CHANGES = {"open", "os.mkdir", "os.rename", "os.remove", "os.rmdir"}
"""Audit events of the calls that change a folder."""


def killed_before(change: int, action: Callable[[], None], folder: Path) -> bool:
    """Run `action` in a process that dies just before its `change`-th change inside `folder`.

    Returns whether it came that far.
    """
    child = os.fork()
    if child == 0:
        left = change

        def count(event: str, arguments: tuple[object, ...]) -> None:
            nonlocal left
            # `rmtree` names files by a descriptor of their folder; nothing else is done here.
            reads = event == "open" and isinstance(arguments[1], str) and arguments[1] == "r"
            if event in CHANGES and not reads:
                left -= 1
                if left < 0:
                    os._exit(KILLED)

        sys.addaudithook(count)
        action()
        os._exit(0)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    assert code in (0, KILLED), f"the action itself failed in {folder}"
    return code == KILLED


def save_and_prune(folder: Path, step: int, *, keep_last: int) -> Callable[[], None]:
    def action() -> None:
        checkpoints = CheckpointFolder(folder)
        save(checkpoints, step, attempt=1)
        checkpoints.prune(keep_last=keep_last, keep_best=True)

    return action


@pytest.mark.parametrize("step", [2, 1], ids=["a new step", "the same step again"])
def test_a_kill_at_any_moment_leaves_a_whole_checkpoint(tmp_path: Path, step: int) -> None:
    for change in itertools.count():
        folder = tmp_path / str(change)
        save(CheckpointFolder(folder), 1)
        killed = killed_before(change, save_and_prune(folder, step, keep_last=1), folder)

        after = CheckpointFolder(folder)
        complete = after.complete()
        assert complete, f"killed before change {change}: nothing to resume from"
        assert all(is_whole(checkpoint) for checkpoint in complete), f"before change {change}"
        assert {checkpoint.training_step for checkpoint in complete} <= {1, step}

        # The next attempt saves over whatever is left, and leaves no remains.
        save(after, step, attempt=2)
        after.prune(keep_last=1, keep_best=True)
        assert [path.name for path in folder.iterdir()] == [f"global_step_{step}"]
        assert is_whole(after.complete()[0])
        if not killed:
            break
    else:
        raise AssertionError("unreachable")
    assert change > 15, "the action makes more changes than that; did the hook see them?"


def test_what_was_never_published_is_not_there(tmp_path: Path) -> None:
    checkpoints = CheckpointFolder(tmp_path)
    (checkpoints.begin(3) / "model.pt").touch()

    assert checkpoints.latest() is None
    assert checkpoints.complete() == []


def test_an_interrupted_write_is_begun_from_nothing(tmp_path: Path) -> None:
    checkpoints = CheckpointFolder(tmp_path)
    (checkpoints.begin(3) / "stale.pt").touch()

    assert list(checkpoints.begin(3).iterdir()) == []


def test_the_newest_is_by_number_not_by_name_or_time(tmp_path: Path) -> None:
    checkpoints = CheckpointFolder(tmp_path)
    for step in (10, 9, 100):
        save(checkpoints, step)
    latest = checkpoints.latest()

    assert steps(checkpoints) == [9, 10, 100]
    assert latest is not None
    assert latest.state() == {"training_step": 100, "attempt": 0, "scores": {}}


def test_publishing_a_step_again_replaces_it_whole(tmp_path: Path) -> None:
    checkpoints = CheckpointFolder(tmp_path)
    save(checkpoints, 4)
    (tmp_path / "global_step_4" / "only_in_the_first").touch()
    save(checkpoints, 4, attempt=1)

    (found,) = checkpoints.complete()
    assert is_whole(found)
    assert found.state()["attempt"] == 1
    assert not (found.folder / "only_in_the_first").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["global_step_4"]


def test_pruning_keeps_the_newest_and_the_best(tmp_path: Path) -> None:
    checkpoints = CheckpointFolder(tmp_path)
    for step in range(1, 7):
        save(checkpoints, step, score={2: 0.75, 4: 0.5}.get(step))

    checkpoints.prune(keep_last=2, keep_best=True)

    best = checkpoints.best()
    assert steps(checkpoints) == [2, 5, 6]
    assert best is not None
    assert best.training_step == 2
    validation = best.validation()
    assert validation is not None
    assert validation.mean_return == 0.75


def test_no_checkpoint_is_best_by_a_panel_of_which_others_played_more(tmp_path: Path) -> None:
    checkpoints = CheckpointFolder(tmp_path)
    scores = {1: (0.25, 2), 2: (0.5, 1), 3: (1.0, 2), 4: (0.75, 1), 5: (0.75, 1)}
    for step, (score, num_unplayed) in scores.items():
        save(checkpoints, step, score=score, num_unplayed=num_unplayed)

    best = checkpoints.best()

    assert best is not None
    assert best.training_step == 4


def test_a_score_of_before_unplayed_episodes_were_counted_is_of_a_whole_panel(
    tmp_path: Path,
) -> None:
    checkpoints = CheckpointFolder(tmp_path)
    save(checkpoints, 1, score=0.5)
    (found,) = checkpoints.complete()
    state = found.state()
    del state["scores"]["1"]["num_unplayed"]
    (found.folder / STATE_FILE).write_text(json.dumps(state), encoding="utf-8")

    validation = found.validation()

    assert validation is not None
    assert (validation.num_episodes, validation.num_unplayed) == (4, 0)


def test_pruning_without_keeping_the_best_lets_it_go(tmp_path: Path) -> None:
    checkpoints = CheckpointFolder(tmp_path)
    for step in range(1, 4):
        save(checkpoints, step, score=0.5 if step == 1 else None)

    checkpoints.prune(keep_last=1, keep_best=False)

    assert steps(checkpoints) == [3]
    assert checkpoints.best() is None


def test_pruning_removes_the_remains_of_kills(tmp_path: Path) -> None:
    checkpoints = CheckpointFolder(tmp_path)
    save(checkpoints, 5)
    (tmp_path / "global_step_3" / "actor").mkdir(parents=True)  # its state file is gone already
    (checkpoints.begin(7) / "model.pt").touch()

    checkpoints.prune(keep_last=2, keep_best=True)

    assert [path.name for path in tmp_path.iterdir()] == ["global_step_5"]


@pytest.mark.parametrize(
    ("scores", "best_step"),
    [
        ({1: None, 2: None}, None),
        ({1: 0.25, 2: 0.5}, 2),
        ({1: 0.5, 2: 0.5}, 1),
        ({1: -1.0, 2: None, 3: -2.0}, 1),
    ],
)
def test_the_best_is_the_one_whose_own_validation_says_so(
    tmp_path: Path, scores: dict[int, float | None], best_step: int | None
) -> None:
    checkpoints = CheckpointFolder(tmp_path)
    assert checkpoints.best() is None
    for step, score in scores.items():
        save(checkpoints, step, score=score)

    best = checkpoints.best()
    assert (None if best is None else best.training_step) == best_step


def test_the_state_is_readable_by_people(tmp_path: Path) -> None:
    checkpoints = CheckpointFolder(tmp_path)
    save(checkpoints, 1)

    text = (tmp_path / "global_step_1" / STATE_FILE).read_text(encoding="utf-8")
    assert json.loads(text) == {"training_step": 1, "attempt": 0, "scores": {}}
