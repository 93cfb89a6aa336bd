"""The recipes of `configs/recipes` over every machine of `configs/machines`, and their sources."""

import tomllib
from itertools import product
from pathlib import Path
from typing import NamedTuple

import pytest

from longhaul_core.errors import ConfigError
from longhaul_core.types import Split
from longhaul_trainer.config import RunConfig, load_config, parse_config
from longhaul_trainer.config.run import dotted
from longhaul_trainer.environments import task_panel, task_stream

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
    "scienceworld": "scalinginter",
}

VERL_AGENT = "verl-agent, examples/gigpo_trainer/run_alfworld.sh"
AGENTGYM_RL = "AgentGym-RL, examples/train/{AgentGym-RL,ScalingInter-RL}/textcraft_train.sh"
BOTH = ("grpo", "scalinginter")


class Published(NamedTuple):
    """One number of an author's script, in its words and in ours."""

    source: str
    theirs: str
    recipes: tuple[str, ...]
    setting: str
    ours: object


PUBLISHED = [
    *(
        Published(VERL_AGENT, theirs, ("gigpo",), setting, ours)
        for theirs, setting, ours in (
            ("trainer.total_epochs=150, one training step each", "num_training_steps", 150),
            ("data.train_batch_size=16", "tasks_per_training_step", 16),
            ("env.rollout.n=8", "rollout.group_size", 8),
            ("env.max_steps=50", "rollout.horizon", 50),
            ("env.history_length=2", "memory.size", 2),
            ("data.max_prompt_length=2048", "rollout.max_prompt_tokens", 2048),
            ("data.max_response_length=512", "rollout.max_reply_tokens", 512),
            ("actor_rollout_ref.rollout.temperature=1.0", "rollout.temperature", 1.0),
            ("algorithm.adv_estimator=gigpo", "algorithm.name", "gigpo"),
            ("algorithm.gamma=0.95", "algorithm.discount", 0.95),
            ("algorithm.gigpo.step_advantage_w=1.0", "algorithm.step_advantage_weight", 1.0),
            ("algorithm.gigpo.mode=mean_std_norm", "algorithm.scale_by_std", True),
            ("invalid_action_penalty_coef=0.1 of 10", "algorithm.invalid_action_penalty", 0.01),
            ("loss_agg_mode=token-mean", "algorithm.loss_unit", "token"),
            ("clip_ratio=0.2", "loss.clip_low", 0.2),
            ("clip_ratio=0.2", "loss.clip_high", 0.2),
            ("clip_ratio_c=3.0", "loss.dual_clip", 3.0),
            ("kl_loss_coef=0.01", "loss.kl_coefficient", 0.01),
            ("kl_loss_type=low_var_kl", "loss.kl_kind", "k3"),
            ("entropy_coeff=0.001", "loss.entropy_coefficient", 0.001),
            ("optim.lr=1e-6", "optimizer.learning_rate", 1e-6),
            ("val_data_size=128", "validation.num_tasks", 128),
            ("trainer.test_freq=5", "validation.every", 5),
            ("val_kwargs.temperature=0.4, do_sample=True", "validation.temperature", 0.4),
            ("val_kwargs.n=1", "validation.samples_per_task", 1),
        )
    ),
    *(
        Published(AGENTGYM_RL, theirs, recipes, setting, ours)
        for theirs, recipes, setting, ours in (
            ("total_epoches=30 of 374 // 32 steps", BOTH, "num_training_steps", 30 * (374 // 32)),
            ("data.train_batch_size=32", BOTH, "tasks_per_training_step", 32),
            ("actor_rollout_ref.rollout.n=8", BOTH, "rollout.group_size", 8),
            ("rounds_ctrl.rounds=30, or [10,20,30]", BOTH, "rollout.horizon", 30),
            ("rounds_ctrl.type=fixed", ("grpo",), "horizon_schedule.kind", "fixed"),
            (
                "rounds_ctrl.type=scaling_inter_stepwise",
                ("scalinginter",),
                "horizon_schedule.kind",
                "stepwise",
            ),
            (
                "rounds_ctrl.rounds=[10,20,30]",
                ("scalinginter",),
                "horizon_schedule.stages",
                (10, 20, 30),
            ),
            (
                "rounds_ctrl.steps_scaling_inter=100",
                ("scalinginter",),
                "horizon_schedule.training_steps_per_stage",
                100,
            ),
            ("one chat, with mask", BOTH, "memory.kind", "full"),
            ("one chat, with mask", BOTH, "optimizer.rows", "merged"),
            (
                "512 + 10240 tokens of prompt and responses",
                BOTH,
                "rollout.max_prompt_tokens",
                512 + 10240 - 512,
            ),
            ("actor_rollout_ref.rollout.max_tokens=512", BOTH, "rollout.max_reply_tokens", 512),
            ("actor_rollout_ref.rollout.temperature=1.0", BOTH, "rollout.temperature", 1.0),
            ("algorithm.adv_estimator=grpo", BOTH, "algorithm.name", "grpo"),
            ("algorithm.gamma=1.0", BOTH, "algorithm.discount", 1.0),
            ("clip_ratio=0.2", BOTH, "loss.clip_low", 0.2),
            ("clip_ratio=0.2", BOTH, "loss.clip_high", 0.2),
            ("actor_rollout_ref.actor.kl_loss_coef=0.001", BOTH, "loss.kl_coefficient", 0.001),
            ("kl_loss_type=low_var_kl", BOTH, "loss.kl_kind", "k3"),
            ("entropy_coeff=0.001", BOTH, "loss.entropy_coefficient", 0.001),
            ("actor_rollout_ref.actor.optim.lr=1e-6", BOTH, "optimizer.learning_rate", 1e-6),
            (
                "ppo_mini_batch_size=8 of 32",
                BOTH,
                "optimizer.optimizer_steps_per_training_step",
                32 // 8,
            ),
            ("trainer.save_freq=25", BOTH, "checkpoint.every", 25),
            ("generation.yaml: temperature 1.0", BOTH, "validation.temperature", 1.0),
            ("generation.yaml: n_samples 1", BOTH, "validation.samples_per_task", 1),
        )
    ),
]
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


@pytest.mark.parametrize("row", PUBLISHED, ids=lambda row: f"{row.recipes[0]}-{row.setting}")
def test_a_published_number_is_what_the_recipe_says(row: Published) -> None:
    for name in row.recipes:
        run = load_config(CONFIGS / "recipes" / f"{name}.toml")
        assert values_of(run)[row.setting] == row.ours, f"{row.source}: {row.theirs}"


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
    assert (run.prompt.instruction_place, run.rollout.reproducibility) == ("system", "fast")


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


OF_ENVIRONMENTS = {
    "alfworld": {
        "tasks_per_training_step": 16,
        "rollout.group_size": 8,
        "rollout.horizon": 50,
        "rollout.max_prompt_tokens": 2048,
        "algorithm.scale_by_std": True,
        "algorithm.discount": 0.95,
    },
    "webshop": {
        "tasks_per_training_step": 16,
        "rollout.group_size": 8,
        "rollout.horizon": 15,
        "rollout.max_prompt_tokens": 4096,
        "algorithm.scale_by_std": False,
        "algorithm.invalid_action_penalty": 0.01,  # 0.1 of 10
    },
    "sokoban": {
        "tasks_per_training_step": 32,
        "rollout.horizon": 15,
        "rollout.max_prompt_tokens": 1024,
        "algorithm.scale_by_std": False,
    },
    "sokoban-vision": {
        "tasks_per_training_step": 32,
        "rollout.group_size": 8,
        "rollout.horizon": 15,
        "rollout.max_prompt_tokens": 1024,
        "rollout.max_reply_tokens": 512,
        "environment.options.observation": "image",  # rgb_array
        "algorithm.scale_by_std": False,
        "algorithm.discount": 0.95,
        "loss.kl_coefficient": 0.01,
        "optimizer.learning_rate": 1e-6,
    },
    "search": {
        "tasks_per_training_step": 256,
        "rollout.group_size": 5,
        "rollout.horizon": 4,
        "rollout.max_prompt_tokens": 4096,
        "memory.size": 4,
        "loss.kl_coefficient": 0.001,
        "algorithm.anchor_similarity": 0.9,
        "algorithm.invalid_action_penalty": 0.01,  # of 1
    },
    "scienceworld": {
        "tasks_per_training_step": 16,
        "rollout.group_size": 8,
        "rollout.horizon": 30,
        "optimizer.optimizer_steps_per_training_step": 2,
        "loss.kl_coefficient": 0.001,
    },
}
"""Published settings, by the file of the environment."""


def laid_over(environment: Path, *overrides: str, machine: Path = MACHINES[0]) -> RunConfig:
    recipe = CONFIGS / "recipes" / f"{RECIPE_OF[environment.stem]}.toml"
    return load_config(recipe, overrides, layers=[environment, machine])


def test_each_environment_file_has_a_recipe_and_its_published_settings() -> None:
    assert {file.stem for file in ENVIRONMENTS} == RECIPE_OF.keys() == OF_ENVIRONMENTS.keys()


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


@pytest.mark.parametrize("environment", ENVIRONMENTS, ids=stem)
def test_an_environment_file_has_its_authors_settings(environment: Path) -> None:
    values = values_of(laid_over(environment))

    assert {name: values[name] for name in OF_ENVIRONMENTS[environment.stem]} == OF_ENVIRONMENTS[
        environment.stem
    ]


@pytest.mark.slow
@pytest.mark.parametrize("environment", ENVIRONMENTS, ids=stem)
def test_an_environment_file_has_tasks_for_its_panels_without_a_download(environment: Path) -> None:
    """With what is packaged, where the authors' data is fetched by the user."""
    made = ["environment.options={ games = 'generated' }"] if environment.stem == "alfworld" else []
    run = laid_over(environment, *made)
    try:
        for split in (Split.VALIDATION, Split.TEST):
            tasks = task_panel(run, split).tasks
            assert len({task.task_id for task in tasks}) == len(tasks) >= 128
        assert task_stream(run).next(run.tasks_per_training_step)
    except ConfigError as problem:
        pytest.skip(str(problem))
