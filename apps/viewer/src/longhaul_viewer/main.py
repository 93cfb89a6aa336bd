"""The command `viewer`: open one store in a browser."""

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from longhaul_core.errors import LonghaulError, MachineError, StoreError
from longhaul_core.serving import bound_socket
from longhaul_viewer.demo import unpack_demo
from longhaul_viewer.server import ADDRESS, create_server, streamlit_options
from longhaul_viewer.settings import ARCHIVES_VARIABLE, READ_ONLY_VARIABLE, STORE_VARIABLE

__all__ = ["main"]

EXIT_CODES: dict[type[LonghaulError], int] = {MachineError: 3, StoreError: 4}


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve the pages until Ctrl-C.

    Args:
        arguments: The command line without the program's name; None: the process's own.

    Returns:
        The exit code: 0 after Ctrl-C, 3 if the port is taken, 4 if the store cannot be read.
    """
    options = _parser().parse_args(arguments)
    with TemporaryDirectory(prefix="longhaul-demo-") as folder:
        try:
            bound_socket(ADDRESS, options.port).close()
            store = str(unpack_demo(Path(folder))) if options.demo else options.store
            server = create_server(store, port=options.port)
        except LonghaulError as error:
            sys.stderr.write(f"viewer: {error}\n")
            return EXIT_CODES[type(error)]
        os.environ[STORE_VARIABLE] = store
        if options.archives:
            os.environ[ARCHIVES_VARIABLE] = options.archives
        if options.read_only:
            os.environ[READ_ONLY_VARIABLE] = "yes"
        # Raised again once the server has ended: the demo's folder is removed then too.
        signal.signal(signal.SIGTERM, _leave)
        server.run(config=streamlit_options(port=options.port, open_browser=not options.no_browser))
    return 0


def _leave(_signal: int, _frame: object) -> None:
    sys.exit(0)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="viewer",
        description=f"Browse runs and replay episodes at http://{ADDRESS}:PORT (this machine only)",
        epilog="Exit codes: 0 stopped, 2 bad option, 3 port taken, 4 store cannot be read.",
    )
    parser.add_argument(
        "--store",
        default=os.environ.get(STORE_VARIABLE, "longhaul.db"),
        help=f"SQLite file or database URL (default: ${STORE_VARIABLE}, else longhaul.db)",
    )
    parser.add_argument(
        "--demo", action="store_true", help="show a small store of real runs that comes with it"
    )
    parser.add_argument("--port", type=_port, default=8501, help="port to listen on (8501)")
    parser.add_argument(
        "--read-only",
        action="store_true",
        help="write nothing: no labels, no archives; delete nothing, play nothing",
    )
    parser.add_argument(
        "--archives",
        metavar="FOLDER",
        default=os.environ.get(ARCHIVES_VARIABLE),
        help=f"where archives and backups lie (default: ${ARCHIVES_VARIABLE}, else the folder "
        "archives beside the store)",
    )
    parser.add_argument("--no-browser", action="store_true", help="do not open a browser window")
    return parser


def _port(text: str) -> int:
    port = int(text)
    if not 1 <= port <= 65535:
        raise argparse.ArgumentTypeError(f"port must lie in [1, 65535], got {port}")
    return port


if __name__ == "__main__":
    sys.exit(main())
