"""Which continuations are played, round after round."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pytest

from longhaul_core.rollout import Branch, EpisodeSpec
from longhaul_core.store.queries import ContinuedStep
from longhaul_trainer.config import load_default_config
from longhaul_trainer.play.truth.continuations import Missing
from longhaul_trainer.play.truth.selection import MeasuredStep
from store_samples import make_trajectory

EPISODE = make_trajectory()
CHOICE, TAKEN = (ContinuedStep("one", 1, takes) for takes in (False, True))


def step_of(episode_id: str, index: int = 1) -> MeasuredStep:
    choice, taken = (
        Branch(episode_id=episode_id, recorded=EPISODE, step_index=index, action=action)
        for action in (None, EPISODE.steps[index].action)
    )
    return MeasuredStep(choice=choice, taken=taken)


@dataclass
class World:
    """A store, and a policy that succeeds with a probability that the kind of step decides."""

    success: Mapping[bool, float]
    stored: dict[ContinuedStep, dict[int, float]] = field(
        default_factory=dict[ContinuedStep, dict[int, float]]
    )

    def play(self, specs: list[EpisodeSpec]) -> None:
        for spec in specs:
            key = key_of(spec)
            draw = np.random.default_rng(spec.seed).random()
            of_set = self.stored.setdefault(key, {})
            assert spec.sample_index not in of_set  # nothing is played twice
            of_set[spec.sample_index] = float(draw < self.success[key.takes_stored_action])


def key_of(spec: EpisodeSpec) -> ContinuedStep:
    assert spec.branch is not None
    return ContinuedStep(
        spec.branch.episode_id, spec.branch.step_index, spec.branch.action is not None
    )


def missing(world: World, *, steps: int = 1, half_width: float = 0.1, most: int = 200) -> Missing:
    names = ("one", "two", "three")[:steps]
    return Missing(
        config=load_default_config(),
        steps=[step_of(name) for name in names],
        half_width=half_width,
        most=most,
        stored=lambda: world.stored,
    )


def rounds(world: World, asked: Missing) -> list[list[EpisodeSpec]]:
    found: list[list[EpisodeSpec]] = []
    while specs := asked.further():
        found.append(specs)
        world.play(specs)
    return found


def test_continuations_are_added_until_an_interval_is_narrow_enough() -> None:
    world = World({False: 0.0, True: 0.5})

    played = rounds(world, missing(world))

    # 35 that are all alike are enough; a share of a half needs 96, and 70 are too few.
    assert [len(specs) for specs in played] == [70, 35, 70]
    assert (len(world.stored[CHOICE]), len(world.stored[TAKEN])) == (35, 140)
    assert {key_of(spec) for spec in played[1]} == {TAKEN}


def test_no_set_has_more_than_the_limit() -> None:
    world = World({False: 0.5, True: 0.5})

    rounds(world, missing(world, most=50))

    assert {len(of_set) for of_set in world.stored.values()} == {50}


def test_the_sets_of_all_steps_have_seeds_and_groups_of_their_own() -> None:
    world = World({False: 0.5, True: 0.5})

    specs = [spec for each in rounds(world, missing(world, steps=3)) for spec in each]

    assert len({spec.seed for spec in specs}) == len(specs) > 300
    assert len({(key_of(spec), spec.group_index) for spec in specs}) == 6
    assert {spec.group_index for spec in specs} == set(range(6))
    assert all(spec.branch is not None and spec.task == EPISODE.task for spec in specs)


def test_what_the_store_has_is_not_played_again() -> None:
    world = World({False: 0.5, True: 0.5})
    rounds(world, missing(world))
    before = {key: dict(of_set) for key, of_set in world.stored.items()}

    assert rounds(world, missing(world)) == []
    del world.stored[CHOICE][3], world.stored[TAKEN][7]
    [again] = rounds(world, missing(world))

    assert sorted(spec.sample_index for spec in again) == [3, 7]
    assert world.stored == before  # the same draws
    finer = rounds(world, missing(world, half_width=0.07, most=280))
    assert finer
    assert {key: {at: world.stored[key][at] for at in of} for key, of in before.items()} == before


def test_a_step_whose_continuations_all_fail_is_given_up() -> None:
    world = World({False: 0.5, True: 0.5})
    asked = missing(world)

    world.play([spec for spec in asked.further() if not key_of(spec).takes_stored_action])

    assert asked.further() == []


@pytest.mark.parametrize("half_width", [0.9, 2.0])
def test_a_wide_interval_needs_one_continuation_of_each_kind(half_width: float) -> None:
    world = World({False: 0.0, True: 1.0})
    assert [len(specs) for specs in rounds(world, missing(world, half_width=half_width))] == [2]
