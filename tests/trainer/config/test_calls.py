"""Tests for `[[agent.calls]]`: how kinds of calls are read, written and refused."""

import pytest

from longhaul_core.errors import ConfigError
from longhaul_trainer.config import RunConfig, parse_config

RUN = 'num_training_steps = 1\ntasks_per_training_step = 1\n[agent]\nkind = "{kind}"\n'
PROGRAM = RUN.format(kind="function") + 'function = "m:f"\nmodel_names = ["gpt-*"]\n'
TITLES = '[[agent.calls]]\nmodel = "claude-haiku-*"\ntools = false\ntrain = false\n'


def described(text: str) -> RunConfig:
    return parse_config(text)


def test_kinds_of_calls_are_read_in_their_order_and_written_as_they_were() -> None:
    more = '[[agent.calls]]\nheader = "x-openai-subagent: *"\nagent = "reviewer"\nmax_calls = 3\n'

    run = described(PROGRAM + TITLES + more)

    titles, reviews = run.agent.calls
    assert (titles.model, titles.tools, titles.train, titles.agent) == (
        "claude-haiku-*",
        False,
        False,
        "",
    )
    assert (reviews.header, reviews.agent, reviews.max_calls) == (
        "x-openai-subagent: *",
        "reviewer",
        3,
    )
    assert run.agent.policy_names == ("gpt-*", "claude-haiku-*")
    assert described(run.to_toml()) == run


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("tools = false\ntrainn = false", r"agent.calls\[0\].trainn: unknown key; did you mean"),
        ("tools = 0\ntrain = false", r"agent.calls\[0\].tools = 0: must be a valid boolean"),
        ("train = false", r"agent.calls: .* train = false .* fits every call; set one of model, s"),
        ("tools = false", r"agent.calls: .* tools = false .* changes nothing; set one of train, a"),
        ('header = "a b: c"\ntrain = false', r"agent.calls\[0\].header = .*: must match pattern"),
    ],
)
def test_what_is_wrong_with_a_kind_is_told_by_its_place(entry: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        described(f"{PROGRAM}[[agent.calls]]\n{entry}\n")


def test_a_kind_of_the_policys_calls_is_of_no_other_model() -> None:
    upstream = '[agent.upstreams.judge]\nurl = "http://127.0.0.1:1"\nmodel = "judge"\n'
    kind = '[[agent.calls]]\nmodel = "judge"\ntrain = false\n'
    with pytest.raises(ConfigError, match=r"agent.calls has model = 'judge', which is that of"):
        described(PROGRAM + upstream + kind)


def test_kinds_of_calls_are_for_programs() -> None:
    with pytest.raises(ConfigError, match=r"agent.calls = .* means nothing to agent.kind"):
        described(RUN.format(kind="single_call") + TITLES)
