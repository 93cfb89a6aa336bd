"""What `trainer memory-lab` does to a store: it reads episodes of a run, and prints a table.

Apart from the command, because the store and the renderer take a while to import.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import NamedTuple

from rich import box
from rich.markup import escape
from rich.table import Table
from sqlalchemy.orm import Session

from longhaul_core.errors import ConfigError
from longhaul_core.store import queries
from longhaul_core.store.addresses import describe_store, store_errors
from longhaul_core.store.session import read_only_engine
from longhaul_trainer.cli.arguments import console_of
from longhaul_trainer.cli.evaluate import to_be_played
from longhaul_trainer.cli.stored_runs import find_in_store
from longhaul_trainer.cli.train import read_description
from longhaul_trainer.config.episodes import MemoryConfig
from longhaul_trainer.config.load import stored_config
from longhaul_trainer.play.memory_lab.figures import MemoryFigures
from longhaul_trainer.play.memory_lab.recompose import OWN, LabEpisode, MemoryLab

MOST_SHOWN = 3
"""Lost words that are shown of each memory."""


class Chosen(NamedTuple):
    """Which episodes are composed anew."""

    last: int
    """At most so many, the newest; of each training step that is named."""
    training_steps: tuple[int, ...]
    """That played them; empty for any."""
    episodes: tuple[str, ...]
    """These in place of the newest."""


def compare_in_store(
    store: str,
    reference: str,
    *,
    memories: Sequence[MemoryConfig],
    chosen: Chosen,
    description: str | None,
    overrides: list[str],
) -> None:
    """Print a row for each memory: the lengths of its prompts, what is kept of them, what is lost.

    Args:
        store: Path or URL.
        reference: The run, as a person names it.
        memories: Beside the run's own.
        chosen: Which episodes.
        description: A file in place of the run's own configuration.
        overrides: `dotted.key=value`.

    Raises:
        ConfigError: There is no such run or episode, or its prompts cannot be composed here.
        StoreError: The store cannot be read.
    """
    engine = read_only_engine(store)
    try:
        run_id = find_in_store(engine, reference, store)
        with store_errors(describe_store(engine.url)), Session(engine) as session:
            episodes = _episodes(session, run_id, chosen)
            run = queries.get_run(session, run_id=run_id)
        config = (
            stored_config(run.config_json, run_id=run_id)
            if description is None
            else read_description(description, None)
        )
        if overrides:
            config = to_be_played(config, overrides, source=description or run_id)
        lab = MemoryLab(config, memories)
        imported = run.summary.kind == "imported"
        with store_errors(describe_store(engine.url)):
            asyncio.run(_fill(lab, episodes, lambda: Session(engine), imported=imported))
    finally:
        engine.dispose()
    _show(lab, run_id=run_id, num_episodes=len(episodes))


async def _fill(
    lab: MemoryLab,
    episodes: Sequence[queries.EpisodeSummary],
    opened: Callable[[], Session],
    *,
    imported: bool,
) -> None:
    try:
        for each in episodes:
            with opened() as session:
                recorded = queries.recorded_episode(session, each.episode_id)
            await lab.add(LabEpisode(each.episode_id, each.group_id, recorded, imported))
    finally:
        await lab.close()


def _episodes(session: Session, run_id: str, chosen: Chosen) -> list[queries.EpisodeSummary]:
    """Those that are chosen, the first of each group first."""
    if chosen.episodes:
        named = dict.fromkeys(chosen.episodes)
        found = [_episode(session, episode_id, run_id) for episode_id in named]
    else:
        found = [
            each
            for step in chosen.training_steps or (None,)
            for each in _newest(session, run_id, training_step=step, limit=chosen.last)
        ]
    there = [each for each in found if each.retention != "removed"]
    if not there:
        of_step = "" if not chosen.training_steps else " of these training steps"
        raise ConfigError(
            f"{run_id} has no episode{of_step} that ended and whose texts are still stored"
        )
    return sorted(there, key=lambda each: each.episode_id)


def _newest(
    session: Session, run_id: str, *, training_step: int | None, limit: int
) -> Sequence[queries.EpisodeSummary]:
    where = queries.EpisodeFilter(
        run_id=run_id,
        failed=False,
        min_training_step=training_step,
        max_training_step=training_step,
    )
    return queries.list_episodes(session, where=where, limit=limit).rows


def _episode(session: Session, episode_id: str, run_id: str) -> queries.EpisodeSummary:
    try:
        found = queries.get_episode(session, episode_id=episode_id, tokens=False).summary
    except LookupError as error:
        raise ConfigError(str(error)) from error
    if found.run_id != run_id:
        raise ConfigError(f"{episode_id} is an episode of {found.run_id}, and not of {run_id}")
    return found


def _show(lab: MemoryLab, *, run_id: str, num_episodes: int) -> None:
    figures, found = lab.figures(), lab.integrity
    console = console_of("stdout")
    notes = [
        f", {found.num_by_messages:,} by their messages" * bool(found.num_by_messages),
        f"; {found.num_unstored:,} prompts are not stored" * bool(found.num_unstored),
        f"; {found.num_too_long:,} were read whole and do not fit here" * bool(found.num_too_long),
    ]
    console.print(
        f"{run_id}: {num_episodes:,} episodes, {figures[OWN].num_prompts:,} steps. Of "
        f"{found.num_stored:,} stored prompts {found.num_stored:,} are equal to those of {OWN} "
        f"memory{''.join(notes)}"
    )
    console.print(_table(figures))
    for name, of_memory in figures.items():
        for lost in of_memory.lost[:MOST_SHOWN]:
            console.print(
                f"[yellow]lost:[/] {escape(name)}: {escape(repr(lost.word))} of the action at step "
                f"{lost.step_index} of {escape(lost.episode_id)}, last observed at step "
                f"{lost.seen_at}"
            )


def _table(figures: Mapping[str, MemoryFigures]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("memory", overflow="fold")
    for title in (
        "tokens\na step",
        "95 %",
        "growth",
        "kept",
        "tokens an\nepisode",
        "computed",
        "shortened",
        "cut off",
        "lost",
        "steps\nback",
    ):
        table.add_column(title, justify="right")
    for name, of_memory in figures.items():
        table.add_row(escape(name), *_cells(of_memory))
    return table


def _cells(found: MemoryFigures) -> list[str]:
    back = [lost.step_index - lost.seen_at for lost in found.lost]
    num_steps = found.num_prompts + found.num_unreached
    return [
        f"{found.mean_tokens:,.1f}",
        f"{found.high_tokens:,.0f}",
        "" if found.growth is None else f"{found.growth:+,.2f}",
        f"{found.kept_share:.1%}",
        f"{found.episode_tokens:,.0f}",
        f"{found.computed_tokens:,.0f}",
        f"{found.num_shortened / found.num_prompts:.1%}",
        f"{found.num_unreached / num_steps:.1%}",
        f"{found.num_losing / found.num_compared:.1%}" if found.num_compared else "–",
        f"{median(back):g}" if back else "",
    ]
