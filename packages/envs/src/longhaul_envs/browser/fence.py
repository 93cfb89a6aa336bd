"""What a page may reach: a list of places, and nothing else on this machine or beyond it.

The fence is the browser's own: its resolver knows the listed places and no other host, be it a
name or an address, and no proxy of the machine is used, which would resolve for it. Every request
goes through it, whoever makes it: a page, a frame, a worker, a redirect. Routes of Playwright see
pages alone, so nothing here depends on them.

The resolver is not asked for `file:` and the browser's inner pages. Chromium lets no page open
those; an environment that opens addresses for the agent asks `Fence.refusal` first.
"""

from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit

from longhaul_core.errors import ConfigError

__all__ = ["Fence", "place_of"]

_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Fence:
    """The places that a browser may reach."""

    places: tuple[str, ...] = ()
    """Each a host and its port, such as `127.0.0.1:8080`; none for pages that need no network."""

    def refusal(self, url: str) -> str | None:
        """Why `url` may not be opened, in words; None if it may be."""
        try:
            place = place_of(url)
        except ConfigError as error:
            return str(error)
        if place in self.places:
            return None
        return f"{place} is not among the sites of this environment"

    def flags(self) -> list[str]:
        """The command line of a Chromium that keeps to the fence."""
        rules = [f"MAP {place} {place}" for place in self.places]  # the first that fits applies
        return [
            f"--host-resolver-rules={', '.join([*rules, 'MAP * ~NOTFOUND'])}",
            "--no-proxy-server",
            # WebRTC sends datagrams to addresses of a page's choice, which no resolver sees
            "--webrtc-ip-handling-policy=disable_non_proxied_udp",
            "--force-webrtc-ip-handling-policy=disable_non_proxied_udp",  # the headless shell's
        ]


def place_of(url: str) -> str:
    """Host and port of an address of the web, such as `127.0.0.1:8080`.

    Raises:
        ConfigError: If `url` is none: another scheme, no host, a port that is no number.
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise ConfigError(f"{url[:200]!r} is no address: {error}") from error
    if parts.scheme not in _PORTS or not parts.hostname:
        raise ConfigError(f"an address must begin with http:// or https://, got {url[:200]!r}")
    _refuse_unless_plain(parts, url)
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{host}:{port or _PORTS[parts.scheme]}"


def _refuse_unless_plain(parts: SplitResult, url: str) -> None:
    """A host is written into the browser's rules: no character of it may mean something there."""
    host = parts.hostname or ""
    if not all(character.isalnum() or character in ".-:_" for character in host):
        raise ConfigError(f"the host of {url[:200]!r} has characters that no host name has")
