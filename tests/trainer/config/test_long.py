"""The files of `configs/long`: what is trained, and what is imitated before it."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from longhaul_core.errors import ConfigError
from longhaul_trainer.cli.main import app
from longhaul_trainer.config import load_config
from longhaul_trainer.models.folder import write_config
from longhaul_trainer.models.tiny import SHAPE
from longhaul_trainer.play.imitation.new_model import make_model_where_there_is_none
from longhaul_trainer.preflight.description_check import problems_of
from longhaul_trainer.preflight.resources import needs_here

LONG = [
    f"@long/{file.stem}" for file in (Path(__file__).parents[3] / "configs/long").glob("*.toml")
]


def test_there_is_one() -> None:
    assert "@long/key_door" in LONG


@pytest.mark.parametrize("name", LONG)
def test_both_runs_are_described(name: str, tmp_path: Path) -> None:
    made = f"model.path={tmp_path / 'new'}"  # not there before the imitation begins
    run = load_config(Path(name), [made])
    sources = 'imitation.sources=[{run="experts"}]'
    imitation = load_config(Path(name), [made, *run.warm_start.settings, sources])

    assert run.rollout.horizon >= 50
    assert run.warm_start.demonstrations > 0
    assert imitation.loss.kind == "nll"
    assert problems_of(run, deeply=True, here=False) == []
    assert problems_of(imitation, here=False) == []
    assert needs_here(run).host.total > 0
    assert "is not a folder" in "".join(problems_of(run, deeply=True, here=True))


def test_settings_of_the_imitation_are_checked_before_anything_is_played() -> None:
    settings = 'warm_start.settings=["optimizer.learningrate=1"]'
    result = CliRunner().invoke(app, ["check", LONG[0], settings])

    assert result.exit_code != 0
    assert "warm_start.settings: optimizer.learningrate" in str(result.exception)


def test_a_model_that_is_built_in_is_not_made() -> None:
    with pytest.raises(ConfigError, match="is one that is there"):
        load_config(Path(LONG[0]), ["model.path=tiny"])


def test_a_model_of_another_size_is_not_taken_for_the_one_described(tmp_path: Path) -> None:
    write_config(tmp_path, SHAPE, dtype="float32")
    config = load_config(Path(LONG[0]), [f"model.path={tmp_path}", "imitation.new_model_layers=3"])

    with pytest.raises(ConfigError, match="of 2 layers and width 64"):
        make_model_where_there_is_none(config)
