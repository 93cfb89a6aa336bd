"""Credit against the exact truth, by a policy that is trained: docs/credit_truth.md.

    python benchmarks/trained_credit_truth.py FOLDER                       # trains, then judges
    python benchmarks/trained_credit_truth.py FOLDER docs/credit_truth.md  # writes the tables too

The policy and the training are those of `learning.py`: a Llama of 0.11 million parameters plays
KeyDoor and learns by GiGPO, in one process. The groups of three training steps are judged, each by
the weights that played it, through `trainer credit-truth --exact`. A second call trains nothing.
"""

# pyright: reportUnknownMemberType=false
# transformers is untyped.

import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import learning
from learning_policy import warm_started
from learning_run import OneProcessRun

from longhaul_core.page_part import PagePart
from longhaul_core.store import StoreWriter
from longhaul_core.types import Split, Task
from longhaul_trainer.config import RunConfig
from longhaul_trainer.run.directory import RunDirectory
from longhaul_trainer.training.checkpoints import CheckpointFolder

JUDGED = {"Early": 1, "Middle": 6, "Late": 17}
"""Training steps whose groups are judged."""
PART = PagePart("trained")
TRIAL = learning.Trial("gigpo", 1e-3, 0, tuning=False, num_training_steps=max(JUDGED.values()))


class KeptRun(OneProcessRun):
    """A training that keeps the weights which play the judged training steps."""

    def __init__(self, config: RunConfig, writer: StoreWriter, folder: RunDirectory) -> None:
        super().__init__(config, writer, panel=Split.VALIDATION)
        self._folder, self._id = folder, folder.run_id

    def _train_on(self, batch: Sequence[Task], *, training_step: int) -> None:
        if training_step in JUDGED.values():
            checkpoints = CheckpointFolder(self._folder.checkpoints)
            kept = checkpoints.begin(training_step - 1) / "actor" / "huggingface"
            shutil.copytree(self._run.model.path, kept)
            self._model.save_pretrained(kept)
            checkpoints.publish(training_step - 1, {})
        super()._train_on(batch, training_step=training_step)


def main() -> None:
    """Train what is missing, judge, print."""
    folder = Path(sys.argv[1]).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    run = trained(folder)
    tables = [judged(run, name, training_step) for name, training_step in JUDGED.items()]
    text = "\n\n".join(tables)
    print(text)
    if len(sys.argv) > 2:
        PART.write(Path(sys.argv[2]), text)


def trained(folder: Path) -> RunDirectory:
    """The run's folder; the first call trains it."""
    runs = folder / "runs"
    if found := sorted(path for path in runs.glob("*") if (path / "done").is_file()):
        return RunDirectory(path=found[-1])
    warm_started(folder)
    learning.NUM_PANEL_TASKS = 8
    config = learning.configuration(folder, TRIAL).model_copy(
        update={"store": str(folder / "longhaul.db")}
    )
    directory = RunDirectory.create(config)
    with StoreWriter(config.store) as writer:
        KeptRun(config, writer, directory).go()
    (directory.path / "done").touch()
    return directory


def judged(run: RunDirectory, name: str, training_step: int) -> str:
    """The table of one training step's groups, by the weights that played them."""
    folder = run.path.parents[1]
    weights = run.checkpoints / f"global_step_{training_step - 1}" / "actor" / "huggingface"
    page = folder / f"{name.lower()}.md"
    words = ["trainer", "credit-truth", run.run_id, "--exact", "--checkpoint", str(weights)]
    words += ["--training-steps", f"{training_step}", "--groups", "8", "--steps", "100000"]
    words += ["--store", str(folder / "longhaul.db"), "--output", str(page), "--skip-doctor"]
    subprocess.run([str(Path(sys.executable).with_name(words[0])), *words[1:]], check=True)
    lines = [line.strip() for line in page.read_text(encoding="utf-8").splitlines()]
    found = next(line for line in lines if line.startswith("with an effect"))
    table = "\n".join(line for line in lines if line.startswith("|"))
    return f"**{name}** (training step {training_step}), {found}.\n\n{table}"


if __name__ == "__main__":
    main()
