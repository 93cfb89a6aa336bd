"""Tests for `longhaul_trainer.run.context`."""

from pathlib import Path

from longhaul_core.environment import EnvironmentDescription
from longhaul_trainer.config import RunConfig
from longhaul_trainer.run.context import RunContext


def test_a_description_is_found_by_the_name_that_the_run_has_for_its_environment(
    tmp_path: Path,
) -> None:
    """A source of somebody's own may describe itself by another name."""
    written = RunContext(
        run_id="run",
        attempt=0,
        recorder_name="none",
        config=RunConfig.model_validate({"num_training_steps": 1, "tasks_per_training_step": 1}),
        descriptions={"mine/World-v0": EnvironmentDescription(id="World", version="1")},
    )

    assert RunContext.read(written.write(tmp_path)) == written
