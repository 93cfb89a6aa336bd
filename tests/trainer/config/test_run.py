"""Tests for `longhaul_trainer.config.run` and its sections."""

import pickle
from pathlib import Path
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from longhaul_trainer.config import RunConfig, load_config, parse_config
from longhaul_trainer.config.fields import config_fields
from longhaul_trainer.config.run import dotted

CONFIGS = Path(__file__).parents[3] / "configs"
SMALLEST: dict[str, object] = {"num_training_steps": 10, "tasks_per_training_step": 4}


@pytest.mark.parametrize("file", sorted(CONFIGS.glob("*.toml")), ids=lambda file: file.stem)
def test_every_recipe_describes_a_run(file: Path) -> None:
    config = load_config(file)

    assert parse_config(config.to_toml()) == config


def test_there_are_recipes() -> None:
    assert {file.stem for file in CONFIGS.glob("*.toml")} >= {
        "smoke",
        "qwen2.5-1.5b-1gpu",
        "qwen2.5-7b-8gpu",
    }


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        (
            {"tasks_per_training_step": 6, "optimizer": {"optimizer_steps_per_training_step": 4}},
            "tasks_per_training_step = 6 cannot be split into "
            "optimizer.optimizer_steps_per_training_step = 4 equal parts (6 mod 4 = 2)",
        ),
        (
            {
                "rollout": {
                    "max_prompt_tokens": 512,
                    "max_reply_tokens": 64,
                    "max_episode_tokens": 500,
                }
            },
            "max_episode_tokens = 500 is less than one full step, "
            "max_prompt_tokens + max_reply_tokens = 512 + 64 = 576",
        ),
        (
            {"optimizer": {"micro_batch_tokens": 575}},
            "optimizer.micro_batch_tokens = 575 is less than one full row, "
            "rollout.max_prompt_tokens + rollout.max_reply_tokens = 512 + 64 = 576",
        ),
        (
            {"optimizer": {"warmup_training_steps": 11}},
            "optimizer.warmup_training_steps = 11 is more than num_training_steps = 10",
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
            {"horizon_schedule": {"stages": [5, 20]}},
            'stages = [5, 20] are not read by kind = "fixed"; say kind = "stepwise" or '
            '"success_gated"',
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
            {"engine": {"max_sequences": 64, "max_batched_tokens": 63}},
            "max_batched_tokens = 63 is less than max_sequences = 64",
        ),
        ({"resources": {"num_nodes": 2}}, "num_nodes = 2 needs ray_address"),
        ({"rollout": {"max_retries": 0}}, 'on_failure = "retry" with max_retries = 0'),
        (
            {"actions": {"format": "plain", "require_thinking": True}},
            'require_thinking = true needs format = "tags", got format = "plain"',
        ),
        (
            {"actions": {"require_thinking": True}, "prompt": {"reply_prefix": "<action>"}},
            "prompt.reply_prefix = '<action>' opens the action before",
        ),
    ],
)
def test_parts_that_contradict_each_other_are_told_with_both_names_and_the_arithmetic(
    sections: dict[str, object], message: str
) -> None:
    with pytest.raises(ValidationError) as raised:
        RunConfig.model_validate(SMALLEST | sections)

    assert message in str(raised.value)


def test_contradictions_of_a_run_are_told_together() -> None:
    sections = {"optimizer": {"warmup_training_steps": 11, "micro_batch_tokens": 1}}

    with pytest.raises(ValidationError) as raised:
        RunConfig.model_validate(SMALLEST | sections)

    assert "warmup_training_steps = 11" in str(raised.value)
    assert "micro_batch_tokens = 1 " in str(raised.value)


def test_what_just_fits_is_accepted() -> None:
    config = RunConfig.model_validate(
        SMALLEST
        | {
            "rollout": {"max_episode_tokens": 576},
            "optimizer": {
                "micro_batch_tokens": 576,
                "warmup_training_steps": 10,
                "optimizer_steps_per_training_step": 4,
            },
        }
    )

    assert config.rollout.max_episode_tokens == 576


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
    missing = [name for name, field in config_fields().items() if not field.description]

    assert missing == []


def test_every_section_has_a_default() -> None:
    sections = [
        value
        for name in RunConfig.model_fields
        if isinstance(value := cast("object", getattr(parse_smallest(), name)), BaseModel)
    ]

    assert len(sections) == 15


def parse_smallest() -> RunConfig:
    """The run with everything at its default."""
    return RunConfig.model_validate(SMALLEST)
