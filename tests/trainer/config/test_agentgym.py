"""Tests for `longhaul_trainer.config.agentgym`: round limits as AgentGym-RL's users write them."""

import pytest

from longhaul_core.errors import ConfigError
from longhaul_trainer.config import RunConfig, parse_config

SMALLEST = "num_training_steps = 300\ntasks_per_training_step = 4\n"
TABLE = "[algorithm.rounds_ctrl]\n"
STEPWISE = TABLE + 'type = "scaling_inter_stepwise"\nrounds = [10, 20, 30]\n'
OVERRIDES = (
    "algorithm.rounds_ctrl.type=scaling_inter_stepwise",
    "algorithm.rounds_ctrl.rounds=[10,20,30]",
    "algorithm.rounds_ctrl.steps_scaling_inter=80",
)


def read(text: str, *overrides: str) -> RunConfig:
    return parse_config(SMALLEST + text, overrides)


def problems(text: str, *overrides: str) -> list[str]:
    with pytest.raises(ConfigError) as raised:
        read(text, *overrides)
    return [line.strip() for line in str(raised.value).splitlines()[1:]]


OURS = read(
    "[rollout]\nhorizon = 30\n"
    '[horizon_schedule]\nkind = "stepwise"\nstages = [10, 20, 30]\ntraining_steps_per_stage = 80\n'
)


def test_their_stepwise_table_is_our_stepwise_schedule() -> None:
    assert read(STEPWISE + "steps_scaling_inter = 80\n") == OURS


def test_their_overrides_mean_what_their_table_means() -> None:
    assert read("", *OVERRIDES) == OURS
    assert read(STEPWISE, "algorithm.rounds_ctrl.steps_scaling_inter=80") == OURS


def test_an_override_wins_over_the_table() -> None:
    config = read(STEPWISE, "algorithm.rounds_ctrl.rounds=[8, 12]")

    assert config.horizon_schedule.stages == (8, 12)
    assert config.rollout.horizon == 12


def test_stages_last_a_hundred_training_steps_as_theirs_do_where_the_table_does_not_say() -> None:
    assert read(STEPWISE).horizon_schedule.training_steps_per_stage == 100


def test_their_fixed_rounds_are_our_horizon() -> None:
    config = read(TABLE + 'type = "fixed"\nrounds = 15\nsteps_scaling_inter = 100\n')

    assert config == read("[rollout]\nhorizon = 15\n")


def test_the_rest_of_the_algorithm_stays() -> None:
    config = read('[algorithm]\nname = "grpo"\n' + STEPWISE)

    assert config.algorithm.name == "grpo"
    assert config.horizon_schedule.stages == (10, 20, 30)


def test_a_run_that_is_written_out_has_our_names_alone() -> None:
    text = read("", *OVERRIDES).to_toml()

    assert "rounds_ctrl" not in text
    assert parse_config(text) == OURS


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rounds = 15", "algorithm.rounds_ctrl.type: missing"),
        ('type = "fixed"', "algorithm.rounds_ctrl.rounds: missing"),
        (
            'type = "stepwise"\nrounds = [5]',
            "algorithm.rounds_ctrl.type = 'stepwise': must be 'fixed' or 'scaling_inter_stepwise'",
        ),
        (
            'type = "fixed"\nrounds = [15]',
            "algorithm.rounds_ctrl.rounds = [15]: must be one number for type 'fixed'",
        ),
        (
            'type = "scaling_inter_stepwise"\nrounds = []',
            "algorithm.rounds_ctrl.rounds = []: must be a list of at least 1 number for type "
            "'scaling_inter_stepwise'",
        ),
        (
            'type = "scaling_inter_stepwise"\nrounds = 15',
            "algorithm.rounds_ctrl.rounds = 15: must be a list of at least 1 number for type "
            "'scaling_inter_stepwise'",
        ),
        (
            'type = "fixed"\nrounds = 15\nround = 3',
            "algorithm.rounds_ctrl.round: unknown key; there are type, rounds, steps_scaling_inter",
        ),
        (
            'type = "fixed"\nrounds = 15\n[rollout]\nhorizon = 20',
            "algorithm.rounds_ctrl.rounds = 15 and rollout.horizon = 20 say the same; "
            "give one of them",
        ),
        (
            'type = "fixed"\nrounds = 15\n[horizon_schedule]\nkind = "fixed"',
            "algorithm.rounds_ctrl: says the same as horizon_schedule; give one of them",
        ),
        (
            'type = "scaling_inter_stepwise"\nrounds = [10, 30]\n[rollout]\nhorizon = 20',
            "horizon_schedule.stages end at 30 and rollout.horizon = 20; the last stage is the "
            "final horizon, which validation plays: set both to the same",
        ),
    ],
)
def test_what_contradicts_itself_is_told(text: str, message: str) -> None:
    assert problems(TABLE + text) == [message]


def test_falling_rounds_are_refused() -> None:
    told = problems(TABLE + 'type = "scaling_inter_stepwise"\nrounds = [10, 8]')

    assert told == ["horizon_schedule.stages must rise, got 8 after 10"]


def test_a_table_that_is_none_is_refused() -> None:
    assert problems("[algorithm]\nrounds_ctrl = 15") == [
        "algorithm.rounds_ctrl: must be a table with type, rounds, steps_scaling_inter, got 15"
    ]


def test_other_words_of_theirs_are_unknown_keys() -> None:
    (line,) = problems("", "algorithm.rounds_ctrl.foo=3")

    assert line.startswith("algorithm.rounds_ctrl.foo: unknown key")
