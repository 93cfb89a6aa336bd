"""Tests for `longhaul_trainer.environments`."""

import asyncio
from typing import cast

import pytest

from longhaul_core.errors import ConfigError
from longhaul_core.gym import ProcessPool
from longhaul_core.tasks import DifficultyState, DifficultyStream, ShuffledState
from longhaul_core.types import GroupOutcome, Split, Task
from longhaul_trainer.agent_loops import AgentLoop
from longhaul_trainer.config import RunConfig
from longhaul_trainer.environments import (
    environment_factory,
    environment_spec,
    prompt_template,
    task_panel,
    task_stream,
)

TEXTCRAFT = {"id": "longhaul/TextCraft-v0", "options": {"depth": 1}}
COUNTING = {"id": "fakes/Counting-v0", "import_modules": ["fakes"]}


def run_with(**sections: object) -> RunConfig:
    sizes = {"validation": {"num_tasks": 8, "test_num_tasks": 8}, "environment": TEXTCRAFT}
    return RunConfig.model_validate(
        {"num_training_steps": 4, "tasks_per_training_step": 4} | sizes | sections
    )


def content(tasks: list[Task] | tuple[Task, ...]) -> set[tuple[int, str]]:
    return {(task.seed, task.goal) for task in tasks}


def test_packaged_environments_and_the_users_own_modules_are_imported_where_one_is_made() -> None:
    spec = environment_spec(run_with(environment=COUNTING))

    assert spec.environment_id == "fakes/Counting-v0"
    assert spec.import_modules == ("longhaul_envs.registry", "fakes")


@pytest.mark.parametrize("isolation", ["thread", "process"])
def test_an_environment_is_made_as_the_run_says(isolation: str) -> None:
    environment = COUNTING | {"isolation": isolation, "num_workers": 1, "options": {"target": 1}}
    run = run_with(environment=environment)
    task = Task(
        environment="fakes/Counting-v0",
        version="0",
        data_hash="",
        task_id="one",
        seed=5,
        split=Split.TRAIN,
    )

    async def play() -> tuple[str, bool]:
        make = environment_factory(run)
        played = make(task)
        await played.open()
        try:
            first = await played.reset(task)
            await played.step("count")
            return first.text, (await played.step("stop")).success
        finally:
            await played.close()
            if isinstance(make, ProcessPool):
                await make.close()

    assert asyncio.run(play()) == ("one: 5", True)  # solved at target = 1, the option given


def test_the_agent_loops_of_a_run_have_its_environments_together() -> None:
    run = run_with(environment=COUNTING | {"num_workers": 5})
    tasks = task_panel(run_with(), Split.VALIDATION).tasks

    async def opened_at_once(agent_loop: AgentLoop) -> int:
        """How many environments of the loop are open when no other one can be."""
        pool = environment_factory(run, agent_loop=agent_loop)
        assert isinstance(pool, ProcessPool)
        async with pool:
            opening = [asyncio.create_task(pool(task).open()) for task in tasks]
            done, waiting = await asyncio.wait(opening, timeout=5)
            for task in waiting:
                task.cancel()
            await asyncio.wait(opening)
            return len(done)

    async def of_all_loops() -> list[int]:
        loops = [AgentLoop(index=index, of=2) for index in range(2)]
        return await asyncio.gather(*map(opened_at_once, loops))

    assert asyncio.run(of_all_loops()) == [3, 2]


# Prompts


def test_an_environment_introduces_itself_and_the_form_of_a_reply_is_asked_for() -> None:
    template = prompt_template(run_with())

    assert template.system.startswith("You craft items.")
    assert template.instruction.startswith("What is the next action?")
    assert "<action>" in template.instruction
    assert template.list_actions


def test_a_prefix_replaces_the_request_for_a_form() -> None:
    template = prompt_template(run_with(prompt={"reply_prefix": "<action>"}))

    assert template.instruction == "What is the next action?"
    assert template.reply_prefix == "<action>"


def test_the_runs_own_words_come_first_even_if_empty() -> None:
    template = prompt_template(
        run_with(prompt={"system": "", "instruction": "Go.", "list_actions": False})
    )

    assert (template.system, template.instruction) == ("", "Go.")
    assert not template.list_actions


def test_an_environment_without_words_asks_for_the_form_alone() -> None:
    template = prompt_template(run_with(environment=COUNTING, actions={"format": "json"}))

    assert template.system == ""
    assert '"action"' in template.instruction


# Tasks


def test_the_stream_goes_on_where_its_state_was_taken() -> None:
    run = run_with()
    stream = task_stream(run)
    stream.next(7)
    state = cast("ShuffledState", stream.state())
    expected = stream.next(20)

    assert task_stream(run, state=state).next(20) == expected
    assert task_stream(run).next(20) != expected


def test_a_state_of_other_tasks_is_refused() -> None:
    state = cast("ShuffledState", task_stream(run_with()).state())
    deeper = run_with(environment=TEXTCRAFT | {"options": {"depth": 2}})

    with pytest.raises(ConfigError, match="are not those that the stream was begun with"):
        task_stream(deeper, state=state)


def test_a_pool_by_difficulty_goes_on_with_what_it_was_told() -> None:
    run = run_with(tasks={"order": "difficulty", "uniform_share": 0.2, "smoothing": 1.0})
    stream = task_stream(run)
    (hopeless,) = stream.next(1)
    stream.record(
        [GroupOutcome(task_id=hopeless.task_id, horizon=9, num_successes=0, num_episodes=8)]
    )
    state = stream.state()
    expected = stream.next(20)
    resumed = task_stream(run, state=cast("DifficultyState", state))

    assert resumed.next(20) == expected
    assert task_stream(run).next(20) != expected
    assert isinstance(resumed, DifficultyStream)
    # Hopeless under smoothing = 1: the floor is all that it has.
    num_tasks = len(resumed.probabilities())
    assert resumed.probabilities().min() == pytest.approx(0.2 / num_tasks, rel=1e-12)


@pytest.mark.parametrize(
    ("before", "now"), [("shuffled", "difficulty"), ("difficulty", "shuffled")]
)
def test_a_state_of_another_order_is_refused(before: str, now: str) -> None:
    state = task_stream(run_with(tasks={"order": before})).state()

    with pytest.raises(ConfigError, match=f"'{before}', and tasks.order = '{now}' now"):
        task_stream(run_with(tasks={"order": now}), state=cast("ShuffledState", state))


def test_the_seed_decides_the_order_and_nothing_else() -> None:
    first, again, other = (task_stream(run_with(seed=seed)).next(50) for seed in (1, 1, 2))

    assert first == again
    assert first != other


def test_what_is_trained_on_validated_on_and_tested_on_shares_nothing() -> None:
    run = run_with()
    trained = content(task_stream(run).next(2000))
    validated = content(task_panel(run, Split.VALIDATION).tasks)
    tested = content(task_panel(run, Split.TEST).tasks)

    assert len(trained) == 574
    assert len(validated) == len(tested) == 8
    assert not trained & validated
    assert not trained & tested
    assert not validated & tested


def test_a_panel_is_the_same_whatever_the_seed_of_the_run() -> None:
    panels = [task_panel(run_with(seed=seed), Split.VALIDATION) for seed in (0, 1)]

    assert panels[0] == panels[1]


@pytest.mark.parametrize("read", [task_stream, prompt_template, environment_spec])
def test_an_unknown_environment_is_a_mistake_of_the_configuration(read: object) -> None:
    run = run_with(environment={"id": "longhaul/TextKraft-v0"})
    if read is environment_spec:
        with pytest.raises(ConfigError, match="TextKraft"):
            environment_spec(run).make()
        return
    assert callable(read)
    with pytest.raises(ConfigError, match="TextKraft"):
        read(run)


def test_a_panel_larger_than_its_split_is_refused_with_the_limit() -> None:
    run = run_with(validation={"num_tasks": 10**6})

    with pytest.raises(ConfigError, match=r"must lie in \[1, \d+\].*got 1000000"):
        task_panel(run, Split.VALIDATION)
