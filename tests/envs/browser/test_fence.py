"""Which addresses are places, and which of them are open."""

import pytest

from longhaul_core.errors import ConfigError
from longhaul_envs.browser.fence import Fence, place_of


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("http://shop.test", "shop.test:80"),
        ("https://Shop.Test/x?y#z", "shop.test:443"),
        ("http://127.0.0.1:8080/", "127.0.0.1:8080"),
        ("http://[::1]:8080/", "[::1]:8080"),
        ("http://user:password@shop.test:81/", "shop.test:81"),
    ],
)
def test_a_place_is_a_host_and_a_port(url: str, place: str) -> None:
    assert place_of(url) == place
    assert Fence((place,)).refusal(url) is None
    assert Fence(("other.test:80",)).refusal(url) == (
        f"{place} is not among the sites of this environment"
    )


@pytest.mark.parametrize(
    "url",
    [
        "",
        "file:///etc/passwd",
        "javascript:alert(1)",
        "data:text/html,x",
        "about:blank",
        "shop.test",
        "http://",
        "http://shop.test:x/",
        "http://shop.test:99999/",
        "http://[::1",
        "//shop.test",
        "http://shop.test, MAP * 10.0.0.1/",
        "http://*:80/",
        "http://a b/",
        "view-source:http://a",
    ],
)
def test_what_is_no_address_of_the_web_is_closed(url: str) -> None:
    with pytest.raises(ConfigError):
        place_of(url)
    assert Fence(("shop.test:80",)).refusal(url)


def test_the_browser_is_told_the_open_places_before_it_is_told_that_all_is_closed() -> None:
    flags = Fence(("a.test:80", "[::1]:81")).flags()
    assert flags[0] == (
        "--host-resolver-rules=MAP a.test:80 a.test:80, MAP [::1]:81 [::1]:81, MAP * ~NOTFOUND"
    )
