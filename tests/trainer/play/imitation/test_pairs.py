"""Which stored episodes make pairs, and what is refused before a model is loaded."""

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from rich.console import Console

from longhaul_core.errors import ConfigError
from longhaul_core.types import Split
from longhaul_trainer.config import RunConfig
from longhaul_trainer.config.load import parse_config
from longhaul_trainer.play.imitation.check import require_imitable
from longhaul_trainer.play.imitation.expert import run_demonstration
from longhaul_trainer.run.demonstrations import Demonstrations
from longhaul_trainer.run.directory import RunDirectory
from trainer.play.imitation.conftest import NUMBER_LINE, Imitating

BOTH = '[{ run = "experts" }, { run = "losers" }]'
DPO = "imitation.loss=dpo"
QUIET = Console(quiet=True)


@pytest.fixture(scope="module")
def losers(experts: RunConfig) -> str:
    """Beside the experts, 12 of their tasks were lost, ten of them by 1, one by 0.25, one by 0."""
    config = parse_config(NUMBER_LINE, ["name=losers"]).with_absolute_paths(
        Path(experts.store).parent
    )
    run = RunDirectory.create(config)
    run_demonstration(config, run, split=Split.TRAIN, num_tasks=12, console=QUIET)
    with closing(sqlite3.connect(experts.store)) as connection, connection:
        of_losers = "run_id LIKE '%losers%'"
        connection.execute(f"UPDATE episodes SET episode_return = 0, success = 0 WHERE {of_losers}")
        for place, number in enumerate((0.75, 1.0)):
            connection.execute(
                f"UPDATE episodes SET episode_return = ? WHERE {of_losers} AND group_index = ?",
                (number, place),
            )
    return experts.store


def test_the_best_and_the_worst_of_a_task_make_a_pair(losers: str, imitating: Imitating) -> None:
    found = Demonstrations.chosen(imitating(DPO, sources=BOTH))

    assert (len(found.tasks), found.num_episodes) == (11, 22)
    for chosen, rejected in found.of_task.values():
        assert "experts" in chosen.episode_id
        assert "losers" in rejected.episode_id
    assert (
        len(Demonstrations.chosen(imitating(DPO, "imitation.min_gap=0.5", sources=BOTH)).tasks)
        == 10
    )


def test_an_episode_makes_as_many_pairs_as_asked_for(losers: str, imitating: Imitating) -> None:
    thrice = '[{ run = "experts" }, { run = "losers" }, { run = "losers" }, { run = "losers" }]'

    found = Demonstrations.chosen(imitating(DPO, "imitation.pairs_per_task=2", sources=thrice))

    assert {len(each) for each in found.of_task.values()} == {3}
    run = imitating(DPO, "imitation.pairs_per_task=2", sources=thrice)
    assert run.rollout.group_size == 3


@pytest.fixture(scope="module")
def wanderers(experts: RunConfig) -> str:
    """Two runs in which chance acted in most steps; nothing was paid in the second."""
    for name in ("paid", "unpaid"):
        seed = f"seed={len(name)}"
        config = parse_config(NUMBER_LINE, [f"name={name}", seed]).with_absolute_paths(
            Path(experts.store).parent
        )
        run = RunDirectory.create(config)
        run_demonstration(config, run, split=Split.TRAIN, num_tasks=20, noise=0.8, console=QUIET)
    with closing(sqlite3.connect(experts.store)) as connection, connection:
        unpaid = "SELECT id FROM episodes WHERE run_id LIKE '%unpaid%'"
        connection.execute(f"UPDATE steps SET reward = 0 WHERE episode_id IN ({unpaid})")
        connection.execute(f"UPDATE episodes SET episode_return = 0 WHERE id IN ({unpaid})")
    return experts.store


STEPS = (DPO, "imitation.pairs=steps", "tasks_per_training_step=2")
OF_CHANCE = '[{ run = "paid" }, { run = "unpaid" }]'


def test_steps_make_pairs_where_episodes_part_in_one_state(
    wanderers: str, imitating: Imitating
) -> None:
    run = imitating(*STEPS, sources=OF_CHANCE)

    found = require_imitable(run, console=QUIET)

    chosen = found.demonstrations
    assert run.rollout.group_size == 2  # the file's, since any episode may be in a pair
    assert {len(of_task) for of_task in chosen.of_task.values()} == {2}
    assert 2 <= len(chosen.tasks) < 20
    assert found.num_step_pairs is not None
    assert found.num_step_pairs > 2
    assert found.in_words().endswith(f"; {found.num_step_pairs} pairs of steps")
    # what was before is in the prompt of a longer memory
    longer = ("memory.size=12", "imitation.prompts=recomposed")
    with_past = require_imitable(imitating(*STEPS, *longer, sources=OF_CHANCE), console=QUIET)
    assert with_past.num_step_pairs is not None
    assert 0 < with_past.num_step_pairs < found.num_step_pairs


def test_steps_that_make_no_pair_are_named(wanderers: str, imitating: Imitating) -> None:
    with pytest.raises(ConfigError, match="in none of 20 tasks with 20 episodes did two of them"):
        require_imitable(imitating(*STEPS), console=QUIET)
    with pytest.raises(ConfigError, match=r"what a memory is asked after a step belongs to no"):
        imitating(*STEPS, "memory.kind=summary", sources=OF_CHANCE)


def test_pairs_are_counted_and_played_through(losers: str, imitating: Imitating) -> None:
    found = require_imitable(imitating(DPO, sources=BOTH), console=QUIET)

    assert (found.num_checked, found.num_left_out, found.num_recomposed) == (22, 0, 0)
    assert found.in_words().startswith("22 episodes of 11 tasks, ")
    assert found.in_words().endswith("; 11 pairs")


@pytest.mark.parametrize(
    ("settings", "sources", "words"),
    [
        (
            (),
            '[{ run = "experts" }]',
            r"no task has a better and a worse episode\. Of 20 tasks with 20 episodes, 20 have one "
            r"episode alone, and in 0 the returns",
        ),
        (
            (),
            '[{ run = "losers" }, { run = "losers" }]',
            r"Of 12 tasks with 24 episodes, 0 have one episode alone, and in 12 the returns differ "
            r"by less than imitation\.min_gap = 1e-06; the texts of 0 further",
        ),
        (
            ("imitation.min_gap=1.5",),
            BOTH,
            r"Of 20 tasks with 32 episodes, 8 have one episode alone, and in 12 the returns differ",
        ),
        (
            (),
            '[{ run = "experts", where = { success = true } }, '
            '{ run = "losers", where = { success = true } }]',
            r"\[1\]: run .* has no episode that ended with success=true",
        ),
    ],
)
def test_sources_without_a_pair_are_refused_with_counts(
    losers: str, imitating: Imitating, settings: tuple[str, ...], sources: str, words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        require_imitable(imitating(DPO, *settings, sources=sources), console=QUIET)


def test_episodes_that_retention_emptied_make_no_pair(
    losers: str, imitating: Imitating, tmp_path: Path
) -> None:
    store = shutil.copy(losers, tmp_path / "longhaul.db")
    with closing(sqlite3.connect(store)) as connection, connection:
        connection.execute(
            "UPDATE episodes SET retention = 'removed' WHERE run_id LIKE '%losers%' "
            "AND group_index > 0"
        )
    some = Demonstrations.chosen(imitating(DPO, f"store={store}", sources=BOTH))
    assert some.num_episodes == 2

    with pytest.raises(ConfigError, match=r"the texts of 11 further episodes were removed"):
        Demonstrations.chosen(
            imitating(DPO, f"store={store}", "imitation.min_gap=0.5", sources=BOTH)
        )


def test_dpo_has_its_sums_its_groups_and_episodes_of_all_outcomes(imitating: Imitating) -> None:
    run = imitating(
        DPO,
        'algorithm.loss_unit="step"',
        "loss.purposes={ act = 1 }",
        "imitation.pairs_per_task=3",
        sources=BOTH,
    )

    assert run.loss.purposes == {}
    assert (run.algorithm.name, run.loss.kind, run.rollout.group_size) == ("dpo", "nll", 4)
    assert (run.algorithm.loss_unit, run.algorithm.tokens_per_episode) == ("fixed_token", 1)
    assert [source.where for source in run.imitation.sources] == [{}, {}]
    assert parse_config(run.to_toml()) == run
    asked_for = '[{ run = "experts", where = { success = true } }]'
    assert imitating(DPO, sources=asked_for).imitation.sources[0].where == {"success": True}


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ((DPO, "imitation.weight=return"), 'imitation.weight = "return" means nothing to imit'),
        ((DPO, "imitation.best_per_task=2"), "imitation.best_per_task = 2 means nothing to"),
        (("imitation.beta=0.2",), 'imitation.beta = 0.2 means nothing to imitation.loss = "nll"'),
        (("imitation.min_gap=0.5",), "imitation.min_gap = 0.5 means nothing"),
        ((DPO, "imitation.beta=0.0"), "imitation.beta"),
        (
            (DPO, "optimizer.optimizer_steps_per_training_step=2"),
            r"optimizer_steps_per_training_step = 2 with imitation\.loss = \"dpo\".* set it to 1",
        ),
    ],
)
def test_settings_that_contradict_a_loss_are_refused(
    imitating: Imitating, settings: tuple[str, ...], words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        imitating(*settings, sources=BOTH)


def test_sources_that_are_no_list_are_refused_by_name(imitating: Imitating) -> None:
    with pytest.raises(ConfigError, match=r"imitation\.sources"):
        imitating(DPO, sources="5")


def test_a_sources_weight_means_nothing_to_pairs(imitating: Imitating) -> None:
    with pytest.raises(ConfigError, match=r"sources\[0\]\.weight = 2 means nothing to imitation"):
        imitating(DPO, sources='[{ run = "experts", weight = 2.0 }]')
