"""The files of `configs/long`: what is trained, and what is imitated before it."""

from pathlib import Path

import pytest

from longhaul_trainer.config import load_config
from longhaul_trainer.description_check import problems_of
from longhaul_trainer.resources import needs_here

LONG = [
    f"@long/{file.stem}" for file in (Path(__file__).parents[3] / "configs/long").glob("*.toml")
]


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
    assert needs_here(run).host.total > 0
    assert "is not a folder" in "".join(problems_of(run, deeply=True, here=True))
