"""Tests for `longhaul_trainer.config.run` and its sections."""

import pickle
import tomllib
from pathlib import Path
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from longhaul_core.advantages.estimators import ESTIMATORS
from longhaul_trainer.config import RunConfig, load_config, parse_config
from longhaul_trainer.config.agent_loops import episodes_at_once
from longhaul_trainer.config.estimator_settings import EstimatorSettings
from longhaul_trainer.config.fields import config_fields
from longhaul_trainer.config.learning import AlgorithmConfig
from longhaul_trainer.config.load import Description, read_text
from longhaul_trainer.config.run import dotted
from longhaul_trainer.config.section import Conflicts
from longhaul_trainer.config.toml import to_toml
from longhaul_trainer.config.trainer import TrainerConfig
from longhaul_trainer.losses.registry import LOSSES

CONFIGS = Path(__file__).parents[3] / "configs"
ALGORITHMS = sorted((CONFIGS / "algorithms").glob("*.toml"))
RECIPES = sorted((CONFIGS / "recipes").glob("*.toml"))
MACHINES = sorted((CONFIGS / "machines").glob("*.toml"))
GIGPO = CONFIGS / "recipes" / "gigpo.toml"
SMALLEST: dict[str, object] = {"num_training_steps": 10, "tasks_per_training_step": 4}

OVERLONG: dict[str, object] = {
    "overlong_penalty": 1.0,
    "overlong_start_tokens": 32,
    "overlong_end_tokens": 64,
}


PROGRAM: dict[str, object] = {"kind": "function", "function": "my_agent:play"}


@pytest.mark.parametrize("file", [CONFIGS / "smoke.toml", *RECIPES], ids=lambda file: file.stem)
def test_every_recipe_describes_a_run(file: Path) -> None:
    config = load_config(file)

    assert parse_config(config.to_toml()) == config


@pytest.mark.parametrize("file", ALGORITHMS, ids=lambda file: file.stem)
def test_every_algorithm_lies_over_a_recipe_on_every_machine(file: Path) -> None:
    """Nothing of a recipe or machine is left over that contradicts it, or changes it."""
    algorithm = tomllib.loads(file.read_text(encoding="utf-8"))
    trained = [load_config(GIGPO, layers=[machine, file]) for machine in MACHINES]

    assert len(trained) >= 6
    for section in ("algorithm", "loss"):
        (config, *others) = [run.model_dump(include={section})[section] for run in trained]
        assert algorithm[section].items() <= config.items()
        assert all(config == other for other in others)
    penalty = load_config(GIGPO).algorithm.invalid_action_penalty
    for run in trained:
        assert run.algorithm.name == algorithm["algorithm"]["name"]
        assert run.algorithm.invalid_action_penalty == penalty  # of the environment's success


@pytest.mark.parametrize("file", ALGORITHMS, ids=lambda file: file.stem)
def test_the_algorithm_of_a_recipe_below_leaves_only_what_is_the_environments(
    file: Path, tmp_path: Path
) -> None:
    described = tomllib.loads(GIGPO.read_text(encoding="utf-8"))
    own = {name: described.pop(name) for name in ("algorithm", "loss")}
    bare = tmp_path / "bare.toml"
    bare.write_text(to_toml(described), encoding="utf-8")

    over_bare, over_base = (load_config(below, layers=[file]) for below in (bare, GIGPO))

    assert own["loss"]["entropy_coefficient"] != 0
    assert over_bare.loss == over_base.loss
    assert (
        over_bare.algorithm.model_copy(
            update={"invalid_action_penalty": over_base.algorithm.invalid_action_penalty}
        )
        == over_base.algorithm
    )


def test_there_is_a_file_for_every_estimator_and_every_loss() -> None:
    found = [tomllib.loads(file.read_text(encoding="utf-8")) for file in ALGORITHMS]

    assert {one["algorithm"]["name"] for one in found} == set(ESTIMATORS)
    assert {one["loss"]["kind"] for one in found} == set(LOSSES) - {"nll"}  # of imitation


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        (
            {"tasks_per_training_step": 6, "optimizer": {"optimizer_steps_per_training_step": 4}},
            "tasks_per_training_step = 6 cannot be split into "
            "optimizer.optimizer_steps_per_training_step = 4 equal parts (6 mod 4 = 2)",
        ),
        (
            {"memory": {"kind": "summary", "max_summary_tokens": 65}},
            "memory.max_summary_tokens = 65 is more than rollout.max_reply_tokens = 64",
        ),
        (
            {
                "environments": [
                    {"id": "one/One-v0"},
                    {
                        "id": "two/Two-v0",
                        "memory": {"kind": "summary", "max_summary_tokens": 65},
                    },
                ]
            },
            "memory.max_summary_tokens = 65 is more than rollout.max_reply_tokens = 64",
        ),
        (
            {"memory": {"max_tokens": 513}},
            "memory.max_tokens = 513 is more than rollout.max_prompt_tokens = 512, which bounds "
            "every prompt; lower it to that, or leave it out",
        ),
        (
            {
                "trainer": {"mode": "colocate_async", "prefetch_batches": 1, "max_staleness": 1},
                "sampling": {"extra_tasks": 2},
            },
            'sampling.extra_tasks = 2 with trainer.mode = "colocate_async", where an update does',
        ),
        (
            {"trainer": {"max_staleness": 1}},
            'trainer.max_staleness = 1 with trainer.mode = "sync", where no group waits',
        ),
        (
            {
                "rollout": {
                    "max_prompt_tokens": 512,
                    "max_reply_tokens": 64,
                    "max_episode_tokens": 500,
                }
            },
            "rollout.max_episode_tokens = 500 is less than one full call, "
            "rollout.max_prompt_tokens + rollout.max_reply_tokens = 512 + 64 = 576",
        ),
        (
            {"optimizer": {"micro_batch_tokens": 575}},
            "optimizer.micro_batch_tokens = 575 is less than one full row, "
            "rollout.max_prompt_tokens + rollout.max_reply_tokens = 512 + 64 = 576",
        ),
        (
            {"horizon_schedule": {"kind": "stepwise"}},
            "stages must hold at least 1 horizon, got none",
        ),
        (
            {"horizon_schedule": {"kind": "success_gated", "stages": [5, 20, 10]}},
            "stages must rise, got 10 after 20",
        ),
        (
            {
                "rollout": {"horizon": 20},
                "horizon_schedule": {"kind": "stepwise", "stages": [10, 30]},
            },
            "horizon_schedule.stages end at 30 and rollout.horizon = 20",
        ),
        (
            {"rollout": {"horizon": 20}, "horizon_schedule": {"kind": "linear", "start": 20}},
            "horizon_schedule.start = 20 must be less than rollout.horizon = 20",
        ),
        (
            {"engine": {"tensor_parallel_size": 2}, "resources": {"num_workers": 3}},
            "engine.tensor_parallel_size = 2 does not divide resources.num_workers = 3",
        ),
        (
            {
                "rollout": {"agent_loops": 4, "concurrent_episodes": 3},
                "environment": {"num_workers": 6},
            },
            "rollout.agent_loops = 4: each plays a share of rollout.concurrent_episodes = 3 in a "
            "share of environment.num_workers = 6, at least one; ask for 1 to 3",
        ),
        (
            {"engine": {"max_sequences": 64, "max_batched_tokens": 63}},
            "engine.max_batched_tokens = 63 is less than engine.max_sequences = 64",
        ),
        ({"resources": {"num_nodes": 2}}, "resources.num_nodes = 2 needs resources.ray_address"),
        (
            {"resources": {"ray_address": "ray://head:10001"}},
            'ray_address = "ray://head:10001" is of a Ray client',
        ),
        (
            {"rollout": {"max_retries": 0}},
            'rollout.on_failure = "retry" with rollout.max_retries = 0',
        ),
        (
            {"actions": {"format": "plain", "require_thinking": True}},
            'actions.require_thinking = true needs actions.format = "tags", got actions.format',
        ),
        (
            {
                "algorithm": {
                    "name": "graphgpo",
                    "step_advantage_weight": 0.0,
                    "episode_advantage_weight": 0.0,
                }
            },
            "algorithm.step_advantage_weight = 0 and algorithm.episode_advantage_weight = 0 leave",
        ),
        (
            {"algorithm": {"name": "drgrpo", "loss_unit": "episode"}},
            'algorithm.loss_unit = "episode" divides by lengths that algorithm.name = "drgrpo" '
            "leaves",
        ),
        (
            {"algorithm": {"name": "rloo", "invalid_action_penalty": 0.1}},
            'invalid_action_penalty_on = "action" is not defined for algorithm.name = "rloo"; ',
        ),
        (
            {
                "algorithm": {
                    "name": "grpo",
                    "baseline_per_agent": True,
                    "invalid_action_penalty": 0.1,
                }
            },
            '"grpo" with algorithm.baseline_per_agent = true; set algorithm.invalid_action_penalty',
        ),
        (
            {"algorithm": {"loss_unit": "fixed_token"}},
            'algorithm.loss_unit = "fixed_token" needs algorithm.tokens_per_episode',
        ),
        (
            {
                "algorithm": {"loss_unit": "fixed_token", "tokens_per_episode": 9},
                "loss": {"purposes": {"act": 1.0}},
            },
            'algorithm.loss_unit = "fixed_token" divides the tokens of every purpose by algorithm',
        ),
        (
            {"loss": {"purposes": {"remember": 0.3, "plan": 0.1}}},
            "loss.purposes names remember, plan, and not act, the purpose of the calls that choose",
        ),
        (
            {"algorithm": {"name": "pass_at_k", "pass_k": 9}},
            "algorithm.pass_k = 9 is more than rollout.group_size = 8",
        ),
        (
            {"rollout": {"group_size": 1}},
            'rollout.group_size = 1 leaves nothing to compare to algorithm.name = "gigpo"',
        ),
        (
            {"algorithm": {"name": "gae"}, "critic": {"warmup_training_steps": 99}},
            "critic.warmup_training_steps = 99 leaves none of num_training_steps = ",
        ),
        (
            {"algorithm": {"name": "remax", "reward_kl_coefficient": 0.1}},
            'algorithm.reward_kl_coefficient = 0.1 with algorithm.name = "remax" needs the',
        ),
        ({"loss": {"dual_clip": None}}, 'loss.kind = "ppo" needs loss.dual_clip, got none'),
        (
            {"algorithm": {"overlong_penalty": 1.0, "overlong_end_tokens": 8}},
            "algorithm.overlong_penalty = 1 needs algorithm.overlong_start_tokens and algorithm.o",
        ),
        (
            {"algorithm": OVERLONG | {"overlong_start_tokens": 64}},
            "algorithm.overlong_start_tokens = 64 must be less than "
            "algorithm.overlong_end_tokens = 64",
        ),
        (
            {"algorithm": OVERLONG, "rollout": {"max_reply_tokens": 63}},
            "algorithm.overlong_end_tokens = 64 is more than rollout.max_reply_tokens = 63",
        ),
        (
            {
                "algorithm": OVERLONG | {"overlong_unit": "episode"},
                "rollout": {"max_reply_tokens": 21, "horizon": 3},
            },
            "algorithm.overlong_end_tokens = 64 is more than "
            "rollout.horizon * rollout.max_reply_tokens = 63",
        ),
        (
            {"actions": {"require_thinking": True}, "prompt": {"reply_prefix": "<action>"}},
            "prompt.reply_prefix = '<action>' opens the action before",
        ),
        (
            {"algorithm": {"baseline_per_agent": True}},
            'agent.kind = "single_call" has one agent',
        ),
        (
            {"agent": {"kind": "plan_then_act"}, "algorithm": {"baseline_per_agent": True}},
            'agent.kind = "plan_then_act" has steps of two agents',
        ),
        (
            {"agent": {"kind": "plan_then_act"}, "algorithm": {"name": "gae"}},
            'agent.kind = "plan_then_act" with a critic (algorithm.name = "gae")',
        ),
        ({"agent": {"kind": "command"}}, 'agent.kind = "command" needs agent.command, and got'),
        (
            {
                "agent": {
                    "kind": "function",
                    "function": "m:f",
                    "model_names": ["gpt-4o", "judge"],
                    "upstreams": {"judge": {"url": "http://127.0.0.1:1", "model": "m"}},
                }
            },
            "agent.model_names has 'judge', which is that of agent.upstreams.judge",
        ),
        (
            {"agent": {"kind": "single_call", "model_names": ["gpt-4o"]}},
            'agent.model_names = ["gpt-4o"] means nothing to agent.kind = "single_call"',
        ),
        (
            {"agent": {"command": ["bash", "agent.sh"]}},
            'agent.command = ["bash", "agent.sh"] means nothing to agent.kind = "single_call"',
        ),
        (
            {"agent": PROGRAM | {"max_processes": 4}},
            'agent.max_processes = 4 means nothing to agent.kind = "function"',
        ),
        ({"agent": PROGRAM, "memory": {"kind": "full"}}, 'memory with agent.kind = "function"'),
        (
            {"agent": PROGRAM, "tasks": {"source": "a.jsonl"}, "environment": {"num_workers": 2}},
            'environment with agent.kind = "function" and tasks.source: nothing reads them',
        ),
        (
            {"tasks": {"source": "a.jsonl"}},
            'tasks.source = "a.jsonl" with agent.kind = "single_call"',
        ),
        (
            {"model": {"lora_rank": 4, "lora_target_modules": ["all-linear", "q_proj"]}},
            '"all-linear" is every linear layer; name it alone, or name layers',
        ),
        (
            {"validation": {"samples_per_task": 4}},
            "validation.samples_per_task = 4 with validation.temperature = 0 would play one greedy",
        ),
        (
            {"checkpoint": {"optimizer": False, "huggingface": False}},
            "checkpoint.optimizer = false and checkpoint.huggingface = false leave nothing",
        ),
    ],
)
def test_parts_that_contradict_each_other_are_told_with_both_names_and_the_arithmetic(
    sections: dict[str, object], message: str
) -> None:
    with pytest.raises(ValidationError) as raised:
        RunConfig.model_validate(SMALLEST | sections)

    assert message in str(raised.value)


STAYS = ("optimizer.rows =", "optimizer.max_row_tokens = 577", "optimizer.warmup_training_steps =")
"""How remarks begin of settings that are read and do nothing."""


def parse_description(table: dict[str, object]) -> Description:
    return read_text(to_toml(table))


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        (
            {"memory": {"summarize_every": 3}},
            'memory.summarize_every = 3 means nothing to memory.kind = "window"; it is for summary',
        ),
        (
            {"memory": {"kind": "full", "max_summary_tokens": 9}},
            'memory.max_summary_tokens = 9 means nothing to memory.kind = "full"',
        ),
        (
            {"memory": {"kind": "none", "train_summaries": True}},
            'memory.train_summaries = true means nothing to memory.kind = "none"',
        ),
        (
            {"memory": {"max_earlier": 2}},
            'memory.max_earlier = 2 means nothing to memory.kind = "window"; it is for key_events '
            "and recall",
        ),
        (
            {"memory": {"kind": "none", "max_tokens": 9}},
            'memory.max_tokens = 9 means nothing to memory.kind = "none", which shows no exchange',
        ),
        (
            {"retention": {"sampled_groups": 2}},
            "retention.sampled_groups = 2 means nothing without retention.full_",
        ),
        (
            {"sampling": {"max_refills": 5}},
            "sampling.max_refills = 5 means nothing to sampling.dynamic = false",
        ),
        (
            {"optimizer": {"rows": "merged"}},
            'optimizer.rows = "merged" merges nothing with memory.kind = "window"',
        ),
        (
            {"optimizer": {"max_row_tokens": 300}},
            'optimizer.max_row_tokens = 300 means nothing to optimizer.rows = "step"',
        ),
        (
            {"memory": {"kind": "full"}, "optimizer": {"rows": "merged", "max_row_tokens": 577}},
            "optimizer.max_row_tokens = 577 is more than any row can have",
        ),
        (
            {"optimizer": {"warmup_training_steps": 11}},
            "optimizer.warmup_training_steps = 11 is more than num_training_steps = 10",
        ),
        (
            {"horizon_schedule": {"stages": [5, 20]}},
            'horizon_schedule.stages = [5, 20] means nothing to horizon_schedule.kind = "fixed"',
        ),
        (
            {"algorithm": {"name": "rloo", "statistics": "row"}},
            'algorithm.statistics = "row" means nothing to algorithm.name = "rloo"; it is for '
            "gigpo, ",
        ),
        (
            {"algorithm": {"name": "reinforce_plus_plus", "scale_by_std": False}},
            "algorithm.scale_by_std = false means nothing to algorithm.name = "
            '"reinforce_plus_plus"',
        ),
        (
            {"algorithm": {"name": "gae", "scale_by_std": False}},
            'algorithm.scale_by_std = false means nothing to algorithm.name = "gae"',
        ),
        (
            {"algorithm": {"name": "grpo", "pass_k": 4}},
            'algorithm.pass_k = 4 means nothing to algorithm.name = "grpo"; it is for pass_at_k',
        ),
        (
            {"algorithm": {"anchor_similarity": 0.9, "name": "hgpo"}},
            'algorithm.anchor_similarity = 0.9 means nothing to algorithm.name = "hgpo"; it is '
            "for gigpo, graphgpo",
        ),
        (
            {"algorithm": {"distance_decay": 0.5}},
            'algorithm.distance_decay = 0.5 means nothing to algorithm.name = "gigpo"; it is for '
            "graphgpo",
        ),
        (
            {"algorithm": {"episode_advantage_weight": 0.5}},
            'algorithm.episode_advantage_weight = 0.5 means nothing to algorithm.name = "gigpo"; '
            "it is for graphgpo",
        ),
        (
            {"algorithm": {"tokens_per_episode": 100}},
            "algorithm.tokens_per_episode = 100 means nothing to algorithm.loss_unit = ",
        ),
        (
            {"critic": {"learning_rate": 0.1}},
            'critic.learning_rate = 0.1 means nothing to algorithm.name = "gigpo"',
        ),
        (
            {"algorithm": {"gae_lambda": 0.5}},
            'algorithm.gae_lambda = 0.5 means nothing to algorithm.name = "gigpo"; it is for gae',
        ),
        (
            {"algorithm": {"name": "gae", "statistics": "row"}},
            'algorithm.statistics = "row" means nothing to algorithm.name = "gae"',
        ),
        (
            {"loss": {"kind": "gspo", "dual_clip": 3.0}},
            'loss.dual_clip = 3.0 means nothing to loss.kind = "gspo"; it is for ppo',
        ),
        (
            {"algorithm": {"overlong_start_tokens": 4, "overlong_end_tokens": 8}},
            "algorithm.overlong_end_tokens = 8 means nothing to algorithm.overlong_penalty = 0",
        ),
        (
            {"model": {"lora_alpha": 16}},
            "model.lora_alpha = 16 means nothing to model.lora_rank = 0, which trains every weight",
        ),
        (
            {"model": {"lora_target_modules": ["q_proj"]}},
            'model.lora_target_modules = ["q_proj"] means nothing to model.lora_rank = 0',
        ),
    ],
)
def test_a_setting_that_means_nothing_beside_the_others_is_a_remark(
    sections: dict[str, object], message: str
) -> None:
    """A sweep over names and kinds keeps the settings of all of them, and nothing reads them."""
    described = parse_description(SMALLEST | sections)

    assert any(remark.startswith(message) for remark in described.remarks)
    assert not parse_description(SMALLEST).remarks
    read = described.run()
    assert parse_config(read.to_toml()) == read
    left = list(read.all_remarks())
    assert all(remark.startswith(STAYS) for remark in left)
    assert len(left) < len(described.remarks) or message.startswith(STAYS)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_every_estimator_takes_its_defaults_written_out(name: str) -> None:
    config = RunConfig.model_validate(SMALLEST | {"algorithm": {"name": name}})

    assert parse_config(config.to_toml()) == config


@pytest.mark.parametrize(
    "algorithm",
    [
        {"name": "drgrpo", "scale_by_std": False},
        {"name": "rloo", "scale_by_std": False, "loss_unit": "episode"},
        {"name": "drgrpo", "loss_unit": "fixed_token", "tokens_per_episode": 1000},
        {"name": "pass_at_k", "pass_k": 8},
        {"name": "gigpo", "anchor_similarity": 0.9, "step_advantage_weight": 0.0},
        {"name": "hgpo", "history_length": 0, "history_weight_exponent": 0.0},
        {"name": "graphgpo", "distance_form": "progress", "episode_advantage_weight": 0.0},
        {"name": "reinforce_plus_plus_baseline", "whiten": "episode"},
    ],
    ids=str,
)
def test_settings_that_an_estimator_reads_are_taken(algorithm: dict[str, object]) -> None:
    config = RunConfig.model_validate(SMALLEST | {"algorithm": algorithm})

    assert algorithm.items() <= config.algorithm.model_dump().items()


def test_every_setting_of_estimators_is_read_by_one_and_none_reads_what_is_not_there() -> None:
    settings = EstimatorSettings.model_fields.keys() - {"name", "discount", "options"}

    assert {field for entry in ESTIMATORS.values() for field in entry.reads} == settings


@pytest.mark.parametrize("name", ESTIMATORS)
def test_an_estimator_remarks_what_it_does_not_read(name: str) -> None:
    changed: dict[str, object] = {
        "scale_by_std": False,
        "statistics": "row",
        "step_advantage_weight": 2.0,
        "episode_advantage_weight": 2.0,
        "anchor_similarity": 0.5,
        "distance_decay": 0.2,
        "distance_form": "progress",
        "history_length": 1,
        "history_weight_exponent": 0.0,
        "history_form": "code",
        "whiten": "episode",
        "gae_level": "token",
        "gae_lambda": 0.5,
        "pass_k": 2,
        "options": {"mine": 1},
    }
    remarked: list[str] = []
    for field, value in changed.items():
        table = {"name": name, field: value} | ({"pass_k": 2} if name == "pass_at_k" else {})
        algorithm = AlgorithmConfig.model_validate(table, context=Conflicts())
        remarked += [field for remark in algorithm.remarks() if remark.field == field]

    assert remarked == [field for field in changed if field not in ESTIMATORS[name].reads]


def test_an_estimator_of_ones_own_gets_every_setting_and_a_free_table() -> None:
    table: dict[str, object] = {"name": "mine:advantages", "pass_k": 2, "options": {"alpha": [1.5]}}

    config = RunConfig.model_validate(SMALLEST | {"algorithm": table})

    assert config.algorithm.options == {"alpha": [1.5]}
    assert parse_config(config.to_toml()) == config
    assert config.algorithm.compares_episodes
    assert not config.algorithm.uses_critic
    assert not config.algorithm.needs_greedy_episode


@pytest.mark.parametrize(
    "sections",
    [
        {"memory": {"kind": "mine:Chat"}},
        {"agent": {"kind": "mine:Turns"}},
        {"environments": [{"id": "a/A-v0"}, {"id": "b/B-v0", "memory": {"kind": "mine:Chat"}}]},
    ],
)
def test_rows_of_parts_of_ones_own_may_be_merged(sections: dict[str, object]) -> None:
    """Whether their prompts repeat earlier replies is known when there are tokens."""
    run = RunConfig.model_validate(SMALLEST | sections | {"optimizer": {"rows": "merged"}})

    assert run.optimizer.rows == "merged"


@pytest.mark.parametrize(
    "sections",
    [
        {"agent": {"kind": "plan_then_act"}},
        {"memory": {"kind": "summary", "train_summaries": True}},
    ],
)
def test_a_step_of_several_trained_calls_may_be_longer_than_one_reply(
    sections: dict[str, object],
) -> None:
    run = RunConfig.model_validate(
        SMALLEST | sections | {"algorithm": OVERLONG, "rollout": {"max_reply_tokens": 63}}
    )

    assert run.algorithm.overlong_end_tokens == 64


def test_contradictions_of_a_run_are_told_together() -> None:
    sections = {
        "optimizer": {"micro_batch_tokens": 1},
        "horizon_schedule": {"kind": "linear", "start": 999},
    }

    with pytest.raises(ValidationError) as raised:
        RunConfig.model_validate(SMALLEST | sections)

    assert "horizon_schedule.start = 999" in str(raised.value)
    assert "micro_batch_tokens = 1 " in str(raised.value)


def test_groups_may_wait_where_more_are_played_than_an_update_takes() -> None:
    for sampling in ({"dynamic": True, "max_refills": 5}, {"extra_tasks": 1}):
        table = SMALLEST | {"sampling": sampling, "trainer": {"max_staleness": 2}}
        assert RunConfig.model_validate(table).sampling.chooses


@pytest.mark.parametrize("name", ["remax", "gae", "reinforce_plus_plus"])
def test_where_no_episodes_of_a_group_are_compared_one_is_enough_and_none_is_left_out(
    name: str,
) -> None:
    alone = SMALLEST | {"algorithm": {"name": name}, "rollout": {"group_size": 1}}
    assert RunConfig.model_validate(alone).rollout.group_size == 1

    for sampling in ({"dynamic": True}, {"extra_tasks": 1}):
        with pytest.raises(ValidationError, match=f'"{name}", which compares no episodes of a'):
            RunConfig.model_validate(alone | {"sampling": sampling})


def test_what_just_fits_is_accepted() -> None:
    config = RunConfig.model_validate(
        SMALLEST
        | {
            "rollout": {"max_episode_tokens": 576},
            "algorithm": OVERLONG,
            "optimizer": {
                "micro_batch_tokens": 576,
                "warmup_training_steps": 10,
                "optimizer_steps_per_training_step": 4,
            },
        }
    )

    assert config.rollout.max_episode_tokens == 576


@pytest.mark.parametrize(
    ("kind", "clipping"),
    [("ppo", (0.2, 0.2, 3.0)), ("gspo", (3e-4, 4e-4, None)), ("cispo", (1.0, 4.0, None))],
)
def test_a_kind_of_loss_brings_its_own_clip_range(
    kind: str, clipping: tuple[float, float, float | None]
) -> None:
    config = RunConfig.model_validate(SMALLEST | {"loss": {"kind": kind}})

    assert (config.loss.clip_low, config.loss.clip_high, config.loss.dual_clip) == clipping
    assert parse_config(config.to_toml()) == config


def test_a_clip_range_that_is_given_stays() -> None:
    config = RunConfig.model_validate(SMALLEST | {"loss": {"kind": "gspo", "clip_low": 0.1}})

    assert (config.loss.clip_low, config.loss.clip_high) == (0.1, 4e-4)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("gepo", "one of cispo, gspo, nll, ppo, or package.module:name"),
        (3, "valid string"),
        (["ppo"], "valid string"),
    ],
)
def test_an_unknown_kind_of_loss_is_refused(kind: object, message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        RunConfig.model_validate(SMALLEST | {"loss": {"kind": kind}})


def test_a_loss_of_ones_own_has_a_free_table_and_no_setting_of_another() -> None:
    table: dict[str, object] = {"kind": "mine:loss", "options": {"bound": 1.5}}

    config = RunConfig.model_validate(SMALLEST | {"loss": table})

    assert (config.loss.options, config.loss.clip_low) == ({"bound": 1.5}, None)
    assert parse_config(config.to_toml()) == config
    for loss, remark in (
        (table | {"clip_low": 0.1}, 'loss.clip_low = 0.1 means nothing to loss.kind = "mine:loss"'),
        ({"options": {"bound": 1.5}}, 'loss.options = … means nothing to loss.kind = "ppo"'),
    ):
        (found,) = RunConfig.model_validate(SMALLEST | {"loss": loss}).all_remarks()
        assert found.startswith(remark)


@pytest.mark.parametrize(
    ("further", "unused"),
    [
        ({}, ["plan", "remember"]),
        ({"agent": {"kind": "plan_then_act"}, "memory": {"kind": "summary"}}, ["remember"]),
        ({"memory": {"kind": "summary", "train_summaries": True}}, ["plan"]),
        ({"memory": {"kind": "mine:Memory"}}, []),
        ({"agent": PROGRAM}, []),
    ],
)
def test_a_share_of_calls_that_a_run_does_not_train_is_a_remark(
    further: dict[str, object], unused: list[str]
) -> None:
    shares = {"act": 0.5, "remember": 0.25, "plan": 0.25}
    described = parse_description(SMALLEST | further | {"loss": {"purposes": shares}})

    assert described.run().loss.purposes == shares
    assert parse_config(described.run().to_toml()) == described.run()
    assert [remark for remark in described.remarks if "loss.purposes" in remark] == [
        remark
        for purpose in unused
        for remark in described.remarks
        if remark.startswith(f"loss.purposes.{purpose} is the share of no call: this run trains")
    ]
    assert sum("loss.purposes" in remark for remark in described.remarks) == len(unused)


@pytest.mark.parametrize("share", [0.0, -1.0, float("inf"), float("nan")])
def test_a_share_is_a_number_above_zero(share: float) -> None:
    with pytest.raises(ValidationError, match=r"loss\.purposes\.act"):
        RunConfig.model_validate(SMALLEST | {"loss": {"purposes": {"act": share}}})


def test_shares_are_given_one_by_one_or_as_a_table() -> None:
    text = to_toml(SMALLEST)
    one_by_one = ["loss.purposes.act=0.7", "loss.purposes.remember=0.3"]
    at_once = ["loss.purposes={ act = 0.7, remember = 0.3 }"]
    assert parse_config(text, one_by_one).loss.purposes == {"act": 0.7, "remember": 0.3}
    assert parse_config(text, at_once) == parse_config(text, one_by_one)


@pytest.mark.parametrize("name", ["", "Upper", "a b", "../up", "a" * 41, "-dash"])
def test_a_name_that_is_no_good_in_a_folder_is_refused(name: str) -> None:
    with pytest.raises(ValidationError, match="name"):
        RunConfig.model_validate(SMALLEST | {"name": name})


def test_a_run_cannot_be_changed_and_travels_between_processes() -> None:
    config = RunConfig.model_validate(SMALLEST | {"verl": {"a": {"b": 1}}})

    with pytest.raises(ValidationError, match="frozen"):
        config.seed = 3
    assert pickle.loads(pickle.dumps(config)) == config


def test_the_verl_table_is_dotted_names_however_it_was_nested() -> None:
    nested = RunConfig.model_validate(SMALLEST | {"verl": {"a": {"b": {"c": 1}}, "d.e": [1, 2]}})

    assert nested.verl == {"a.b.c": 1, "d.e": [1, 2]}


@pytest.mark.parametrize(
    "table", [{"a": {"b": 1}, "a.b": 2}, {"a": 1, "a.b": 2}, {"a.b": {"c": 1}, "a": {"b": 3}}]
)
def test_a_setting_of_verl_cannot_be_given_twice(table: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"given twice|cannot hold"):
        dotted(table)


def test_relative_paths_become_absolute_and_names_and_addresses_stay(tmp_path: Path) -> None:
    config = RunConfig.model_validate(SMALLEST | {"store": "here.db"})
    placed = config.with_absolute_paths(tmp_path)

    assert placed.store == str(tmp_path / "here.db")
    url = RunConfig.model_validate(SMALLEST | {"store": "sqlite:///here.db"})
    assert url.with_absolute_paths(tmp_path).store == str(tmp_path / "here.db")
    absolute = RunConfig.model_validate(SMALLEST | {"store": "sqlite:////data/here.db"})
    assert absolute.with_absolute_paths(tmp_path).store == "/data/here.db"
    assert placed.runs_directory == str(tmp_path / "runs")
    assert placed.model.path == "smollm2"
    address = RunConfig.model_validate(SMALLEST | {"store": "postgresql://h/db"})
    assert address.with_absolute_paths(tmp_path).store == "postgresql://h/db"
    folder = RunConfig.model_validate(SMALLEST | {"model": {"path": "models/qwen"}})
    assert folder.with_absolute_paths(tmp_path).model.path == str(tmp_path / "models/qwen")


text = st.text(st.characters(codec="utf-8"))
option = st.booleans() | st.integers(-(2**60), 2**60) | text | st.lists(st.booleans() | text)


@given(
    options=st.dictionaries(text, option, max_size=3),
    learning_rate=st.floats(1e-12, 1.0),
    system=st.none() | text,
    modules=st.lists(text, max_size=2),
)
def test_what_is_written_reads_back_equal(
    options: dict[str, object], learning_rate: float, system: str | None, modules: list[str]
) -> None:
    config = RunConfig.model_validate(
        SMALLEST
        | {
            "environment": {"options": options, "import_modules": modules},
            "optimizer": {"learning_rate": learning_rate},
            "prompt": {"system": system},
            "verl": {"trainer.x": 1e-07, "a": "b"},
        }
    )

    assert parse_config(config.to_toml()) == config


def test_every_field_is_documented_once() -> None:
    fields = config_fields()
    missing = [name for name, field in fields.items() if not field.description]

    assert {"seed", "rollout.horizon"} <= fields.keys()
    assert missing == []


def test_every_section_has_a_default() -> None:
    sections = [
        value
        for name in RunConfig.model_fields
        if isinstance(value := cast("object", getattr(parse_smallest(), name)), BaseModel)
    ]

    assert len(sections) == 23


def parse_smallest() -> RunConfig:
    """The run with everything at its default."""
    return RunConfig.model_validate(SMALLEST)


AHEAD = {"mode": "colocate_async", "prefetch_batches": 1, "max_staleness": 1}


@pytest.mark.parametrize(
    ("trainer", "words"),
    [
        ({"max_staleness": 1}, r'max_staleness = 1 with trainer.mode = "sync"'),
        ({"prefetch_batches": 2}, r'trainer.prefetch_batches = 2 with trainer.mode = "sync"'),
        (AHEAD | {"prefetch_batches": 0}, "trainer.prefetch_batches = 0 has no batch in flight"),
        (
            AHEAD | {"prefetch_batches": 2},
            "trainer.max_staleness = 1 is less than trainer.prefetch_batches = 2",
        ),
        (AHEAD | {"on_stale": "keep"}, "on_stale"),
        (AHEAD | {"mode": "separate_async"}, "needs engines beside the learner"),
    ],
)
def test_turns_that_contradict_themselves_are_refused_by_name(
    trainer: dict[str, object], words: str
) -> None:
    with pytest.raises(ValidationError, match=words):
        RunConfig.model_validate(
            {"num_training_steps": 1, "tasks_per_training_step": 1, "trainer": trainer}
        )


@pytest.mark.parametrize(
    ("resources", "mode", "words"),
    [
        ({"num_engine_workers": 1}, "colocate_async", "whose engines share the learner's GPUs"),
        ({"num_engine_workers": 3}, "separate_async", "does not divide"),
        (
            {"num_engine_workers": 2, "num_engine_nodes": 2},
            "separate_async",
            "resources.num_engine_nodes = 2 needs resources.ray_address",
        ),
    ],
)
def test_engines_that_cannot_be_are_refused_by_name(
    resources: dict[str, object], mode: str, words: str
) -> None:
    with pytest.raises(ValidationError, match=words):
        RunConfig.model_validate(
            {
                "num_training_steps": 1,
                "tasks_per_training_step": 1,
                "trainer": AHEAD | {"mode": mode},
                "resources": {"num_workers": 2} | resources,
                "engine": {"tensor_parallel_size": 2},
            }
        )


# What an evaluation may be and a training may not


def test_a_training_in_bfloat16_is_refused_with_what_it_would_lose_and_what_to_set() -> None:
    run = load_config(GIGPO, ['model.dtype="bfloat16"', "optimizer.learning_rate=3e-6"])

    (problem,) = run.training_problems()

    # half a unit in the last place of bfloat16 is 2**-8 of the weight, or less
    assert "update of optimizer.learning_rate = 3e-06 is rounded away from every weight above" in (
        problem
    )
    assert "above 0.00077" in problem
    assert 'set model.dtype = "float32"' in problem
    assert "4 bytes a weight in place of 2" in problem


@pytest.mark.parametrize("file", MACHINES, ids=lambda file: file.stem)
def test_a_recipe_can_learn_on_every_machine(file: Path) -> None:
    assert load_config(GIGPO, layers=[file]).training_problems() == []


def test_an_adapter_is_scaled_by_one_unless_its_alpha_is_set() -> None:
    two = {"num_training_steps": 1, "tasks_per_training_step": 1}

    def alpha(**model: object) -> int:
        return RunConfig.model_validate(two | {"model": model}).model.adapter_alpha

    assert alpha(lora_rank=64) == 64
    assert alpha(lora_rank=64, lora_alpha=16) == 16


def test_every_stage_of_a_run_has_a_limit_and_the_long_ones_a_setting() -> None:
    limits = TrainerConfig().stage_limit_seconds

    assert limits.of("log-probabilities") == (
        21600,
        "trainer.stage_limit_seconds.log_probabilities",
    )
    assert limits.of("weight sync") == (3600, "trainer.stage_limit_seconds.weight_sync")
    assert limits.of("starting Ray") == (1800, None)


def test_a_run_of_a_program_reads_back_equal_and_plays_its_tasks_on_any_number_of_loops() -> None:
    run = RunConfig.model_validate(
        {
            "num_training_steps": 1,
            "tasks_per_training_step": 1,
            "agent": {"kind": "command", "command": ["bash", "agent.sh"], "environ": {"A": "b"}},
            "tasks": {"source": "data/hunts.jsonl"},
            "rollout": {"agent_loops": 16, "concurrent_episodes": 32},
            "optimizer": {"rows": "merged"},
        }
    )

    assert RunConfig.model_validate(tomllib.loads(run.to_toml())) == run
    assert [entry.id for entry in run.played_environments] == ["hunts"]
    assert sum(episodes_at_once(run, num_loops=16)) == 32
    there = run.with_absolute_paths(Path("/here"))
    assert there.tasks.source == "/here/data/hunts.jsonl"
    assert there.tasks.name == "hunts"


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ({}, [0.5, 0.5, 0.5, 0.5]),
        ({"decay_training_steps": 2}, [0.5, 0.25, 0.0, 0.0]),
        ({"decay_training_steps": 2, "final_coefficient": 0.1}, [0.5, 0.3, 0.1, 0.1]),
        ({"decay_training_steps": 1, "final_coefficient": 1.0}, [0.5, 1.0, 1.0, 1.0]),
    ],
)
def test_the_coefficient_of_imitation_follows_its_schedule(
    schedule: dict[str, float], expected: list[float]
) -> None:
    imitation = {"sources": [{"run": "experts"}], "coefficient": 0.5}
    run = RunConfig.model_validate(
        {
            "num_training_steps": 4,
            "tasks_per_training_step": 2,
            "imitation": imitation | schedule | {"demonstrations_per_group": 3},
        }
    )

    found = [run.imitation.coefficient_at(number) for number in range(1, 5)]

    assert found == pytest.approx(expected)
    assert not run.imitation.imitates
    assert run.algorithm.name == "gigpo"  # reinforcement learning keeps its settings
    assert run.episodes_of_a_group == run.rollout.group_size + 3


@pytest.mark.parametrize(
    ("imitation", "message"),
    [
        ({"coefficient": 0.5}, "there is no source of any"),
        (
            {"coefficient": 0.5, "sources": [{"run": "experts"}], "loss": "dpo"},
            "compares stored episodes",
        ),
        ({"coefficient": -0.5}, "greater than or equal to 0"),
    ],
)
def test_a_coefficient_of_imitation_needs_demonstrations(
    imitation: dict[str, object], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        RunConfig.model_validate(
            {"num_training_steps": 4, "tasks_per_training_step": 2, "imitation": imitation}
        )
