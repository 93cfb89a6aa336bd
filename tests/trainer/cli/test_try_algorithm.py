"""Tests for `trainer try-algorithm`, on groups that the real writer wrote."""

import re
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from audited_run import RUN, make_config, play, run_started
from longhaul_core.errors import ConfigError
from longhaul_core.store import StoreWriter
from longhaul_trainer.cli.arguments import console_of
from longhaul_trainer.cli.main import app

MINE = """
from dataclasses import replace
from longhaul_core.advantages.grpo import grpo_credit

def grpo_again(groups, settings):
    return [grpo_credit(group.step_rewards, scale_by_std=settings.scale_by_std)
            for group in groups]

def times(groups, settings):
    return [tuple(
        replace(each, advantages=tuple(settings.options["factor"] * a for a in each.advantages))
        for each in credits
    ) for credits in grpo_again(groups, settings)]

def numbers(groups, settings):
    return [[1.0 for _ in group.step_rewards] for group in groups]
"""


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "tried_algorithm.py").write_text(MINE, encoding="utf-8")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delitem(sys.modules, "tried_algorithm", raising=False)
    return "tried_algorithm"


def stored(path: Path, *, penalty_on: str) -> Path:
    """Two training steps of a run in which invalid actions cost something."""
    config = make_config(
        algorithm__invalid_action_penalty=0.3, algorithm__invalid_action_penalty_on=penalty_on
    )
    with StoreWriter(str(path)) as writer:
        writer.write([run_started(config)])
        writer.write(play(config, 1).records())
        writer.write(play(config, 2).records())
    return path


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return stored(tmp_path / "store.db", penalty_on="return")


def rows_of(shown: str) -> dict[str, list[str]]:
    """Cells of each estimator's row, its name and mark left out."""
    found: dict[str, list[str]] = {}
    for line in shown.splitlines():
        name, *cells = line.replace(" (trained)", "").split()[:8] or [""]
        if len(cells) >= 2 and re.fullmatch(r"[a-z_:]+", name) and cells[0].isdecimal():
            found[name] = cells
    return found


def asked(store: Path, name: str, *further: str) -> str:
    arguments = ["try-algorithm", name, "--run", RUN, "--store", str(store), *further]
    console_of.cache_clear()  # it keeps the width of whoever asked first
    result = CliRunner().invoke(app, arguments, env={"COLUMNS": "160"}, catch_exceptions=False)
    assert result.exit_code == 0
    return result.output


def test_grpo_of_ones_own_stands_first_and_gives_what_grpo_gives(store: Path, mine: str) -> None:
    before = store.read_bytes()

    found = rows_of(asked(store, f"{mine}:grpo_again"))

    own, grpo = found[f"{mine}:grpo_again"], found["grpo"]
    assert next(iter(found)) == f"{mine}:grpo_again"
    assert own == grpo
    assert own[-1] == "1.000"
    assert float(own[3]) > 0
    assert found["gigpo"][-1] not in ("1.000", "")
    assert store.read_bytes() == before


def test_options_reach_the_function_and_groups_are_limited(store: Path, mine: str) -> None:
    found = rows_of(asked(store, f"{mine}:times", "--option", "factor=-2.0", "--groups", "1"))

    own, grpo = found[f"{mine}:times"], found["grpo"]
    assert own[0] == grpo[0] == "1"
    assert float(own[3]) == pytest.approx(2 * float(grpo[3]), rel=0.01)
    assert (own[-1], grpo[-1]) == ("1.000", "-1.000")


def test_a_penalty_of_the_action_alone_is_taken_off_the_rewards_as_a_run_would(
    store: Path, tmp_path: Path, mine: str
) -> None:
    of_actions = stored(tmp_path / "actions.db", penalty_on="action")

    found = rows_of(asked(of_actions, f"{mine}:grpo_again"))

    expected = rows_of(asked(store, f"{mine}:grpo_again"))[f"{mine}:grpo_again"]
    assert found[f"{mine}:grpo_again"] == expected
    assert found["grpo"] != expected


def test_what_an_estimator_needs_and_the_store_lacks_is_told(store: Path, mine: str) -> None:
    shown = asked(store, f"{mine}:grpo_again")

    assert "not computed: remax, " in shown
    assert "no greedy episode of the task was played beside the group" in shown


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("numbers", r"got a float, expected a longhaul_core\.advantages\.EpisodeCredit"),
        ("times", r"algorithm\.name = 'tried_algorithm:times': KeyError: 'factor'"),
        ("missing", r"module tried_algorithm has no missing"),
    ],
)
def test_what_is_no_estimator_is_refused_by_name(
    store: Path, mine: str, name: str, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        asked(store, f"{mine}:{name}")


def test_a_built_in_name_is_refused(store: Path) -> None:
    with pytest.raises(ConfigError, match=r"'grpo' must be package\.module:name of your own"):
        asked(store, "grpo")
