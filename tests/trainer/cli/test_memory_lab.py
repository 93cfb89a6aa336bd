"""`trainer memory-lab`: prompts of stored episodes under other memories, in a table."""

import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from longhaul_core.errors import ConfigError
from longhaul_trainer.cli.arguments import console_of
from longhaul_trainer.cli.main import app
from longhaul_trainer.cli.memory_lab import described_memory
from longhaul_trainer.config import RunConfig
from longhaul_trainer.play.memory_lab.recompose import named
from longhaul_viewer.demo import unpack_demo
from trainer.play.imitation.conftest import experts

__all__ = ["experts"]  # a fixture

BOXES = Path(__file__).parents[3] / "examples" / "demo" / "boxes.toml"


@pytest.fixture
def store(experts: RunConfig, tmp_path: Path) -> Path:
    return Path(shutil.copy(experts.store, tmp_path / "store.db"))


def shown(store: Path, *further: str, run: str = "last") -> str:
    console_of.cache_clear()  # it keeps the width of whoever asked first
    arguments = ["memory-lab", run, "--store", str(store), *further]
    done = CliRunner().invoke(app, arguments, env={"COLUMNS": "160"}, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def rows_of(output: str) -> dict[str, list[str]]:
    """Cells of each memory's row."""
    lines = [line.replace("the run's own", "own").split() for line in output.splitlines()]
    rule = next(place for place, line in enumerate(lines) if line and set(line[0]) == {"─"})
    return {name: cells for name, *cells in filter(None, lines[rule + 1 :])}


def test_each_memory_has_a_row_below_the_runs_own_and_nothing_is_written(store: Path) -> None:
    before = store.read_bytes()

    output = shown(store, "--memory", "window:1", "--memory", "full", "--last", "5")

    assert store.read_bytes() == before
    assert " 5 episodes, " in output
    rows = rows_of(output)
    assert list(rows) == ["own", "window:1", "full"]
    tokens = [float(rows[name][0].replace(",", "")) for name in ("window:1", "own", "full")]
    assert tokens == sorted(tokens)
    assert len(set(tokens)) == 3


@pytest.mark.slow
def test_what_the_demos_engine_read_is_composed_token_for_token(tmp_path: Path) -> None:
    store = unpack_demo(tmp_path)
    config = ["--config", str(BOXES), "--training-step", "3", "--last", "12"]

    output = shown(store, *config, "--memory", "full", run="20261123-234134-boxes-gigpo")

    assert "12 episodes, 96 steps. Of 96 stored prompts 96 are equal" in output
    assert "by their messages" not in output
    with pytest.raises(ConfigError, match=r"^96 of 96 stored prompts are not "):
        shown(store, *config, "prompt.system=Move.", run="20261123-234134-boxes-gigpo")


@pytest.mark.parametrize(
    ("further", "words"),
    [
        (("--memory", "windw"), r"--memory 'windw': [\s\S]*memory\.kind"),
        (("--memory", "window:0"), r"--memory 'window:0': [\s\S]*memory\.size"),
        (("--memory", "summary"), "the lab asks no model"),
        (("--memory", "window,max_tokens=601"), r"max_prompt_tokens = 600 of the run"),
        (("--training-step", "7"), "has no episode of these training steps that ended"),
        (("--episode", "nothing"), "nothing"),
        (("rollout.horizon=0",), r"rollout\.horizon"),
    ],
)
def test_what_cannot_be_compared_is_named(
    store: Path, further: tuple[str, ...], words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        shown(store, *further)


def test_a_memory_is_named_by_kind_and_size_or_by_a_file(tmp_path: Path) -> None:
    file = tmp_path / "memory.toml"
    file.write_text('[memory]\nkind = "window"\nsize = 7\n', "utf-8")

    found = [
        described_memory(words)
        for words in (
            "full",
            "window:3",
            "my.module:Mine:4",
            str(file),
            "key_events,max_earlier=8",
            "window:9,max_tokens=4000",
        )
    ]

    assert [(memory.kind, memory.size) for memory in found] == [
        ("full", 2),
        ("window", 3),
        ("my.module:Mine", 4),
        ("window", 7),
        ("key_events", 2),
        ("window", 9),
    ]
    assert (found[-2].max_earlier, found[-1].max_tokens) == (8, 4000)
    assert [named(memory) for memory in found] == [
        "full",
        "window:3",
        "my.module:Mine:4",
        "window:7",
        "key_events:2,max_earlier=8",
        "window:9,max_tokens=4000",
    ]
    with pytest.raises(ConfigError, match=r"memory\.max_earlier = 0"):
        described_memory("key_events,max_earlier=0")
