"""The folder of one run, and the word a run ends with.

`runs/<run id>/` holds what is needed to repeat and to continue the run: `config.toml` (the
resolved configuration), `provenance.json` (one file a start), `logs/`, `checkpoints/`,
`model/` (the final weights as a Hugging Face folder), `trackers/` and `run.lock`. A run's id
sorts by its start and can be read: `20261121-095806-default-3fa2`. One process at a time works
in a folder; the lock is the kernel's and goes with its process, however that ends.
"""

import fcntl
import json
import math
import os
import secrets
import socket
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, Self

from longhaul_core.errors import MachineError
from longhaul_core.evaluation import success_rate_over_tasks
from longhaul_core.run_names import pick_run
from longhaul_trainer.config import RunConfig, load_config

__all__ = ["PanelScore", "RunDirectory", "RunOutcome", "write_atomically"]

_PENALTY_ON = "invalid_action_penalty_on"


@dataclass(frozen=True, slots=True, kw_only=True)
class PanelScore:
    """How the policy did on a panel of tasks."""

    num_episodes: int
    """Episodes that did not fail."""
    num_unplayed: int
    """Episodes of the panel that failed for good or were not begun: they are in no score."""
    num_tasks: int
    """Tasks that they are of."""
    mean_return: float
    success_rate: float
    """Of the episodes, between 0 and 1."""
    success_low: float
    """Lower end of its 95 % interval over the tasks; see `success_rate_over_tasks`."""
    success_high: float
    """Upper end."""

    @property
    def num_planned(self) -> int:
        """Episodes of the panel."""
        return self.num_episodes + self.num_unplayed

    @property
    def success_if_lost(self) -> float:
        """The success rate if every unplayed episode were lost."""
        return self.success_rate * self.num_episodes / self.num_planned

    @property
    def success_if_won(self) -> float:
        """The success rate if every unplayed episode were won."""
        return self.success_if_lost + self.num_unplayed / self.num_planned

    @property
    def rank(self) -> tuple[int, float]:
        """Greater is better: first by what was played, so that no failure makes a score better."""
        return -self.num_unplayed, self.mean_return

    @classmethod
    def stored(cls, score: Mapping[str, Any]) -> Self:
        """The score that a checkpoint holds; before `num_unplayed` was stored, of a whole panel."""
        return cls(**{"num_unplayed": 0, **score})

    @classmethod
    def of(cls, episodes: Iterable[tuple[int, float, bool]], *, num_planned: int) -> Self:
        """The score that episodes make; each counts the same.

        Args:
            episodes: Of each the place of its task, its return, and whether it succeeded; at least
                one.
            num_planned: Episodes of the panel.
        """
        of_tasks: dict[int, list[bool]] = {}
        returns: list[float] = []
        for task, episode_return, success in episodes:
            of_tasks.setdefault(task, []).append(success)
            returns.append(episode_return)
        rate = success_rate_over_tasks(list(of_tasks.values()))
        return cls(
            num_episodes=len(returns),
            num_unplayed=num_planned - len(returns),
            num_tasks=rate.num_units,
            mean_return=math.fsum(returns) / len(returns),
            success_rate=rate.estimate,
            success_low=rate.low,
            success_high=rate.high,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOutcome:
    """How a run ended, for the person who started it."""

    run_id: str
    status: Literal["finished", "cancelled", "failed"]
    num_training_steps: int
    """Done by the run in all its attempts."""
    num_episodes: int
    """In the store for this run."""
    num_steps: int
    """In the store for this run."""
    num_failed_episodes: int
    """In the store for this run, beside `num_episodes`."""
    duration_seconds: float
    before: PanelScore | None = None
    """On the panel, with the starting weights."""
    after: PanelScore | None = None
    """On the same panel, with the final weights."""
    message: str = ""
    """Why it was cancelled or failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunDirectory:
    """One run's folder. Making this object touches no disk; see `create` and `find`."""

    path: Path
    """Absolute."""

    @property
    def run_id(self) -> str:
        """The folder's name."""
        return self.path.name

    @property
    def config_file(self) -> Path:
        """The resolved configuration."""
        return self.path / "config.toml"

    @property
    def logs(self) -> Path:
        """Folder of log files."""
        return self.path / "logs"

    @property
    def log_file(self) -> Path:
        """Our own log; a traceback that the terminal did not show is here."""
        return self.logs / "longhaul.log"

    @property
    def checkpoints(self) -> Path:
        """Folder of checkpoints to resume from."""
        return self.path / "checkpoints"

    @property
    def model(self) -> Path:
        """Hugging Face folder of the final weights."""
        return self.path / "model"

    @property
    def best_model(self) -> Path:
        """Hugging Face folder of the weights that did best in validation."""
        return self.path / "best_model"

    @property
    def trackers(self) -> Path:
        """Files of TensorBoard, MLflow and Weights & Biases, where the run has them."""
        return self.path / "trackers"

    @property
    def lock_file(self) -> Path:
        """Locked by the process that works in the folder; names it."""
        return self.path / "run.lock"

    @classmethod
    def create(cls, config: RunConfig) -> Self:
        """A fresh folder below `config.runs_directory`, holding the configuration.

        Raises:
            MachineError: If the folder cannot be written.
        """
        parent = Path(config.runs_directory).absolute()
        now = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
        run = cls(path=parent / f"{now}-{config.name}-{secrets.token_hex(2)}")
        try:
            parent.mkdir(parents=True, exist_ok=True)
            run.path.mkdir()
            run.logs.mkdir()
            run.checkpoints.mkdir()
            write_atomically(run.config_file, config.to_toml())
        except OSError as error:
            raise MachineError(
                f"the run's folder {run.path} cannot be made: {error.strerror}; "
                "name another place with runs_directory=…"
            ) from error
        return run

    @classmethod
    def find(cls, reference: str, *, runs_directory: Path) -> Self:
        """The run that a person names.

        Args:
            reference: A path to the folder, the id, the beginning of just one id, or `last`.
            runs_directory: Where ids are looked up.

        Raises:
            ConfigError: If there is no such run, or more than one; it lists what there is.
        """
        if (Path(reference) / "config.toml").is_file():
            return cls(path=Path(reference).absolute())
        ids = [run.run_id for run in cls.all(runs_directory)]
        run_id = pick_run(reference, ids, place=str(runs_directory.absolute()))
        return cls(path=runs_directory.absolute() / run_id)

    @classmethod
    def all(cls, runs_directory: Path) -> list[Self]:
        """Every run's folder, oldest first."""
        files = sorted(runs_directory.absolute().glob("*/config.toml"))
        return [cls(path=file.parent) for file in files]

    def load_config(self) -> RunConfig:
        """The configuration the run was started with.

        A run that was started before penalties had a place keeps theirs on the return.

        Raises:
            ConfigError: If the file is missing or was edited into nonsense.
        """
        file = self.config_file
        older = file.is_file() and _PENALTY_ON not in file.read_text("utf-8", errors="replace")
        return load_config(file, [f'algorithm.{_PENALTY_ON}="return"'] if older else [])

    def write_provenance(self, provenance: str) -> Path:
        """Keep the description of one start of the run (JSON), beside those of earlier starts."""
        earlier = len(list(self.path.glob("provenance*.json")))
        name = f"provenance-{earlier + 1}.json" if earlier else "provenance.json"
        write_atomically(self.path / name, provenance)
        return self.path / name

    @contextmanager
    def locked(self) -> Generator[None]:
        """Hold the folder for this process while the block runs.

        Raises:
            MachineError: If another process holds it, with its id and host.
        """
        # A record lock belongs to this process alone: children do not inherit it, so an
        # orphan of a killed run cannot keep its folder shut.
        with self.lock_file.open("a+", encoding="utf-8") as file:
            try:
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise MachineError(
                    f"run {self.run_id} is in use by {self._holder()}; wait for it, or stop it "
                    f"with `trainer runs cancel {self.run_id}`"
                ) from error
            file.truncate(0)
            file.write(json.dumps({"pid": os.getpid(), "host": socket.gethostname()}))
            file.flush()
            yield

    def _holder(self) -> str:
        try:
            holder = json.loads(self.lock_file.read_text(encoding="utf-8"))
            return f"process {holder['pid']} on {holder['host']}"
        except (OSError, ValueError, KeyError):
            return "another process"


def write_atomically(path: Path, text: str) -> None:
    """Make `path` hold `text`; a reader, or a kill, sees the old file or the new one."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with temporary.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
