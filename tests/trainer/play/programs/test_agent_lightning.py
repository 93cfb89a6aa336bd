"""A program written for agent-lightning 1, not a word of it for us, plays an episode.

Its contract there: three variables, the model `auto`, one event of type `reward`, exit code 0.
"""

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from fakes import StreamingScriptedPolicy
from longhaul_core.types import FailedEpisode, FailureCause, StopReason, Trajectory
from longhaul_trainer.play.programs.command import CommandProgram
from program_house import LIMITS, House

PROGRAM = """\
import json
import os
import urllib.request

from openai import OpenAI

client = OpenAI(base_url=os.environ["AGL_OPENAI_BASE_URL"], api_key=os.environ["AGL_KEY"])
messages = [{"role": "user", "content": "Which way?"}]
for _ in range(2):
    reply = client.chat.completions.create(model="auto", messages=messages, temperature=0.7)
    messages.append({"role": "assistant", "content": reply.choices[0].message.content})
    messages.append({"role": "user", "content": "And then?"})
for _ in range(2):  # prompts that are equal are calls of their own
    client.chat.completions.create(model="auto", messages=[{"role": "user", "content": "Hm?"}])


def post(event):
    request = urllib.request.Request(
        os.environ["AGL_EVENT_URL"],
        data=json.dumps(event).encode(),
        headers={
            "Authorization": "Bearer " + os.environ["AGL_KEY"],
            "Content-Type": "application/json",
        },
    )
    with urllib.request.urlopen(request) as answer:
        assert answer.status == 200


post({"event_type": "progress", "data": {"turns": 2}})
if REWARDED:
    post({"event_type": "reward", "data": {"value": 0.75, "message": "nearly", "source": "agent"}})
print("done")
"""


@pytest.fixture
def house() -> Iterator[House]:
    with House.open() as house:
        yield house


def played(house: House, folder: Path, *, rewarded: bool) -> Trajectory | FailedEpisode:
    script = folder / "agent.py"
    script.write_text(f"REWARDED = {rewarded}\n{PROGRAM}", encoding="utf-8")
    program = CommandProgram([sys.executable, str(script)], deadline_seconds=60)
    policy = StreamingScriptedPolicy(("north", "south", "hm", "ha"))
    limits = replace(LIMITS, max_prompt_tokens=100_000)
    outcome = house.played("none", program=program, policy=policy, limits=limits)
    house.run(program.close())
    return outcome


def test_its_calls_are_steps_and_its_event_is_the_reward(house: House, tmp_path: Path) -> None:
    outcome = played(house, tmp_path, rewarded=True)

    assert isinstance(outcome, Trajectory), outcome
    calls = [call for step in outcome.steps for call in step.calls]
    assert [call.reply for call in calls] == ["north", "south", "hm", "ha"]
    assert [call.conversation for call in calls] == [0, 0, 1, 2]
    assert all(call.trained for call in calls)
    assert [step.reward for step in outcome.steps] == [0, 0, 0, 0.75]
    assert (outcome.success, outcome.stop_reason) == (False, StopReason.TASK_FAILED)


def test_without_its_event_it_failed_and_is_no_reward_of_0(house: House, tmp_path: Path) -> None:
    outcome = played(house, tmp_path, rewarded=False)

    assert isinstance(outcome, FailedEpisode)
    assert outcome.cause is FailureCause.PROGRAM_ERROR
    assert "no reward" in outcome.message
