"""A judge's request, and the numbers in its reply."""

from dataclasses import replace

import pytest

from longhaul_core.types import Observation, Step
from longhaul_trainer.play.judge import REQUEST, judge_messages, scores_in
from store_samples import make_trajectory


def test_the_request_has_each_step_the_end_and_what_is_asked() -> None:
    seen = ["A door.", "An open door.", "A garden."]
    done = ["open", "wait", "go"]
    steps = tuple(
        Step(
            index=place,
            observation=Observation(text=text),
            calls=(),
            action=action,
            action_valid=True,
            reward=0.5 * place,
        )
        for place, (text, action) in enumerate(zip(seen, done, strict=True))
    )
    episode = replace(make_trajectory(success=True), steps=steps)

    system, user = judge_messages(episode, [0, 2])

    assert system.content == REQUEST
    assert user.content == (
        "Step 0\nA door.\n> open\nStep 1\nAn open door.\n> wait\nStep 2\nA garden.\n> go\n"
        "The episode ended with success, with a return of 1.5.\nSteps to judge: 0, 2"
    )


@pytest.mark.parametrize(
    ("reply", "scores"),
    [
        ('{"0": 0.5, "3": -1}', {0: 0.5, 3: -1.0}),
        ('<think>{"0": 1}</think>I say {maybe}: ```json\n{"3": 0.25}\n``` {"0": 1}', {3: 0.25}),
        ('{"0": 1.5, "3": "0.5", "7": 0.5}', {}),
        ('{"0": true, "3": null}', {}),
        ('{"0": NaN, "3": 1e999}', {}),
        ('{"0": ' + "[" * 100_000, {}),
        ("I do not know", {}),
        ("", {}),
    ],
)
def test_numbers_of_a_reply(reply: str, scores: dict[int, float]) -> None:
    assert scores_in(reply, [0, 3]) == scores
