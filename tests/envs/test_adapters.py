"""Gymnasium environments with numbered actions, played by name."""

import os
import subprocess
import sys
from typing import Any

import gymnasium
import numpy as np
import pytest
from numpy.typing import NDArray

import longhaul_envs.adapters
from longhaul_core.errors import ConfigError
from longhaul_core.gym import GymEnvironmentSpec
from longhaul_core.types import Split
from longhaul_envs.adapters import DiscreteAsPictures, DiscreteAsText
from longhaul_envs.check import check_environment
from longhaul_envs.pictures import png
from longhaul_envs.sources import environment_source

ADAPTERS = longhaul_envs.adapters.__name__


def spec(**options: object) -> GymEnvironmentSpec:
    return GymEnvironmentSpec(
        environment_id="text/Discrete-v0", options=options, import_modules=(ADAPTERS,)
    )


@pytest.mark.parametrize(
    "options", [{"env": "Taxi-v4"}, {"env": "FrozenLake-v1", "is_slippery": False}]
)
def test_a_toy_text_keeps_the_contract(options: dict[str, object]) -> None:
    found = check_environment(
        "text/Discrete-v0",
        options=options,
        import_modules=[ADAPTERS],
        num_tasks=2,
        num_starts=20,
        horizon=30,
    )

    assert found == []


def test_a_pole_is_balanced_by_words_and_seen_as_it_is_drawn() -> None:
    drawn = gymnasium.make("CartPole-v1", render_mode="rgb_array")
    drawn.reset(seed=3)
    environment = DiscreteAsPictures(env="CartPole-v1")
    first, info = environment.reset(seed=3)

    assert info["admissible_actions"] == ["left", "right"]
    assert first["picture"] == png(pixels_of(drawn))
    unmoved, *_, moved = environment.step("right")  # by less than a pixel
    assert unmoved["picture"] == first["picture"]
    assert moved["anchor_state"] != info["anchor_state"]
    drawn.step(1)
    after, reward, *_ = environment.step("right")
    drawn.step(1)
    assert (after["picture"], reward) == (png(pixels_of(drawn)), 1.0)
    assert after["picture"] != first["picture"]
    refused, reward, *_, info = environment.step("up")
    assert (refused["picture"], reward, info["action_accepted"]) == (after["picture"], 0.0, False)
    assert refused["text"].startswith("There is no such action; there are left, right.\n")


def test_a_machine_without_a_screen_is_no_error_of_pygame() -> None:
    program = (
        "import gymnasium, longhaul_envs.adapters; "
        "gymnasium.make('picture/Discrete-v0', env='CartPole-v1').reset(seed=0)"
    )
    variables = {"PATH": os.environ["PATH"], "HOME": os.environ["HOME"]}
    ended = subprocess.run(
        (sys.executable, "-c", program), env=variables, capture_output=True, text=True, check=True
    )

    assert "XDG_RUNTIME_DIR" not in ended.stderr + ended.stdout


def test_pictures_keep_the_contract() -> None:
    found = check_environment(
        "picture/Discrete-v0",
        options={"env": "CartPole-v1"},
        import_modules=[ADAPTERS],
        num_tasks=1,
        num_starts=3,
        horizon=6,
    )

    assert found == []


@pytest.mark.parametrize(
    ("env", "num_train"),
    [("CartPole-v1", 1024), ("Taxi-v4", 215)],  # Taxi begins in 300 of its 500 states
)
def test_tasks_are_listed_by_states_and_without_a_picture(
    env: str, num_train: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = DiscreteAsPictures(env=env)

    def drawn() -> None:
        raise AssertionError("a picture was drawn")

    monkeypatch.setattr(environment, "render", drawn)
    states = [environment.start_of(seed) for seed in range(30)]
    source = environment_source(
        GymEnvironmentSpec(
            environment_id="picture/Discrete-v0", options={"env": env}, import_modules=(ADAPTERS,)
        )
    )

    assert len(set(states)) > 20
    assert states == [environment.start_of(seed) for seed in range(30)]
    assert len(source.tasks(Split.TRAIN)) == num_train


def test_the_environment_to_adapt_is_asked_for_by_name() -> None:
    with pytest.raises(
        ConfigError, match=r"options\.env must name .* 'CartPole-v1'; there are evn"
    ):
        DiscreteAsPictures(evn="CartPole-v1")


def test_names_of_actions_are_read_in_small_letters() -> None:
    environment = DiscreteAsPictures(env="CartPole-v1", actions=["Left ", "Right"])
    _, info = environment.reset(seed=1)

    assert info["admissible_actions"] == ["left", "right"]
    assert environment.step("RIGHT")[4]["action_accepted"]
    with pytest.raises(ConfigError, match="has 2 actions, and 1 names"):
        DiscreteAsPictures(env="CartPole-v1", actions=["a", "A"])


def pixels_of(environment: gymnasium.Env[Any, Any]) -> NDArray[np.uint8]:
    return np.asarray(environment.render(), dtype=np.uint8)


def test_a_lake_that_is_crossed_by_the_last_allowed_step_is_not_cut_off_too() -> None:
    environment = DiscreteAsText(
        env="FrozenLake-v1", desc=["SFG"], is_slippery=False, max_episode_steps=2
    )
    environment.reset(seed=1)
    assert environment.step("right")[2:4] == (False, False)
    assert environment.step("right")[1:4] == (1.0, True, False)


def test_a_taxi_is_driven_by_words() -> None:
    environment = DiscreteAsText(env="Taxi-v4")
    text, info = environment.reset(seed=3)

    assert text.count("*") - text.split("\n")[0].count("*") == 2
    assert set(info["admissible_actions"]) <= {
        *("south", "north", "east", "west", "pick up", "drop off")
    }
    after, reward, *_, info = environment.step(info["admissible_actions"][0].upper())
    assert (after != text, reward, info["action_accepted"]) == (True, -1, True)
    after, reward, *_, info = environment.step("fly")
    assert after.startswith("There is no such action; there are south, north")
    assert (reward, info["action_accepted"]) == (0.0, False)


def test_a_lake_is_another_one_for_each_seed_and_is_crossed() -> None:
    environment = DiscreteAsText(env="FrozenLake-v1", is_slippery=False)
    lakes = {environment.reset(seed=seed)[0] for seed in range(10)}
    assert len(lakes) > 5

    fixed = DiscreteAsText(env="FrozenLake-v1", is_slippery=False, map_name="4x4")
    fixed.reset(seed=0)
    for action in ("down", "down", "right", "right", "down", "right"):
        text, reward, terminated, *_ = fixed.step(action)
    assert (reward, terminated) == (1.0, True)
    assert text.endswith("HFF[G]")


def test_the_end_of_the_cliff_is_a_success_though_nothing_is_earned() -> None:
    environment = DiscreteAsText(env="CliffWalking-v1")
    environment.reset(seed=0)
    for action in ["up", *["right"] * 11]:
        environment.step(action)
    _, reward, terminated, _, info = environment.step("down")

    assert (reward, terminated, info["success"]) == (-1, True, True)


def test_actions_may_be_named() -> None:
    environment = DiscreteAsText(env="CliffWalking-v1", actions=["n", "e", "s", "w"])

    assert environment.reset(seed=0)[1]["admissible_actions"] == ["n", "e", "s", "w"]
    with pytest.raises(ConfigError, match="has 4 actions, and 2 names"):
        DiscreteAsText(env="CliffWalking-v1", actions=["n", "e"])


def test_tasks_of_a_toy_text_are_seeds_that_begin_differently() -> None:
    source = environment_source(spec(env="Taxi-v4"))

    assert len(source.tasks(Split.TRAIN)) > 100
    assert source.tasks(Split.TEST)
    assert source.describe().summary.startswith("An environment with numbered actions")


def test_what_draws_no_text_or_has_no_numbered_actions_is_refused() -> None:
    with pytest.raises(ConfigError, match="'picture/Discrete-v0' adapts it"):
        DiscreteAsText(env="Blackjack-v1")
    with pytest.raises(ConfigError, match=r"cannot be played by names of actions: they are Box"):
        DiscreteAsPictures(env="Pendulum-v1")
    with pytest.raises(ConfigError, match="is registered with Gymnasium"):
        DiscreteAsText(env="NoSuchWorld-v1")


def test_an_environment_of_numbers_is_refused_with_a_hint_of_the_adapter() -> None:
    with pytest.raises(ConfigError, match=r"its observations are Discrete.*text/Discrete-v0"):
        environment_source(GymEnvironmentSpec(environment_id="FrozenLake-v1")).describe()
    assert gymnasium.spec("FrozenLake-v1").id == "FrozenLake-v1"
