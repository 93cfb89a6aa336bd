"""The agent of `examples/agents/errands.py`: what it asks, what is paid, what splits share."""

import asyncio
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from fakes import StreamingScriptedPolicy, make_task
from gateways import responder_of
from longhaul_core.rollout import EpisodeLimits, EpisodeSpec
from longhaul_core.types import Split, Trajectory
from longhaul_trainer.config.load import read_file
from longhaul_trainer.play.programs.player import ProgramPlayer
from longhaul_trainer.play.programs.tasks import task_source

FOLDER = Path(__file__).parents[4] / "examples" / "agents"
ERRAND = {
    "places": [["lamp", "attic"], ["key", "barn"], ["coin", "well"]],
    "wanted": ["key", "lamp"],
}


@pytest.fixture(autouse=True)
def in_its_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    """The example is found as by a run that is started in its folder."""
    monkeypatch.setattr(sys, "path", [str(FOLDER), *sys.path])


def played(replies: Sequence[str]) -> tuple[Trajectory, list[str]]:
    """An errand in which the model says this, and the last message of each prompt."""
    run = read_file(FOLDER / "errands.toml").run()
    policy = StreamingScriptedPolicy(replies)

    async def play() -> Trajectory:
        player = ProgramPlayer(run, responder=responder_of(policy))
        try:
            outcome = await player.play(
                EpisodeSpec(task=replace(make_task(), data=json.dumps(ERRAND)), seed=1),
                phase="train",
                training_step=1,
                limits=EpisodeLimits(horizon=run.rollout.horizon, max_prompt_tokens=10_000),
                with_final_prompt=False,
                stop=asyncio.Event(),
            )
        finally:
            await player.close()
        assert isinstance(outcome, Trajectory), outcome
        return outcome

    trajectory = asyncio.run(play())
    return trajectory, [prompt.messages[-1].text for prompt in policy.prompts]


@pytest.mark.parametrize(
    ("replies", "num_steps", "success"),
    [
        (["The key is in the Barn.", "attic"], 2, True),
        (["barn", "The lamp is in the barn."], 2, False),
        (["In the well.", "attic"], 1, False),
        (["In the barn, not in the well.", "attic"], 1, False),
        (["I do not know.", "attic"], 1, False),
    ],
)
def test_both_things_are_brought_or_nothing_is_paid(
    replies: list[str], num_steps: int, success: bool
) -> None:
    trajectory, asked = played(replies)

    assert (len(trajectory.steps), trajectory.success) == (num_steps, success)
    assert trajectory.episode_return == float(success)
    told = "The lamp is in the attic. The key is in the barn. The coin is in the well."
    assert asked[:1] == [f"{told} Where is the key?"]
    assert asked[1:] == ["Right. Where is the lamp?"] * (num_steps - 1)


def test_splits_share_no_thing_and_no_place() -> None:
    listed = task_source("errands:tasks")
    words: dict[str, set[str]] = {}
    for split in Split:
        tasks = [json.loads(task.data) for task in listed.tasks(split)]
        words[split] = {word for task in tasks for pair in task["places"] for word in pair}
        assert all({*task["wanted"]} <= {thing for thing, _ in task["places"]} for task in tasks)

    assert not words["train"] & words["validation"]
    assert not words["test"] & (words["train"] | words["validation"])
    assert len(words["train"]) == 32
