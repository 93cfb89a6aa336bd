"""Prints how near every estimator's advantages come to the true ones; `docs/credit_truth.md`.

    python benchmarks/credit_truth.py                        # prints the tables
    python benchmarks/credit_truth.py docs/credit_truth.md   # writes them between the marks too

Truth is exact: Q - V of the policy that played, by backward induction over every state of the task.
"""

import argparse
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from state_policies import (
    continuations,
    estimated_advantages,
    group_of,
    play_episode,
    sampled_value,
)

from longhaul_core.advantages.credit import FloatArray
from longhaul_core.advantages.estimators import ESTIMATORS, EstimatorSettings, Group
from longhaul_core.gym import GymEnvironmentSpec
from longhaul_core.page_part import PagePart
from longhaul_core.rollout import episode_seed
from longhaul_core.truth import (
    INVALID,
    ExactValues,
    Policy,
    SampledAdvantage,
    StateGraph,
    exact_values,
    explored,
    planted_right,
    planted_wrong,
    score_against_truth,
    tabulated,
    true_advantages,
)
from longhaul_core.truth.tables import figures_by_chance, figures_of, shown, table_of
from longhaul_core.types import Observation, Split, Task, Trajectory
from longhaul_envs.key_door.tasks import KeyDoorOptions
from longhaul_envs.key_door.tasks import tasks as key_door_tasks
from longhaul_envs.players import Player, opened
from longhaul_envs.sokoban.tasks import SokobanOptions
from longhaul_envs.sokoban.tasks import tasks as sokoban_tasks

PART = PagePart("tables")

HORIZON, DISCOUNT = 40, 0.95
SHORTEST = 20
"""Steps that the expert takes at least in a task that is played."""
GROUP_SIZE, GROUPS_PER_TRAINING_STEP = 8, 8
INVALID_SHARE = 0.02
"""Of the moves that are not the expert's: no action is read from them."""
STRENGTHS = {"early": 0.6, "middle": 0.4, "late": 0.2}
"""Share of moves drawn evenly from the admissible actions instead of the expert's."""
HALF_WIDTH = 0.1
"""Of the sampled values' intervals."""

Advice = Mapping[Observation, str | None]
Advantages = list[list[FloatArray]]
"""Of each episode of each group."""


@dataclass(frozen=True, kw_only=True)
class ComparedEnvironment:
    """An environment of the comparison."""

    name: str
    environment_id: str
    options: Mapping[str, object]
    tasks: Callable[[int], Sequence[Task]]
    """The first so many training tasks."""


KEY_DOOR, SOKOBAN = KeyDoorOptions(room_size=7), SokobanOptions(size=7, min_pushes=6)
ENVIRONMENTS = [
    ComparedEnvironment(
        name="KeyDoor, rooms of 7 × 7",
        environment_id="longhaul/KeyDoor-v0",
        options={"room_size": 7},
        tasks=lambda limit: key_door_tasks(Split.TRAIN, KEY_DOOR, limit),
    ),
    ComparedEnvironment(
        name="Sokoban, 7 × 7 with one box",
        environment_id="longhaul/Sokoban-v0",
        options={"size": 7, "min_pushes": 6},
        tasks=lambda limit: sokoban_tasks(Split.TRAIN, SOKOBAN, limit),
    ),
]


@dataclass(frozen=True, kw_only=True)
class Known:
    """A task all of whose states are known."""

    graph: StateGraph
    advice: Advice
    """The expert's action in each state; None where it sees no way."""


def main() -> None:
    """Print the tables, and write them into the page that is named."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("page", nargs="?", type=Path)
    parser.add_argument("--groups", type=int, default=16, help="of each policy, one for each task")
    parser.add_argument("--shuffles", type=int, default=100, help="of the truth, in each table")
    parser.add_argument("--pairs", type=int, default=1000, help="sampled values checked in each")
    chosen = parser.parse_args()
    for option, least in (("groups", 2), ("shuffles", 1), ("pairs", 1)):
        given = getattr(chosen, option)
        if given < least:
            parser.error(f"--{option} must be at least {least}, got {given}")
    if chosen.page is not None:
        try:
            PART.read(chosen.page)
        except ValueError as error:
            parser.error(str(error))
    parts: list[str] = []
    for environment in ENVIRONMENTS:
        for part in tables_of(
            environment,
            num_groups=chosen.groups,
            num_shuffles=chosen.shuffles,
            num_pairs=chosen.pairs,
        ):
            print(part, flush=True)
            parts.append(part)
    if chosen.page is not None:
        PART.write(chosen.page, "\n".join(parts))


def tables_of(
    environment: ComparedEnvironment, *, num_groups: int, num_shuffles: int, num_pairs: int
) -> Iterator[str]:
    """The tables of one environment, as Markdown."""
    spec = GymEnvironmentSpec(
        environment_id=environment.environment_id, options=environment.options
    )
    with opened(spec) as player:
        tasks = long_tasks(player, environment, num_groups)
        started = time.process_time()
        known = [learnt(player, task) for task in tasks]
        seconds = (time.process_time() - started) / len(known)
        states = np.mean([len(one.graph.states) for one in known])
        yield (
            f"### {environment.name}\n\n{len(known)} tasks, one group of {GROUP_SIZE} episodes "
            f"each, horizon {HORIZON}, discount {DISCOUNT}. {states:.0f} states a task in the "
            f"mean, found in {seconds:.2f} s of processor time.\n"
        )
        for strength, share in STRENGTHS.items():
            played = play(player, known, strength=strength, random_share=share)
            yield (
                f"**{strength.capitalize()}** ({1 - share:.0%} of the expert's moves): "
                f"{summary_and_table(played, num_shuffles=num_shuffles)}\n"
            )
    yield check_of_sampled_values(known, num_pairs=num_pairs)


def long_tasks(player: Player, environment: ComparedEnvironment, number: int) -> list[Task]:
    """The first training tasks whose expert takes from `SHORTEST` steps to the horizon."""
    found: list[Task] = []
    looked_at = 0
    while len(found) < number:
        listed = environment.tasks(looked_at + 8 * number)
        if len(listed) == looked_at:
            raise SystemExit(
                f"{environment.name} has {len(found)} long tasks; choose --groups up to that"
            )
        found += [task for task in listed[looked_at:] if is_long(player, task)]
        looked_at = len(listed)
    return found[:number]


def is_long(player: Player, task: Task) -> bool:
    """Whether the expert takes from `SHORTEST` steps to the horizon."""
    player.start(task)
    for step in range(1, HORIZON + 1):
        action = player.expert_action()
        if action is None:
            return False
        if player.act(action).terminated:
            return step >= SHORTEST
    return False


def learnt(player: Player, task: Task, *, horizon: int = HORIZON) -> Known:
    """Every state of a task, and the expert's action there."""
    advice: dict[Observation, str | None] = {}

    def ask(seen: Observation) -> None:
        advice[seen] = player.expert_action()

    return Known(graph=explored(player, task, horizon=horizon, arrived=ask), advice=advice)


def mixed(advice: Advice, *, random_share: float) -> Policy:
    """The expert's policy, mixed with random moves; random alone where the expert sees no way."""

    def policy(seen: Observation) -> dict[str, float]:
        actions, action = seen.admissible_actions or (), advice[seen]
        share = 1.0 if action is None else random_share
        readable = share * (1.0 - INVALID_SHARE)
        shares = {one: readable / len(actions) for one in actions}
        shares[INVALID] = share * INVALID_SHARE
        if action is not None:
            shares[action] += 1.0 - share
        return shares

    return policy


@dataclass(frozen=True, kw_only=True)
class Played:
    """A group of each task by one policy."""

    groups: list[Group]
    """With the exact values for a critic's."""
    blind: list[Group]
    """The same groups with a critic that says 0."""
    truth: Advantages
    success: float
    """Of the policy, exact: the mean over tasks."""


def play(player: Player, known: Sequence[Known], *, strength: str, random_share: float) -> Played:
    """Play the groups of one policy."""
    groups: list[Group] = []
    blind: list[Group] = []
    truth: Advantages = []
    successes: list[float] = []
    for number, one in enumerate(known):
        policy = mixed(one.advice, random_share=random_share)
        probabilities_E = tabulated(one.graph, policy)
        values = exact_values(one.graph, probabilities_E, discount=DISCOUNT)
        solved = exact_values(one.graph, probabilities_E, discount=1.0)
        successes.append(solved.value(one.graph.states[0], steps_left=HORIZON))
        episodes = [
            play_episode(
                player,
                one.graph.task,
                policy,
                horizon=HORIZON,
                seed=episode_seed(
                    0, training_step=0, group_index=number, sample_index=place, phase=strength
                ),
                sample_index=place,
                greedy=place == GROUP_SIZE,
            )
            for place in range(GROUP_SIZE + 1)
        ]
        *sampled, greedy = episodes
        truth.append([true_advantages(values, episode) for episode in sampled])
        name = str(number)
        exact = [state_values(values, episode) for episode in sampled]
        groups.append(group_of(name, sampled, greedy=greedy, values=exact))
        nothing = [np.zeros(len(episode.steps)) for episode in sampled]
        blind.append(group_of(name, sampled, values=nothing))
    return Played(groups=groups, blind=blind, truth=truth, success=float(np.mean(successes)))


def summary_and_table(played: Played, *, num_shuffles: int) -> str:
    """Of one policy: how it plays, and how near every estimator comes to the truth."""
    truth = played.truth
    rows: dict[str, Advantages] = {}
    for name, estimator in ESTIMATORS.items():
        if estimator.needs_critic:
            rows[f"{name}, exact critic"] = by_training_steps(played.groups, name)
            rows[f"{name}, exact critic, λ = 0"] = by_training_steps(
                played.groups, name, gae_lambda=0.0
            )
            rows[f"{name}, critic of 0"] = by_training_steps(played.blind, name)
        else:
            rows[name] = by_training_steps(played.groups, name)
    rows["*planted right*"] = planted_right(truth)
    rows["*planted wrong*"] = planted_wrong(truth)
    judged = {name: score_against_truth(credit, truth) for name, credit in rows.items()}
    right = judged["*planted right*"]
    steps = np.mean([len(episode) for group in truth for episode in group])
    table = table_of(
        {name: figures_of(one) for name, one in judged.items()}
        | {"*shuffled truth*": figures_by_chance(truth, num_shuffles=num_shuffles)}
    )
    return (
        f"success {played.success:.2f} (exact), {steps:.1f} steps an episode, {right.num_steps} "
        f"steps, without effect {shown(right.share_without_effect)}.\n\n{table}"
    )


def state_values(values: ExactValues, episode: Trajectory) -> FloatArray:
    """V before each step."""
    return np.array(
        [
            values.value(step.observation, steps_left=episode.horizon - step.index)
            for step in episode.steps
        ]
    )


def by_training_steps(
    groups: Sequence[Group], name: str, *, gae_lambda: float = 0.95
) -> Advantages:
    """An estimator's advantages, with its default settings, of a few groups at a time."""
    settings = EstimatorSettings(name=name, discount=DISCOUNT, gae_lambda=gae_lambda)
    found: Advantages = []
    for first in range(0, len(groups), GROUPS_PER_TRAINING_STEP):
        found += estimated_advantages(groups[first : first + GROUPS_PER_TRAINING_STEP], settings)
    return found


def check_of_sampled_values(known: Sequence[Known], *, num_pairs: int) -> str:
    """How often the intervals of sampled values hold the exact ones, with returns of 0 and 1."""
    random = np.random.default_rng(0)
    held = used = num_effects = right_signs = advantages_held = 0
    tabled: list[tuple[StateGraph, FloatArray, ExactValues]] = []
    for one in known:
        policy = mixed(one.advice, random_share=STRENGTHS["middle"])
        probabilities_E = tabulated(one.graph, policy)
        values = exact_values(one.graph, probabilities_E, discount=1.0)
        tabled.append((one.graph, probabilities_E, values))
    for number in range(num_pairs):
        graph, probabilities_E, exact = tabled[number % len(tabled)]
        edge = int(random.choice(np.flatnonzero(probabilities_E > 0.0)))
        state = int(graph.sources_E[edge])
        left = int(random.integers(1, HORIZON - int(graph.depths_S[state]) + 1))
        v_draw, q_draw = (
            continuations(
                graph,
                probabilities_E,
                state=state,
                steps_left=left,
                edge=first,
                discount=1.0,
                random=draws,
            )
            for first, draws in zip((None, edge), random.spawn(2), strict=True)
        )
        value = sampled_value(v_draw, half_width=HALF_WIDTH)
        true_value = float(exact.values_LS[left, state])
        held += value.low - 1e-12 <= true_value <= value.high + 1e-12
        used += value.num_units
        if number % 4:
            continue
        action_value = sampled_value(q_draw, half_width=HALF_WIDTH)
        found = SampledAdvantage(value=value, action_value=action_value)
        true_advantage = float(exact.action_values_LE[left, edge]) - true_value
        held_in = found.advantage
        advantages_held += held_in.low - 1e-12 <= true_advantage <= held_in.high + 1e-12
        num_effects += found.has_effect
        right_signs += found.has_effect and (found.advantage.estimate > 0) == (true_advantage > 0)
    num_advantages = -(-num_pairs // 4)
    return (
        f"**Sampled against exact**, middle policy, discount 1: of {num_pairs} pairs of a state "
        f"and a number of steps left, the 95 % interval holds the exact value in "
        f"{held / num_pairs:.1%} ({used / num_pairs:.0f} continuations each for a half-width of "
        f"{HALF_WIDTH}). Of {num_advantages} advantages {advantages_held / num_advantages:.1%} are "
        f"held; {num_effects} intervals leave out 0, and {right_signs} of those have the true "
        "sign.\n"
    )


if __name__ == "__main__":
    main()
