"""A file server of a test's own, which can end or wait in the middle of a file."""

import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

WORDS = b"one\ntwo\n" * 1000


class Server(ThreadingHTTPServer):
    """Serves what `files` holds; what `half` names ends, or waits, in the middle."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files: dict[str, bytes] = {"/words.txt": WORDS}
        self.half: set[str] = set()
        self.waits = threading.Event()
        self.in_the_middle = threading.Event()
        self.requests: list[str] = []

    def url(self, name: str) -> str:
        return f"http://127.0.0.1:{self.server_port}/{name}"


class Handler(BaseHTTPRequestHandler):
    server: Server  # pyright: ignore[reportIncompatibleVariableOverride]

    def do_GET(self) -> None:
        self.server.requests.append(self.path)
        content = self.server.files.get(self.path)
        if content is None:
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.path in self.server.half:
            self.wfile.write(content[: len(content) // 2])
            self.wfile.flush()
            self.server.in_the_middle.set()
            self.server.waits.wait(60)
            return
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing, since tests are silent."""


@contextmanager
def serving() -> Generator[Server]:
    """A server that answers until the end of the block."""
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server
        finally:
            server.waits.set()
            server.shutdown()
            thread.join()
