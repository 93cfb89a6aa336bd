"""Which stored episodes a run imitates."""

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from longhaul_core.errors import ConfigError
from longhaul_trainer.config import RunConfig
from longhaul_trainer.config.load import parse_config
from longhaul_trainer.run.context import RunContext
from longhaul_trainer.run.demonstrations import Demonstrations
from trainer.play.imitation.conftest import NUMBER_LINE, Imitating


def test_every_task_brings_its_best_episode(imitating: Imitating) -> None:
    found = Demonstrations.chosen(imitating())

    assert len(found.tasks) == found.num_episodes == 20
    assert [task.key for task in found.tasks] == sorted(found.of_task)
    assert found.num_steps > 20
    assert all(len(each) == 1 for each in found.of_task.values())


def test_conditions_choose_among_the_episodes(imitating: Imitating) -> None:
    every = Demonstrations.chosen(imitating())
    few = Demonstrations.chosen(
        imitating(sources='[{ run = "experts", where = { max_steps = 3 }, weight = 2.0 }]')
    )

    assert 0 < few.num_episodes < every.num_episodes
    assert {each.weight for found in few.of_task.values() for each in found} == {2.0}
    assert few.num_steps <= 3 * few.num_episodes


def test_two_sources_share_the_places_of_a_task(imitating: Imitating) -> None:
    twice = '[{ run = "experts" }, { run = "experts", weight = 0.5 }]'

    one = Demonstrations.chosen(imitating(sources=twice))
    both = Demonstrations.chosen(imitating("imitation.best_per_task=2", sources=twice))

    assert (one.num_episodes, both.num_episodes) == (20, 40)
    assert [each.weight for each in both.of_task[both.tasks[0].key]] == [1.0, 0.5]


def test_a_return_may_be_the_weight_and_is_none_below_zero(
    imitating: Imitating, tmp_path: Path
) -> None:
    store = shutil.copy(imitating().store, tmp_path / "longhaul.db")

    def weights_with(longest_pays: float) -> set[float]:
        with closing(sqlite3.connect(store)) as connection, connection:
            connection.execute(
                "UPDATE episodes SET episode_return = ? WHERE num_steps = 11", (longest_pays,)
            )
        found = Demonstrations.chosen(imitating("imitation.weight=return", f"store={store}"))
        return {each.weight for of_task in found.of_task.values() for each in of_task}

    assert weights_with(2.0) == {1.0, 2.0}
    with pytest.raises(ConfigError, match=r"has the return -0\.5, and a weight below 0"):
        weights_with(-0.5)


def test_what_was_chosen_comes_back_from_the_runs_folder(
    imitating: Imitating, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=r"demonstrations\.json is missing, which names"):
        Demonstrations.read(tmp_path)

    chosen = Demonstrations.chosen(imitating())
    chosen.write(tmp_path)

    assert Demonstrations.read(tmp_path) == chosen
    assert [run.split("-")[2] for run in chosen.runs] == ["experts"]


def test_of_a_training_the_panels_are_left_out_unless_asked_for(
    imitating: Imitating, tmp_path: Path
) -> None:
    store = shutil.copy(imitating().store, tmp_path / "longhaul.db")
    with closing(sqlite3.connect(store)) as connection, connection:
        connection.execute("UPDATE runs SET kind = 'train'")
        connection.execute("UPDATE episodes SET phase = 'validation' WHERE num_steps > 3")

    trained = Demonstrations.chosen(imitating(f"store={store}"))
    every = '[{ run = "experts", where = { phase = "validation" } }]'
    scored = Demonstrations.chosen(imitating(f"store={store}", sources=every))

    assert trained.num_episodes + scored.num_episodes == 20
    assert trained.num_steps <= 3 * trained.num_episodes


@pytest.mark.parametrize(
    ("sources", "words"),
    [
        (
            '[{ run = "expert" }]',
            r"imitation\.sources\[0\]\.run = 'expert'.* runs are called experts",
        ),
        (
            '[{ run = "experts", where = { max_steps = 0 } }]',
            r"no episode that ended with max_steps=0; it has 20 episode",
        ),
        ('[{ run = "experts", where = { sucess = true } }]', r"\.where: there is no condition"),
    ],
)
def test_a_source_that_has_nothing_is_named(imitating: Imitating, sources: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        Demonstrations.chosen(imitating(sources=sources))


def test_episodes_of_an_environment_that_the_run_does_not_play_are_refused(
    imitating: Imitating,
) -> None:
    with pytest.raises(ConfigError, match=r"hold episodes of longhaul/NumberLine-v0, and this run"):
        Demonstrations.chosen(imitating("environment.id=longhaul/Sokoban-v0"))


def test_an_imitation_leaves_out_what_reinforcement_learning_reads(imitating: Imitating) -> None:
    run = imitating(
        "algorithm.name=grpo",
        "algorithm.scale_by_std=false",
        "loss.clip_high=0.28",
        "loss.purposes={ act = 0.5, remember = 0.5 }",
        "sampling.dynamic=true",
        "horizon_schedule.kind=stepwise",
        "horizon_schedule.stages=[6, 12]",
        "rollout.temperature=0.7",
        'algorithm.loss_unit="step"',
    )

    assert (run.algorithm.name, run.loss.kind, run.algorithm.loss_unit) == (
        "imitation",
        "nll",
        "step",
    )
    assert run.loss.purposes == {"act": 0.5, "remember": 0.5}
    assert (run.sampling.dynamic, run.horizon_schedule.kind) == (False, "fixed")
    assert (run.rollout.temperature, run.rollout.group_size) == (1.0, 1)
    assert parse_config(run.to_toml()) == run


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("algorithm.name=imitation", 'algorithm.name = "imitation" and .* go together'),
        ("loss.kind=nll", 'loss.kind = "nll" and .* go together'),
    ],
)
def test_imitation_without_a_source_is_refused(setting: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        parse_config(NUMBER_LINE, [setting])


def test_programs_are_not_imitated(imitating: Imitating) -> None:
    with pytest.raises(ConfigError, match="played again by our loop, which no program takes part"):
        imitating("agent.kind=command", 'agent.command=["true"]')


def test_branches_are_imitated_only_where_they_are_asked_for(
    imitating: Imitating, tmp_path: Path
) -> None:
    store = shutil.copy(imitating().store, tmp_path / "longhaul.db")
    with closing(sqlite3.connect(store)) as connection, connection:
        connection.execute("UPDATE runs SET kind = 'branch'")
        connection.execute("UPDATE episodes SET phase = 'branch'")

    with pytest.raises(ConfigError, match=r'whose first steps are .* phase = "branch"'):
        Demonstrations.chosen(imitating(f"store={store}"))
    asked = '[{ run = "experts", where = { phase = "branch" } }]'
    assert Demonstrations.chosen(imitating(f"store={store}", sources=asked)).num_episodes == 20


def test_branches_that_stand_in_a_training_are_no_demonstrations(
    imitating: Imitating, tmp_path: Path
) -> None:
    store = shutil.copy(imitating().store, tmp_path / "longhaul.db")
    with closing(sqlite3.connect(store)) as connection, connection:
        connection.execute("UPDATE runs SET kind = 'train'")
        connection.execute("UPDATE episodes SET phase = 'branch' WHERE num_steps > 3")

    found = Demonstrations.chosen(imitating(f"store={store}"))

    assert 0 < found.num_episodes < 20
    assert found.num_steps <= 3 * found.num_episodes


def test_those_beside_groups_come_each_once_in_a_pass_in_an_order_that_a_resume_has_too(
    imitating: Imitating, tmp_path: Path
) -> None:
    settings = ("imitation.coefficient=0.5", "imitation.demonstrations_per_group=2")
    config = imitating(*settings)
    chosen = Demonstrations.chosen(config)
    chosen.write(tmp_path)

    def drawn(context: RunContext, steps: range) -> list[str]:
        return [
            context.demonstration(step, group_index=group, place=place)[1].episode_id
            for step in steps
            for group in range(4)
            for place in range(2)
        ]

    def context(run: RunConfig, demonstrations: Demonstrations) -> RunContext:
        return RunContext(
            run_id="run",
            attempt=0,
            recorder_name="",
            config=run,
            descriptions={},
            demonstrations=demonstrations,
        )

    every = drawn(context(config, chosen), range(1, 6))  # two passes of twenty
    assert (
        set(every[:20])
        == set(every[20:])
        == {each.episode_id for of_task in chosen.of_task.values() for each in of_task}
    )
    assert every[:20] != every[20:]
    resumed = context(config, Demonstrations.read(tmp_path))
    assert drawn(resumed, range(4, 6)) == every[24:]
    task, one = resumed.demonstration(4, group_index=0, place=0)
    assert one in chosen.of_task[task.key]
    other = context(imitating(*settings, "seed=1"), chosen)
    assert drawn(other, range(1, 6)) != every
