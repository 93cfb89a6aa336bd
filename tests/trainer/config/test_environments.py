"""Several environments in a run's description: how they are read, written and refused."""

from pathlib import Path

import pytest

from longhaul_core.errors import ConfigError
from longhaul_trainer.config import RunConfig, load_default_config, parse_config
from longhaul_trainer.config.load import read_default, read_file

MIXED = """
num_training_steps = 2
tasks_per_training_step = 2

[[environments]]
id = "longhaul/TextCraft-v0"
options = { depth = 2 }
weight = 2
[environments.memory]
kind = "none"

[[environments]]
id = "longhaul/Sokoban-v0"
horizon = 10
[environments.prompt]
system = "Push."
"""


def problems_of(text: str) -> str:
    with pytest.raises(ConfigError) as raised:
        parse_config(text)
    return str(raised.value)


def test_each_environment_has_its_own_sections() -> None:
    first, second = parse_config(MIXED).played_environments

    assert (first.id, first.options, first.weight) == ("longhaul/TextCraft-v0", {"depth": 2}, 2.0)
    assert (first.memory.kind, second.memory.kind) == ("none", "window")
    assert (first.prompt.system, second.prompt.system) == (None, "Push.")
    assert (first.horizon, second.horizon) == (None, 10)


def test_what_is_written_reads_back_equal_and_names_environments_in_one_way() -> None:
    run = parse_config(MIXED)

    assert parse_config(run.to_toml()) == run
    assert RunConfig.model_validate_json(run.model_dump_json()) == run
    dumped = run.model_dump()
    assert not {"environment", "prompt", "memory", "actions"} & dumped.keys()
    assert "environments" not in load_default_config().model_dump()


def test_a_run_of_one_environment_has_it_as_the_only_one() -> None:
    run = load_default_config()
    (alone,) = run.played_environments

    assert (alone.id, alone.options) == (run.environment.id, run.environment.options)
    assert (alone.prompt, alone.memory, alone.actions) == (run.prompt, run.memory, run.actions)
    assert alone.horizon is None


def test_a_contradiction_of_the_only_environment_is_told_and_leaves_it_to_be_looked_up(
    tmp_path: Path,
) -> None:
    file = tmp_path / "run.toml"
    file.write_text(
        """
        num_training_steps = 2
        tasks_per_training_step = 2
        [environment]
        server = "http://127.0.0.1:8300"
        import_modules = ["mine"]
        """,
        encoding="utf-8",
    )

    described = read_file(file)

    assert described.config is not None
    (alone,) = described.config.played_environments
    assert alone.server == "http://127.0.0.1:8300"
    (problem,) = described.problems
    assert problem.endswith("import them where the server is started")


def test_an_option_may_be_a_table() -> None:
    run = parse_config(
        """
        num_training_steps = 2
        tasks_per_training_step = 2
        [environment]
        id = "longhaul/WebArena-v0"
        options = { sites = { REDDIT = "http://host:9999" }, viewport = [800, 600] }
        """
    )

    assert run.environment.options["sites"] == {"REDDIT": "http://host:9999"}
    assert parse_config(run.to_toml()) == run


@pytest.mark.parametrize("section", ["environment", "prompt", "memory", "actions"])
def test_both_ways_of_describing_environments_are_refused(section: str) -> None:
    assert f"environments and {section} are both given" in problems_of(f"{MIXED}\n[{section}]\n")


def test_an_entry_laid_over_a_run_of_one_environment_is_refused() -> None:
    description = read_default(['environments=[{id="longhaul/Sokoban-v0"}]'])

    assert any("environment, memory, prompt, actions are both" in p for p in description.problems)


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("weight = 0", "environments[2].weight = 0: must be greater than 0"),
        ("weighr = 3", "environments[2].weighr: unknown key; did you mean 'weight'?"),
        ("memory = { knid = 1 }", "environments[2].memory.knid: unknown key; did you mean 'kind'?"),
        ('memory = { kind = "x" }', 'environments[2].memory.kind = "x": must be one of none'),
        ("num_workers = 0", "environments[2].num_workers = 0: must be greater than or equal to 1"),
        ("horizon = 21", "horizon = 21 of 'a' is more than rollout.horizon = 20"),
    ],
)
def test_what_is_wrong_with_an_entry_is_told_by_its_place(entry: str, message: str) -> None:
    assert message in problems_of(f'{MIXED}\n[[environments]]\nid = "a"\n{entry}\n')


def test_an_environment_is_named_once() -> None:
    again = '\n[[environments]]\nid = "longhaul/Sokoban-v0"\n'

    assert "id 'longhaul/Sokoban-v0' is given 2 times" in problems_of(MIXED + again)


def test_a_gated_horizon_needs_an_environment_without_a_cap() -> None:
    gated = """
[horizon_schedule]
kind = "success_gated"
stages = [10, 20]
"""
    parse_config(MIXED + gated)
    capped = MIXED.replace("weight = 2", "horizon = 5")

    assert "sees no episode of its last stages" in problems_of(capped + gated)
