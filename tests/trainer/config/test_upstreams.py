"""Tests for `[agent.upstreams.NAME]`: no key is ever in a run's description, or in a message."""

import pytest

from longhaul_core.errors import ConfigError
from longhaul_trainer.config import RunConfig
from longhaul_trainer.config.load import parse_config

KEY = "sk-secret-0123456789"


def described(*lines: str) -> RunConfig:
    """A program's run with one upstream."""
    upstream = "\n".join(lines)
    return parse_config(
        "num_training_steps = 1\ntasks_per_training_step = 1\n[agent]\nkind = 'function'\n"
        f"function = 'm:f'\n[agent.upstreams.judge]\n{upstream}\n"
    )


def test_an_upstream_is_described_by_its_address_and_the_name_of_its_keys_variable() -> None:
    run = described(
        'url = "https://api.openai.com/v1"', 'model = "big"', 'api_key_variable = "OPENAI_API_KEY"'
    )

    assert run.agent.upstreams["judge"].api == "openai"
    assert parse_config(run.to_toml()) == run


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (f'api_key = "{KEY}"', "judge.api_key: a key would be written"),
        (f'api_key_variable = "{KEY}"', r"judge.api_key_variable: must be the name"),
        ("price_prompt = 1.0", "price_prompt and price_reply make a cost together"),
        (
            "price_promt = 1.0",
            r"agent.upstreams.judge.price_promt: unknown key; did you mean 'price_prompt'",
        ),
        ('price_prompt = "1"', r"agent.upstreams.judge.price_prompt"),
    ],
)
def test_what_is_wrong_with_an_upstream_is_named_without_its_key(line: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said) as wrong:
        described('url = "https://api.openai.com/v1"', 'model = "big"', line)

    assert KEY not in str(wrong.value)


@pytest.mark.parametrize(
    "url", [f"https://me:{KEY}@host/v1", f"https://host/v1?key={KEY}", "ftp://host", "host:80"]
)
def test_an_address_carries_no_secret_and_is_one(url: str) -> None:
    with pytest.raises(ConfigError, match=r"judge.url: .*address") as wrong:
        described(f'url = "{url}"', 'model = "big"')

    assert KEY not in str(wrong.value)


def test_upstreams_are_for_programs_and_leave_the_runs_own_names_alone() -> None:
    table = 'upstreams = { NAME = { url = "http://x", model = "m" } }'
    head = "num_training_steps = 1\ntasks_per_training_step = 1\n[agent]\n"

    with pytest.raises(ConfigError, match=r"agent.upstreams = .* means nothing to agent.kind"):
        parse_config(head + table)
    with pytest.raises(ConfigError, match="cannot be called 'auto'"):
        parse_config(head + "kind = 'function'\nfunction = 'm:f'\n" + table.replace("NAME", "auto"))
    started = table.replace("NAME", "reference")  # a server may have the weights of the start
    run = parse_config(head + "kind = 'function'\nfunction = 'm:f'\n" + started)
    assert run.agent.upstreams["reference"].model == "m"
