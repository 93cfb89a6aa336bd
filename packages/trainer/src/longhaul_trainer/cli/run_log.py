"""A run's own log: one line an event for people, and the same as JSON for machines."""

import json
import logging
import sys
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Self

from longhaul_trainer.run.directory import RunDirectory
from longhaul_trainer.run.full_disk import says_full


class LineFormatter(logging.Formatter):
    """`2026-11-21T10:01:40Z INFO    longhaul_trainer.x: message`."""

    def __init__(self) -> None:
        super().__init__("{asctime} {levelname:7} {name}: {message}", style="{")

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:
        """The record's time in UTC."""
        return datetime.fromtimestamp(record.created, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time, level, logger, message, and the traceback if there is one."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as a line of JSON."""
        entry = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            entry["traceback"] = self.formatException(record.exc_info)
        return json.dumps(entry, ensure_ascii=False)


NOISE = "transfer_queue.utils.common"
"""Warns at every read of a row that this machine has fewer processors than its threads."""


class RunFile(logging.FileHandler):
    """A log file; what a full disk does not take is left out, since the run ends by its name."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, encoding="utf-8")
        self.level = logging.INFO
        self.addFilter(lambda record: record.name != NOISE or record.levelno > logging.WARNING)

    def setLevel(self, level: int | str) -> None:
        """Nothing: a library that vLLM imports sets every handler of the root logger to ERROR."""

    def handleError(self, record: logging.LogRecord) -> None:
        """Report a record that could not be written, but for a full disk."""
        error = sys.exc_info()[1]
        if error is None or not says_full(error):
            super().handleError(record)

    def close(self) -> None:
        """Close the file, which tries once more to write what it has."""
        try:
            super().close()
        except OSError as error:
            if not says_full(error):
                raise


class RunLog:
    """While the block runs, log records of every module go to the run's folder.

    What escapes the block is logged with its traceback and gets a note that names the log.
    """

    def __init__(self, run: RunDirectory) -> None:
        self._run = run
        self._handlers: list[logging.Handler] = []

    def __enter__(self) -> Self:
        for path, formatter in (
            (self._run.log_file, LineFormatter()),
            (self._run.log_file.with_suffix(".jsonl"), JsonFormatter()),
        ):
            handler = RunFile(path)
            handler.setFormatter(formatter)
            self._handlers.append(handler)
            logging.getLogger().addHandler(handler)
        logging.getLogger("longhaul_trainer").setLevel(logging.INFO)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is not None:
            logging.getLogger(__name__).error(
                "the run ended by %s", type(error).__name__, exc_info=error
            )
            error.add_note(f"Logs: {self._run.logs}")
        for handler in self._handlers:
            logging.getLogger().removeHandler(handler)
            handler.close()
