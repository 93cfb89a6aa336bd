"""Tests for `longhaul_trainer.play.environments`."""

import asyncio
import json
import os
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from core.gym.test_process import youngest
from fakes import make_task
from longhaul_core.environment import EnvironmentPrompt
from longhaul_core.errors import ConfigError
from longhaul_core.memory import PromptTemplate
from longhaul_core.policy import NoTokens
from longhaul_core.rollout import Responder
from longhaul_core.tasks import (
    DifficultyState,
    DifficultyStream,
    MixedState,
    Panel,
    ShuffledState,
)
from longhaul_core.types import GroupOutcome, Split, Task, Tool
from longhaul_trainer.config import RunConfig, load_default_config
from longhaul_trainer.config.agent_loops import AgentLoop
from longhaul_trainer.play.environments import (
    RunEnvironments,
    environment_spec,
    prompt_template,
    source_of,
    task_panel,
    task_stream,
)
from longhaul_trainer.play.players import EnvironmentPlayer, NoReplies
from longhaul_trainer.preflight.description_check import problems_of
from longhaul_trainer.preflight.doctor import check_environment

RECORDED = json.loads((Path(__file__).parents[2] / "golden" / "task_order.json").read_text("utf-8"))
"""Tasks, stream state and panel of four runs, recorded before environments could be mixed."""

TEXTCRAFT = {"id": "longhaul/TextCraft-v0", "options": {"depth": 1}}
COUNTING = {"id": "fakes/Counting-v0", "import_modules": ["fakes"]}


def run_with(**sections: object) -> RunConfig:
    sizes = {"validation": {"num_tasks": 8, "test_num_tasks": 8}, "environment": TEXTCRAFT}
    return RunConfig.model_validate(
        {"num_training_steps": 4, "tasks_per_training_step": 4} | sizes | sections
    )


def template_of(run: RunConfig) -> PromptTemplate:
    (entry,) = run.played_environments
    return prompt_template(entry, source_of(entry).describe())


def test_the_instruction_is_placed_as_the_run_says() -> None:
    by_default = template_of(run_with())
    in_front = template_of(run_with(prompt={"instruction_place": "system"}))

    assert by_default.instruction_place == "user"
    assert in_front == replace(by_default, instruction_place="system")
    assert in_front.instruction in in_front.system_messages()[0].text


def test_a_published_prompt_has_its_authors_words_and_takes_no_others() -> None:
    def published(**prompt: str) -> RunConfig:
        return run_with(prompt={"template": "agentgym", **prompt}, memory={"kind": "full"})

    opening, answer = template_of(published()).system_messages()
    assert (opening.role, answer.role) == ("user", "assistant")
    assert opening.text.startswith("You are given few useful crafting recipes")

    spoken = published(system="You craft.")
    assert problems_of(spoken) == [
        "prompt.system = 'You craft.' stands in no prompt of prompt.template = \"agentgym\", which "
        "are their authors' word for word; leave it out"
    ]
    (problem,) = problems_of(run_with(prompt={"template": "agentgym"}))
    assert problem.startswith('prompt.template = "agentgym" goes with memory.kind = "full"')


def test_a_template_of_ones_own_that_knows_no_place_serves_all_but_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_template.py").write_text(
        "from longhaul_core.memory import PromptTemplate\n"
        "class Terse(PromptTemplate): pass\n"
        "def plain(*, system, instruction, list_actions, reply_prefix):\n"
        "    return PromptTemplate(system=system, instruction=instruction)\n",
        encoding="utf-8",
    )
    monkeypatch.syspath_prepend(str(tmp_path))  # pyright: ignore[reportUnknownMemberType]

    def template(name: str, place: str) -> PromptTemplate:
        prompt = {"template": f"own_template:{name}", "instruction_place": place}
        return template_of(run_with(prompt=prompt))

    assert template("plain", "user").instruction
    assert template("Terse", "system").instruction_place == "system"
    with pytest.raises(ConfigError, match=r"is called as plain\(.*instruction_place=\), and takes"):
        template("plain", "system")


def panel_of(run: RunConfig) -> Panel:
    return task_panel(run, Split.TEST)


def content(tasks: list[Task] | tuple[Task, ...]) -> set[tuple[int, str]]:
    return {(task.seed, task.goal) for task in tasks}


def test_packaged_environments_and_the_users_own_modules_are_imported_where_one_is_made() -> None:
    spec = environment_spec(run_with(environment=COUNTING).environment)

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
        make = RunEnvironments(run)
        played = make(task)
        await played.open()
        try:
            first = await played.reset(task)
            await played.step("count")
            return first.text, (await played.step("stop")).success
        finally:
            await played.close()
            await make.close()

    assert asyncio.run(play()) == ("one: 5", True)  # solved at target = 1, the option given


@pytest.mark.parametrize(("most", "num_processes"), [(None, 1), (1, 3)])
def test_a_run_says_how_many_episodes_share_a_process(most: int | None, num_processes: int) -> None:
    shared = COUNTING | {"id": "fakes/SharedCounting-v0", "num_workers": 3}
    run = run_with(environment=shared | {"episodes_per_process": most})
    task = replace(make_task(), environment="fakes/SharedCounting-v0")

    async def processes() -> int:
        others = {*youngest(os.getpid())}
        environments = RunEnvironments(run)
        opened = [environments(task) for _ in range(3)]
        for environment in opened:
            await environment.open()
        try:
            return len({*youngest(os.getpid())} - others)
        finally:
            for environment in opened:
                await environment.close()
            await environments.close()

    assert asyncio.run(processes()) == num_processes


def test_the_agent_loops_of_a_run_have_its_environments_together() -> None:
    run = run_with(environment=COUNTING | {"num_workers": 5})
    tasks = task_panel(run, Split.VALIDATION).tasks

    async def opened_at_once(agent_loop: AgentLoop, wanted: int) -> int:
        """How many environments of the loop are open when no other one can be."""
        environments = RunEnvironments(run, agent_loop=agent_loop)
        opening = [asyncio.create_task(environments(task).open()) for task in tasks]
        async with asyncio.timeout(120):
            while sum(one.done() for one in opening) < wanted:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        done, waiting = await asyncio.wait(opening, timeout=2)
        for task in waiting:
            task.cancel()
        await asyncio.wait(opening)
        await environments.close()
        return len(done)

    async def of_all_loops() -> list[int]:
        loops = [AgentLoop(index=index, of=2) for index in range(2)]
        return await asyncio.gather(*map(opened_at_once, loops, (3, 2)))

    assert asyncio.run(of_all_loops()) == [3, 2]


# Prompts


def test_an_environment_introduces_itself_and_the_form_of_a_reply_is_asked_for() -> None:
    template = template_of(run_with())

    assert template.system.startswith("You craft items.")
    assert template.instruction.startswith("What is the next action?")
    assert "<action>" in template.instruction
    assert template.list_actions


@pytest.mark.parametrize(
    ("environment", "grammar"),
    [
        (TEXTCRAFT, "`craft 4 oak planks using 1 oak logs`"),
        ({"id": "longhaul/BabyAI-v0", "options": {"levels": ["GoToObj"]}}, "`go to red ball 1`"),
    ],
)
def test_how_actions_are_written_is_told_where_they_are_not_listed(
    environment: Mapping[str, object], grammar: str
) -> None:
    listed = template_of(run_with(environment=environment))
    unlisted = template_of(run_with(environment=environment, prompt={"list_actions": False}))

    assert grammar not in listed.system
    assert unlisted.system == f"{listed.system}\n{unlisted.system.splitlines()[-1]}"
    assert grammar in unlisted.system.splitlines()[-1]


def test_tools_are_described_in_words_unless_the_chat_template_lists_them() -> None:
    words = EnvironmentPrompt(system="You work.", instruction="Next?", calls="Tools: look")

    def template(action_format: str) -> PromptTemplate:
        (entry,) = run_with(actions={"format": action_format}).played_environments
        return prompt_template(entry, replace(source_of(entry).describe(), prompt=words))

    assert template("tags").system == "You work.\nTools: look"
    assert template("tool_call").system == "You work."
    assert template("tool_call").instruction == "Next? Call one of the tools."


@pytest.mark.parametrize(("action_format", "is_given"), [("tags", False), ("tool_call", True)])
def test_an_agent_has_the_environments_tools_where_its_actions_are_calls(
    action_format: str, is_given: bool
) -> None:
    run = run_with(actions={"format": action_format})
    (entry,) = run.played_environments
    look = Tool(name="look")
    nobody = Responder(policy=NoReplies(), renderer=NoTokens())
    player = EnvironmentPlayer(
        run,
        responders={entry.prompt.reply_prefix: nobody},
        descriptions={entry.id: replace(source_of(entry).describe(), tools=(look,))},
        agent_loop=AgentLoop(),
    )

    assert player.agent(entry.id, "train").tools == ((look,) if is_given else ())


def test_a_prefix_replaces_the_request_for_a_form() -> None:
    template = template_of(run_with(prompt={"reply_prefix": "<action>"}))

    assert template.instruction == "What is the next action?"
    assert template.reply_prefix == "<action>"


def test_the_runs_own_words_come_first_even_if_empty() -> None:
    template = template_of(
        run_with(prompt={"system": "", "instruction": "Go.", "list_actions": False})
    )

    assert (template.system, template.instruction) == ("", "Go.")
    assert not template.list_actions


def test_an_environment_without_words_asks_for_the_form_alone() -> None:
    template = template_of(run_with(environment=COUNTING, actions={"format": "json"}))

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
    stream.record([GroupOutcome(task=hopeless.key, horizon=9, num_successes=0, num_episodes=8)])
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


@pytest.mark.parametrize("read", [task_stream, template_of, panel_of])
def test_an_unknown_environment_is_a_mistake_of_the_configuration(
    read: Callable[[RunConfig], object],
) -> None:
    with pytest.raises(ConfigError, match="TextKraft"):
        read(run_with(environment={"id": "longhaul/TextKraft-v0"}))


def tasks_of_a_file(folder: Path, *splits: str, **validation: object) -> RunConfig:
    """A run of a program whose file has a task of each of the splits."""
    rows = [{"q": number, "split": split} for number, split in enumerate(splits)]
    path = folder / "few.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return RunConfig.model_validate(
        {
            "num_training_steps": 1,
            "tasks_per_training_step": 1,
            "agent": {"kind": "command", "command": ("true",)},
            "tasks": {"source": str(path)},
            "validation": {"num_tasks": 2, "test_num_tasks": 0, **validation},
        }
    )


def test_a_run_needs_no_tasks_of_a_panel_that_it_does_without(tmp_path: Path) -> None:
    task_stream(tasks_of_a_file(tmp_path, "train", num_tasks=0))

    with pytest.raises(ConfigError, match=r"no validation task.*validation\.num_tasks = 0"):
        task_stream(tasks_of_a_file(tmp_path, "train"))
    with pytest.raises(ConfigError, match=r"no test task.*validation\.test_num_tasks = 0"):
        task_stream(tasks_of_a_file(tmp_path, "train", num_tasks=0, test_num_tasks=1))


def test_a_run_is_validated_on_training_tasks_where_it_says_so(tmp_path: Path) -> None:
    run = tasks_of_a_file(tmp_path, "train", "train", split="train")

    training = {task.task_id for task in task_stream(run).next(2)}
    panel = task_panel(run, Split.VALIDATION)

    assert {task.task_id for task in panel.tasks} == training
    assert panel.split is Split.VALIDATION


def test_a_panel_larger_than_its_split_is_refused_with_the_limit() -> None:
    run = run_with(validation={"num_tasks": 10**6})

    with pytest.raises(ConfigError, match=r"must lie in \[1, \d+\].*got 1000000"):
        task_panel(run, Split.VALIDATION)


@pytest.mark.parametrize("name", RECORDED)
def test_a_run_of_one_environment_meets_the_tasks_it_always_met(name: str) -> None:
    recorded = RECORDED[name]
    run = load_default_config(recorded["overrides"])
    stream = task_stream(run)

    assert [task.task_id for task in stream.next(12)] == recorded["tasks"]
    state = dict(stream.state())
    assert state | {"success_rates": None} == recorded["state"] | {"success_rates": None}
    panel = task_panel(run, Split.VALIDATION)
    assert [task.task_id for task in panel.tasks[:8]] == recorded["panel"]
    assert panel.parts == {}


# Several environments


SOKOBAN = {"id": "longhaul/Sokoban-v0", "options": {"size": 5, "min_pushes": 1}}


def mixed_run(**sections: object) -> RunConfig:
    return RunConfig.model_validate(
        {
            "num_training_steps": 4,
            "tasks_per_training_step": 4,
            "validation": {"num_tasks": 8, "test_num_tasks": 8},
            "environments": [TEXTCRAFT | {"weight": 3.0}, SOKOBAN],
        }
        | sections
    )


def test_tasks_of_several_environments_are_mixed_by_weight() -> None:
    drawn = Counter(task.environment for task in task_stream(mixed_run()).next(1000))

    # Four standard deviations of a share of 1,000 draws are 4 · sqrt(3/16 / 1000) = 0.055.
    assert drawn["longhaul/TextCraft-v0"] / 1000 == pytest.approx(0.75, abs=0.055)
    assert drawn["longhaul/Sokoban-v0"] == 1000 - drawn["longhaul/TextCraft-v0"]


@pytest.mark.parametrize("order", ["shuffled", "difficulty"])
def test_a_mixture_goes_on_where_its_state_was_taken(order: str) -> None:
    run = mixed_run(tasks={"order": order})
    stream = task_stream(run)
    for task in stream.next(9):
        stream.record([GroupOutcome(task=task.key, horizon=9, num_successes=1, num_episodes=8)])
    state = cast("MixedState", json.loads(json.dumps(stream.state())))
    expected = stream.next(20)

    assert task_stream(run, state=state).next(20) == expected
    assert task_stream(run).next(20) != expected


def test_a_state_of_one_environment_is_not_that_of_several() -> None:
    with pytest.raises(ConfigError, match="'shuffled', and 2 are mixed now"):
        task_stream(mixed_run(), state=cast("ShuffledState", task_stream(run_with()).state()))
    with pytest.raises(ConfigError, match=r"were mixed of .*Sokoban.*there is one environment now"):
        task_stream(run_with(), state=cast("MixedState", task_stream(mixed_run()).state()))


def test_a_panel_has_as_many_tasks_of_each_environment_and_a_part_for_each() -> None:
    panel = task_panel(mixed_run(), Split.VALIDATION)

    assert len(panel.tasks) == 16
    assert set(panel.parts) == {
        "validation/longhaul/TextCraft-v0",
        "validation/longhaul/Sokoban-v0",
    }
    alone = task_panel(run_with(), Split.VALIDATION)
    assert panel.parts["validation/longhaul/TextCraft-v0"] == alone


def test_too_large_a_panel_names_the_environment_that_has_too_few_tasks() -> None:
    with pytest.raises(ConfigError, match=r"longhaul/Sokoban-v0: .*got 100"):
        task_stream(mixed_run(validation={"num_tasks": 100, "test_num_tasks": 8}))


def test_each_environment_has_its_own_words_memory_and_cap() -> None:
    run = mixed_run(
        environments=[
            TEXTCRAFT | {"prompt": {"system": "Craft."}, "memory": {"kind": "none"}},
            SOKOBAN | {"horizon": 7, "actions": {"format": "plain"}},
        ]
    )
    templates = [
        prompt_template(entry, source_of(entry).describe()) for entry in run.played_environments
    ]

    assert templates[0].system == "Craft."
    assert "<action>" in templates[0].instruction
    assert templates[1].system.startswith("You push boxes")
    assert "<action>" not in templates[1].instruction
    assert [entry.memory.kind for entry in run.played_environments] == ["none", "window"]
    assert run.horizon_of("longhaul/Sokoban-v0", scheduled=20) == 7
    assert run.horizon_of("longhaul/Sokoban-v0", scheduled=5) == 5
    assert run.horizon_of("longhaul/TextCraft-v0", scheduled=20) == 20


def test_each_task_is_played_by_its_own_environment() -> None:
    run = mixed_run(
        environments=[
            TEXTCRAFT | {"isolation": "thread"},
            SOKOBAN | {"isolation": "process", "num_workers": 1},
        ]
    )

    async def first_words() -> list[str]:
        make = RunEnvironments(run)
        words: list[str] = []
        for entry in run.played_environments:
            task = source_of(entry).tasks(Split.TRAIN)[0]
            environment = make(task)
            await environment.open()
            try:
                words.append((await environment.reset(task)).text[:11])
            finally:
                await environment.close()
        await make.close()
        return words

    assert asyncio.run(first_words()) == ["Goal: craft", "Goal: push "]


# Built to be played


@pytest.mark.parametrize("isolation", ["thread", "process"])
def test_an_environment_is_built_to_be_played_and_once_to_be_asked(
    tmp_path: Path, isolation: str
) -> None:
    constructions = tmp_path / "constructions"
    run = run_with(
        environment={
            "id": "sources/Dice-v3",
            "options": {"constructions": str(constructions)},
            "import_modules": ["dice"],
            "isolation": isolation,
        }
    )

    def built_in() -> list[int]:
        return [int(line) for line in constructions.read_text("utf-8").split()]

    assert problems_of(run, deeply=True) == []
    check_environment(run)
    tasks = task_stream(run).next(3)
    task_panel(run, Split.VALIDATION)
    template_of(run)

    assert len(built_in()) == 1
    assert os.getpid() not in built_in()

    async def play() -> None:
        make = RunEnvironments(run)
        for task in tasks:
            environment: Any = make(task)
            await environment.open()
            await environment.reset(task)
            await environment.close()
        await make.close()

    asyncio.run(play())
    assert 1 < len(built_in()) <= 1 + len(tasks)
