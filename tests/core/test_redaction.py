"""Tests for `longhaul_core.redaction`."""

import json

import pytest

from longhaul_core.redaction import redacted, redacted_command


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("postgresql://ann:hunter2@db/x", "postgresql://ann:***@db/x"),
        ('{"store": "postgresql+psycopg://a:p@ss@db/x"}', '{"store": "postgresql+psycopg://a:***@db/x"}'),
        ("https://host/v1?api_key=abc&model=m", "https://host/v1?api_key=***&model=m"),
        ("postgresql://db/x?user=a&password=abc", "postgresql://db/x?user=a&password=***"),
        ("postgresql://ann:pa/ss@db/x is gone", "postgresql://ann:***@db/x is gone"),
        ("http://host:8000/path", "http://host:8000/path"),
        ("http://host:8000/ann@x", "http://host:8000/ann@x"),
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


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (
            {"options": {"api_key": "a b\"c'd\\", "password": "x"}, "environ": {"A_KEY": "on"}},
            {"options": {"api_key": "***", "password": "***"}, "environ": {"A_KEY": "on"}},
        ),
        ({"SERPER_API_KEY": "abc", "HF_TOKEN": "y"}, {"SERPER_API_KEY": "***", "HF_TOKEN": "***"}),
        ({"said": json.dumps({"secret": "abc"})}, {"said": json.dumps({"secret": "***"})}),
        (
            {"key": "of brass", "max_prompt_tokens": 5, "importance_sampling": "token"},
            {"key": "of brass", "max_prompt_tokens": 5, "importance_sampling": "token"},
        ),
        ({"key_variable": "A_KEY", "token": ""}, {"key_variable": "A_KEY", "token": ""}),
        (["agent.environ.HF_TOKEN=abc", "x"], ["agent.environ.HF_TOKEN=***", "x"]),
    ],
)
@pytest.mark.parametrize("indent", [None, 2])
def test_what_a_name_says_is_a_secret_is_masked_and_json_stays_json(
    value: object, expected: object, indent: int | None
) -> None:
    assert json.loads(redacted(json.dumps(value, indent=indent), environment={})) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("client(api_key='abc', model='m')", "client(api_key=***, model='m')"),
        ("{'password': 'abc'}", "{'password': '***'}"),
        ("connect with password=abc host=db", "connect with password=*** host=db"),
        ("the key=brass one, 3 tokens=3", "the key=brass one, 3 tokens=3"),
        ("Incorrect API key: sk-proj-abc.", "Incorrect API key: ***."),
        ("sk-4fTq9aZcV1bN8mKd is wrong", "*** is wrong"),
        ("hf_abcdefghijklmnopqrstuvwxyz", "***"),
        ("ghp_abcdefghijklmnopqrst1", "***"),
        ("AKIAIOSFODNN7EXAMPLE", "***"),
        ("AIzaSyA1234567890abcdefghijklmnopqrs", "***"),
        ("hf_transfer of sk-learn-pipelines-here", "hf_transfer of sk-learn-pipelines-here"),
    ],
)
def test_secrets_in_messages_are_masked(text: str, expected: str) -> None:
    assert redacted(text, environment={}) == expected


def test_a_secret_setting_on_a_command_line_is_masked_whole() -> None:
    words = [
        "trainer",
        "train",
        "run.toml",
        "agent.environ.SERP_KEY=a b",
        "a.password='x y'",
        "b=1",
    ]

    assert redacted_command(words) == (
        *words[:3],
        "agent.environ.SERP_KEY=***",
        "a.password=***",
        "b=1",
    )


def test_hostile_text_is_read_in_linear_time() -> None:
    for piece in ('"token": "\\', "token", "a.b-", "sk-", "://a:", '"api_key":"', "password = "):
        assert isinstance(redacted(piece * 20_000, environment={}), str)
