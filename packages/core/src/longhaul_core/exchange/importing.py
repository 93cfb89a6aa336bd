"""Files of other programs into a store, as a run of kind `imported`."""

import json
import math
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Literal

from longhaul_core.errors import ConfigError, LonghaulError
from longhaul_core.exchange.agent_lightning import Decode
from longhaul_core.exchange.episodes import EpisodeNumbers, ImportedEpisode
from longhaul_core.exchange.formats import Format
from longhaul_core.exchange.reading import data_files, read_values
from longhaul_core.store.records import EpisodeRecord, Heartbeat, RunEnded, RunStarted
from longhaul_core.store.writer import StoreWriter
from longhaul_core.types import Trajectory

__all__ = ["ImportSettings", "Imported", "import_files"]

EPISODES_PER_WRITE = 50
"""One transaction: a fraction of a second, so that a training run can write meanwhile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportSettings:
    """What is not in the files."""

    format: Format
    """What they are."""
    run_id: str
    """The new run's."""
    name: str
    """Of it, for people."""
    environment: str | None = None
    """Of episodes whose file names none; None: `imported/` and the format."""
    success_at: float = 1.0
    """Least return of an episode that counts as solved where its file does not say."""
    decode: Decode | None = None
    """The model's tokenizer, for a format without text."""

    def __post_init__(self) -> None:
        if not math.isfinite(self.success_at):
            raise ConfigError(f"success_at must be a number, got {self.success_at}")

    @property
    def default_environment(self) -> str:
        """Of episodes whose file names none."""
        return self.environment or f"imported/{self.format.name}"


@dataclass(slots=True)
class Imported:
    """What an import put into the store."""

    run_id: str
    num_episodes: int = 0
    num_steps: int = 0
    num_solved: int = 0
    left_out: Counter[str] = field(default_factory=Counter[str])
    """Fields that the store has no place for, and in how many episodes they were."""


def import_files(
    writer: StoreWriter,
    path: Path,
    settings: ImportSettings,
    *,
    report: Callable[[int], object] = lambda _: None,
) -> Imported:
    """Read a file, or all of a folder, into a run of its own; memory does not grow with them.

    Args:
        writer: Of the store.
        path: A file, or a folder whose files of the format's kind are all read, by the numbers in
            their names.
        settings: What is not in the files.
        report: Is called with the bytes that were read since the call before.

    Raises:
        FormatError: A file is not of the format; what was read before it stays, in a run that says
            `failed`.
        StoreError: The store refused.
    """
    files = data_files(path, parquet=settings.format.is_parquet)
    run_id = settings.run_id
    writer.write([_started(settings, files)])
    result = Imported(run_id)
    numbers = EpisodeNumbers(
        run_id=run_id,
        environment=settings.default_environment,
        success_at=settings.success_at,
    )
    read = settings.format.reader(decode=settings.decode)
    episodes = (episode for file in files for episode in read(read_values(file, report=report)))
    records = _records(episodes, numbers, result)
    try:
        while batch := list(islice(records, EPISODES_PER_WRITE)):
            writer.write([*batch, Heartbeat(run_id=run_id, attempt=0, at=time.time())])
    except Exception as error:
        message = str(error) if isinstance(error, LonghaulError) else repr(error)
        writer.write([_ended(run_id, "failed", message)])
        raise
    except KeyboardInterrupt:
        writer.write([_ended(run_id, "cancelled", "interrupted")])
        raise
    writer.write([_ended(run_id, "finished", "")])
    writer.flush()
    return result


def _started(settings: ImportSettings, files: list[Path]) -> RunStarted:
    described = {
        "format": settings.format.name,
        "environment": settings.default_environment,
        "success_at": settings.success_at,
    }
    return RunStarted(
        run_id=settings.run_id,
        name=settings.name,
        kind="imported",
        attempt=0,
        config_json=json.dumps({"name": settings.name, "import": described}),
        provenance_json=json.dumps({"files": [str(file.absolute()) for file in files]}),
        started_at=time.time(),
    )


def _records(
    episodes: Iterator[ImportedEpisode], numbers: EpisodeNumbers, result: Imported
) -> Iterator[EpisodeRecord]:
    for episode in episodes:
        record = numbers.record(episode)
        result.num_episodes += 1
        result.num_steps += len(episode.steps)
        assert isinstance(record.outcome, Trajectory)
        result.num_solved += record.outcome.success
        result.left_out.update(episode.left_out)
        yield record


def _ended(
    run_id: str, status: Literal["finished", "failed", "cancelled"], message: str
) -> RunEnded:
    return RunEnded(run_id=run_id, attempt=0, status=status, message=message, ended_at=time.time())
