"""The runs of `examples/agents` that train command-line agents: tasks, rewards and the model."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from fakes import make_task
from longhaul_core.types import Split
from longhaul_trainer.config.load import read_file
from longhaul_trainer.gateway.episode import Reported
from longhaul_trainer.play.programs.grader import Graded, named_function
from longhaul_trainer.play.programs.program import Leavings
from longhaul_trainer.play.programs.tasks import task_source
from store_samples import make_trajectory

FOLDER = Path(__file__).parents[4] / "examples" / "agents"


@pytest.fixture(autouse=True)
def in_its_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    """The example is found as by a run that is started in its folder."""
    monkeypatch.setattr(sys, "path", [str(FOLDER), *sys.path])


@pytest.mark.parametrize("name", ["mini_swe_agent", "claude_code"])
def test_a_run_has_a_task_of_each_split(name: str) -> None:
    run = read_file(FOLDER / f"{name}.toml").run()
    assert run.tasks.source is not None
    listed = task_source(run.tasks.source)

    assert all(listed.tasks(split) for split in Split)
    assert len(listed.tasks(Split.TRAIN)) >= run.tasks_per_training_step


@pytest.mark.parametrize(
    ("written", "reward", "success"),
    [(None, 0.0, False), ("hello\n", 1.0, True), ("hi\n", 0.5, False)],
)
def test_the_word_that_was_asked_for_is_worth_1(
    tmp_path: Path, written: str | None, reward: float, success: bool
) -> None:
    if written is not None:
        (tmp_path / "greeting.txt").write_text(written)
    grade = named_function("greetings:grade", setting="agent.grader", takes=["graded"])

    found = grade(
        Graded(
            task=make_task(),
            data={"goal": "Write hello into greeting.txt", "word": "hello"},
            trajectory=make_trajectory(),
            posted=Reported(),
            leavings=Leavings(folder=tmp_path),
        )
    )

    assert found == {"reward": reward, "success": success}


def test_the_model_calls_the_agents_tool_and_reads_long_prompts(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    subprocess.run([sys.executable, FOLDER / "greetings.py", folder, "Bash"], check=True)

    assert json.loads((folder / "config.json").read_text())["max_position_embeddings"] == 65_536
    added = json.loads((folder / "tokenizer.json").read_text())["added_tokens"]
    said = {one["content"] for one in added}
    assert '{"name": "Bash", "arguments": {"command": "' in said
    assert 'echo hello > greeting.txt"}}' in said
