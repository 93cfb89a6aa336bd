"""Small web sites of our own, served on loopback: a forum, a shop and a page of members.

They keep what is posted, log people in by a cookie, and note every request.
"""

import json
import socket
import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit


class Site:
    """A server and what it has seen. `address` is without a slash at the end."""

    def __init__(self, elsewhere: str = "") -> None:
        self.requests: list[str] = []
        self.posts: list[str] = ["A first book"]
        self.elsewhere = elsewhere
        """Address of another server, which some pages point at."""
        site = self

        class Handler(_Handler):
            def _site(self) -> Site:
                return site

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self._server.server_port
        self.address = f"http://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@contextmanager
def running_site(elsewhere: str = "") -> Generator[Site]:
    site = Site(elsewhere)
    try:
        yield site
    finally:
        site.close()


@contextmanager
def datagram_canary() -> Generator[socket.socket]:
    """A socket that notes datagrams which are sent to it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as canary:
        canary.bind(("127.0.0.1", 0))
        canary.setblocking(False)
        yield canary


class _Handler(BaseHTTPRequestHandler):
    def _site(self) -> Site:
        raise NotImplementedError

    def log_message(self, format: str, *args: object) -> None:
        del format, args

    def do_GET(self) -> None:
        site, parts = self._site(), urlsplit(self.path)
        site.requests.append(f"GET {self.path}")
        if parts.path == "/away":
            self._redirect(f"{site.elsewhere}/reached")
        elif parts.path == "/download":
            self._send("secret", "application/octet-stream", attachment=True)
        elif parts.path.startswith("/rest/"):
            self._shop(parts.path)
        else:
            self._send(self._page(parts.path, parse_qs(parts.query)), "text/html")

    def do_POST(self) -> None:
        site = self._site()
        site.requests.append(f"POST {self.path}")
        body = self.rfile.read(int(self.headers.get("Content-Length", "0"))).decode()
        if self.path == "/rest/default/V1/integration/admin/token":
            known = json.loads(body) == {"username": "admin", "password": "secret"}
            self._send(json.dumps("a token"), "application/json", status=200 if known else 401)
        elif self._user() is None:
            self._send("<h1>Please log in</h1>", "text/html")
        else:
            site.posts.append(parse_qs(body)["title"][0])
            self._redirect(f"/f/books/{len(site.posts)}/post")

    def _user(self) -> str | None:
        cookies = self.headers.get("Cookie", "").split("; ")
        return next((one[5:] for one in cookies if one.startswith("user=")), None)

    def _page(self, path: str, query: dict[str, list[str]]) -> str:
        site, words = self._site(), path.strip("/").split("/")
        user = self._user()
        match words:
            case [""]:
                greeting = f"<p>Logged in as {user}</p>" if user else "<p>Not logged in</p>"
                body = (
                    f"<h1>Forum</h1>{greeting}<a href='/f/books'>Books</a> "
                    "<a href='/submit'>Write a post</a> <a href='/popup' target='_blank'>Help</a>"
                    "<form action='/search'><input name='q' aria-label='Search'>"
                    "<button>Go</button></form>"
                )
            case ["search"]:
                body = f"<h1>Results for {query['q'][0]}</h1><p>42 posts of 2020</p>"
            case ["submit"]:
                body = (
                    "<form method='post' action='/submit'>"
                    "<input name='title' aria-label='Title'><button>Post</button></form>"
                )
            case ["f", "books"]:
                body = "<h1>Books</h1>" + "".join(f"<p>{post}</p>" for post in site.posts)
            case ["f", "books", number, _]:
                body = f"<div class='submission__inner'>{site.posts[int(number) - 1]}</div>"
            case ["f", "books", number]:
                body = f"<div class='submission__inner'>{site.posts[int(number) - 1]}</div>"
            case ["tall"]:
                body = (
                    "<h1>Top</h1><div style='height:3000px'></div>"
                    "<button onclick='document.title=\"pressed\"'>Bottom</button>"
                )
            case ["popup"]:
                body = "<h1>Help page</h1>"
            case ["traps"]:
                body = (
                    f"<a href='{site.elsewhere}/reached'>Elsewhere</a> <a href='/away'>Away</a> "
                    "<a href='file:///etc/passwd'>File</a> <a href='/download'>Download</a> "
                    f"<img src='{site.elsewhere}/reached.png'>"
                    f"<iframe src='{site.elsewhere}/reached'></iframe>"
                )
            case ["sales", "order", "view", "order_id", number]:
                body = f"<div class='order-details-items ordered'>Order {number}: a lamp</div>"
            case ["members"]:
                body = (
                    "<table><tr><td data-label='Account'>"
                    "<span class='gl-avatar-labeled-sublabel'>@ann</span></td>"
                    "<td class='col-max-role'><span>Guest</span></td></tr></table>"
                )
            case _:
                body = "<h1>Nothing here</h1>"
        return f"<!DOCTYPE html><title>{words[0] or 'home'}</title>{body}"

    def _shop(self, path: str) -> None:
        if self.headers.get("Authorization") != "Bearer a token":
            self._send("{}", "application/json", status=401)
        elif path == "/rest/V1/orders":
            answer = {"items": [{"increment_id": "000000007"}]}
            self._send(json.dumps(answer), "application/json")
        else:
            rating = {"rating_name": "Rating", "percent": 80}
            self._send(json.dumps([{"nickname": "Ann", "ratings": [rating]}]), "application/json")

    def _redirect(self, address: str) -> None:
        self.send_response(302)
        self.send_header("Location", address)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _send(self, text: str, kind: str, *, status: int = 200, attachment: bool = False) -> None:
        data = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Access-Control-Allow-Origin", "*")
        if attachment:
            self.send_header("Content-Disposition", "attachment; filename=secret.bin")
        self.end_headers()
        self.wfile.write(data)
