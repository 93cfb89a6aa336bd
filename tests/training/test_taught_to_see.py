"""A model of random weights imitates an expert whose actions only its pictures tell."""

from pathlib import Path

import pytest

from longhaul_trainer.models.tiny_vision import write_tiny_vision_model
from training import lamp_world
from training.launching import Launched, path_with_tests, run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

FILE = str(Path(__file__).with_name("imitation.toml"))
NUM_TASKS = 16
"""Half of each colour, in each split."""
WORLD = (
    f'environment.id="{lamp_world.ID}"',
    'environment.import_modules=["training.lamp_world"]',
    "environment.options={}",
    "rollout.horizon=1",
    "tasks_per_training_step=16",
)


@pytest.fixture(scope="module")
def taught(tmp_path_factory: pytest.TempPathFactory) -> Launched:
    """What imitated, and then was shown grey pictures."""
    folder = tmp_path_factory.mktemp("taught")
    (model := folder / "blank").mkdir()
    write_tiny_vision_model(model, family="qwen3_vl")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", path_with_tests())
        for command in (
            ("demonstrate", FILE, "--tasks", str(NUM_TASKS), *WORLD, "runs_directory=shown"),
            (
                *("imitate", FILE, "--from", "experts", *WORLD, f"model.path={model}"),
                *("num_training_steps=12", "optimizer.optimizer_steps_per_training_step=4"),
                *(f"validation.num_tasks={NUM_TASKS}", "validation.every=0", "checkpoint.every=12"),
            ),
            ("evaluate", "last", "--split", "validation", 'model.pictures="grey"'),
        ):
            ended = run(folder, *command)
            assert ended.returncode == 0, ended.output
    return ended


def solved_tasks(taught: Launched, kind: str) -> int:
    """How many tasks of the panel were solved, of those played last by a run of this kind."""
    ((number, played),) = taught.query(
        "SELECT sum(e.success), count(*) FROM episodes e JOIN runs r ON r.id = e.run_id "
        "WHERE r.kind = ? AND e.phase <> 'train' GROUP BY e.training_step "
        "ORDER BY e.training_step DESC LIMIT 1",
        kind,
    )
    assert played == NUM_TASKS
    return number


def test_it_tells_the_colours_apart_and_of_grey_pictures_nothing(taught: Launched) -> None:
    assert solved_tasks(taught, "train") > 0.9 * NUM_TASKS
    assert solved_tasks(taught, "evaluate") < 0.6 * NUM_TASKS


def test_its_sight_is_measured_while_it_learns(taught: Launched) -> None:
    moved = taught.query(
        "SELECT training_step, value FROM metrics WHERE name = 'sight/logprob_change_mean' "
        "ORDER BY training_step"
    )

    assert [step for step, _ in moved] == [*range(1, 13)]
    assert max(value for _, value in moved[:3]) < 0.5 < min(value for _, value in moved[-3:])
