"""The recipes of `configs/recipes` over every machine of `configs/machines`, and their sources."""

import tomllib
from itertools import product
from pathlib import Path

import pytest

from longhaul_core.errors import ConfigError
from longhaul_core.types import Message, Observation, Split
from longhaul_trainer.config import RunConfig, load_config, parse_config
from longhaul_trainer.config.run import dotted
from longhaul_trainer.play.environments import published_prompt, task_panel, task_stream

CONFIGS = Path(__file__).parents[3] / "configs"
RECIPES = sorted((CONFIGS / "recipes").glob("*.toml"))
MACHINES = sorted((CONFIGS / "machines").glob("*.toml"))

ENVIRONMENTS = sorted((CONFIGS / "environments").glob("*.toml"))
"""Laid over the recipe that `RECIPE_OF` names."""
RECIPE_OF = {
    "alfworld": "gigpo",
    "webshop": "gigpo",
    "sokoban": "gigpo",
    "sokoban-vision": "gigpo",
    "search": "gigpo",
    "ez-points": "gigpo",
    "blackjack": "gigpo",
    "number-line": "gigpo",
    "scienceworld": "scalinginter",
    "agentgym-babyai": "grpo",
    "agentgym-searchqa": "grpo",
    "agentgym-webarena": "grpo",
}

FEW_TASKS = {"ez-points": 24, "number-line": 24, "agentgym-webarena": 100}
"""Panels of environments with fewer than 128 tasks held out."""

BOTH = ("grpo", "scalinginter")
LORA = "verl-agent, examples/gigpo_trainer/run_alfworld_lora.sh"
PUBLISHED_OF_ADAPTERS: dict[str, object] = {
    "model.lora_rank": 64,
    "model.lora_alpha": 64,
    "optimizer.learning_rate": 3e-6,
    "loss.kl_coefficient": 0.0,
}
"""Of `LORA`: lora_rank=64, lora_alpha=64, optim.lr=3e-6, use_kl_loss=False."""


def stem(file: Path) -> str:
    return file.stem


def values_of(run: RunConfig) -> dict[str, object]:
    """Every setting of a run by its dotted name."""
    return dotted(run.model_dump())


@pytest.mark.parametrize(("recipe", "machine"), list(product(RECIPES, MACHINES)), ids=stem)
def test_every_recipe_lies_under_every_machine_and_writes_itself_out(
    recipe: Path, machine: Path
) -> None:
    run = load_config(recipe, layers=[machine])

    assert parse_config(run.to_toml()) == run


def test_there_is_a_recipe_for_each_algorithm_and_a_machine_of_each_size() -> None:
    runs = [load_config(RECIPES[0], layers=[machine]) for machine in MACHINES]

    assert {file.stem for file in RECIPES} == {"gigpo", *BOTH}
    assert {run.resources.num_workers for run in runs} == {1, 2, 4, 8}
    assert sum("24gb" in machine.stem for machine in MACHINES) == 1


@pytest.mark.parametrize(("recipe", "machine"), list(product(RECIPES, MACHINES)), ids=stem)
def test_a_machine_changes_nothing_that_was_published_but_for_an_adapter(
    recipe: Path, machine: Path
) -> None:
    alone, on_machine = (
        values_of(load_config(recipe, layers=layers)) for layers in ([], [machine])
    )
    changed = {name for name in alone if alone[name] != on_machine[name]}
    of_an_adapter = on_machine["model.lora_rank"] != 0

    of_the_machine = {
        name
        for name in changed
        if name.partition(".")[0] in ("model", "engine", "resources", "checkpoint")
    }
    assert changed - of_the_machine <= (PUBLISHED_OF_ADAPTERS.keys() if of_an_adapter else set())
    if of_an_adapter:
        assert PUBLISHED_OF_ADAPTERS.items() <= on_machine.items(), LORA


@pytest.mark.parametrize("recipe", RECIPES, ids=stem)
def test_no_recipe_of_long_tasks_judges_by_fewer_than_128_tasks(recipe: Path) -> None:
    run = load_config(recipe)
    for split in (Split.VALIDATION, Split.TEST):
        tasks = task_panel(run, split).tasks

        assert len({task.task_id for task in tasks}) == len(tasks) >= 128
        assert len({task.goal for task in tasks}) >= 40  # not the same few goals again and again

    first = task_stream(run).next(run.tasks_per_training_step)
    assert len({task.task_id for task in first}) == run.tasks_per_training_step


@pytest.mark.parametrize(("recipe", "machine"), list(product(RECIPES, MACHINES)), ids=stem)
def test_what_is_in_flight_and_what_learns_fits_the_machine_s_own_choices(
    recipe: Path, machine: Path
) -> None:
    run = load_config(recipe, layers=[machine])
    engines = run.resources.num_workers // run.engine.tensor_parallel_size
    at_once = run.tasks_per_training_step * run.rollout.group_size

    assert run.model.dtype == "float32"
    assert run.engine.tensor_parallel_size == 1
    assert run.rollout.concurrent_episodes == run.environment.num_workers == at_once
    # No more places than episodes, and at most as many again for engines that get more than others.
    assert run.engine.max_sequences * engines <= 2 * max(256, at_once)
    assert run.optimizer.micro_batch_tokens >= (
        run.rollout.max_prompt_tokens + run.rollout.max_reply_tokens
    )
    assert (run.optimizer.rows == "merged") == (run.memory.kind == "full")
    assert run.rollout.reproducibility == "fast"


def test_scalinginter_is_grpo_with_another_horizon_schedule_and_nothing_else() -> None:
    grpo, scaling = (
        dotted(tomllib.loads((CONFIGS / "recipes" / f"{name}.toml").read_text(encoding="utf-8")))
        for name in BOTH
    )

    different = {
        name for name in grpo.keys() | scaling.keys() if grpo.get(name) != scaling.get(name)
    }
    assert different == {
        "name",
        "horizon_schedule.kind",
        "horizon_schedule.stages",
        "horizon_schedule.training_steps_per_stage",
    }


def test_sokoban_as_text_is_sokoban_as_a_picture_but_for_what_is_shown() -> None:
    text, picture = (
        dotted(tomllib.loads((CONFIGS / "environments" / f"{name}.toml").read_text("utf-8")))
        for name in ("sokoban", "sokoban-vision")
    )

    assert picture == text | {"environment.options.observation": "image"}


def laid_over(environment: Path, *overrides: str, machine: Path = MACHINES[0]) -> RunConfig:
    recipe = CONFIGS / "recipes" / f"{RECIPE_OF[environment.stem]}.toml"
    return load_config(recipe, overrides, layers=[environment, machine])


def test_each_environment_file_has_a_recipe() -> None:
    assert {file.stem for file in ENVIRONMENTS} == RECIPE_OF.keys()


@pytest.mark.parametrize(
    ("environment", "machine"), list(product(ENVIRONMENTS, MACHINES)), ids=stem
)
def test_every_environment_lies_between_its_recipe_and_every_machine(
    environment: Path, machine: Path
) -> None:
    run = laid_over(environment, machine=machine)
    at_once = run.tasks_per_training_step * run.rollout.group_size

    assert parse_config(run.to_toml()) == run
    assert run.environment.id != load_config(RECIPES[0]).environment.id
    assert run.rollout.concurrent_episodes == run.environment.num_workers == at_once


def test_agentgyms_babyai_is_played_with_the_same_prompt_without_its_server() -> None:
    file = CONFIGS / "environments" / "agentgym-babyai.toml"
    options = 'environment.options={form = "agentgym", levels = ["agentgym"]}'
    assert options in file.read_text("utf-8")
    (served,) = laid_over(file).played_environments
    (ours,) = laid_over(file, "environment.id=longhaul/BabyAI-v0", options).played_environments

    assert published_prompt(ours) == published_prompt(served)


@pytest.mark.parametrize("environment", ENVIRONMENTS, ids=stem)
def test_every_environment_file_has_its_authors_prompt_and_reads_what_that_asks_for(
    environment: Path,
) -> None:
    (entry,) = laid_over(environment).played_environments
    template = published_prompt(entry)
    asked = text_of(*template.system_messages(), template.user_message(Observation(text="")))

    (shown,) = {form for form, words in FORMS.items() if words in asked}
    assert entry.actions.format == shown


FORMS = {
    "tags": "within <action> </action> tags",
    "json": "be a valid",
    "react": "\nAction:",
    "longhaul_envs.published.replies:search_tags": "<search>",
    "longhaul_envs.published.replies:fenced": "inside triple backticks",
}
"""What prompts say of each form."""


def text_of(*messages: Message) -> str:
    return "\n".join(message.text for message in messages)


@pytest.mark.slow
@pytest.mark.parametrize("environment", ENVIRONMENTS, ids=stem)
def test_an_environment_file_has_tasks_for_its_panels_without_a_download(environment: Path) -> None:
    """With what is packaged, where the authors' data is fetched by the user."""
    made = ["environment.options={ games = 'generated' }"] if environment.stem == "alfworld" else []
    run = laid_over(environment, *made)
    try:
        for split in (Split.VALIDATION, Split.TEST):
            tasks = task_panel(run, split).tasks
            assert len({task.task_id for task in tasks}) == len(tasks)
            assert len(tasks) >= FEW_TASKS.get(environment.stem, 128)
        assert task_stream(run).next(run.tasks_per_training_step)
    except ConfigError as problem:
        pytest.skip(str(problem))
