"""What servers share: settings, sockets and the guard; each server's own tests ask over HTTP."""

import socket

import pytest

from longhaul_core.errors import MachineError
from longhaul_core.serving import Guard, NotAdmitted, ServerSettings, address_of, bound_socket


def test_a_port_that_is_taken_is_refused_with_its_address() -> None:
    with bound_socket("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
        assert address_of(listener) == f"http://127.0.0.1:{port}"
        with socket.create_connection(("127.0.0.1", port), timeout=5):
            pass
        with pytest.raises(MachineError, match=f"cannot listen on 127.0.0.1:{port}"):
            bound_socket("127.0.0.1", port)


def test_a_name_that_has_no_address_is_refused() -> None:
    with pytest.raises(MachineError, match="has no address here"):
        bound_socket("no-such-host.invalid", 0)


def test_every_problem_of_an_address_is_named() -> None:
    settings = ServerSettings(host="0.0.0.0", port=-1)
    port, token = settings.address_problems()
    assert "got -1" in port
    assert "there is no token" in token
    assert not ServerSettings(host="0.0.0.0", tokens={"": "t" * 16}).address_problems()


def test_a_server_that_is_called_by_an_address_serves_its_own_pages_there() -> None:
    guard = Guard({"localhost"}, pages="own")

    def admitted(host: bytes, origin: bytes, method: str = "POST") -> str:
        headers = [(b"host", host), (b"origin", origin)]
        return guard.admit({"type": "http", "method": method, "path": "/", "headers": headers})

    assert admitted(b"192.168.1.5:8000", b"http://192.168.1.5:8000") == ""
    for origin in (b"http://192.168.1.6:8000", b"http://192.168.1.5:9000", b"http://evil.example"):
        with pytest.raises(NotAdmitted, match="may not call this server"):
            admitted(b"192.168.1.5:8000", origin)


def test_each_token_is_known_by_its_name_and_the_open_path_needs_none() -> None:
    tokens = {"a": "token-of-a-alone", "b": "token-of-b-alone"}
    guard = Guard({"localhost"}, pages="none", tokens=tokens, open_path="/health")

    def admitted(path: str, authorization: bytes = b"", origin: bytes | None = None) -> str:
        headers = [(b"host", b"localhost"), (b"authorization", authorization)]
        headers += [] if origin is None else [(b"origin", origin)]
        return guard.admit({"type": "http", "method": "GET", "path": path, "headers": headers})

    assert admitted("/", b"bearer token-of-b-alone") == "b"
    assert admitted("/health") == ""
    with pytest.raises(NotAdmitted, match="give the token") as refused:
        admitted("/")
    assert (refused.value.status, refused.value.headers) == (401, {"WWW-Authenticate": "Bearer"})
    with pytest.raises(NotAdmitted, match="pages of 'http://localhost'"):
        admitted("/health", origin=b"http://localhost")
