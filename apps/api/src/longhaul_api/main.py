"""The command `api`: serve one store until Ctrl-C.

Everything that can be wrong is found before the server starts: the exit code is 2 for
a bad option, 3 if the port is taken, 4 if the store cannot be read.
"""

import argparse
import os
import socket
import sys
from collections.abc import Sequence

from fastapi import FastAPI

from longhaul_api.app import create_app
from longhaul_api.settings import ApiSettings
from longhaul_core.errors import ConfigError, LonghaulError, MachineError, StoreError
from longhaul_core.http_server import HttpServer
from longhaul_core.serving import address_of, bound_socket
from longhaul_core.sql_box.stores import sql_store
from longhaul_core.store.session import read_only_engine

__all__ = ["NICENESS", "create_http_server", "main"]

EXIT_CODES: dict[type[LonghaulError], int] = {ConfigError: 2, MachineError: 3, StoreError: 4}

NICENESS = 10
"""What runs on the same machine comes first: readers wait a little longer, and a training run that
writes the store does not wait for them."""
SECONDS_TO_END = 2
"""For answers that are being sent when Ctrl-C comes."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until interrupted.

    Args:
        arguments: The command line without the program's name; None: the process's own.

    Returns:
        The exit code: 0 after Ctrl-C, 2, 3 or 4 if the server could not start.
    """
    options = _parser().parse_args(arguments)
    try:
        settings = ApiSettings(
            host=options.host,
            port=options.port,
            tokens={} if options.token is None else {"": options.token},
            extra_hosts=tuple(options.allowed_host),
            sql_store=sql_store(options.store),
        )
        if options.mcp:
            # Imported here: the protocol's package takes half a second.
            from longhaul_api.mcp_server import create_mcp_server

            engine = read_only_engine(options.store)
            os.nice(options.nice)
            create_mcp_server(engine, sql_store(options.store)).run("stdio")
            return 0
        app = create_app(read_only_engine(options.store), settings)
        with bound_socket(settings.host, settings.port) as listener:
            os.nice(options.nice)  # threads and processes of answers, which come later, inherit it
            sys.stderr.write(f"Longhaul API on {address_of(listener)}\n")
            create_http_server(app, listener, settings).run()
    except LonghaulError as error:
        sys.stderr.write(f"api: {error}\n")
        return EXIT_CODES[type(error)]
    except KeyboardInterrupt:
        pass
    return 0


def create_http_server(app: FastAPI, listener: socket.socket, settings: ApiSettings) -> HttpServer:
    """The server that `main` runs."""
    return HttpServer(
        app,
        listener,
        header_seconds=settings.header_seconds,
        stop_seconds=SECONDS_TO_END,  # who follows a run would stay for ever
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="api",
        description="Serve a trajectory store over HTTP, for reading. Address: http://HOST:PORT",
        epilog="Exit codes: 0 stopped, 2 bad option, 3 port taken, 4 store cannot be read.",
    )
    parser.add_argument(
        "--store",
        default=os.environ.get("LONGHAUL_STORE", "longhaul.db"),
        help="SQLite file or database URL (default: $LONGHAUL_STORE, else longhaul.db)",
    )
    parser.add_argument(
        "--mcp",
        action="store_true",
        help="speak the Model Context Protocol on standard input and output, instead of HTTP",
    )
    parser.add_argument(
        "--nice",
        type=int,
        choices=range(20),
        default=NICENESS,
        metavar="N",
        help="how far it stands back for other programs of this machine, such as a run that writes "
        f"the store: a niceness from 0, not at all, to 19 ({NICENESS})",
    )
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (127.0.0.1)")
    parser.add_argument("--port", type=int, default=8000, help="0 takes any free one (8000)")
    parser.add_argument(
        "--token",
        default=os.environ.get("LONGHAUL_API_TOKEN"),
        help="asked of every caller; needed for a --host that other machines reach "
        "(better in $LONGHAUL_API_TOKEN, where other users of the machine do not see it)",
    )
    parser.add_argument(
        "--allowed-host",
        action="append",
        default=[],
        metavar="NAME",
        help="another name that callers may use for this server; may be repeated",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
