"""Addresses that are reached directly, whatever the proxy variables of the environment say.

`HTTP_PROXY` and the like send most clients' requests through a proxy, those to this machine too,
and a proxy elsewhere cannot reach them.
"""

import ipaddress
import os
from collections.abc import Mapping
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

__all__ = [
    "direct",
    "go_direct",
    "host_in",
    "is_address",
    "is_loopback",
    "proxy_variable",
    "through_proxy",
]

LOOPBACK = ("localhost", "127.0.0.1", "::1")
_PROXIES = frozenset({"http_proxy", "https_proxy", "all_proxy"})
_DIRECT = ("no_proxy", "NO_PROXY")


def is_loopback(host: str) -> bool:
    """True if only programs on this machine reach `host`, a name or an IP address."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def host_in(authority: str) -> str:
    """Host of a Host header or an address, in lower case; empty without one, or if malformed."""
    try:
        return urlsplit(authority if "//" in authority else f"//{authority}").hostname or ""
    except ValueError:
        return ""


def is_address(host: str) -> bool:
    """Whether it is an IP address and no name: a page's name can be rebound, an address cannot."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def direct(environ: Mapping[str, str], *hosts: str) -> dict[str, str]:
    """`NO_PROXY` and `no_proxy` as they must be for requests to the loopback and `hosts`.

    Both get what either had, since programs differ in which of the two they read. There is none
    where `environ` names no proxy.
    """
    if not any(name.lower() in _PROXIES and value for name, value in environ.items()):
        return {}
    listed = ",".join(environ.get(name, "") for name in _DIRECT)
    given = [host.strip() for host in listed.split(",") if host.strip()]
    # `*` is all hosts, and to some programs only where it stands alone.
    every = ["*"] if "*" in given else dict.fromkeys([*given, *LOOPBACK, *hosts])
    return dict.fromkeys(_DIRECT, ",".join(every))


def go_direct() -> None:
    """Let clients of this process, and of those that it starts, reach the loopback directly."""
    os.environ.update(direct(os.environ))


def proxy_variable(url: str) -> str | None:
    """The variable by whose proxy a client of this process asks `url`; None without a proxy."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if is_loopback(host) or proxy_bypass(host):
        return None
    if parts.scheme not in getproxies():
        return None
    wanted = f"{parts.scheme}_proxy"
    return wanted if os.environ.get(wanted) else wanted.upper()


def through_proxy(variable: str, url: str) -> str:
    """What a message of a request that failed says of the proxy which it went through."""
    return (
        f"the request went through the proxy of {variable}; to ask directly, add "
        f"{urlsplit(url).hostname} to NO_PROXY"
    )
