"""What a person may play, and the table where it is played.

To open an environment runs its code on this machine. So nothing of it comes from an address: the
options and the address of an environment server are typed by the reader, and a link only ever names
an environment that is installed here, or a stored episode, of whose run the options are taken and
no module or address. It is then asked what it is and which tasks it has, one of `ADAPTERS` in a
process of its own; no episode begins.
"""

import json
import threading
import tomllib
from collections.abc import Mapping, Sequence
from typing import Any, cast

from longhaul_core.actions import ActionParser
from longhaul_core.discovery import installed_environments
from longhaul_core.environment import EnvironmentDescription
from longhaul_core.errors import ConfigError, StoreError
from longhaul_core.rollout import Branch, require_branchable, without_memory_calls
from longhaul_core.store.queries import get_episode, get_run, recorded_episode
from longhaul_core.types import Split, Task
from longhaul_envs.extras import required
from longhaul_envs.task_lists import stable_seed
from longhaul_viewer.data import labels
from longhaul_viewer.data.store import reading
from longhaul_viewer.play.game import FORMAT
from longhaul_viewer.play.table import Choice, PlayTable, source_of
from longhaul_viewer.settings import is_read_only, store_url

__all__ = [
    "can_play",
    "choice",
    "close",
    "described",
    "drawn",
    "environments",
    "from_step",
    "options_in",
    "served",
    "table",
    "tasks",
]

ADAPTERS: Mapping[str, str] = {"text/Discrete-v0": "longhaul_envs.adapters"}
"""Ids that a module of ours registers with Gymnasium beside the installed environments."""

_tables: dict[str, PlayTable] = {}
_lock = threading.Lock()


def can_play() -> bool:
    """Whether this viewer writes into its store, as an episode must be."""
    return not is_read_only()


def environments() -> list[str]:
    """Ids that can be played on this machine; what each needs is known when it is described."""
    return sorted([*installed_environments(), *ADAPTERS])


def served(address: str) -> dict[str, Mapping[str, object]]:
    """Id of every environment that a server plays, to its options.

    Raises:
        ConfigError: There is no such server, or its client is not installed.
    """
    if not address.startswith(("http://", "https://")):
        raise ConfigError(
            f"the address of an environment server begins with http:// or https://, got {address!r}"
        )
    required("aiohttp", "server")
    from longhaul_envs.remote.source import served_environments

    return served_environments(address)


def options_in(text: str) -> dict[str, object]:
    """Options as a run's file has them, a line each: `name = value`.

    Raises:
        ConfigError: It is no TOML, or has a value that JSON, as which it is stored, cannot hold.
    """
    try:
        found = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(
            f'options are lines of TOML such as `level = 3` or `kind = "word"`: {error}'
        ) from error
    for name, value in found.items():
        try:
            json.dumps(value, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise ConfigError(
                f"option {name} has what JSON cannot hold: an option is text, a finite number, "
                f"true or false, or a list or table of those, got {value!r}"
            ) from error
    return found


def choice(
    environment_id: str, *, options: Mapping[str, object], server: str | None = None
) -> Choice:
    """An environment under its options."""
    module = None if server else ADAPTERS.get(environment_id)
    return Choice(
        environment_id=environment_id,
        options=options,
        server=server,
        import_modules=(module,) if module else (),
    )


def from_step(episode_id: str, step_index: int) -> tuple[Choice, Branch]:
    """Where a person can go on with a stored episode, and the environment of it on this machine.

    Replies that the episode's memory had a model write are left out: a person's memory asks for
    none, and no prompt from this step on would show one.

    Raises:
        LookupError: The store has no such episode.
        LonghaulError: It cannot be taken up there, or its environment cannot be had here.
    """
    with reading() as session:
        recorded = recorded_episode(session, episode_id)
        summary = get_episode(session, episode_id=episode_id, tokens=False).summary
        config = json.loads(get_run(session, run_id=summary.run_id).config_json)
    environment = recorded.task.environment
    if environment not in environments():
        raise ConfigError(
            f"{environment} is not installed on this machine; `trainer branch {episode_id} --step "
            f"{step_index}` goes on with what the run's file names"
        )
    chosen = choice(environment, options=_options_of(environment, config))
    branch = Branch(
        episode_id=episode_id, recorded=without_memory_calls(recorded), step_index=step_index
    )
    require_branchable(branch, description=described(chosen), parser=ActionParser(format=FORMAT))
    return chosen, branch


def _options_of(environment: str, config: Mapping[str, Any]) -> Mapping[str, object]:
    for entry in config.get("environments") or [config.get("environment", {})]:
        if entry.get("id") == environment:
            return cast("Mapping[str, object]", entry.get("options", {}))
    return {}


def described(chosen: Choice) -> EnvironmentDescription:
    """What it says of itself.

    Raises:
        LonghaulError: It cannot be had here; the message says what is missing.
    """
    return source_of(chosen).describe()


def tasks(chosen: Choice, split: Split) -> Sequence[Task]:
    """Its tasks of a split, in their order.

    Raises:
        LonghaulError: As `described`.
    """
    return source_of(chosen).tasks(split)


def drawn(tasks: Sequence[Task], seed: int) -> int:
    """The place of the task that a seed draws from a list; the same on every machine."""
    return stable_seed(f"play {seed}") % len(tasks)


def table() -> PlayTable:
    """The one table of this process at this store.

    Raises:
        StoreError: The viewer is read-only.
    """
    if not can_play():
        raise StoreError("this viewer was started with --read-only: nobody plays here")
    with _lock:
        url = store_url()
        if url not in _tables:
            _tables[url] = PlayTable(url, account=labels.author())
        return _tables[url]


def close() -> None:
    """Give up and store what is still played."""
    with _lock:
        while _tables:
            _, each = _tables.popitem()
            each.close()
