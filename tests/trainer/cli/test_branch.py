"""`trainer branch`: a stored step is taken up again, and its value is shown."""

import json
import math
import shutil
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest
from rich.console import Console
from sqlalchemy.orm import Session
from typer.testing import CliRunner, Result

from fakes import ScriptedPolicy
from hosted_endpoint import hosted_by_gateway
from longhaul_core.audit import audit_run
from longhaul_core.errors import AllFailedError, ConfigError, StoreError
from longhaul_core.rollout.chance import CHANCE
from longhaul_core.rollout.expert import EXPERT
from longhaul_core.store import open_store, queries
from longhaul_core.store.retention import Retention
from longhaul_core.store.session import read_only_engine
from longhaul_trainer.cli.main import app
from longhaul_trainer.config import RunConfig
from longhaul_trainer.config.load import parse_config
from longhaul_trainer.play.branches import Continuations
from longhaul_trainer.play.imitation.check import require_imitable
from store_samples import make_failure, make_trajectory
from trainer.play.imitation.conftest import NUMBER_LINE, experts

__all__ = ["experts"]  # a fixture

COLUMNS = "branched_from, branched_at_step, branched_action"


@pytest.fixture
def store(experts: RunConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the store in which an expert has played, in the working folder."""
    monkeypatch.chdir(tmp_path)
    return Path(shutil.copy(experts.store, tmp_path / "longhaul.db"))


@pytest.fixture
def longest(store: Path) -> str:
    """The episode with the most steps: at step 3 it is far from its target."""
    return str(rows(store, "SELECT id FROM episodes ORDER BY num_steps DESC, id LIMIT 1")[0][0])


def rows(store: Path, statement: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(store)) as connection:
        return [tuple(row) for row in connection.execute(statement)]


def change(store: Path, statement: str) -> None:
    with closing(sqlite3.connect(store)) as connection, connection:
        connection.execute(statement)


def branched(episode: str, *further: str) -> Result:
    words = ["branch", episode, *further, "runs_directory=runs"]
    return CliRunner().invoke(app, words, catch_exceptions=True)


def refused(done: Result, error: type[Exception]) -> str:
    assert isinstance(done.exception, error), done.output
    return str(done.exception)


def actions(store: Path, episode_id: object) -> list[object]:
    found = rows(
        store, f"SELECT action FROM steps WHERE episode_id = '{episode_id}' ORDER BY step_index"
    )
    return [action for (action,) in found]


def test_an_expert_goes_on_and_the_continuations_are_a_run_of_their_own(
    store: Path, longest: str
) -> None:
    stored = actions(store, longest)
    before = rows(store, "SELECT * FROM episodes ORDER BY id")

    done = branched(longest, "--step", "3", "--continuations", "5", "--policy", "expert")

    assert done.exit_code == 0, done.output
    [(run_id, kind, status, name)] = rows(
        store, "SELECT id, kind, status, name FROM runs WHERE kind = 'branch'"
    )
    assert (kind, status, name) == ("branch", "finished", "branch")
    found = rows(
        store, f"SELECT id, phase, trained, {COLUMNS} FROM episodes WHERE run_id = '{run_id}'"
    )
    assert [row[1:] for row in found] == [("branch", 0, longest, 3, None)] * 5
    for row in found:
        assert actions(store, row[0]) == stored  # the expert would have done the same
    models = rows(
        store, f"SELECT DISTINCT model, trained FROM calls WHERE episode_id = '{found[0][0]}'"
    )
    assert models == [(EXPERT, 0)]
    assert rows(store, f"SELECT * FROM episodes WHERE run_id <> '{run_id}' ORDER BY id") == before
    assert (Path("runs") / "branches" / str(run_id) / "config.toml").is_file()
    assert "5 of 5 continuations" in done.output
    assert "solved; all are the same episode, so there is no interval" in done.output


def test_another_action_is_given_and_chance_goes_on_side_by_side(store: Path, longest: str) -> None:
    stored = actions(store, longest)
    other = "-" if stored[3] == "+" else "+"

    arguments = ["--step", "3", "--continuations", "12", "--policy", "random", "--action", other]
    done = branched(longest, *arguments)

    assert done.exit_code == 0, done.output
    found = rows(
        store, f"SELECT id, {COLUMNS} FROM episodes WHERE phase = 'branch' ORDER BY sample_index"
    )
    assert [row[1:] for row in found] == [(longest, 3, other)] * 12
    played = [actions(store, row[0]) for row in found]
    assert all(each[:4] == [*stored[:3], other] for each in played)
    assert len({tuple(each) for each in played}) > 1  # seeds differ
    models = rows(
        store,
        "SELECT DISTINCT c.model FROM calls c JOIN episodes e ON e.id = c.episode_id "
        "WHERE e.phase = 'branch' AND c.step_index > 3",
    )
    assert models == [(CHANCE,)]
    again = branched(longest, *arguments)
    assert again.output.splitlines()[-3:] == done.output.splitlines()[-3:]  # the same seeds


def test_what_is_shown_is_what_is_stored(store: Path, longest: str) -> None:
    change(
        store,
        "UPDATE steps SET return_to_go = 0.625, advantage = -0.25 "
        f"WHERE episode_id = '{longest}' AND step_index = 3",
    )

    done = branched(
        longest,
        "--step",
        "3",
        "--continuations",
        "40",
        "--policy",
        "random",
        "algorithm.discount=0.5",
    )

    assert done.exit_code == 0, done.output
    assert "return-to-go 0.625, advantage -0.250" in done.output
    returns = [
        math.fsum(
            float(str(reward)) * 0.5**place
            for place, (reward,) in enumerate(
                rows(
                    store,
                    f"SELECT reward FROM steps WHERE episode_id = '{episode_id}' "
                    "AND step_index >= 3 ORDER BY step_index",
                )
            )
        )
        for (episode_id,) in rows(store, "SELECT id FROM episodes WHERE phase = 'branch'")
    ]
    assert len(returns) == 40
    assert f"return  {math.fsum(returns) / 40:.3f}, 95 % " in done.output
    [(won,)] = rows(store, "SELECT sum(success) FROM episodes WHERE phase = 'branch'")
    assert f"success {float(str(won)) / 40:.1%}, 95 % " in done.output


def test_a_continuation_is_in_no_curve_no_panel_and_no_audit(store: Path, longest: str) -> None:
    assert branched(longest, "--step", "1", "--policy", "random").exit_code == 0

    [(run_id,)] = rows(store, "SELECT id FROM runs WHERE kind = 'branch'")
    engine = read_only_engine(store)
    with Session(engine) as session:
        assert queries.training_curve(session, run_id=str(run_id)) == []
        assert queries.sparklines(session, [str(run_id)]) == {run_id: []}
        assert queries.evaluations(session, run_id=str(run_id)) == []
        assert queries.training_steps(session, run_id=str(run_id)) == []
        summary = queries.get_run(session, run_id=str(run_id)).summary
        assert (summary.num_episodes, summary.last_mean_return) == (16, None)
        report = audit_run(session, str(run_id))
    engine.dispose()
    assert (report.training_steps, report.num_episodes) == ((), 0)
    assert [one.reason for one in report.not_checked] == ["the run has no training episodes"]


def test_a_changed_environment_is_refused_and_the_step_is_named(store: Path, longest: str) -> None:
    change(
        store,
        f"UPDATE steps SET reward = 0.125 WHERE episode_id = '{longest}' AND step_index = 2",
    )

    words = refused(branched(longest, "--step", "4", "--policy", "expert"), AllFailedError)

    assert f"after step 2 of {longest} the environment differs from the stored episode" in words
    assert "reward 0.125, now " in words
    assert rows(store, "SELECT status FROM runs WHERE kind = 'branch'") == [("failed",)]
    # What comes before the planted change is taken up.
    assert branched(longest, "--step", "2", "--policy", "expert").exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--step", "3"], "who goes on"),
        (["--step", "3", "--policy", "expert", "--endpoint", "http://127.0.0.1:1"], "who goes on"),
        (["--step", "99", "--policy", "expert"], "step 99 of .* cannot be taken up: the episode"),
        (
            ["--step", "3", "--policy", "expert", "--action", "jump"],
            "step 3 of .* another action: .* not one of the 2 admissible actions",
        ),
        (
            ["--step", "3", "--policy", "random", "environment.id=longhaul/Blackjack-v0"],
            "an episode of longhaul/NumberLine-v0, .* plays longhaul/Blackjack-v0: .* --config",
        ),
        (
            ["--step", "3", "--policy", "random", "memory.kind=summary"],
            "asks the policy for summaries, and chance",
        ),
        (["--step", "3", "--policy", "expert", "memory.kind=summary"], "an expert"),
    ],
)
def test_what_cannot_be_taken_up_is_refused_before_anything_is_played(
    store: Path, longest: str, arguments: Sequence[str], words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        raise branched(longest, *arguments).exception or AssertionError("it was not refused")
    assert rows(store, "SELECT id FROM runs WHERE kind = 'branch'") == []


def test_another_version_is_refused(store: Path, longest: str) -> None:
    change(store, "UPDATE tasks SET version = '0'")

    words = refused(branched(longest, "--step", "3", "--policy", "expert"), ConfigError)

    assert "it was played in version '0' of longhaul/NumberLine-v0" in words


def test_an_episode_that_is_not_there_failed_or_lost_its_texts_is_refused(
    store: Path, longest: str
) -> None:
    step = ("--step", "1", "--policy", "expert")
    assert "no episode 'nobody'" in refused(branched("nobody", *step), ConfigError)

    change(store, "UPDATE episodes SET phase = 'validation'")
    change(store, "UPDATE groups SET phase = 'validation'")
    engine = open_store(store)
    run_id = longest.split("/")[0]
    retention = Retention(engine, run_id=run_id, sampled_groups=0)
    while retention.remove_some(up_to=0):
        pass
    engine.dispose()
    assert "has no texts any more" in refused(branched(longest, *step), StoreError)

    change(store, f"UPDATE episodes SET stop_reason = NULL WHERE id = '{longest}'")
    assert "failed: it has no end" in refused(branched(longest, *step), StoreError)


def test_a_run_without_a_description_is_continued_by_a_file(store: Path, longest: str) -> None:
    change(store, f"UPDATE runs SET config_json = '{json.dumps({'agent': {'kind': 'person'}})}'")
    step = ("--step", "3", "--policy", "expert", "--continuations", "1")
    assert "name a file" in refused(branched(longest, *step), ConfigError)
    Path("run.toml").write_text(NUMBER_LINE, encoding="utf-8")

    done = branched(longest, *step, "--config", "run.toml")

    assert done.exit_code == 0, done.output
    assert "two continuations and more have an interval" in done.output


@pytest.fixture
def hosted_key(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    with hosted_by_gateway(ScriptedPolicy(["+", "-", "+", "+"])) as hosted:
        monkeypatch.setenv("LINE_KEY", hosted.key)
        yield hosted.openai


def test_a_hosted_model_goes_on(store: Path, longest: str, hosted_key: str) -> None:
    done = branched(
        longest,
        "--step",
        "3",
        "--continuations",
        "3",
        "--endpoint",
        hosted_key,
        "--model",
        "auto",
        "--key-variable",
        "LINE_KEY",
        "--max-concurrent",
        "1",
    )

    assert done.exit_code == 0, done.output
    models = rows(
        store,
        "SELECT DISTINCT c.model FROM calls c JOIN episodes e ON e.id = c.episode_id "
        "WHERE e.phase = 'branch' AND c.step_index >= 3",
    )
    assert models == [("auto",)]
    assert "cost unknown" in done.output


def test_returns_count_from_the_step_on_and_a_continuation_that_failed_has_none() -> None:
    found = Continuations(step_index=1, discount=0.5)

    found.heard(make_trajectory(rewards=(8.0, 1.0, 2.0)))  # 1 + 0.5 * 2 = 2
    assert (found.returns, found.mean_return) == ([2.0], None)
    found.heard(make_failure())
    found.heard(make_trajectory(rewards=(8.0, 1.0)))

    assert found.returns == [2.0, 1.0]
    mean = found.mean_return
    assert mean is not None
    # mean 1.5, s = 0.707107, s / sqrt 2 = 0.5; t(1) = 12.706205
    assert (mean.estimate, mean.low, mean.high) == pytest.approx((1.5, -4.853102, 7.853102))
    assert (found.success_rate.estimate, found.success_rate.num_units) == (1.0, 2)


def test_alternatives_that_continuations_verified_make_pairs_of_steps(store: Path) -> None:
    [(episode,)] = rows(store, "SELECT min(id) FROM episodes WHERE num_steps = 2")
    for action in ("+", "-"):
        done = branched(
            str(episode),
            *("--step", "0", "--continuations", "8", "--policy", "random", "--action", action),
        )
        assert done.exit_code == 0, done.output
    found = [run_id for (run_id,) in rows(store, "SELECT id FROM runs WHERE kind = 'branch'")]
    sources = ", ".join(f'{{ run = "{one}", where = {{ phase = "branch" }} }}' for one in found)
    run = parse_config(
        NUMBER_LINE,
        [
            *(f"imitation.sources=[{sources}]", "imitation.loss=dpo", "imitation.pairs=steps"),
            *("tasks_per_training_step=1", "rollout.group_size=16"),
        ],
    ).with_absolute_paths(store.parent)

    imitable = require_imitable(run, console=Console(quiet=True))

    assert (imitable.demonstrations.num_episodes, imitable.num_left_out) == (16, 0)
    assert imitable.num_step_pairs is not None
    assert imitable.num_step_pairs >= 1
    worth = rows(
        store,
        "SELECT branched_action, avg(episode_return) FROM episodes WHERE phase = 'branch' "
        "GROUP BY 1 ORDER BY 2",
    )
    assert worth[0] != worth[1]
    [kept] = imitable.demonstrations.of_task.values()
    first = {actions(store, each.episode_id)[0] for each in kept}
    assert first == {"+", "-"}
