"""One server for all tests of the dialects; each begins with what it knows by heart."""

from collections.abc import Iterator

import pytest

from longhaul_core.policy import ReplyPart
from longhaul_core.types import FinishReason
from longhaul_trainer.gateway.exchange import ApiError
from running_servers import running
from scripted_gateway import Script, ScriptedGateway

TEXT = [ReplyPart(text="Hell"), ReplyPart(text="o, "), ReplyPart(text="wörld\n")]
CALLS = [
    ReplyPart(tool_place=0, tool_id="call_a", tool_name="weather"),
    ReplyPart(tool_place=0, tool_arguments='{"city": "P'),
    ReplyPart(tool_place=0, tool_arguments='aris"}'),
    ReplyPart(tool_place=1, tool_id="call_b", tool_name="clock", tool_arguments="{"),
    ReplyPart(tool_place=1, tool_arguments="}"),
]
THOUGHTS = [ReplyPart(reasoning="Let me "), ReplyPart(reasoning="see.")]
BROKEN_CALL = [
    ReplyPart(tool_place=0, tool_id="call_a", tool_name="weather", tool_arguments='{"city" '),
    ReplyPart(tool_place=0, tool_arguments='"Paris"'),
]
SCRIPTS = {
    "text": Script(choices=[TEXT]),
    "empty": Script(choices=[[]]),
    "tools": Script(choices=[CALLS], finish_reason=FinishReason.TOOL_CALLS),
    "everything": Script(
        choices=[[*THOUGHTS, *TEXT, *CALLS]], finish_reason=FinishReason.TOOL_CALLS
    ),
    "two": Script(choices=[TEXT, [ReplyPart(text="An"), ReplyPart(text="other")]]),
    "cut": Script(choices=[TEXT], finish_reason=FinishReason.LENGTH),
    "stopped": Script(choices=[TEXT], stop_word="END"),
    "json": Script(choices=[[ReplyPart(text='{"city": '), ReplyPart(text='"Paris"}')]]),
    "whole": Script(choices=[[*THOUGHTS, *TEXT, *CALLS]], hands_on=False),
    "broken_call": Script(choices=[BROKEN_CALL], finish_reason=FinishReason.TOOL_CALLS),
    "refused": Script(choices=[[]], error=ApiError("episode_limit", "8 calls of 8 are made")),
    "fails": Script(choices=[TEXT], error=ApiError("upstream", "the endpoint is away")),
    "crashes": Script(choices=[TEXT], error=RuntimeError("secret")),
    "aborted": Script(choices=[TEXT], finish_reason=FinishReason.ABORTED),
    "slow": Script(choices=[TEXT], waits=0.2),
}


@pytest.fixture(scope="module")
def serving() -> Iterator[tuple[ScriptedGateway, str]]:
    """A gateway, and its address."""
    gateway = ScriptedGateway()
    gateway.scripts |= SCRIPTS
    with running(gateway.app) as address:
        yield gateway, address


@pytest.fixture
def gateway(serving: tuple[ScriptedGateway, str]) -> ScriptedGateway:
    """The gateway, with nothing seen."""
    serving[0].seen.clear()
    return serving[0]


@pytest.fixture
def address(serving: tuple[ScriptedGateway, str]) -> str:
    """Its address."""
    return serving[1]
