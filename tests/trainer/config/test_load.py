"""Tests for `longhaul_trainer.config.load`."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from longhaul_core.errors import ConfigError
from longhaul_core.memory import MEMORIES
from longhaul_trainer.cli.train import read_description
from longhaul_trainer.config import RunConfig, load_config, load_default_config, parse_config
from longhaul_trainer.config.fields import FREE_TABLES, UPSTREAMS, config_fields

ROOT = Path(__file__).parents[3]
FILES = sorted((ROOT / "configs").rglob("*.toml"))
NO_OTHER_LIKE = ("gae", "colocate_async", "separate_async")
"""Files with a critic, and with rollout that goes on beside the update."""
SMALLEST = "num_training_steps = 3\ntasks_per_training_step = 4\n"


def problems(text: str, *overrides: str) -> list[str]:
    """The lines that the loader has to say about a description, the heading left out."""
    with pytest.raises(ConfigError) as raised:
        parse_config(text, overrides)
    return [line.removeprefix("  ") for line in str(raised.value).splitlines()[1:]]


def test_two_numbers_describe_a_run() -> None:
    config = parse_config(SMALLEST)

    assert config == RunConfig(num_training_steps=3, tasks_per_training_step=4)


def test_every_problem_is_told_at_once_with_key_value_and_limit() -> None:
    text = """
        num_training_steps = "3"
        wings = 2
        [rollout]
        group_size = 0
        horizon = 0
        [memory]
        kind = "windw"
        [optimizer]
        betas = [0.9, 1.0]
    """

    told = problems(text, "rollout.horizion=3", "learning_rate=1e-5")

    assert [line.partition(":")[0] for line in told] == [
        "rollout.horizion",
        "learning_rate",
        'num_training_steps = "3"',
        "tasks_per_training_step",
        "rollout.group_size = 0",
        "rollout.horizon = 0",
        'memory.kind = "windw"',
        "optimizer.betas[1] = 1.0",
        "wings",
    ]
    assert "did you mean 'rollout.horizon'?" in told[0]
    assert "did you mean 'critic.learning_rate' or 'optimizer.learning_rate'?" in told[1]
    assert "must be greater than or equal to 1" in told[4]
    assert "a group of one has no comparison" in told[4]
    built_in = ", ".join(MEMORIES)
    assert f"must be one of {built_in}, or package.module:name of your own" in told[6]


def test_what_is_wrong_between_fields_is_told_beside_what_is_wrong_in_one() -> None:
    text = """
        num_training_steps = "3"
        tasks_per_training_step = 4
        [rollout]
        group_size = 1
        horizon = 0
        [engine]
        max_sequences = 64
        max_batched_tokens = 8
        [optimizer]
        warmup_training_steps = 9
        micro_batch_tokens = 10
    """

    told = problems(text)

    assert [line.partition(":")[0] for line in told[:2]] == [
        'num_training_steps = "3"',
        "rollout.horizon = 0",
    ]
    # What the warm-up is compared with is not known, so nothing is said of it.
    assert sorted(line.partition(" ")[0] for line in told[2:]) == [
        "engine.max_batched_tokens",
        "optimizer.micro_batch_tokens",
        "rollout.group_size",
    ]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_one_wrong_value_of_a_recipe_is_one_problem(file: Path, tmp_path: Path) -> None:
    """Nothing is said of the default that takes the place of a wrong value.

    Every setting is wrong in a file with a critic and in one of each mode, a fifth in the others.
    """
    base = ROOT / "configs" / "recipes" / "gigpo.toml"
    is_whole = "num_training_steps" in tomllib.loads(file.read_text(encoding="utf-8"))
    recipe = [file] if is_whole else [base, file]
    wrong = tmp_path / "wrong.toml"
    # An upstream has fields of its own, each of which is missing or unknown then.
    keys = sorted(config_fields().keys() - FREE_TABLES - {UPSTREAMS})
    asked = keys if file.stem in NO_OTHER_LIKE else keys[len(file.stem) % 5 :: 5]
    for key in asked:
        wrong.write_text(f"{key} = {{ nothing = {{ takes = 'this' }} }}", encoding="utf-8")
        with pytest.raises(ConfigError, match="has 1 problem:"):
            load_config(recipe[0], layers=[*recipe[1:], wrong])


def test_a_packaged_file_is_read_by_its_name_first_or_over_others() -> None:
    machine = "machines/qwen2.5-1.5b-2x80gb"
    file, layer = (f"{ROOT}/configs/{name}.toml" for name in ("recipes/gigpo", machine))

    named = read_description("@recipes/gigpo", [f"@{machine}", "rollout.horizon=9"])

    assert named == read_description(file, [layer, "rollout.horizon=9"])
    with pytest.raises(ConfigError, match=r"^@smoek: no such file; .*, @recipes/gigpo, .*@smoke$"):
        read_description("@smoek", None)


def test_a_misspelt_key_of_the_file_gets_a_suggestion() -> None:
    assert problems(SMALLEST + "[rolout]\nhorizon = 3") == [
        "rolout: unknown key; did you mean 'rollout'?"
    ]


@pytest.mark.parametrize(
    ("text", "kind"),
    [("horizon = true", "integer"), ("horizon = 8.5", "integer"), ('horizon = "8"', "integer")],
)
def test_a_value_of_another_type_is_refused_and_not_converted(text: str, kind: str) -> None:
    (line,) = problems(SMALLEST + "[rollout]\n" + text)

    assert line.startswith(f"rollout.{text}: must be a valid {kind}")


def test_a_stage_that_is_no_horizon_is_told_by_its_place() -> None:
    text = SMALLEST + '[horizon_schedule]\nkind = "stepwise"\nstages = [0, "8", true, 9.5, 20]'

    assert [line.partition(":")[0] for line in problems(text)] == [
        "horizon_schedule.stages[0] = 0",
        'horizon_schedule.stages[1] = "8"',
        "horizon_schedule.stages[2] = true",
        "horizon_schedule.stages[3] = 9.5",
    ]


def test_an_option_of_the_environment_is_told_once_whatever_union_it_misses() -> None:
    assert problems(SMALLEST + "[environment]\noptions = { map = { size = { x = 3 } } }") == [
        "environment.options.map = {…}: must be a string, a number, a boolean, or a list or table "
        "of those."
    ]


def test_a_file_that_is_not_toml_is_told_by_name_and_line(tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_text("name = \n", encoding="utf-8")

    with pytest.raises(ConfigError, match=r"run\.toml is not TOML: Invalid value \(at .*line 1"):
        load_config(file)


def test_a_file_that_is_missing_is_told_by_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.toml: no such file"):
        load_config(tmp_path / "none.toml")


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("name=smoke", "smoke"),
        ("name=2024", "2024"),
        ("name='smoke'", "smoke"),
        ('name="a.b"', "a.b"),
    ],
)
def test_bare_text_is_taken_where_text_is_wanted(override: str, expected: str) -> None:
    assert parse_config(SMALLEST, [override]).name == expected


def test_overrides_take_the_values_of_toml() -> None:
    config = parse_config(
        SMALLEST,
        [
            "rollout.horizon=40",
            "optimizer.betas=[0.8, 0.95]",
            "prompt.list_actions=false",
            "environment.options.level=hard",
            "environment.options.sizes=[1, 2]",
            "verl.actor_rollout_ref.actor.fsdp_config.offload_policy=true",
            "prompt.system=You craft = win",
        ],
    )

    assert config.rollout.horizon == 40
    assert config.optimizer.betas == (0.8, 0.95)
    assert config.prompt.list_actions is False
    assert config.environment.options == {"level": "hard", "sizes": [1, 2]}
    assert config.verl == {"actor_rollout_ref.actor.fsdp_config.offload_policy": True}
    assert config.prompt.system == "You craft = win"


def test_variables_of_a_command_are_set_one_by_one_and_are_text() -> None:
    program = SMALLEST + '[agent]\nkind = "command"\ncommand = ["true"]\nenviron = { MODE = "a" }'

    run = parse_config(program, ["agent.environ.DEPTH=3", 'agent.environ.MODE="b c"'])

    assert run.agent.environ == {"MODE": "b c", "DEPTH": "3"}


def test_an_override_of_a_whole_table_takes_its_place() -> None:
    text = SMALLEST + "[environment]\noptions = { level = 'hard' }\n[verl]\nray_kwargs.a = 1\n"

    config = parse_config(text, ["environment.options={}", "verl={}"])

    assert config.environment.options == {}
    assert config.verl == {}
    (line,) = problems(SMALLEST, "environment.options=3")
    assert line.startswith("environment.options = 3: must be a table")


def test_a_later_override_wins_and_none_takes_a_value_back() -> None:
    text = SMALLEST + "[rollout]\nmax_episode_tokens = 9000"

    config = parse_config(text, ["seed=1", "seed=2", "rollout.max_episode_tokens=none"])

    assert config.seed == 2
    assert config.rollout.max_episode_tokens is None


def test_an_override_cannot_smuggle_in_a_second_key() -> None:
    (line,) = problems(SMALLEST, "rollout.horizon=3\nseed = 9")

    assert line.startswith("rollout.horizon = ")


def test_an_override_without_a_value_and_one_of_a_section_are_refused() -> None:
    assert problems(SMALLEST, "rollout.horizon", "rollout=3") == [
        "'rollout.horizon' is not an override; write key=value",
        "rollout: unknown key; it is a section, and its fields are set one by one, "
        "e.g. 'rollout.group_size'",
    ]


def test_an_override_of_the_verl_table_replaces_the_files_value_however_it_was_written() -> None:
    text = SMALLEST + "[verl]\ntrainer.balance_batch = true\n"

    assert parse_config(text, ["verl.trainer.balance_batch=false"]).verl == {
        "trainer.balance_batch": False
    }


@pytest.mark.parametrize(
    "store", ["postgresql://me:hunter2@host/db", "postgresql://host/db?user=me&password=hunter2"]
)
def test_a_password_is_refused_and_not_repeated(store: str) -> None:
    (line,) = problems(SMALLEST, f"store={store}")

    assert "PGPASSWORD" in line
    assert "hunter2" not in line


def test_an_address_that_is_wrong_in_another_way_is_not_repeated_either() -> None:
    (line,) = problems(SMALLEST + "store = ['postgresql://me:hunter2@host/db']")

    assert "hunter2" not in line


def test_the_package_carries_a_default_run_that_overrides_apply_to() -> None:
    assert load_default_config(["seed=7"]).seed == 7


def test_what_a_later_file_says_wins_and_overrides_win_over_all_files(tmp_path: Path) -> None:
    (base := tmp_path / "base.toml").write_text(
        SMALLEST + "[rollout]\ngroup_size = 2\nhorizon = 9\n"
        "[environment.options]\ndepth = 4\n[verl.trainer]\nbalance_batch = true\n"
    )
    (above := tmp_path / "above.toml").write_text(
        "seed = 5\n[rollout]\ngroup_size = 3\ntemperature = 0.5\n"
        '[verl]\n"trainer.balance_batch" = false\n'
    )
    (top := tmp_path / "top.toml").write_text(
        '[environment]\noptions = { levels = ["a"] }\n[rollout]\ntemperature = 0.7\n'
    )

    run = load_config(base, ["rollout.temperature=0.9"], layers=[above, top])

    assert (run.seed, run.num_training_steps) == (5, 3)
    assert (run.rollout.group_size, run.rollout.horizon) == (3, 9)
    assert run.rollout.temperature == 0.9
    assert run.environment.options == {"levels": ["a"]}  # another environment's, whole
    assert run.verl == {"trainer.balance_batch": False}
    assert load_config(base, layers=[above]).rollout.temperature == 0.5


def test_what_is_wrong_with_files_over_each_other_is_told_with_all_their_names(
    tmp_path: Path,
) -> None:
    (base := tmp_path / "base.toml").write_text(SMALLEST)
    (above := tmp_path / "above.toml").write_text("[rollout]\ngroup_size = 1\n")

    with pytest.raises(ConfigError, match=r"base.toml with .*above.toml has 1 problem"):
        load_config(base, layers=[above])
    with pytest.raises(ConfigError, match=r"no.toml: no such file"):
        load_config(base, layers=[tmp_path / "no.toml"])
    (above := tmp_path / "broken.toml").write_text("[rollout\n")
    with pytest.raises(ConfigError, match=r"broken.toml is not TOML"):
        load_config(base, layers=[above])


def test_files_come_before_settings_on_the_command_line(tmp_path: Path) -> None:
    (above := tmp_path / "above.toml").write_text("seed = 5\nname = 'above'\n")

    run = read_description("default", [str(above), "seed=6"])

    assert (run.seed, run.name) == (6, "above")
    with pytest.raises(ConfigError, match=r"above.toml: files come before settings"):
        read_description("default", ["seed=6", str(above)])
    with pytest.raises(ConfigError, match=r"gone.toml: no such file"):
        read_description("default", ["gone.toml"])


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('trackers = "wandb"\n', 'trackers = "wandb": must be a list'),
        ("[optimizer]\nbetas = 0.9\n", "optimizer.betas = 0.9: must be a list"),
        ("[optimizer]\nbetas = [0.9]\n", "optimizer.betas[1]: missing"),
        (
            "[optimizer]\nbetas = [0.9, 0.8, 0.7]\n",
            "optimizer.betas = [0.9, 0.8, 0.7]: must have at most 2 entries",
        ),
        ("[algorithm]\noptions = 3\n", "algorithm.options = 3: must be a table"),
    ],
)
def test_what_is_no_list_or_table_is_told_in_the_words_of_toml(text: str, line: str) -> None:
    (found,) = problems(SMALLEST + text)

    assert found.startswith(line)
    assert "uple" not in found


def test_a_laptop_without_the_training_stack_can_check_a_run() -> None:
    code = (
        "import sys, longhaul_trainer.config as c; c.load_default_config();"
        "print(sorted({'torch', 'verl', 'vllm', 'ray', 'transformers'} & set(sys.modules)))"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )

    assert loaded.stdout.strip() == "[]"


def test_a_setting_of_verl_outside_its_table_gets_its_place() -> None:
    with pytest.raises(ConfigError) as raised:
        parse_config(SMALLEST, ["actor_rollout_ref.rollout.name=sglang"])

    assert str(raised.value).endswith(
        "actor_rollout_ref.rollout.name: unknown key; "
        "settings of verl go under verl: 'verl.actor_rollout_ref.rollout.name'"
    )


def test_an_unknown_stage_is_refused_with_the_one_that_was_meant_or_all_there_are() -> None:
    def refused(stage: str) -> str:
        with pytest.raises(ConfigError) as raised:
            parse_config(SMALLEST, [f"trainer.stage_limit_seconds.{stage}=60"])
        return str(raised.value)

    assert "did you mean 'trainer.stage_limit_seconds.weight_sync'?" in refused("weigth_sync")
    assert refused("play").endswith(
        "unknown key; trainer.stage_limit_seconds has loading_the_model, loading_the_checkpoint, "
        "episodes, log_probabilities, values, update, weight_sync, validation, checkpoint"
    )


@pytest.mark.parametrize(
    ("value", "layers"),
    [("all-linear", ("all-linear",)), ('["q_proj","v_proj"]', ("q_proj", "v_proj"))],
)
def test_the_layers_of_an_adapter_are_all_or_a_list(value: str, layers: tuple[str, ...]) -> None:
    run = parse_config(SMALLEST, ["model.lora_rank=4", f"model.lora_target_modules={value}"])

    assert run.model.lora_target_modules == layers


def test_an_adapter_of_no_layer_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"_target_modules = \[\]: must have at least 1 entry"):
        parse_config(SMALLEST, ["model.lora_rank=4", "model.lora_target_modules=[]"])
