"""AgentEvol and its relatives: rounds of imitation, each of what the model before played well.

Each round is a run of its own in a folder of its own below the evolution's: it imitates, and plays
the training tasks when it is done, as its panel. What is there and finished is not done again.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy.orm import Session

from longhaul_core.errors import ConfigError
from longhaul_core.exchange.where import parse_where
from longhaul_core.store.queries import EvaluationResult, ended_episodes, evaluations, get_run
from longhaul_core.store.session import read_only_engine
from longhaul_trainer.config import RunConfig
from longhaul_trainer.config.toml import toml_value
from longhaul_trainer.run.demonstrations import conditions_of
from longhaul_trainer.run.directory import RunDirectory

__all__ = ["Evolution", "Part"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A run of an evolution."""

    name: str
    """Of the folder that its run's folder is made in."""
    words: tuple[str, ...]
    """The command line that makes it, without `trainer`."""


@dataclass(frozen=True, slots=True)
class Evolution:
    """What is done in an evolution's folder."""

    folder: RunDirectory
    """Holds the configuration, and a folder for each part."""
    config: RunConfig
    """With absolute paths."""

    def before(self) -> Part | None:
        """What the first round imitates, unless the file names it: an expert's play or its own."""
        if self.config.imitation.imitates:
            return None
        if number := self.config.warm_start.demonstrations:
            words = ("--tasks", str(number), f"runs_directory={self._place('start')}")
            return self._part("start", "demonstrate", *words, name="experts")
        played = ("--config", str(self.folder.config_file), "--split", "validation")
        words = (*played, *self._exploration(), f"runs_directory={self._place('start')}")
        return Part(name="start", words=("evaluate", self.config.model.path, *words))

    def round(self, number: int) -> Part:
        """Round `number`, from 1; those before it are finished.

        Raises:
            ConfigError: Nothing was played that could be imitated.
        """
        evolution = self.config.evolution
        path = self.config.model.path
        if evolution.restart_from == "last" and number > 1:
            path = str(self._done(_round(number - 1)).model)
        return self._part(
            _round(number),
            "imitate",
            *self.config.warm_start.settings,
            *evolution.settings,
            f"imitation.sources=[{', '.join(self._sources(number))}]",
            f"model.path={path}",
            *self._exploration(),
            "validation.before=false",
            "validation.every=0",
            f"runs_directory={self._place(_round(number))}",
            name=_round(number),
        )

    def test(self, number: int) -> Part:
        """How the weights of a round do on held-out tasks, as the file says."""
        validation = self.config.validation
        name = f"test-{number}"
        return Part(
            name=name,
            words=(
                "evaluate",
                str(self._done(_round(number)).path),
                "--weights",
                "final",
                f"validation.temperature={validation.temperature}",
                f"validation.samples_per_task={validation.samples_per_task}",
                f"runs_directory={self._place(name)}",
            ),
        )

    def run_of(self, part: Part) -> RunDirectory | None:
        """The newest folder of its run, whatever became of it; None if it was not begun."""
        return self._newest(part.name)

    def is_finished(self, run: RunDirectory) -> bool:
        """Whether the store says so."""
        with self._session() as session:
            try:
                return get_run(session, run_id=run.run_id).summary.status == "finished"
            except LookupError:  # killed before it wrote anything
                return False

    def score(self, name: str) -> EvaluationResult:
        """The result on the panel of a finished part, with its final weights."""
        with self._session() as session:
            found = evaluations(session, run_id=self._done(name).run_id)
        return [each for each in found if each.panel == each.split][-1]  # not of one environment

    def _part(self, folder: str, command: str, *words: str, name: str) -> Part:
        called = f"name={self.config.name[: 39 - len(name)]}-{name}"
        return Part(name=folder, words=(command, str(self.folder.config_file), *words, called))

    def _exploration(self) -> tuple[str, ...]:
        evolution = self.config.evolution
        return (
            'validation.split="train"',
            f"validation.num_tasks={evolution.tasks}",
            f"validation.samples_per_task={evolution.samples_per_task}",
            f"validation.temperature={evolution.temperature}",
        )

    def _sources(self, number: int) -> list[str]:
        """Of a round, as TOML: those of the file or the start, and what rounds before it played."""
        given = [source.model_dump() for source in self.config.imitation.sources]
        explored = [_round(before) for before in range(1, number)]
        if self.config.evolution.keep == "newest":
            explored = explored[-1:]
        if not given and self.config.warm_start.demonstrations:
            given = [{"run": self._done("start").run_id}]
        elif not given and (number == 1 or self.config.evolution.keep == "all"):
            explored = ["start", *explored]
        where = dict(self.config.evolution.where) | {"phase": "validation"}
        given += [
            {"run": run_id, "where": where}
            for run_id in (self._done(name).run_id for name in explored)
            if self._has_any(run_id, where)
        ]
        if not given:
            raise ConfigError(
                f"round {number} has nothing to imitate: of {self.config.evolution.tasks} tasks "
                f"that the model played ({', '.join(explored)}) no episode has evolution.where = "
                f"{toml_value(where)}; begin with an expert's episodes (warm_start.demonstrations "
                "or [[imitation.sources]]), easier tasks, or another condition"
            )
        return [toml_value(source) for source in given]

    def _has_any(self, run_id: str, where: Mapping[str, object]) -> bool:
        conditions = parse_where(conditions_of(where))
        with self._session() as session:
            found = ended_episodes(session, conditions.filter_of(run_id))
            return next(found, None) is not None

    @contextmanager
    def _session(self) -> Generator[Session]:
        engine = read_only_engine(self.config.store)
        try:
            with Session(engine) as session:
                yield session
        finally:
            engine.dispose()

    def _place(self, name: str) -> Path:
        return self.folder.path / name

    def _done(self, name: str) -> RunDirectory:
        run = self._newest(name)
        assert run is not None, name
        return run

    def _newest(self, name: str) -> RunDirectory | None:
        folder = self._place(name)  # what is done by hand with its runs lies deeper, or elsewhere
        if not name.startswith("round-"):
            experts = name == "start" and self.config.warm_start.demonstrations
            folder /= "demonstrations" if experts else "evaluations"
        return max(RunDirectory.all(folder), key=lambda run: run.run_id, default=None)


def _round(number: int) -> str:
    return f"round-{number}"
