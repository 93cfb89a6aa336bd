"""`trainer credit-truth`: stored steps are measured, and every estimator is judged by them."""

import json
import shutil
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sqlalchemy.orm import Session
from typer.testing import CliRunner, Result

from hosted_endpoint import hosted_by_gateway
from longhaul_core.advantages.estimators import ESTIMATORS
from longhaul_core.errors import AllFailedError, ConfigError
from longhaul_core.gym import GymEnvironmentSpec
from longhaul_core.policy import Completion, Prompt, Sampling
from longhaul_core.store import labelling, queries
from longhaul_core.store.records import Label
from longhaul_core.store.session import open_store, read_only_engine
from longhaul_core.truth import INVALID, exact_values, explored, tabulated
from longhaul_core.types import FinishReason, Observation
from longhaul_envs.players import opened
from longhaul_trainer.cli.exit_codes import ExitCode
from longhaul_trainer.cli.main import app
from longhaul_trainer.config import RunConfig
from longhaul_trainer.play.judge import REQUEST, judge_messages
from trainer.play.truth.conftest import played, small_model, trained

__all__ = ["played", "small_model", "trained"]  # fixtures

HALF_WIDTH = 0.2
RANDOM = ("--policy", "random", "--groups", "3", "--steps", "10", "--half-width", f"{HALF_WIDTH}")
DISCOUNT = 0.95


@pytest.fixture
def store(trained: RunConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the store in which episodes were played, in the working folder."""
    monkeypatch.chdir(tmp_path)
    return Path(shutil.copy(trained.store, tmp_path / "longhaul.db"))


@pytest.fixture(scope="module")
def once(trained: RunConfig, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a store in which ten steps were measured, and of `truth.json`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder := tmp_path_factory.mktemp("measured"))
        store = Path(shutil.copy(trained.store, folder / "longhaul.db"))
        done = measured(store, *RANDOM, "--output", "truth.json")
        assert done.exit_code == 0, done.output
        assert "| *planted right* |" in done.output
    return folder


@pytest.fixture
def done(once: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of that store, in the working folder."""
    monkeypatch.chdir(tmp_path)
    shutil.copy(once / "truth.json", tmp_path)
    return Path(shutil.copy(once / "longhaul.db", tmp_path / "longhaul.db"))


def rows(store: Path, statement: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(store)) as connection:
        return [tuple(row) for row in connection.execute(statement)]


def change(store: Path, statement: str) -> None:
    with closing(sqlite3.connect(store)) as connection, connection:
        connection.execute(statement)


def run_id(store: Path) -> str:
    [(found,)] = rows(store, "SELECT id FROM runs WHERE kind = 'train'")
    return str(found)


def measured(store: Path, *further: str) -> Result:
    words = ["credit-truth", run_id(store), *further, "runs_directory=runs"]
    return CliRunner().invoke(app, words, catch_exceptions=True)


def figures(*names: str) -> dict[str, Any]:
    return json.loads(Path(*names).read_text(encoding="utf-8"))


def by_chance(seen: Observation) -> dict[str, float]:
    actions = seen.admissible_actions or ()
    return {INVALID: 0.0, **dict.fromkeys(actions, 1 / len(actions))}


def exact_truth(store: Path, steps: Sequence[dict[str, Any]]) -> list[tuple[float, float]]:
    """V and Q of the random policy, by backward induction over all states of each step's task."""
    found: list[tuple[float, float]] = []
    engine = read_only_engine(store)
    spec = GymEnvironmentSpec(environment_id="longhaul/KeyDoor-v0", options={"room_size": 3})
    with Session(engine) as session, opened(spec) as player:
        for each in steps:
            episode = queries.recorded_episode(session, each["episode_id"])
            graph = explored(player, episode.task, horizon=episode.horizon)
            values = exact_values(graph, tabulated(graph, by_chance), discount=DISCOUNT)
            at = int(each["step_index"])
            step, left = episode.steps[at], episode.horizon - at
            value = values.value(step.observation, steps_left=left)
            action = step.action if step.action_valid else INVALID
            advantage = values.advantage(step.observation, action, steps_left=left)
            found.append((value, value + advantage))
    engine.dispose()
    return found


def test_sampled_values_hold_the_exact_ones_and_all_estimators_are_judged(
    done: Path, trained: RunConfig
) -> None:
    found = figures("truth.json")
    exact = exact_truth(done, found["steps"])
    assert len(exact) == 10
    assert found["num_undefined"] == 0
    held: list[bool] = []
    for step, (value, action_value) in zip(found["steps"], exact, strict=True):
        for sampled, true in ((step["value"], value), (step["action_value"], action_value)):
            low, estimate, high = sampled["low"], sampled["estimate"], sampled["high"]
            held.append(low <= true <= high)
            assert max(high - estimate, estimate - low) <= HALF_WIDTH
    assert sum(held) >= 18  # of 20, at 95 %
    estimates = np.array([step["advantage"]["estimate"] for step in found["steps"]])
    true = np.array([q - v for v, q in exact])
    assert true.std() > 0.02  # values of one kind would prove little
    assert np.corrcoef(estimates, true)[0, 1] > 0.7
    needs = {name for name, of in ESTIMATORS.items() if of.compares_training_step}
    needs |= {name for name, of in ESTIMATORS.items() if of.needs_greedy_episode}
    assert set(found["not_computed"]) == {*needs, "gae, λ = 0"}
    assert set(ESTIMATORS) - needs <= set(found["estimators"])
    right = found["estimators"]["*planted right*"]
    assert (right["ρ group"]["estimate"], right["slope"]["estimate"]) == pytest.approx((1.0, 1.0))
    assert found["estimators"]["*planted wrong*"]["ρ group"]["estimate"] == pytest.approx(-1.0)
    of_training = "SELECT * FROM episodes WHERE phase = 'train' ORDER BY id"
    assert rows(done, of_training) == rows(Path(trained.store), of_training)
    assert rows(done, "SELECT kind, name FROM runs WHERE kind <> 'train'") == [
        ("branch", "truth-random")
    ]


def test_the_two_sets_share_no_seed_and_the_second_takes_the_stored_action(done: Path) -> None:
    sets = {
        taken: rows(
            done,
            "SELECT e.seed, now.action, was.action FROM episodes e "
            "JOIN steps now ON now.episode_id = e.id AND now.step_index = e.branched_at_step "
            "JOIN steps was ON was.episode_id = e.branched_from "
            "AND was.step_index = e.branched_at_step "
            f"WHERE e.phase = 'branch' AND e.branched_action IS {'NOT' if taken else ''} NULL",
        )
        for taken in (False, True)
    }
    seeds = {taken: {seed for seed, _, _ in of_set} for taken, of_set in sets.items()}
    assert not seeds[False] & seeds[True]
    assert all(len(seeds[taken]) == len(sets[taken]) > 100 for taken in sets)
    assert all(now == was for _, now, was in sets[True])
    assert any(now != was for _, now, was in sets[False])


def test_a_second_call_plays_nothing_and_a_finer_one_goes_on(done: Path) -> None:
    drawn = (
        "SELECT branched_from, branched_at_step, branched_action, sample_index "
        "FROM episodes WHERE phase = 'branch'"
    )
    before = set(rows(done, drawn))

    again = measured(done, *RANDOM, "--output", "again.json")

    assert again.exit_code == 0, again.output
    assert "nothing: the store has every continuation" in again.output
    assert figures("again.json") == figures("truth.json")
    assert len(rows(done, drawn)) == len(before)
    finer = measured(done, *RANDOM, "--half-width", "0.15", "--output", "finer.md")
    assert finer.exit_code == 0, finer.output
    after = rows(done, drawn)
    assert len(after) == len(set(after)) > len(before)
    assert set(after) > before
    written = Path("finer.md").read_text(encoding="utf-8")
    assert written.count("| grpo |") == written.count("| *shuffled truth* |") == 1
    assert "10 steps, drawn evenly by seed 0 from the" in written
    assert "undefined, since no continuation ended: 0" in written


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--half-width", "0"], "--half-width must be above 0, got 0"),
        (["--training-steps", "5..3"], "a training step or two such as 3..8, got '5..3'"),
        (["--training-steps", "4..9"], "at least 2 groups, and there are 0"),
        (["--output", "truth.txt"], r"must end in .md or .json, got truth.txt"),
        (["--output", "missing/truth.md"], "there is no folder missing; make it first"),
        (["--policy", "random", "--weights", "best"], "--weights chooses among"),
        (["--policy", "random", "--checkpoint", "last"], "who goes on"),
        (["memory.kind=summary"], "asks the policy for summaries, and chance"),
        ([], "holds no final weights"),
    ],
)
def test_what_cannot_be_measured_is_refused_before_anything_is_played(
    store: Path, trained: RunConfig, arguments: Sequence[str], words: str
) -> None:
    done = measured(
        store,
        *(arguments if arguments[:1] == ["--policy"] or not arguments else [*RANDOM, *arguments]),
        "--runs-directory",
        trained.runs_directory,
    )

    with pytest.raises(ConfigError, match=words):
        raise done.exception or AssertionError("it was not refused")
    assert rows(store, "SELECT id FROM runs WHERE kind = 'branch'") == []


def test_another_version_is_refused(store: Path) -> None:
    change(store, "UPDATE tasks SET version = '0'")

    done = measured(store, *RANDOM)

    assert isinstance(done.exception, ConfigError)
    assert "it was played in version '0' of longhaul/KeyDoor-v0" in str(done.exception)
    assert rows(store, "SELECT id FROM runs WHERE kind = 'branch'") == []


def test_steps_behind_a_changed_rule_are_undefined_and_no_zero(done: Path) -> None:
    change(done, "UPDATE steps SET reward = 0.125 WHERE step_index = 3")
    change(done, "DELETE FROM episodes WHERE phase = 'branch'")
    behind = [step for step in figures("truth.json")["steps"] if step["step_index"] > 3]

    ended = measured(done, *RANDOM, "--half-width", "0.5", "--output", "changed.json")

    assert ended.exit_code == ExitCode.UNPLAYED, ended.output
    found = figures("changed.json")
    assert found["num_undefined"] == len(behind) > 0
    assert len(found["steps"]) == 10 - len(behind) > 0
    # The next call finds nothing but what fails again, and still shows the rest.
    again = measured(done, *RANDOM, "--half-width", "0.5", "--output", "again.json")
    assert again.exit_code == ExitCode.UNPLAYED, again.output
    assert figures("again.json")["steps"] == found["steps"]
    failures = rows(done, "SELECT DISTINCT message FROM failures")
    assert all("the environment differs from the stored episode" in words for (words,) in failures)


def of_small(config: RunConfig, store: Path, *further: str) -> Result:
    weights = ("--checkpoint", config.model.path, "--skip-doctor")
    return measured(store, "--groups", "4", "--half-width", "0.2", *weights, *further)


@pytest.fixture
def small_store(played: RunConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the store in which a small model played, in the working folder."""
    monkeypatch.chdir(tmp_path)
    return Path(shutil.copy(played.store, tmp_path / "longhaul.db"))


def test_small_weights_go_on_in_this_process_and_hold_the_exact_values(
    played: RunConfig, small_store: Path
) -> None:
    exact = of_small(played, small_store, "--steps", "12", "--exact", "--output", "exact.json")

    assert exact.exit_code == 0, exact.output
    assert rows(small_store, "SELECT id FROM runs WHERE kind = 'branch'") == []
    true = figures("exact.json")
    assert "V and Q are exact, of the weights" in true["measured"][1]
    assert "not compared with the engine" in true["measured"][2]
    assert {"*confidence*", "*planted right*", "grpo"} <= set(true["estimators"])
    assert "*half of the continuations*" not in true["estimators"]
    cosines = {name: one["gradient cosine"] for name, one in true["estimators"].items()}
    assert cosines["*planted right*"]["estimate"] == pytest.approx(1.0)
    assert cosines["*planted wrong*"]["estimate"] == pytest.approx(-1.0)
    assert -1.0 < cosines["grpo"]["estimate"] < 1.0
    assert true["estimators"]["*planted right*"]["gradient variance"]["estimate"] > 0.0
    sampled = of_small(played, small_store, "--steps", "12", "--output", "sampled.json")
    assert sampled.exit_code == 0, sampled.output
    found = figures("sampled.json")
    assert found["estimators"]["*planted right*"]["gradient cosine"]["low"] == pytest.approx(1.0)
    assert "gradient cosine" in found["estimators"]["*half of the continuations*"]
    held: list[bool] = []
    for one, other in zip(true["steps"], found["steps"], strict=True):
        assert (one["episode_id"], one["step_index"]) == (other["episode_id"], other["step_index"])
        held += [
            other[name]["low"] <= one[name]["estimate"] <= other[name]["high"]
            for name in ("value", "action_value")
        ]
    assert sum(held) >= 22  # of 24, at 95 %
    pieces = "SELECT count(*) FROM token_pieces WHERE run_id IN (SELECT id FROM runs WHERE kind = "
    assert rows(small_store, pieces + "'branch')")[0][0] > 300


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--policy", "expert"], "--exact needs the probability of every action: .* expert has"),
        (["memory.kind=window"], "exact values need a policy that reads the state alone"),
    ],
)
def test_exact_values_are_refused_by_name(
    played: RunConfig, small_store: Path, arguments: Sequence[str], words: str
) -> None:
    weights = [] if "--policy" in arguments else ["--checkpoint", played.model.path]
    done = measured(small_store, "--exact", *weights, *arguments)
    with pytest.raises(ConfigError, match=words):
        raise done.exception or AssertionError("it was not refused")


class Judge:
    """Answers each request for an episode of the store with a number for each step."""

    def __init__(self, answers: Mapping[str, str]) -> None:
        self.answers = answers
        self.asked: list[str] = []

    async def act(self, prompt: Prompt, sampling: Sampling, *, episode_id: str) -> Completion:
        system, user = prompt.messages
        assert system.content == REQUEST
        assert isinstance(user.content, str)
        self.asked.append(user.content)
        reply = self.answers[user.content]
        return Completion(
            text=reply,
            action_tokens=tuple(reply.encode()),
            behavior_logprobs=(-0.5,) * len(reply.encode()),
            policy_version=0,
            finish_reason=FinishReason.STOP,
        )


def requests(store: Path, answers: Mapping[str, Mapping[int, float]]) -> dict[str, str]:
    """The replies to the requests about these steps, by the text of each request."""
    engine = read_only_engine(store)
    with Session(engine) as session:
        found = {
            judge_messages(queries.recorded_episode(session, episode_id), list(scores))[
                1
            ].text: f"Well. {json.dumps(scores)}"
            for episode_id, scores in answers.items()
        }
    engine.dispose()
    return found


def judged(store: Path, judge: Judge, *, key: str | None = None) -> Result:
    with hosted_by_gateway(judge) as hosted, pytest.MonkeyPatch.context() as patch:
        patch.setenv("JUDGE_KEY", key or hosted.key)
        words = ["judge", run_id(store), *RANDOM[2:6], "--endpoint", hosted.openai]
        words += ["--model", "auto", "--key-variable", "JUDGE_KEY"]
        return CliRunner().invoke(app, words, catch_exceptions=True)


def test_a_judge_that_knows_the_truth_is_judged_right(done: Path) -> None:
    steps = figures("truth.json")["steps"]
    answers: dict[str, dict[int, float]] = {}
    for step in steps:
        advantage = step["advantage"]["estimate"]
        answers.setdefault(step["episode_id"], {})[step["step_index"]] = advantage
    assert len({advantage for scores in answers.values() for advantage in scores.values()}) > 3
    judge = Judge(requests(done, answers))

    first = judged(done, judge)

    assert first.exit_code == 0, first.output
    assert f"10 of 10 steps of {len(answers)} episodes got a number by auto" in first.output
    assert sorted(judge.asked) == sorted(judge.answers)
    values = rows(done, "SELECT name, author, count(*) FROM labels GROUP BY name, author")
    assert values == [("credit", "auto", 10)]
    again = judged(done, judge)
    assert again.exit_code == 0, again.output
    assert "0 of 0 steps of 0 episodes got a number by auto; 10 had one before" in again.output
    assert len(judge.asked) == len(answers)

    found = measured(done, *RANDOM, "--output", "judged.json")

    assert found.exit_code == 0, found.output
    estimators = figures("judged.json")["estimators"]
    label = estimators["*label credit by auto*"]
    right = estimators["*planted right*"]
    assert label["ρ group"] == pytest.approx(right["ρ group"], rel=1e-3)
    assert label["sign"] == pytest.approx(right["sign"])
    assert label["slope"]["estimate"] == pytest.approx(1.0, rel=1e-3)


def test_labels_that_are_no_numbers_are_no_credit(done: Path) -> None:
    steps = figures("truth.json")["steps"]
    engine = open_store(done, create=False)
    labels = [
        Label(
            episode_id=step["episode_id"],
            step_index=step["step_index"],
            name="note",
            value=value,
            author="a|b",
            created_at=0.0,
        )
        for step, value in zip(steps, ["nan", "good", "inf", "-0.5"], strict=False)
    ]
    for label in [*labels, replace(labels[0], step_index=None, value="1")]:
        labelling.put_label(engine, label)
    engine.dispose()

    found = measured(done, *RANDOM, "--output", "labelled.json")

    assert found.exit_code == 0, found.output
    assert "| *label note by a/b* |" in found.output
    names = figures("labelled.json")["estimators"]
    assert [name for name in names if "label" in name] == ["*label note by a|b*"]


def test_what_a_judge_leaves_out_is_named_and_asked_for_again(done: Path) -> None:
    steps = figures("truth.json")["steps"]
    answers: dict[str, dict[int, float]] = {}
    for step in steps:
        answers.setdefault(step["episode_id"], {})[step["step_index"]] = 0.5
    replies = requests(done, answers)
    text = next(iter(replies))
    num_left = text.rpartition(": ")[2].count(",") + 1

    silent = judged(done, Judge(dict.fromkeys(replies, "no")))
    part = judged(done, Judge(replies | {text: "no"}))
    rest = judged(done, judge := Judge(replies))

    with pytest.raises(AllFailedError, match="nothing was judged: no reply has a JSON object"):
        raise silent.exception or AssertionError("it did not fail")
    assert part.exit_code == ExitCode.UNPLAYED, part.output
    assert f"{10 - num_left} of 10 steps" in part.output
    assert rest.exit_code == 0, rest.output
    assert judge.asked == [text]


def test_an_endpoint_that_fails_is_named(done: Path) -> None:
    failed = judged(done, Judge({}), key="wrong")

    with pytest.raises(AllFailedError, match="nothing was judged: hosted model 'auto' at http"):
        raise failed.exception or AssertionError("it did not fail")
    assert rows(done, "SELECT * FROM labels") == []


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ([], "name the judge: --endpoint URL --model NAME"),
        (["--label", " "], "--label must have 1 to 255 characters, .* got 1"),
        (["--label", "x" * 256], "--label must have 1 to 255 characters, .* got 256"),
        (["--training-steps", "3.."], "--training-steps must be a training step or two"),
    ],
)
def test_a_judge_that_could_not_write_is_refused_before_it_is_asked(
    done: Path, options: Sequence[str], words: str
) -> None:
    named = ["--endpoint", "http://127.0.0.1:1/v1", "--model", "m"] if options else []
    refused = CliRunner().invoke(app, ["judge", run_id(done), *named, *options])
    with pytest.raises(ConfigError, match=words):
        raise refused.exception or AssertionError("it was not refused")


def test_chance_is_exact_too(done: Path) -> None:
    arguments = RANDOM[: RANDOM.index("--half-width")]
    ended = measured(done, *arguments, "--exact", "--output", "exact.json")

    assert ended.exit_code == 0, ended.output
    steps = figures("exact.json")["steps"]
    found = [(one["value"]["estimate"], one["action_value"]["estimate"]) for one in steps]
    for one, other in zip(found, exact_truth(done, steps), strict=True):
        assert one == pytest.approx(other)
