"""What the commands share that play some episodes and train nothing."""

from pathlib import Path

from longhaul_trainer.cli.train import Work, carry_out
from longhaul_trainer.config import RunConfig
from longhaul_trainer.run.directory import RunDirectory, RunOutcome

__all__ = ["beside_runs", "played_in_folder"]


def beside_runs(config: RunConfig, *, folder: str, name: str | None = None) -> RunConfig:
    """The run with a folder beside those of trainings: it is none that `resume` could go on with.

    Args:
        config: The run. Its trackers are left out, since they show curves.
        folder: Name of the folder in which its own is made.
        name: Of the run; None leaves its name.
    """
    parent = Path(config.runs_directory) / folder
    changed = {"runs_directory": str(parent), "trackers": (), "name": name or config.name}
    return config.model_copy(update=changed).with_absolute_paths(Path.cwd())


def played_in_folder(
    config: RunConfig, work: Work, *, hosted: bool = True
) -> tuple[RunDirectory, RunOutcome]:
    """Do the work in a fresh folder, and show how it ended.

    Args:
        config: See `beside_runs`.
        work: What is done.
        hosted: No weights of ours play.
    """
    run = RunDirectory.create(config)
    with run.locked():
        return run, carry_out(config, run, work, hosted=hosted)
