"""Items of AgentGym's servers as tasks, and the options that name a server."""

import json
from pathlib import Path

import pytest

from longhaul_core.environment import Determinism, EnvironmentDescription, EnvironmentSource
from longhaul_core.errors import ConfigError
from longhaul_core.types import Split
from longhaul_envs.agentgym.dialects import DIALECTS
from longhaul_envs.agentgym.tasks import source

URL = "http://127.0.0.1:36001"


def ids(environments: EnvironmentSource, split: Split) -> list[str]:
    return [task.task_id for task in environments.tasks(split)]


@pytest.mark.parametrize("task", DIALECTS)
def test_the_items_of_a_server_are_shared_out_whole(task: str) -> None:
    environments = source({"url": URL, "task": task})
    lists = [ids(environments, split) for split in Split]

    every = [one for listed in lists for one in listed]
    assert len(every) == len(set(every)) == DIALECTS[task].num_items
    assert all(lists)
    assert {one.rpartition("_")[0] for one in every} == {task}


def test_the_ranges_of_the_authors_are_kept() -> None:
    questions = source({"url": URL, "task": "searchqa"})
    queries = source({"url": URL, "task": "sqlgym"})

    assert ids(questions, Split.TEST) == [f"searchqa_{number}" for number in range(51_713)]
    assert ids(queries, Split.TEST) == [f"sqlgym_{number}" for number in range(9428, 10_962)]
    assert all(task.seed < 9428 for task in queries.tasks(Split.VALIDATION))


def test_the_lists_of_the_authors_are_the_splits(tmp_path: Path) -> None:
    train, test = tmp_path / "babyai_train.json", tmp_path / "babyai_test.json"
    train.write_text(json.dumps([{"item_id": f"babyai_{number}"} for number in range(20)]))
    test.write_text(json.dumps([{"item_id": "babyai_90"}, {"item_id": "babyai_80"}]))
    options = {"url": URL, "task": "babyai", "train_items": str(train), "test_items": str(test)}
    environments = source(options)

    assert ids(environments, Split.TEST) == ["babyai_90", "babyai_80"]
    training, validation = ids(environments, Split.TRAIN), ids(environments, Split.VALIDATION)
    assert len(validation) == 3
    assert sorted([*training, *validation]) == sorted(f"babyai_{number}" for number in range(20))


def test_a_list_with_an_item_in_two_splits_or_of_no_number_is_refused(tmp_path: Path) -> None:
    train, test = tmp_path / "train.json", tmp_path / "test.json"
    train.write_text(json.dumps([{"item_id": f"babyai_{number}"} for number in range(9)]))
    test.write_text(json.dumps([{"item_id": "babyai_3"}]))
    options = {"url": URL, "task": "babyai", "train_items": str(train), "test_items": str(test)}
    with pytest.raises(ConfigError, match="'babyai_3' is in train and in test"):
        source(options).tasks(Split.TRAIN)

    test.write_text(json.dumps([{"item_id": "look_at_obj/trial_T2019"}]))
    with pytest.raises(ConfigError, match="'look_at_obj/trial_T2019' names no number"):
        source(options).tasks(Split.TRAIN)

    test.write_text(json.dumps([3]))
    with pytest.raises(ConfigError, match="must be JSON such as"):
        source(options).tasks(Split.TRAIN)


def test_the_names_of_agentgym_rl_are_read() -> None:
    theirs = source({"env_addr": URL, "task_name": "maze", "timeout": 600})
    ours = source({"url": URL, "task": "maze", "timeout_seconds": 600})

    assert theirs.describe() == ours.describe()
    assert ids(theirs, Split.TRAIN) == ids(ours, Split.TRAIN)
    with pytest.raises(ConfigError, match="given 'url' twice"):
        source({"env_addr": URL, "url": URL, "task": "maze"})


def test_a_description_names_the_server_and_survives_json() -> None:
    description = source({"url": f"{URL}/maze/", "task": "maze"}).describe()

    assert f"{URL}/maze" in description.summary
    assert "/maze/maze" not in description.summary
    assert description.determinism is Determinism.FIRST_OBSERVATION
    assert EnvironmentDescription.from_json(description.to_json()) == description


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"task": "maze"}, "needs the address of its server as option 'url'"),
        ({"url": "localhost:36001", "task": "maze"}, "got 'localhost:36001'"),
        ({"url": "http://me:secret@host", "task": "maze"}, "must not hold a user or a password"),
        ({"url": URL}, "as option 'task', one of textcraft, babyai"),
        ({"url": URL, "task": "minecraft"}, "got 'minecraft'"),
        ({"url": URL, "task": "maze", "timeout_seconds": 0}, "timeout_seconds must be above 0"),
        ({"url": URL, "task": "maze", "num_items": 2}, "num_items must be 0 or at least 3"),
        ({"url": URL, "task": "sqlgym", "max_episodes": 9}, "must be from 0 to 8, got 9"),
        ({"url": URL, "task": "maze", "max_rounds": 9}, "has no option 'max_rounds'"),
    ],
)
def test_options_that_cannot_be_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        source(options)


def test_fewer_items_may_be_listed() -> None:
    environments = source({"url": URL, "task": "textcraft", "num_items": 100})

    assert sum(len(environments.tasks(split)) for split in Split) == 100
