"""Tests for `longhaul_core.redaction`."""

import pytest

from longhaul_core.redaction import redacted


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("postgresql://ann:hunter2@db/x", "postgresql://ann:***@db/x"),
        ('{"store": "postgresql+psycopg://a:p@ss@db/x"}', '{"store": "postgresql+psycopg://a:***@db/x"}'),
        ("https://host/v1?api_key=abc&model=m", "https://host/v1?api_key=***&model=m"),
        ("postgresql://db/x?user=a&password=abc", "postgresql://db/x?user=a&password=***"),
        ("http://host:8000/path", "http://host:8000/path"),
        ("time 12:30@noon", "time 12:30@noon"),
    ],
)  # fmt: skip
def test_passwords_in_addresses_are_masked(text: str, expected: str) -> None:
    assert redacted(text, environment={}) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Authorization: Bearer sk-abc.def", "Authorization: Bearer ***"),
        ("{'authorization': 'Bearer sk-abc', 'x': 1}", "{'authorization': 'Bearer ***', 'x': 1}"),
        ('{"x-api-key": "sk-ant-abc"}', '{"x-api-key": "***"}'),
        ("(b'x-goog-api-key', b'AIza')", "(b'x-goog-api-key', b'***')"),
        ("Authorization failed for ann", "Authorization failed for ann"),
    ],
)
def test_keys_in_headers_are_masked(text: str, expected: str) -> None:
    assert redacted(text, environment={}) == expected


def test_values_of_secret_variables_are_masked() -> None:
    environment = {"HF_TOKEN": "hf_abcdefgh", "SHORT_KEY": "on", "HOME": "/home/ann"}
    text = "hf_abcdefgh is on in /home/ann"
    assert redacted(text, environment=environment) == "*** is on in /home/ann"
