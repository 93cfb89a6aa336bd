"""The command `viewer`: open one store in a browser.

Streamlit listens on every interface and reports usage by default; here it
listens on this machine only, answers only to this machine's names, and reports nothing.
"""

import argparse
import os
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

from streamlit.web import bootstrap

from longhaul_core.errors import LonghaulError, MachineError, StoreError
from longhaul_core.store.session import read_only_engine
from longhaul_viewer.settings import STORE_VARIABLE

__all__ = ["main"]

EXIT_CODES: dict[type[LonghaulError], int] = {MachineError: 3, StoreError: 4}
ADDRESS = "127.0.0.1"


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve the pages until Ctrl-C.

    Args:
        arguments: The command line without the program's name; None: the process's own.

    Returns:
        The exit code: 0 after Ctrl-C, 3 if the port is taken, 4 if the store cannot be read.
    """
    options = _parser().parse_args(arguments)
    try:
        read_only_engine(options.store).dispose()
        _require_free_port(options.port)
    except LonghaulError as error:
        sys.stderr.write(f"viewer: {error}\n")
        return EXIT_CODES[type(error)]
    os.environ[STORE_VARIABLE] = options.store
    script = str(Path(__file__).with_name("app.py"))
    flags = streamlit_flags(port=options.port, open_browser=not options.no_browser)
    bootstrap.load_config_options(flags)
    bootstrap.run(script, False, [], flags)
    return 0


def streamlit_flags(*, port: int, open_browser: bool) -> dict[str, object]:
    """Streamlit's settings by its own names, the dot written `_` as its loader wants them."""
    display = bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
    return {
        "server_address": ADDRESS,
        "server_port": port,
        "server_headless": not (open_browser and display),
        "server_allowedHosts": [ADDRESS, "localhost"],
        "server_fileWatcherType": "none",
        "server_showEmailPrompt": False,
        "browser_gatherUsageStats": False,
        "browser_serverAddress": ADDRESS,
        "client_toolbarMode": "minimal",
        "client_showErrorLinks": False,
        # Set for each theme apart: set for both, they would switch the dark one off.
        "theme_light_primaryColor": "#5b5bd6",
        "theme_dark_primaryColor": "#7c7cf0",
    }


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
    parser.add_argument("--port", type=_port, default=8501, help="port to listen on (8501)")
    parser.add_argument("--no-browser", action="store_true", help="do not open a browser window")
    return parser


def _port(text: str) -> int:
    port = int(text)
    if not 1 <= port <= 65535:
        raise argparse.ArgumentTypeError(f"port must lie in [1, 65535], got {port}")
    return port


def _require_free_port(port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((ADDRESS, port))
        except OSError as error:
            raise MachineError(
                f"cannot listen on {ADDRESS}:{port} ({error.strerror}); "
                "another program, perhaps another viewer, holds it: choose one with --port"
            ) from error


if __name__ == "__main__":
    sys.exit(main())
