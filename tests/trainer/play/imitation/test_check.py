"""Can a run imitate its sources? Found before a model is loaded."""

import pytest
from rich.console import Console

from longhaul_core.errors import ConfigError
from longhaul_trainer.play.imitation.check import require_imitable
from longhaul_trainer.run.demonstrations import Demonstrations
from trainer.play.imitation.conftest import Imitating

QUIET = Console(quiet=True)


def test_a_run_with_the_settings_of_its_source_imitates_all_of_it(imitating: Imitating) -> None:
    found = require_imitable(imitating(), console=QUIET)

    chosen = found.demonstrations
    assert (len(chosen.tasks), chosen.num_episodes, found.num_checked) == (20, 20, 20)
    assert (found.num_left_out, found.num_recomposed) == (0, 0)
    assert found.num_replies == chosen.num_steps
    assert found.in_words() == (
        f"20 episodes of 20 tasks, {chosen.num_steps} steps, of {chosen.runs[0]}"
    )


@pytest.mark.parametrize("setting", ["memory.size=1", "prompt.instruction=Write + or -."])
def test_prompts_that_another_memory_made_are_imitated_only_if_asked_for(
    imitating: Imitating, setting: str
) -> None:
    with pytest.raises(ConfigError, match=r"prompts are not those that the replies were given to"):
        require_imitable(imitating(setting), console=QUIET)

    found = require_imitable(imitating(setting, "imitation.prompts=recomposed"), console=QUIET)
    assert 0 < found.num_recomposed <= found.num_replies
    assert "prompts are composed anew" in found.in_words()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (("rollout.horizon=2",), r"2 of its \d+ steps fit, and then horizon_reached"),
        (("rollout.max_reply_tokens=1",), r"the recorded reply has 2 tokens"),
        (("tasks_per_training_step=21",), "20 tasks were demonstrated"),
        (("validation.split=train", "validation.num_tasks=0", "rollout.horizon=2"), "whole"),
    ],
)
def test_what_cannot_be_imitated_whole_is_named(
    imitating: Imitating, settings: tuple[str, ...], words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        require_imitable(imitating(*settings), console=QUIET)


def test_what_is_imitated_beside_reinforcement_is_held_to_the_same(imitating: Imitating) -> None:
    beside = ("imitation.coefficient=0.2", "tasks_per_training_step=21")

    found = require_imitable(imitating(*beside), console=QUIET)

    assert found.demonstrations.num_episodes == 20  # a training step may meet one twice
    for setting, words in (
        ("memory.size=1", "prompts are not those that the replies were given to"),
        ("rollout.horizon=2", "steps fit, and then horizon_reached"),
        ("environment.id=longhaul/Blackjack-v0", "sources hold episodes of longhaul/NumberLine"),
    ):
        with pytest.raises(ConfigError, match=words):
            require_imitable(imitating(*beside, setting), console=QUIET)
    with pytest.raises(ConfigError, match="no episode that ended with success=false"):
        none = '[{ run = "experts", where = { success = false } }]'
        require_imitable(imitating(*beside, sources=none), console=QUIET)


def test_an_experts_action_is_written_in_the_form_of_the_run_that_imitates(
    imitating: Imitating,
) -> None:
    run = imitating(
        "actions.format=json", "imitation.prompts=recomposed", "rollout.max_reply_tokens=16"
    )

    found = require_imitable(run, console=QUIET)

    assert (found.num_left_out, found.num_recomposed) == (0, found.num_replies)


def test_a_few_that_do_not_fit_are_counted(imitating: Imitating) -> None:
    nine = '[{ run = "experts", where = { max_steps = 9 } }]'
    assert Demonstrations.chosen(imitating(sources=nine)).num_episodes == 19  # of 20

    found = require_imitable(imitating("rollout.horizon=9"), console=QUIET)

    assert (found.num_left_out, found.num_checked) == (1, 20)
    assert "1 of 20 are cut or fail here" in found.in_words()
