"""`trainer imitate`: supervised fine-tuning on stored episodes."""

from typing import Annotated

import typer

from longhaul_core.errors import ConfigError
from longhaul_trainer.cli.arguments import Further, RunFile, SkipDoctor
from longhaul_trainer.cli.train import read_description, start_run
from longhaul_trainer.config.toml import toml_value


def imitate(
    file: RunFile,
    further: Further = None,
    *,
    source: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="RUN",
            help="A run of the store, by its id or name; in place of the file's sources.",
        ),
    ] = None,
    where: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE",
            help="Only such episodes of it, e.g. min_return=0.5; repeatable.",
            show_default='success=true; with imitation.loss="dpo" all that ended',
        ),
    ] = None,
    skip_doctor: SkipDoctor = False,
) -> None:
    """Imitate stored episodes: an expert's, a person's, another model's or an earlier run's.

    The file may be that of the reinforcement learning to come: what an imitation does not read of
    it is left out.
    """
    words = [*(further or []), "imitation.coefficient=0"]
    if source is not None:
        words.append(f"imitation.sources=[{_source(source, where)}]")
    elif where:
        raise ConfigError("--where chooses among the episodes of a run; name it by --from")
    config = read_description(file, words)
    if not config.imitation.imitates:
        raise ConfigError(
            "nothing to imitate: name a run of the store by --from, or describe "
            "[[imitation.sources]] in the file; `trainer demonstrate` makes such a run"
        )
    start_run(config, skip_doctor=skip_doctor)


def _source(run: str, where: list[str] | None) -> str:
    chosen = ""
    if where:
        from longhaul_core.exchange.where import parse_where  # imports SQLAlchemy

        given = parse_where(where).model_dump(mode="json", exclude_unset=True)
        table = ", ".join(f"{name} = {toml_value(value)}" for name, value in given.items())
        chosen = f", where = {{ {table} }}"
    return f"{{ run = {toml_value(run)}{chosen} }}"
