"""SQL as an environment: looks, answers, refusals, generated databases and BIRD-SQL's folders."""

import json
import os
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from gymnasium.error import ResetNeeded

from longhaul_core.environment import Determinism
from longhaul_core.errors import ConfigError
from longhaul_core.types import Split
from longhaul_envs.sql.bird import load_bird
from longhaul_envs.sql.domains import DOMAINS
from longhaul_envs.sql.environment import SQL
from longhaul_envs.sql.generated import FAMILIES, make_database
from longhaul_envs.sql.tasks import SQLOptions, asked, source


def lines(step: tuple[str, Any, Any, Any, Any], count: int) -> list[str]:
    return step[0].splitlines()[-count:]


def test_an_episode_of_two_looks_and_an_answer() -> None:
    environment = SQL()
    text, info = environment.reset(options={"task_id": "shop-0/top_things"})
    assert text.splitlines()[0].startswith("Goal: Give title and price of the ")
    assert text.splitlines()[1] == "Tables of shop:"
    assert "suppliers(id INTEGER PRIMARY KEY, name TEXT, country TEXT)" in text
    assert "admissible_actions" not in info

    step = environment.step("query SELECT MIN(id), MAX(id) FROM suppliers")
    assert lines(step, 3) == ["MIN(id) | MAX(id)", "1 | " + lines(step, 2)[0][4:], "(1 row)"]
    assert step[1:4] == (0.0, False, False)
    step = environment.step("QUERY SELECT id FROM orders")
    assert lines(step, 1) == ["(the first 20 rows)"]
    text, reward, terminated, truncated, info = environment.step(str(environment.expert_action()))
    assert text.endswith("The answer is right")
    assert (reward, terminated, truncated, info["success"]) == (1.0, True, False, True)
    with pytest.raises(ResetNeeded):
        environment.step("query SELECT 1")


def test_a_statement_may_begin_on_the_next_line() -> None:
    environment = SQL()
    environment.reset(options={"task_id": "shop-0/top_things"})

    step = environment.step("query\n\tSELECT 1 AS one")

    assert lines(step, 3) == ["one", "1", "(1 row)"]
    assert step[4]["action_accepted"] is True


def test_a_wrong_or_refused_answer_ends_the_task() -> None:
    environment = SQL()
    for answer, said in (
        ("answer SELECT 1", "The answer is wrong"),
        (
            "answer DROP TABLE orders",
            "The answer is wrong: no table may be made, changed or dropped",
        ),
        ("answer", "The answer is wrong: there is no SELECT in it"),
    ):
        environment.reset(options={"task_id": "shop-0/top_things"})
        text, reward, terminated, _, info = environment.step(answer)
        assert text.splitlines()[-1].startswith(said)
        assert (reward, terminated, info["success"]) == (0.0, True, False)


@pytest.mark.parametrize(
    "action", ["", "SELECT 1", "drop it", "query" + "x" * 9, "query " + "x" * 100_000, "\x00</s>"]
)
def test_nonsense_is_answered_and_starts_nothing(action: str) -> None:
    environment = SQL()
    _, before = environment.reset(options={"task_id": "shop-0/top_things"})
    text, reward, terminated, _, info = environment.step(action)
    assert text.splitlines()[-1].startswith("That is no action here: write query or answer")
    assert (reward, terminated, info["action_accepted"]) == (0.0, False, False)
    assert info["anchor_state"] == before["anchor_state"]


def test_a_refused_query_leaves_the_anchor_and_a_result_changes_it() -> None:
    environment = SQL()
    environment.reset(options={"task_id": "shop-0/top_things"})
    looked = environment.step("query SELECT COUNT(*) FROM orders")[4]
    text, _, _, _, info = environment.step("query DELETE FROM orders")
    assert text.splitlines()[-1] == "Refused: DELETE is not allowed: SELECT alone is"
    assert info["anchor_state"] == looked["anchor_state"]
    assert not info["action_accepted"]
    again = environment.step("query SELECT COUNT(*) FROM orders")[4]
    assert again["anchor_state"] == looked["anchor_state"]
    other = environment.step("query SELECT COUNT(*) + 1 FROM orders")[4]
    assert other["anchor_state"] != looked["anchor_state"]


def test_long_values_are_cut_in_sight_and_say_so() -> None:
    environment = SQL(shown_rows=2)
    environment.reset(options={"task_id": "shop-0/top_things"})
    step = environment.step("query SELECT printf('%.*c', 700, 'a') UNION ALL VALUES (NULL), (3)")
    assert lines(step, 3) == [f"{'a' * 500}[200 more characters]", "NULL", "(the first 2 rows)"]


def test_the_tables_can_be_left_to_find() -> None:
    environment = SQL(schema="hidden")
    text, _ = environment.reset(options={"task_id": "shop-0/top_things"})
    assert len(text.splitlines()) == 1
    assert lines(environment.step("query SELECT COUNT(*) FROM sqlite_master"), 2)[0] == "4"
    first = SQL(schema="first")
    assert "Tables of" in first.reset(options={"task_id": "shop-0/top_things"})[0]
    assert "Tables of" not in first.step("query SELECT 1")[0]


def test_in_the_single_form_a_statement_is_the_answer() -> None:
    environment = SQL(form="single")
    environment.reset(options={"task_id": "shop-0/top_things"})
    gold = str(environment.expert_action())
    assert gold.startswith("SELECT")
    assert environment.step(gold)[1:3] == (1.0, True)


def test_a_generated_file_goes_with_the_episode(tmp_path: Path, monkeypatch: Any) -> None:  # noqa: ANN401
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    environment = SQL()
    environment.reset(options={"task_id": "shop-0/top_things"})
    assert list(tmp_path.iterdir()) == []  # made when it is first needed
    environment.step("query SELECT 1")
    assert len(list(tmp_path.iterdir())) == 1
    environment.reset(options={"task_id": "shop-1/top_things"})
    environment.step("query SELECT 1")
    assert len(list(tmp_path.iterdir())) == 1
    environment.close()
    assert list(tmp_path.iterdir()) == []
    environment.close()


def test_every_domain_is_asked_most_families_and_golds_have_few_rows() -> None:
    for domain in DOMAINS:
        database = make_database(domain.name, 0)
        assert len(database.questions) >= len(FAMILIES) - 2
        with closing(sqlite3.connect(":memory:")) as connection:
            connection.deserialize(database.image)
            for question in database.questions:
                rows = connection.execute(question.gold).fetchall()
                assert 1 <= len(rows) <= 15
                assert None not in rows[0]


def test_no_database_and_no_question_of_a_domain_is_in_two_splits() -> None:
    environment = SQL(num_databases=4)
    databases: dict[str, Split] = {}
    questions: dict[tuple[str, str], Split] = {}
    for split in Split:
        for task in environment.tasks(split):
            name = task.task_id.partition("/")[0]
            assert databases.setdefault(name, split) is split
            words = (name.partition("-")[0], task.goal)
            assert questions.setdefault(words, split) is split
    assert len(databases) == 4 * len(DOMAINS)


def test_golds_of_the_test_split_score_one_and_others_of_the_database_zero() -> None:
    environment = SQL(form="single", num_databases=2)
    golds = {
        task.task_id: asked(task.task_id, SQLOptions()).gold
        for task in environment.tasks(Split.TEST)
    }
    scores: Counter[tuple[bool, float]] = Counter()
    for task_id, gold in list(golds.items())[::3]:
        for is_gold, statement in ((True, gold), (False, f"SELECT * FROM ({gold}) LIMIT 0")):
            environment.reset(options={"task_id": task_id})
            scores[is_gold, float(environment.step(statement)[1])] += 1
    assert scores.keys() == {(True, 1.0), (False, 0.0)}
    assert sum(scores.values()) > 10


# BIRD-SQL


def write_bird(folder: Path, part: str, names: list[str]) -> None:
    """Tiny files in the form of BIRD-SQL's; dev has keys that train lacks."""
    root = folder / part
    rows: list[dict[str, object]] = []
    for name in names:
        (root / f"{part}_databases" / name).mkdir(parents=True)
        file = root / f"{part}_databases" / name / f"{name}.sqlite"
        with closing(sqlite3.connect(file)) as connection:
            connection.executescript(
                "CREATE TABLE schools(CDSCode TEXT PRIMARY KEY, `Free Meals` REAL, County TEXT);"
                "CREATE TABLE scores(cds TEXT, opened DATE, "
                "FOREIGN KEY (cds) REFERENCES schools(CDSCode));"
                "INSERT INTO schools VALUES ('01', 0.5, 'Alameda'), ('02', 0.25, 'Alameda');"
                "INSERT INTO scores VALUES ('01', '1980-07-01'), ('02', '1990-07-01');"
            )
        row: dict[str, object] = {
            "db_id": name,
            "question": f"Highest rate of free meals in Alameda, of {name}?",
            "evidence": "rate of free meals refers to `Free Meals`",
            "SQL": "SELECT `Free Meals` FROM schools WHERE County = 'Alameda' "
            "ORDER BY `Free Meals` DESC LIMIT 1",
        }
        clock: dict[str, object] = {
            **row,
            "question": f"How many opened before 1985, of {name}?",
            "evidence": "",
            "SQL": "SELECT COUNT(*) FROM scores WHERE STRFTIME('%Y', opened) < '1985'",
        }
        extra = {"question_id": len(rows), "difficulty": "simple"} if part == "dev" else {}
        rows += [{**row, **extra}, {**clock, **extra}]
    (root / f"{part}.json").write_text(json.dumps(rows), encoding="utf-8")


@pytest.fixture(scope="module")
def bird(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bird")
    write_bird(folder, "train", ["airline", "beer", "cars", "movies"])
    write_bird(folder, "dev", ["california_schools", "card_games"])
    return folder


def test_birds_dev_is_the_test_split_and_train_is_parted_by_database(bird: Path) -> None:
    loaded = load_bird(bird)
    assert loaded.splits[Split.TEST] == ("dev/0", "dev/1", "dev/2", "dev/3")
    train, validation = loaded.splits[Split.TRAIN], loaded.splits[Split.VALIDATION]
    assert (len(train), len(validation)) == (6, 2)
    assert len({loaded.questions[task_id].file for task_id in validation}) == 1
    assert set(train) | set(validation) == {f"train/{number}" for number in range(8)}


def test_a_question_of_bird_is_played(bird: Path) -> None:
    environment = SQL(bird=str(bird))
    text, _ = environment.reset(options={"task_id": "dev/0"})
    assert text.splitlines() == [
        "Goal: Highest rate of free meals in Alameda, of california_schools?",
        "Hint: rate of free meals refers to `Free Meals`",
        "Tables of california_schools:",
        'schools(CDSCode TEXT PRIMARY KEY, "Free Meals" REAL, County TEXT)',
        "scores(cds TEXT, opened DATE, FOREIGN KEY (cds) REFERENCES schools(CDSCode))",
    ]
    assert environment.step("answer SELECT MAX([Free Meals]) FROM schools")[1] == 1.0
    for task in environment.tasks(Split.TEST):
        environment.reset(options={"task_id": task.task_id})
        assert environment.step(str(environment.expert_action()))[1] == 1.0


def test_with_bird_only_the_first_observation_is_promised(bird: Path) -> None:
    assert source({}).describe().determinism is Determinism.EXACT
    described = source({"bird": str(bird)}).describe()
    assert described.determinism is Determinism.FIRST_OBSERVATION


def test_a_gold_query_that_cannot_be_run_fails_the_episode(tmp_path: Path) -> None:
    write_bird(tmp_path, "dev", ["a", "b", "c"])
    file = tmp_path / "dev" / "dev.json"
    rows = json.loads(file.read_text("utf-8"))
    rows[0]["SQL"] = "SELECT a FROM nowhere"
    file.write_text(json.dumps(rows), encoding="utf-8")
    environment = SQL(bird=str(tmp_path))
    environment.reset(options={"task_id": "dev/0"})
    with pytest.raises(RuntimeError, match="gold query of task 'dev/0' cannot be scored: no such"):
        environment.step("answer SELECT 1")


def test_a_folder_that_is_not_birds_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"there must be train/train.json or dev/dev.json"):
        SQL(bird=str(tmp_path))
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev" / "dev.json").write_text('[{"db_id": "x"}]', encoding="utf-8")
    with pytest.raises(ConfigError, match=r"is no list of BIRD-SQL's questions"):
        SQL(bird=str(tmp_path))
    row = {"db_id": "x", "question": "?", "evidence": "", "SQL": "SELECT 1"}
    (tmp_path / "dev" / "dev.json").write_text(json.dumps([row]), encoding="utf-8")
    with pytest.raises(ConfigError, match=r"lacks the database"):
        SQL(bird=str(tmp_path))


def test_birds_own_files_are_played() -> None:
    folder = os.environ.get("LONGHAUL_TEST_DATA")
    if not folder or not (Path(folder) / "bird").is_dir():
        pytest.skip("LONGHAUL_TEST_DATA has no folder bird with BIRD-SQL's train or dev")
    environment = SQL(bird=str(Path(folder) / "bird"))
    for task in environment.tasks(Split.TEST, 20):
        environment.reset(options={"task_id": task.task_id})
        assert environment.step(str(environment.expert_action()))[1] == 1.0, task.task_id


@pytest.mark.parametrize(
    "task_id", ["", "shop-0", "shop-0/songs", "cinema-0/top_things", "shop-x/top_things", "dev/0"]
)
def test_an_unknown_task_is_refused(task_id: str) -> None:
    with pytest.raises(ValueError, match="no SQL task is called"):
        SQL().reset(options={"task_id": task_id})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"form": "chat"}, "form must be one of explore, single, got 'chat'"),
        ({"schema": "never"}, "schema must be one of always, first, hidden, got 'never'"),
        ({"scoring": "f1"}, "scoring must be one of rows, sets, got 'f1'"),
        ({"num_databases": 0}, "num_databases must be from 1 to 500, got 0"),
        ({"shown_rows": 0}, "shown_rows must be from 1 to 1000, got 0"),
        ({"max_steps": 1}, "max_steps must be from 10000 to 1000000000, got 1"),
    ],
)
def test_an_option_out_of_range_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        SQL(**options)
