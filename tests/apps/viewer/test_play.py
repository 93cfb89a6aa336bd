"""Episodes that a person plays: what is stored of them, who may play, and what stays apart."""

import sqlite3
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from sqlalchemy.orm import Session

from apps.viewer.app_pages import html_of, open_page
from longhaul_core.errors import ConfigError, StoreError
from longhaul_core.store import queries
from longhaul_core.store.queries import EpisodeDetail, EpisodeFilter
from longhaul_core.store.session import open_store, read_only_engine
from longhaul_core.types import FailedEpisode, Split, Task, Trajectory
from longhaul_viewer.data import play as play_data
from longhaul_viewer.data import runs as runs_data
from longhaul_viewer.play.game import GameState
from longhaul_viewer.play.table import MOST_SOURCES, Choice, PlayTable
from longhaul_viewer.settings import READ_ONLY_VARIABLE, STORE_VARIABLE
from other_processes import command_of

LINE = Choice(environment_id="longhaul/NumberLine-v0")
PATIENCE = 60.0


@pytest.fixture
def store(tmp_path: Path) -> str:
    url = str(tmp_path / "play.db")
    open_store(url).dispose()
    return url


@pytest.fixture
def table(store: str) -> Iterator[PlayTable]:
    table = PlayTable(store, account="ada")
    yield table
    table.close()


def task(task_id: str, choice: Choice = LINE) -> Task:
    every = [each for split in Split for each in play_data.tasks(choice, split)]
    return next(each for each in every if each.task_id == task_id)


def played(table: PlayTable, sitting: str, *actions: str, episode: int = 0) -> GameState:
    """The state after these actions, the first of them in step 0."""
    table.state(sitting, wait_seconds=PATIENCE)
    for step, action in enumerate(actions):
        assert table.act(sitting, episode=episode, step=step, action=action)
        table.state(sitting, wait_seconds=PATIENCE)
    return table.state(sitting)


def episodes(store: str) -> list[EpisodeDetail]:
    engine = read_only_engine(store)
    with Session(engine) as session:
        rows = queries.list_episodes(session, where=EpisodeFilter()).rows
        found = [queries.get_episode(session, episode_id=row.episode_id) for row in rows]
    engine.dispose()
    return sorted(found, key=lambda each: each.summary.group_index)


def runs(store: str) -> list[queries.RunSummary]:
    engine = read_only_engine(store)
    with Session(engine) as session:
        found = queries.list_runs(session)
    engine.dispose()
    return found


def test_an_episode_worked_out_by_hand(table: PlayTable, store: str) -> None:
    """From 9 to 11: 8 is farther (-1), nonsense comes no nearer (-1), 9 and 10 pay 0, 11 pays 1."""
    sitting = table.begin(LINE, task("12/9-11"), horizon=10)
    state = played(table, sitting, "-", "jump", "+", "+", "+")

    assert state.stage == "over"
    assert [(turn.action, turn.reward) for turn in state.turns] == [
        ("-", -1.0), ("jump", -1.0), ("+", 0.0), ("+", 0.0), ("+", 1.0),
    ]  # fmt: skip
    assert [turn.reason for turn in state.turns if not turn.valid] == [
        "not one of the 2 admissible actions"
    ]
    (episode,) = episodes(store)
    summary = episode.summary
    assert summary.episode_id == state.episode_id
    assert (summary.phase, summary.success, summary.stop_reason) == ("play", True, "task_solved")
    assert (summary.episode_return, summary.num_steps, summary.num_invalid_actions) == (-1.0, 5, 1)
    assert [step.observation and step.observation.split("\n")[2] for step in episode.steps] == [
        f"Current: {number}" for number in (9, 8, 8, 9, 10)
    ]
    calls = [call for step in episode.steps for call in step.calls]
    assert [call.reply for call in calls][:2] == ["<action>-</action>", "<action>jump</action>"]
    assert {(call.model, call.trained, call.num_action_tokens) for call in calls} == {
        ("person", False, None)
    }
    (run,) = runs(store)
    assert (run.kind, run.status, run.num_episodes) == ("play", "finished", 1)


def test_the_prompt_is_what_a_run_would_show(table: PlayTable) -> None:
    sitting = table.begin(LINE, task("12/9-11"), horizon=10)
    state = played(table, sitting, "+")

    system, user = state.messages
    assert system.text.startswith("You bring the current number to the target.")
    assert user.text.startswith("Past:\nGoal: ")
    assert "Current: 9\n> +\nNow:" in user.text
    assert user.text.endswith(
        "Actions: - | +\nWhich action comes next, + or -? "
        "Write one action as <action>your action</action>."
    )


def test_an_episode_that_is_left_is_truncated_and_kept(table: PlayTable, store: str) -> None:
    sitting = table.begin(LINE, task("12/9-11"), horizon=10)
    played(table, sitting, "+")
    table.leave(sitting)
    assert table.state(sitting, wait_seconds=PATIENCE).stage == "over"

    (episode,) = episodes(store)
    assert (episode.summary.stop_reason, episode.summary.success) == ("abandoned", False)
    assert (episode.summary.num_steps, episode.summary.failed) == (1, False)
    assert episode.final_observation is not None
    assert "Current: 10" in episode.final_observation


def test_one_that_is_left_before_its_first_step_leaves_nothing(
    table: PlayTable, store: str
) -> None:
    sitting = table.begin(LINE, task("12/9-11"), horizon=10)
    table.state(sitting, wait_seconds=PATIENCE)
    table.leave(sitting)

    state = table.state(sitting, wait_seconds=PATIENCE)
    assert (state.stage, state.outcome, state.episode_id) == ("over", None, None)
    assert episodes(store) == []
    assert runs(store) == []


def test_the_most_steps_end_an_episode(table: PlayTable, store: str) -> None:
    sitting = table.begin(LINE, task("12/9-11"), horizon=2)
    assert played(table, sitting, "-", "-").stage == "over"
    assert [each.summary.stop_reason for each in episodes(store)] == ["horizon_reached"]


def test_nobody_acts_for_too_long(store: str) -> None:
    table = PlayTable(store, account="ada", idle_seconds=1.0)
    try:
        sitting = table.begin(LINE, task("12/9-11"), horizon=10)
        played(table, sitting, "+")
        game = table.sitting(sitting).game
        state = table.state(sitting, wait_seconds=PATIENCE)
        while state.stage != "over":  # asked once more, and given up a second later
            state = game.state
        assert [each.summary.stop_reason for each in episodes(store)] == ["abandoned"]
        with pytest.raises(LookupError, match="left for too long"):
            while True:
                table.sitting(sitting)
    finally:
        table.close()


def test_a_press_that_comes_twice_acts_once(table: PlayTable, store: str) -> None:
    sitting = table.begin(LINE, task("12/9-11"), horizon=10)
    table.state(sitting, wait_seconds=PATIENCE)
    presses = [table.act(sitting, episode=0, step=0, action="+") for _ in range(3)]
    table.state(sitting, wait_seconds=PATIENCE)
    late = table.act(sitting, episode=0, step=0, action="+")
    of_another_episode = table.act(sitting, episode=1, step=1, action="+")

    assert [*presses, late, of_another_episode] == [True, False, False, False, False]
    assert len(table.state(sitting).turns) == 1


def test_two_people_do_not_mix(table: PlayTable, store: str) -> None:
    one = table.begin(LINE, task("12/9-11"), horizon=10)
    other = table.begin(LINE, task("12/5-2"), horizon=10)
    for sitting in (one, other):
        table.state(sitting, wait_seconds=PATIENCE)
    for step, (up, down) in enumerate([("+", "-"), ("+", "-")]):
        assert table.act(one, episode=0, step=step, action=up)
        assert table.act(other, episode=0, step=step, action=down)
        for sitting in (one, other):
            table.state(sitting, wait_seconds=PATIENCE)

    assert table.state(one).stage == "over"
    assert table.state(other).stage == "asked"
    assert [turn.action for turn in table.state(other).turns] == ["-", "-"]
    played_by_one = episodes(store)
    assert [each.summary.task_id for each in played_by_one] == ["12/9-11"]
    table.leave(other)
    table.state(other, wait_seconds=PATIENCE)
    assert len({each.summary.run_id for each in episodes(store)}) == 2


def test_a_sitting_is_one_run_until_another_environment_is_chosen(
    table: PlayTable, store: str
) -> None:
    sitting = table.begin(LINE, task("12/9-11"), horizon=10)
    played(table, sitting, "+", "+")
    assert table.begin(LINE, task("12/5-2"), horizon=10, sitting_id=sitting) == sitting
    played(table, sitting, "-", episode=1)
    longer = replace(LINE, options={"max_position": 20})
    another = table.begin(longer, task("20/3-9", longer), horizon=10, sitting_id=sitting)
    played(table, another, "+")
    table.close()

    found = episodes(store)
    first, second = (each for each in runs(store)[::-1])
    assert another != sitting
    assert [each.summary.group_index for each in found] == [0, 0, 1]
    assert (first.num_episodes, second.num_episodes) == (2, 1)
    assert {each.summary.stop_reason for each in found} == {"task_solved", "abandoned"}
    assert {each.status for each in (first, second)} == {"finished"}


def stored_episode(table: PlayTable, store: str, *actions: str, choice: Choice = LINE) -> str:
    """The id of an episode from 9 to 11, with these actions."""
    sitting = table.begin(choice, task("12/9-11", choice), horizon=10)
    episode_id = played(table, sitting, *actions).episode_id
    assert episode_id is not None
    return episode_id


def test_a_person_goes_on_from_a_step_of_a_stored_episode(
    table: PlayTable, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """9, 8 (-1), invalid (-1), 9 again, 10, 11: from 9 after three steps, down and back up."""
    monkeypatch.setenv(STORE_VARIABLE, store)
    stored = stored_episode(table, store, "-", "jump", "+", "+", "+")
    choice, branch = play_data.from_step(stored, 3)
    sitting = table.begin(choice, branch.recorded.task, horizon=10, branch=branch)
    state = table.state(sitting, wait_seconds=PATIENCE)

    assert [(turn.action, turn.valid) for turn in state.turns] == [
        ("-", True),
        ("jump", False),
        ("+", True),
    ]
    assert state.messages[-1].content != ""
    assert not table.act(sitting, episode=0, step=0, action="+")
    for step, action in enumerate(("-", "+", "+", "+"), start=3):
        assert table.act(sitting, episode=0, step=step, action=action)
        state = table.state(sitting, wait_seconds=PATIENCE)
    assert isinstance(state.outcome, Trajectory)
    assert state.outcome.success
    assert [step.action for step in state.outcome.steps] == ["-", "jump", "+", "-", "+", "+", "+"]

    went_on = next(each for each in episodes(store) if each.summary.phase == "branch")
    assert went_on.summary.branched_from == stored
    (run,) = (each for each in runs(store) if each.run_id == went_on.summary.run_id)
    assert run.kind == "branch"
    again = table.begin(choice, branch.recorded.task, horizon=10, sitting_id=sitting, branch=branch)
    other = replace(branch, step_index=1)
    table.state(sitting, wait_seconds=PATIENCE)
    assert again == sitting
    elsewhere = table.begin(
        choice, branch.recorded.task, horizon=10, sitting_id=sitting, branch=other
    )
    assert elsewhere != sitting
    assert [turn.action for turn in table.state(elsewhere, wait_seconds=PATIENCE).turns] == ["-"]


def test_options_of_a_branch_are_those_of_the_stored_run(
    table: PlayTable, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(STORE_VARIABLE, store)
    longer = replace(LINE, options={"max_position": 20})
    sitting = table.begin(longer, task("20/3-9", longer), horizon=10)
    played(table, sitting, "+")
    table.leave(sitting)
    stored = table.state(sitting, wait_seconds=PATIENCE).episode_id
    assert stored is not None

    choice, branch = play_data.from_step(stored, 0)

    assert choice == longer
    assert branch.recorded.horizon == 10


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("UPDATE tasks SET environment = 'no/Such-v0'", "no/Such-v0 is not installed"),
        ("UPDATE tasks SET version = '0'", "was played in version '0'"),
    ],
)
def test_an_episode_that_cannot_be_taken_up_says_why(
    table: PlayTable, store: str, monkeypatch: pytest.MonkeyPatch, change: str, reason: str
) -> None:
    monkeypatch.setenv(STORE_VARIABLE, store)
    stored = stored_episode(table, store, "+", "+")
    with sqlite3.connect(store) as connection:
        connection.execute(change)
    connection.close()

    with pytest.raises(ConfigError, match=reason):
        play_data.from_step(stored, 1)


def test_a_step_or_an_episode_that_is_not_there_is_refused(
    table: PlayTable, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(STORE_VARIABLE, store)
    stored = stored_episode(table, store, "+", "+")

    with pytest.raises(ConfigError, match="name one from 0 to 1"):
        play_data.from_step(stored, 2)
    with pytest.raises(LookupError):
        play_data.from_step("none", 0)


def test_what_is_open_when_the_viewer_ends_is_kept(table: PlayTable, store: str) -> None:
    sitting = table.begin(LINE, task("12/9-11"), horizon=10)
    played(table, sitting, "+")
    table.close()
    assert [each.summary.stop_reason for each in episodes(store)] == ["abandoned"]


def test_an_environment_that_breaks_is_a_failure_with_its_cause(
    table: PlayTable, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    unknown = replace(task("12/9-11"), task_id="12/9-9")
    sitting = table.begin(LINE, unknown, horizon=10)
    state = table.state(sitting, wait_seconds=PATIENCE)

    assert isinstance(state.outcome, FailedEpisode)
    assert "no NumberLine task is called '12/9-9'" in state.outcome.message
    (episode,) = episodes(store)
    assert episode.summary.failure_cause == "environment_error"
    (run,) = runs(store)
    monkeypatch.setenv(STORE_VARIABLE, store)
    assert run.num_failed_episodes == 1
    assert runs_data.alarms_of(run) == []  # they are in no loss


def test_an_episode_that_the_store_refuses_is_reported(table: PlayTable, store: str) -> None:
    sitting = table.begin(LINE, task("12/9-11"), horizon=10)
    played(table, sitting, "+")
    with sqlite3.connect(store) as connection:
        connection.execute("DROP TABLE episodes")
    connection.close()
    state = played_on(table, sitting)
    assert state.episode_id is None
    assert "episodes" in state.problem


def test_an_episode_waits_for_a_store_that_another_program_holds(
    table: PlayTable, store: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("longhaul_core.store.session.LOCK_WAIT_SECONDS", 0.1)
    monkeypatch.setattr("longhaul_viewer.play.table.FIRST_PAUSE_SECONDS", 0.1)
    sitting = table.begin(LINE, task("12/9-11"), horizon=10)
    played(table, sitting, "+")
    holder = sqlite3.connect(store, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    assert table.act(sitting, episode=0, step=1, action="+")
    give_up_at = time.monotonic() + PATIENCE
    while "trying again" not in caplog.text:
        assert time.monotonic() < give_up_at
        time.sleep(0.02)
    state = table.state(sitting)
    assert state.stage == "working"
    assert state.wait is not None
    assert (state.wait.what, state.wait.most_seconds) == ("the store to take the episode", 480)
    holder.execute("ROLLBACK")
    holder.close()

    state = table.state(sitting, wait_seconds=PATIENCE)
    assert (state.stage, state.problem, state.wait) == ("over", "", None)
    assert [each.summary.episode_id for each in episodes(store)] == [state.episode_id]


def test_a_store_that_is_held_as_the_viewer_ends_does_not_hold_it(
    table: PlayTable, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("longhaul_core.store.session.LOCK_WAIT_SECONDS", 0.1)
    sitting = table.begin(LINE, task("12/9-11"), horizon=10)
    played(table, sitting, "+")
    game = table.sitting(sitting).game
    holder = sqlite3.connect(store, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    table.close()
    holder.close()
    assert "locked" in game.state.problem
    with pytest.raises(ConfigError, match="being closed"):
        table.begin(LINE, task("12/9-11"), horizon=10)


def test_an_episode_whose_words_are_not_indexed_is_stored(
    table: PlayTable, store: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with sqlite3.connect(store) as connection:
        connection.execute("DROP TABLE search_progress")
    connection.close()
    sitting = table.begin(LINE, task("12/9-11"), horizon=10)
    state = played(table, sitting, "+", "+")
    assert (state.stage, state.problem) == ("over", "")
    assert [each.summary.episode_id for each in episodes(store)] == [state.episode_id]
    assert "wait to be findable" in caplog.text


def test_an_environment_that_is_silent_when_the_person_leaves(
    table: PlayTable, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("longhaul_viewer.play.table.CLOSE_SECONDS", 0.2)
    silent = Choice(environment_id="broken/Silent-v0", import_modules=("broken_environments",))
    sitting = table.begin(silent, task("0", silent), horizon=10)
    played(table, sitting, "wait")
    assert table.state(sitting).wait is None
    assert table.act(sitting, episode=0, step=1, action="hang")
    wait = table.state(sitting).wait
    assert wait is not None
    assert (wait.what, wait.most_seconds) == ("broken/Silent-v0 to answer", 120)
    table.close()
    (episode,) = episodes(store)
    assert (episode.summary.failure_cause, episode.summary.num_steps) == ("environment_timeout", 1)
    assert episode.summary.failure_message is not None
    assert "not answered its last action after 0.2 s more" in episode.summary.failure_message


def played_on(table: PlayTable, sitting: str) -> GameState:
    assert table.act(sitting, episode=0, step=1, action="+")
    return table.state(sitting, wait_seconds=PATIENCE)


def test_there_are_so_many_places(store: str) -> None:
    table = PlayTable(store, account="ada", most_sittings=1)
    try:
        table.begin(LINE, task("12/9-11"), horizon=10)
        with pytest.raises(ConfigError, match="1 episodes are open, the most"):
            table.begin(LINE, task("12/9-11"), horizon=10)
    finally:
        table.close()


def test_a_sitting_that_is_over_makes_room(store: str) -> None:
    table = PlayTable(store, account="ada", most_sittings=2)
    try:
        first, second = (table.begin(LINE, task("12/9-11"), horizon=10) for _ in range(2))
        for sitting in (second, first):
            played(table, sitting, "+", "+")
        table.begin(LINE, task("12/9-11"), horizon=10)
        with pytest.raises(LookupError, match="another took its place"):
            table.sitting(second)
        assert table.sitting(first).id == first  # it ended later
    finally:
        table.close()


def test_two_beginnings_at_once_lose_no_episode(store: str) -> None:
    """Each gives up the one before it: all of them are in the store, with numbers of their own."""
    table = PlayTable(store, account="ada")
    try:
        sitting = table.begin(LINE, task("12/9-11"), horizon=10)
        played(table, sitting, "+")
        with ThreadPoolExecutor() as people:
            again = [
                people.submit(table.begin, LINE, task("12/5-2"), horizon=10, sitting_id=sitting)
                for _ in range(3)
            ]
            assert {each.result() for each in again} == {sitting}
        assert table.sitting(sitting).game.number == 3
        played(table, sitting, "-", episode=3)
    finally:
        table.close()
    assert [each.summary.group_index for each in episodes(store)] == [0, 3]


@pytest.mark.parametrize("horizon", [0, -1])
def test_an_episode_has_a_step(table: PlayTable, horizon: int) -> None:
    with pytest.raises(ConfigError, match=f"at least 1, got {horizon}"):
        table.begin(LINE, task("12/9-11"), horizon=horizon)


def test_the_words_of_an_episode_are_found(table: PlayTable, store: str) -> None:
    sitting = table.begin(LINE, task("12/9-11"), horizon=10)
    played(table, sitting, "somersault", "+", "+")
    engine = read_only_engine(store)
    with Session(engine) as session:
        hits = queries.search_steps(session, words="somersault").rows
    engine.dispose()
    assert [hit.step_index for hit in hits][-1] == 0


def test_a_viewer_that_is_read_only_lets_nobody_play(
    store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(STORE_VARIABLE, store)
    monkeypatch.setenv(READ_ONLY_VARIABLE, "yes")
    app = open_page("play", environment=LINE.environment_id)
    assert "--read-only: nobody plays here" in html_of(app)
    assert len(app.button) == 0
    with pytest.raises(StoreError, match="--read-only"):
        play_data.table()


def test_an_address_starts_nothing(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(STORE_VARIABLE, store)
    monkeypatch.delenv(READ_ONLY_VARIABLE, raising=False)
    app = open_page("play", environment=LINE.environment_id, play_server="http://127.0.0.1:9")
    assert [button.label for button in app.button] == ["Play"]
    assert "bring a number to a target" in html_of(app)
    assert app.text_input[0].value == ""
    play_data.close()


def test_a_number_in_the_address_keeps_its_digits(
    store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(STORE_VARIABLE, store)
    app = open_page("play", environment=LINE.environment_id)
    seed = next(each for each in app.number_input if each.label == "or a seed")
    seed.set_value(20261123).run()
    assert app.query_params["seed"] == "20261123"
    app.run()
    assert "asks for seed" not in html_of(app)


def test_options_that_are_tried_leave_few_processes() -> None:
    """A text of Options is an environment of its own, and its class is asked in a process."""

    def asked(sides: int) -> list[psutil.Process]:
        dice = Choice(
            environment_id="sources/Dice-v3", options={"sides": sides}, import_modules=("dice",)
        )
        assert play_data.described(dice).id == "sources/Dice-v3"
        return [each for each in psutil.Process().children() if "sources/Dice" in command_of(each)]

    left = [len(asked(7000 + number)) for number in range(MOST_SOURCES + 2)]
    assert left[-1] == max(left) == MOST_SOURCES


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("max_position = 2026-11-23", "max_position has what JSON cannot hold"),
        ("max_position = nan", "max_position has what JSON cannot hold"),
        ("kinds = [1, {far = -inf}]", "kinds has what JSON cannot hold"),
        ("max_position = 1", "max_position must be from 2 to 100, got 1"),
        ("max_position 3", "lines of TOML"),
        ("depth = 3", "has no option 'depth'"),
    ],
)
def test_wrong_options_are_named(
    store: str, monkeypatch: pytest.MonkeyPatch, options: str, said: str
) -> None:
    monkeypatch.setenv(STORE_VARIABLE, store)
    app = open_page("play", environment=LINE.environment_id)
    app.text_area[0].set_value(options).run()
    assert said in html_of(app).replace("&#x27;", "'")
    assert len(app.button) == 0


def test_what_an_environment_lacks_here_is_said(
    store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(STORE_VARIABLE, store)
    app = open_page("play", environment="longhaul/AgentGym-v0")
    page = html_of(app)
    assert "longhaul/AgentGym-v0 cannot be played here" in page
    assert "needs the kind of its server as option" in page


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ({"task": "1000000"}, "got 1000000"),
        ({"steps": "0"}, "the most steps must be 1 to 1000, got 0"),
        ({"environment": "longhaul/Nothing-v0"}, "asks for environment 'longhaul/Nothing-v0'"),
        ({"sitting": "somebody-else"}, "this sitting is over"),
    ],
)
def test_an_address_that_asks_for_what_is_not_there(
    store: str, monkeypatch: pytest.MonkeyPatch, query: dict[str, str], said: str
) -> None:
    monkeypatch.setenv(STORE_VARIABLE, store)
    app = open_page("play", **{"environment": LINE.environment_id} | query)
    assert said in html_of(app).replace("&#x27;", "'")
    play_data.close()


def test_a_seed_draws_the_same_task_on_every_machine() -> None:
    tasks = play_data.tasks(LINE, Split.TRAIN)
    drawn = [play_data.drawn(tasks, seed) for seed in range(200)]
    assert drawn[:6] == [6, 72, 55, 91, 24, 75]
    assert len(set(drawn)) > 60
    assert all(0 <= place < len(tasks) for place in drawn)
