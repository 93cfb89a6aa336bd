"""The server: the pages at `/` and the API at `/api`, one process and one port.

Everything goes through one guard, the websocket of the pages included: only names of this
machine may be asked, and only pages of this machine may ask.
"""

import asyncio
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from importlib.metadata import version
from pathlib import Path

import plotly
import streamlit as st
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import FileResponse
from starlette.routing import Mount, Route

from longhaul_api.app import create_app
from longhaul_api.guard import Guard
from longhaul_api.settings import ApiSettings
from longhaul_core.sql_box.stores import sql_store
from longhaul_core.store.session import read_only_engine
from longhaul_viewer.data import play, work

__all__ = ["ADDRESS", "API_PATH", "PLOTLY_PATH", "create_server", "streamlit_options"]

ADDRESS = "127.0.0.1"
API_PATH = "/api"
PLOTLY_PATH = f"/plotly-{version('plotly')}.min.js"
"""What draws charts. The name has its version, so that a browser may keep it for good."""
PLOTLY_FILE = Path(plotly.__file__).parent / "package_data" / "plotly.min.js"
SCRIPT = Path(__file__).with_name("app.py")


def create_server(store: str, *, port: int) -> st.App:
    """The ASGI application over one store, which it only reads.

    Args:
        store: Path or URL of a store that exists.
        port: Where it will listen, on this machine alone.

    Raises:
        StoreError: The store cannot be read.
    """
    engine = read_only_engine(store)
    settings = ApiSettings(host=ADDRESS, port=port, sql_store=sql_store(store))

    @asynccontextmanager
    async def close_at_the_end(_app: st.App) -> AsyncGenerator[None]:
        yield
        work.close()
        await asyncio.to_thread(play.close)
        engine.dispose()

    return st.App(
        SCRIPT,
        routes=[
            Mount(API_PATH, create_app(engine, settings, compress=False)),  # Streamlit does
            Route(PLOTLY_PATH, _plotly),
        ],
        middleware=[Middleware(Guard, settings=settings)],
        lifespan=close_at_the_end,
    )


async def _plotly(_request: Request) -> FileResponse:
    kept = {"Cache-Control": "public, max-age=31536000, immutable"}
    return FileResponse(PLOTLY_FILE, headers=kept)


def streamlit_options(*, port: int, open_browser: bool) -> dict[str, object]:
    """What Streamlit is told, by its own names.

    By itself it would listen on every interface and report usage; here it listens on this
    machine only and reports nothing.
    """
    display = bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
    return {
        "server.address": ADDRESS,
        "server.port": port,
        "server.headless": not (open_browser and display),
        "server.allowedHosts": [ADDRESS, "localhost"],
        "runner.magicEnabled": False,  # would show the strings under constants
        "server.fileWatcherType": "none",
        "server.showEmailPrompt": False,
        "browser.gatherUsageStats": False,
        "browser.serverAddress": ADDRESS,
        "client.toolbarMode": "minimal",
        "client.showErrorLinks": False,
        # Set for each theme apart: set for both, they would switch the dark one off. White stands
        # out from both (6.8 and 4.6 to 1), and the second from the dark page (3.9 to 1).
        "theme.light.primaryColor": "#4b4bc4",
        "theme.dark.primaryColor": "#6868dd",
    }
