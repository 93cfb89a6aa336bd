"""Which steps are measured."""

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from sqlalchemy.orm import Session

from longhaul_core.errors import ConfigError, StoreError
from longhaul_core.store import StoreWriter, open_store
from longhaul_core.store.records import EpisodeRecord, Record
from longhaul_core.store.retention import Retention
from longhaul_core.store.session import read_only_engine
from longhaul_trainer.play.truth.selection import Selection, select_steps
from store_samples import (
    make_decisions,
    make_failure,
    make_record,
    make_task,
    make_trajectory,
    run_started,
)

NUM_GROUPS, NUM_EPISODES, NUM_STEPS = 6, 4, 5


def played() -> Sequence[Record]:
    """Groups 0 to 5 of training steps 1 to 3; the last try of each group failed."""
    episodes = [
        make_record(
            make_trajectory(
                task=make_task(group),
                sample_index=sample,
                rewards=(0.0,) * (NUM_STEPS - 1) + (1.0,),
            ),
            training_step=1 + group // 2,
            group_index=group % 2,
        )
        for group in range(NUM_GROUPS)
        for sample in range(NUM_EPISODES)
    ]
    failures = [
        make_record(
            make_failure(task=make_task(group), sample_index=NUM_EPISODES),
            training_step=1 + group // 2,
            group_index=group % 2,
        )
        for group in range(NUM_GROUPS)
    ]
    return [run_started(), *episodes, *failures]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("groups") / "longhaul.db"
    with StoreWriter(path) as writer:
        writer.write(played())
    return path


@pytest.fixture
def session(store: Path) -> Iterator[Session]:
    engine = read_only_engine(store)
    with Session(engine) as session:
        yield session
    engine.dispose()


def selected(
    session: Session,
    *,
    training_steps: tuple[int, int] | None = None,
    num_groups: int = 3,
    num_steps: int = 30,
    seed: int = 0,
) -> Selection:
    return select_steps(
        session,
        "run",
        training_steps=training_steps,
        num_groups=num_groups,
        num_steps=num_steps,
        seed=seed,
    )


def places(selection: Selection) -> list[tuple[str, int]]:
    return [(step.episode_id, step.step_index) for step in selection.steps]


def test_a_seed_draws_the_same_steps_again_and_another_others(session: Session) -> None:
    chosen = [places(selected(session, seed=seed)) for seed in (0, 0, 1, 2)]

    assert chosen[0] == chosen[1]
    assert len({tuple(each) for each in chosen}) == 3


def test_steps_are_drawn_once_each_from_all_episodes_that_ended(session: Session) -> None:
    chosen = selected(session, num_groups=3, num_steps=30)

    assert chosen.num_steps == 3 * NUM_EPISODES * NUM_STEPS
    assert len(set(places(chosen))) == 30
    assert places(chosen) == sorted(places(chosen))
    groups = {episode_id.rsplit("/", 2)[0] for episode_id in chosen.episode_ids}
    assert len(groups) == len(chosen.groups) == 3
    assert len(chosen.episode_ids) > NUM_EPISODES
    assert all(len(step.choice.recorded.steps) == NUM_STEPS for step in chosen.steps)


def test_each_step_is_as_likely_as_any_other(session: Session) -> None:
    counts = Counter(
        place
        for seed in range(10)
        for place in places(selected(session, num_groups=6, num_steps=30, seed=seed))
    )

    assert len(counts) > 0.8 * NUM_GROUPS * NUM_EPISODES * NUM_STEPS
    by_step = Counter[int]()
    for (_, step), times in counts.items():
        by_step[step] += times
    assert all(40 < by_step[step] < 80 for step in range(NUM_STEPS))  # 60 each, deviation 6


def test_a_step_is_measured_by_choice_and_by_its_stored_action(session: Session) -> None:
    for step in selected(session).steps:
        assert step.choice.action is None
        assert step.taken.action == step.taken.stored.action
        assert step.choice.recorded is step.taken.recorded
        assert step.choice.step_index == step.taken.step_index


def test_all_is_measured_where_there_is_less(session: Session) -> None:
    chosen = selected(session, num_groups=100, num_steps=1000)

    assert len(chosen.groups) == NUM_GROUPS
    assert len(chosen.steps) == chosen.num_steps == NUM_GROUPS * NUM_EPISODES * NUM_STEPS


def test_training_steps_restrict_the_groups(session: Session) -> None:
    chosen = selected(session, training_steps=(2, 3), num_groups=100)

    assert {group.training_step for group in chosen.groups} == {2, 3}
    with pytest.raises(ConfigError, match=r"at least 2 groups, and there are 0 .* 7\.\.9 of run"):
        selected(session, training_steps=(7, 9))


def test_an_episode_whose_texts_are_gone_is_named(tmp_path: Path) -> None:
    path = tmp_path / "longhaul.db"
    with StoreWriter(path) as writer:
        records = played()
        episodes = [one for one in records if isinstance(one, EpisodeRecord)]
        writer.write([*records, *make_decisions(episodes)])
    engine = open_store(path)
    retention = Retention(engine, run_id="run", sampled_groups=0)
    while retention.remove_some(up_to=3):
        pass
    with Session(engine) as session, pytest.raises(StoreError, match="has no texts any more"):
        selected(session)
    engine.dispose()
