"""BabyAI in AgentGym's form, word for word beside what AgentGym's own server and client said.

`tests/golden/make_agentgym_babyai.py` has how the episodes were recorded.
"""

import gzip
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from longhaul_core.actions import ActionFormat, ActionParser
from longhaul_core.errors import ConfigError
from longhaul_core.tasks import Panel, refuse_shared_content
from longhaul_core.types import Observation, Split
from longhaul_envs.babyai.environment import BabyAI
from longhaul_envs.babyai.levels import AGENTGYM
from longhaul_envs.play import expert_policy, play
from longhaul_envs.published import published_template

EPISODES: list[dict[str, Any]] = json.loads(
    gzip.decompress((Path(__file__).parents[2] / "golden" / "agentgym_babyai.json.gz").read_bytes())
)
TEMPLATE = published_template(
    "agentgym", environment_id="longhaul/BabyAI-v0", options={"form": "agentgym"}, memory="full"
)
PARSER = ActionParser(format=ActionFormat.REACT)


def shown(text: str, info: Mapping[str, Any]) -> object:
    """What a model reads, by the prompt of AgentGym."""
    observation = Observation(text=text, admissible_actions=tuple(info["admissible_actions"]))
    return TEMPLATE.user_message(observation).content


@pytest.mark.parametrize("number", range(len(AGENTGYM)))
def test_episodes_are_those_of_agentgyms_own_server(number: int) -> None:
    level = AGENTGYM[number]
    environment = BabyAI(form="agentgym", levels=[level])
    episodes = [episode for episode in EPISODES if episode["item"] % len(AGENTGYM) == number]
    for episode in episodes:
        seed = episode["item"] // len(AGENTGYM)
        text, info = environment.reset(options={"task_id": f"{level}/{seed:05}"})
        assert shown(text, info) == episode["first"]
        for reply, observation, reward, done in episode["steps"]:
            action = PARSER.parse(reply, info["admissible_actions"]).text
            text, paid, terminated, truncated, info = environment.step(action)
            assert shown(text, info) == observation
            assert (paid, terminated, truncated) == (reward, done, False)
            assert info["success"] == done
    assert len(episodes) == 3


def test_a_server_of_agentgyms_has_the_same_prompt() -> None:
    options = {"task": "babyai"}
    same = published_template(
        "agentgym", environment_id="longhaul/AgentGym-v0", options=options, memory="full"
    )
    assert same == TEMPLATE


def test_a_late_success_ends_nothing_and_is_paid_again_for_every_refused_action() -> None:
    """Theirs, and worth to know: more than half of MiniGrid's moves were taken."""
    environment = BabyAI(form="agentgym", levels=["GoToObjS4"])
    task = environment.tasks(Split.TEST, 1)[0]
    environment.reset(options={"task_id": task.task_id})
    text, reward, terminated, _, info = environment.step("turn left")
    for _ in range(11):  # of 16
        environment.step("turn left")
    while not reward:
        text, reward, terminated, _, info = environment.step(str(environment.expert_action()))
    assert text.endswith("\n The task is completed.")
    assert 0 < reward <= 0.5
    assert not terminated
    before = str(info["anchor_state"])
    for action in ("dance", "check available actions"):
        _, again, terminated, _, info = environment.step(action)
        assert (again, terminated, info["anchor_state"]) == (reward, False, before)
    environment.step("turn left")
    assert environment.step("dance")[1] == 0.0


@pytest.mark.parametrize("level", ["GoToObjS4", "PickupLoc", "OpenRedDoor", "UnlockLocalDist"])
def test_the_expert_solves_the_form(level: str) -> None:
    environment = BabyAI(form="agentgym", levels=[level])
    for task in environment.tasks(Split.TEST, 2):
        assert play(environment, task, expert_policy, horizon=100).success, task.task_id


def test_the_tasks_of_the_form_are_others_and_take_turns_as_the_items_do() -> None:
    environment = BabyAI(form="agentgym", levels=["agentgym"])
    tasks = environment.tasks(Split.TRAIN, 80)
    assert [task.task_id.partition("/")[0] for task in tasks] == [*AGENTGYM, *AGENTGYM]
    assert tasks[0].version.endswith("+form=agentgym")
    held_out = Panel.spread(
        environment.tasks(Split.VALIDATION), split=Split.VALIDATION, num_tasks=128
    )
    refuse_shared_content(environment.tasks(Split.TRAIN), held_out)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"form": "verse"}, "form must be longhaul or agentgym, got 'verse'"),
        ({"form": "agentgym", "remember": False}, "remember = False has no effect with form"),
        ({"form": "agentgym", "actions": "primitive"}, "actions = 'primitive' has no effect"),
        ({"levels": ["agentgym", "GoTo"]}, "levels is 'agentgym' alone or names levels"),
    ],
)
def test_an_option_that_the_form_has_not_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        BabyAI(**options)
