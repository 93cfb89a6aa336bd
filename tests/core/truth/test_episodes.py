"""Episodes of a policy that reads the state alone: their truth, and every estimator against it."""

from collections.abc import Generator
from dataclasses import replace

import numpy as np
import pytest
from credit_truth import Known, learnt, mixed
from state_policies import estimated_advantages, group_of, play_episode

from longhaul_core.advantages.credit import FloatArray
from longhaul_core.advantages.estimators import ESTIMATORS, EstimatorSettings, Group
from longhaul_core.errors import ConfigError
from longhaul_core.gym import GymEnvironmentSpec
from longhaul_core.truth import (
    INVALID,
    ExactValues,
    Policy,
    exact_values,
    explored,
    score_against_truth,
    tabulated,
    true_advantages,
)
from longhaul_core.types import Observation, Split, StopReason, Task, Trajectory
from longhaul_envs.key_door.tasks import KeyDoorOptions
from longhaul_envs.key_door.tasks import tasks as key_door_tasks
from longhaul_envs.players import Player, opened
from table_world import TASK, TableWorld, fixed

HORIZON, DISCOUNT, GROUP_SIZE, NUM_GROUPS = 20, 0.95, 4, 6
CORRIDOR = {"a": {"go": ("b", 0.0)}, "b": {"go": (None, 1.0)}}
MOSTLY = {"go": 0.75, INVALID: 0.25}


@pytest.fixture(scope="module")
def player() -> Generator[Player]:
    spec = GymEnvironmentSpec(environment_id="longhaul/KeyDoor-v0", options={"room_size": 3})
    with opened(spec) as player:
        yield player


@pytest.fixture(scope="module")
def tasks() -> tuple[Task, ...]:
    return key_door_tasks(Split.TRAIN, KeyDoorOptions(room_size=3), NUM_GROUPS)


@pytest.fixture(scope="module")
def known(player: Player, tasks: tuple[Task, ...]) -> list[Known]:
    return [learnt(player, task, horizon=HORIZON) for task in tasks]


def policy_of(one: Known) -> Policy:
    return mixed(one.advice, random_share=0.5)


def values_of(one: Known) -> ExactValues:
    return exact_values(one.graph, tabulated(one.graph, policy_of(one)), discount=DISCOUNT)


def group_episodes(player: Player, one: Known) -> list[Trajectory]:
    return [
        play_episode(
            player,
            one.graph.task,
            policy_of(one),
            horizon=HORIZON,
            seed=place,
            sample_index=place,
        )
        for place in range(GROUP_SIZE)
    ]


Played = tuple[list[Group], list[list[FloatArray]]]


@pytest.fixture(scope="module")
def played(player: Player, known: list[Known]) -> Played:
    """Groups with all that any estimator needs, and their truth."""
    groups: list[Group] = []
    truth: list[list[FloatArray]] = []
    for one in known:
        values, episodes, task = values_of(one), group_episodes(player, one), one.graph.task
        greedy = play_episode(player, task, policy_of(one), horizon=HORIZON, seed=0, greedy=True)
        critic = [
            np.array(
                [
                    values.value(step.observation, steps_left=HORIZON - step.index)
                    for step in episode.steps
                ]
            )
            for episode in episodes
        ]
        groups.append(group_of(task.task_id, episodes, greedy=greedy, values=critic))
        truth.append([true_advantages(values, episode) for episode in episodes])
    return groups, truth


def test_episodes_vary_and_end_in_both_ways(player: Player, known: list[Known]) -> None:
    episodes = [episode for one in known for episode in group_episodes(player, one)]

    reasons = {episode.stop_reason for episode in episodes}
    assert reasons == {StopReason.TASK_SOLVED, StopReason.HORIZON_REACHED}
    assert {step.action_valid for episode in episodes for step in episode.steps} == {True, False}
    assert all(one.success == (one.episode_return == 1.0) for one in episodes)
    again = [episode for one in known for episode in group_episodes(player, one)]
    assert again == episodes


def test_the_true_advantages_of_an_episode_by_hand() -> None:
    graph = explored(TableWorld(CORRIDOR), TASK, horizon=3)
    policy = fixed({"a": MOSTLY, "b": MOSTLY})
    values = exact_values(graph, tabulated(graph, policy), discount=0.5)
    episode = play_episode(TableWorld(CORRIDOR), TASK, lambda _: {"go": 1.0}, horizon=3, seed=0)

    # As in the corridor of `test_exact`: A(a, 3, go) = 9/128; A(b, 2, go) = 1 - 27/32
    assert true_advantages(values, episode).tolist() == [9 / 128, 5 / 32]


@pytest.mark.parametrize("name", ESTIMATORS)
def test_every_registered_estimator_can_be_judged(name: str, played: Played) -> None:
    groups, truth = played

    credit = estimated_advantages(groups, EstimatorSettings(name=name, discount=DISCOUNT))
    judged = score_against_truth(credit, truth)

    assert judged.num_steps == sum(len(episode) for group in truth for episode in group)
    assert judged.share_without_credit is not None


def test_gae_by_the_exact_critic_alone_is_the_truth_but_for_its_whitening(played: Played) -> None:
    groups, truth = played
    settings = EstimatorSettings(name="gae", discount=DISCOUNT, gae_lambda=0.0)

    judged = score_against_truth(estimated_advantages(groups, settings), truth)

    for figure in (judged.spearman_in_episode, judged.kendall_in_group):
        assert figure is not None
        assert figure.low == pytest.approx(1.0)


def test_what_an_estimator_lacks_is_named(player: Player, known: list[Known]) -> None:
    bare = [group_of("bare", group_episodes(player, known[0]))]

    with pytest.raises(ConfigError, match="gae needs a critic's values, and group 'bare' has none"):
        estimated_advantages(bare, EstimatorSettings(name="gae"))
    with pytest.raises(ConfigError, match="remax needs a greedy episode, and group 'bare' has"):
        estimated_advantages(bare, EstimatorSettings(name="remax"))
    with pytest.raises(ConfigError, match=r"there is no estimator 'gro'; there are .*gigpo"):
        estimated_advantages(bare, EstimatorSettings(name="gro"))


def test_an_episode_of_other_rules_is_refused_at_its_step(
    player: Player, known: list[Known]
) -> None:
    values = values_of(known[0])
    (episode, *_) = group_episodes(player, known[0])
    steps = list(episode.steps)
    paid = [*steps[:2], replace(steps[2], reward=0.5), *steps[3:]]
    moved = [steps[0], replace(steps[1], observation=values.graph.states[-1]), *steps[2:]]

    for changed, place in ((paid, 2), (moved, 0)):
        with pytest.raises(ConfigError, match=f"step {place} of an episode .* differs from the"):
            true_advantages(values, replace(episode, steps=tuple(changed)))
    with pytest.raises(ConfigError, match=r"the values are of task .* and the episode is of"):
        true_advantages(values, replace(episode, task=known[1].graph.task))
    early = replace(episode, steps=tuple(steps[:3]), stop_reason=StopReason.TASK_FAILED)
    with pytest.raises(ConfigError, match="step 2 of an episode"):
        true_advantages(values, replace(early, final_observation=steps[3].observation))
    # A store has the last observation's text alone, and the text is compared.
    cut = replace(early, stop_reason=StopReason.HORIZON_REACHED)
    seen = steps[3].observation.text
    stored = replace(cut, final_observation=Observation(text=seen))
    assert true_advantages(values, stored) == pytest.approx(true_advantages(values, episode)[:3])
    with pytest.raises(ConfigError, match="step 2 of an episode"):
        true_advantages(values, replace(cut, final_observation=Observation(text=f"{seen}.")))
