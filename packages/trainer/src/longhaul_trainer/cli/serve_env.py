"""`trainer serve-env`: serve environments over HTTP until Ctrl-C or SIGTERM."""

import logging
import os
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from pydantic import Field, ValidationError
from rich.table import Table

from longhaul_core.errors import ConfigError
from longhaul_envs.extras import required
from longhaul_trainer.cli.arguments import console_of
from longhaul_trainer.config.component_settings import EnvironmentOption
from longhaul_trainer.config.section import Section
from longhaul_trainer.config.toml import toml_value

if TYPE_CHECKING:
    from longhaul_envs.server.served import EnvironmentToServe
    from longhaul_envs.server.settings import ServerSettings
    from longhaul_envs.server.workers import Backend

MIB = 2**20


class ServedEntry(Section):
    """One environment of a server's file, an `[[environments]]` table."""

    id: str = Field(min_length=1)
    """An id, or an installed environment's short name."""
    options: Mapping[str, EnvironmentOption] = {}
    """Of the environment."""
    import_modules: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """Modules that register it with Gymnasium."""
    workers: int = Field(default=4, ge=1)
    """Worker processes."""
    sessions_per_worker: int | None = Field(default=None, ge=1)
    """Left out, as many as the environment declares."""
    warm: int = Field(default=1, ge=0)
    """Instances of each worker that are made before the first session."""
    reset_seconds: float = Field(default=60.0, gt=0)
    """A reset that takes longer costs the worker."""
    step_seconds: float = Field(default=30.0, gt=0)
    """A step that takes longer costs the worker."""
    memory_mib: int = Field(default=4096, ge=1)
    """Resident memory of a worker with all that it starts; more costs the worker."""


class ServerFile(Section):
    """What a server's file holds; the command line wins over it."""

    host: str = "127.0.0.1"
    port: int = Field(default=8300, ge=0, le=65535)
    allowed_hosts: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """Further names that the server is called by."""
    tokens_file: Annotated[Path | None, Field(strict=False)] = None
    """TOML file of lines `name = "token"`, in place of LONGHAUL_ENV_TOKEN."""
    lease_seconds: float = Field(default=300.0, gt=0)
    """A session that nobody uses for so long is closed."""
    sessions_per_client: int | None = Field(default=None, ge=1)
    """Left out, as many as there are places."""
    wait_seconds: float = Field(default=5.0, ge=0, le=60)
    """How long a client waits for a place where all are taken, before it is refused."""
    drain_seconds: float = Field(default=30.0, ge=0)
    """How long a server that is stopped waits for open sessions."""
    dialects: Mapping[str, int] = {}
    """Protocols of other systems (`agentgym`, `openenv`, `ors`) and their first ports, which are
    opened on this machine alone."""
    ray: str | None = None
    """Address of a Ray cluster on whose nodes the workers are, `auto` for the one that this machine
    is part of; left out, they are processes of this machine."""
    environments: Annotated[tuple[ServedEntry, ...], Field(strict=False)] = ()


def serve_env(  # noqa: PLR0913  options of a command
    environments: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[ENVIRONMENT]...",
            help="Ids or short names, e.g. textcraft; besides those of a file.",
        ),
    ] = None,
    *,
    file: Annotated[
        Path | None, typer.Option("--file", "-f", help="TOML file that describes the server.")
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE",
            help="Option of the environment; with several, NAME.KEY=VALUE. May be repeated.",
        ),
    ] = None,
    import_module: Annotated[
        list[str] | None,
        typer.Option(help="A module that registers the ids with Gymnasium; may be repeated."),
    ] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Worker processes of each environment.")
    ] = None,
    sessions_per_worker: Annotated[
        int | None, typer.Option(min=1, help="Sessions of one worker, where it may share.")
    ] = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on.")] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on; 0: any.")] = None,
    allowed_host: Annotated[
        list[str] | None,
        typer.Option(help="Further name that the server is called by. May be repeated."),
    ] = None,
    dialect: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=PORT",
            help="Speak agentgym, openenv or ors too, on a port of this machine. May be repeated.",
        ),
    ] = None,
    ray: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="Have the workers on the nodes of a Ray cluster; auto: of this machine's.",
        ),
    ] = None,
) -> None:
    """Serve environments over HTTP; a run plays there whose `environment.server` is the address.

    The token is read from LONGHAUL_ENV_TOKEN; an address that other machines reach needs one.
    SIGTERM and Ctrl-C let open sessions end first.
    """
    required("fastapi", "server")
    from longhaul_envs.server.serve import run_server

    given = {
        name: value
        for name, value in (("workers", workers), ("sessions_per_worker", sessions_per_worker))
        if value is not None
    }
    described = _described(
        _read(file),
        named=environments or (),
        import_modules=import_module or (),
        options=option or (),
        of_each=given,
        of_server={
            name: value
            for name, value in (
                ("host", host),
                ("port", port),
                ("allowed_hosts", allowed_host),
                ("dialects", _ports(dialect) if dialect else None),
                ("ray", ray),
            )
            if value is not None
        },
    )
    served = [_to_serve(entry) for entry in described.environments]
    if not served:
        raise ConfigError(
            "name an environment, such as `trainer serve-env textcraft`, or a file by --file"
        )
    settings = _settings(described, _tokens(described.tokens_file))
    console = console_of("stderr")
    console.print(_table(served))
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    for name, first in described.dialects.items():
        console.print(f"{name} from port {first} on, on this machine alone")
    run_server(
        served,
        settings,
        backend=_backend(described),
        on_listening=lambda address: console.print(f"starting on [bold]{address}[/]"),
        on_ready=lambda: console.print("[green]ready[/]"),
    )
    console.print("stopped")


def _ports(given: Sequence[str]) -> dict[str, int]:
    ports: dict[str, int] = {}
    for text in given:
        name, _, port = text.partition("=")
        if not port.isdecimal():
            raise ConfigError(f"--dialect {text!r} is none; write NAME=PORT, e.g. openenv=8000")
        ports[name.strip()] = int(port)
    return ports


def _backend(described: ServerFile) -> "Callable[[str], Backend]":
    """Where workers run; a Ray cluster is joined here.

    Raises:
        MachineError: If it cannot be joined.
    """
    from longhaul_envs.server.workers import ProcessBackend

    if described.ray is None:
        return ProcessBackend
    # Read when Ray is imported: below `uv run` each node would install a copy of this folder.
    os.environ.setdefault("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")
    required("ray", "ray")
    from longhaul_envs.server.ray_workers import RayBackend, join_ray

    join_ray(described.ray)
    return RayBackend


def _read(file: Path | None) -> dict[str, object]:
    if file is None:
        return {}
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"{file} cannot be read: {error}") from error


def _described(
    table: dict[str, object],
    *,
    named: Sequence[str],
    import_modules: Sequence[str],
    options: Sequence[str],
    of_each: Mapping[str, int],
    of_server: Mapping[str, object],
) -> ServerFile:
    """The file with the command line over it."""
    try:
        of_file = ServerFile.model_validate({**table, **of_server})
        parsed = [_option(text) for text in options]
        entries = [
            *of_file.environments,
            *(
                ServedEntry.model_validate({"id": name, "import_modules": list(import_modules)})
                for name in named
            ),
        ]
        _refuse_strays(parsed, [entry.id for entry in entries])
        return of_file.model_copy(
            update={
                "environments": tuple(
                    entry.model_copy(
                        update={
                            **of_each,
                            "options": {
                                **entry.options,
                                **_options_of(entry.id, parsed, several=len(entries) > 1),
                            },
                        }
                    )
                    for entry in entries
                )
            }
        )
    except ValidationError as error:
        lines = [
            f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}, got {problem['input']!r}"
            for problem in error.errors()
        ]
        raise ConfigError("\n".join(lines)) from error


@dataclass(frozen=True, slots=True)
class _GivenOption:
    name: str
    """Of the environment; empty if the option names none."""
    key: str
    value: EnvironmentOption


def _option(text: str) -> _GivenOption:
    path, equals, value = text.partition("=")
    name, _, key = path.strip().rpartition(".")
    if not equals or not key:
        raise ConfigError(f"--option {text!r} is no option; write KEY=VALUE")
    try:
        read = tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:  # a word without quotes
        read = value.strip()
    return _GivenOption(name, key, read)


def _refuse_strays(options: Sequence[_GivenOption], names: Sequence[str]) -> None:
    for option in options:
        if option.name and option.name not in names:
            raise ConfigError(
                f"--option {option.name}.{option.key}: no environment is called {option.name!r} "
                f"here; there are {', '.join(names)}"
            )


def _options_of(
    name: str, options: Sequence[_GivenOption], *, several: bool
) -> dict[str, EnvironmentOption]:
    found: dict[str, EnvironmentOption] = {}
    for option in options:
        if several and not option.name:
            raise ConfigError(
                f"--option {option.key}: there are several environments; write "
                f"{name}.{option.key}=…, or use a file"
            )
        if option.name in ("", name):
            found[option.key] = option.value
    return found


def _to_serve(entry: ServedEntry) -> "EnvironmentToServe":
    from longhaul_envs.server.fleet import FleetLimits
    from longhaul_envs.server.served import EnvironmentToServe, full_id

    served = EnvironmentToServe(
        id=entry.id if entry.import_modules else full_id(entry.id),
        options=entry.options,
        import_modules=entry.import_modules,
        limits=FleetLimits(
            num_workers=entry.workers,
            sessions_per_worker=max(entry.warm, 1),
            num_warm=entry.warm,
            reset_seconds=entry.reset_seconds,
            step_seconds=entry.step_seconds,
            memory_bytes=entry.memory_mib * MIB,
        ),
        sessions_per_worker=entry.sessions_per_worker,
    )
    served.source()  # refuses what cannot be served, before anything is started
    return served


def _tokens(file: Path | None) -> dict[str, str]:
    from longhaul_envs.server.settings import TOKEN_VARIABLE

    if file is not None:
        table = _read(file)
        wrong = [name for name, token in table.items() if not isinstance(token, str)]
        if wrong or not table:
            raise ConfigError(f'{file} must hold lines NAME = "TOKEN" alone; wrong: {wrong}')
        return {name: str(token) for name, token in table.items()}
    token = os.environ.get(TOKEN_VARIABLE, "")
    return {"": token} if token else {}


def _settings(described: ServerFile, tokens: Mapping[str, str]) -> "ServerSettings":
    from longhaul_envs.server.settings import ServerSettings
    from longhaul_envs.server.table import TableLimits

    return ServerSettings(
        host=described.host,
        port=described.port,
        tokens=tokens,
        extra_hosts=described.allowed_hosts,
        limits=TableLimits(
            lease_seconds=described.lease_seconds,
            sessions_per_client=described.sessions_per_client,
            wait_seconds=described.wait_seconds,
        ),
        drain_seconds=described.drain_seconds,
        dialects=described.dialects,
    )


def _table(served: Sequence["EnvironmentToServe"]) -> Table:
    table = Table("environment", "version", "options", "workers", "sessions", box=None)
    for one in served:
        description = one.source().describe()
        of_each = one.sessions_per_worker or description.episodes_per_process
        options = ", ".join(f"{key} = {toml_value(value)}" for key, value in one.options.items())
        workers = one.limits.num_workers
        table.add_row(
            one.id, description.version, options or "none", str(workers), str(workers * of_each)
        )
    return table
