"""ALFWorld played: the expert, the wording, the anchor, and the release's files."""

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from longhaul_core.errors import ConfigError
from longhaul_core.types import Split, Task
from longhaul_envs.alfworld.engine import Engine
from longhaul_envs.alfworld.environment import ALFWorld
from longhaul_envs.alfworld.rooms import FAMILIES, Start, make_start
from longhaul_envs.alfworld.tasks import ALFWorldOptions, game_of, source, tasks
from longhaul_envs.extras import required
from longhaul_envs.play import act, expert_policy, play, start

pytestmark = pytest.mark.usefixtures("installed_alfworld")

REAL = "LONGHAUL_TEST_DATA"


@pytest.fixture(scope="module")
def environment() -> Iterator[ALFWorld]:
    made = ALFWorld()
    yield made
    made.close()


def small_start(family: str) -> Start:
    """A game of the family in a room with few receptacles, so that it is quickly translated."""
    number = FAMILIES.index(family)
    made = [make_start(FAMILIES, seed) for seed in range(number, 300, len(FAMILIES))]
    return min(made, key=lambda one: len(one.problem()))


def small_task(family: str) -> Task:
    made = small_start(family)
    number = FAMILIES.index(family)
    seeds = range(number, 300, len(FAMILIES))
    seed = next(s for s in seeds if make_start(FAMILIES, s) is made)
    return Task(
        environment="longhaul/ALFWorld-v0",
        version="1",
        data_hash="",
        task_id=f"generated/123456/{seed:05}",
        seed=seed,
        split=Split.TRAIN,
    )


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_the_expert_solves_a_game_of_each_family(environment: ALFWorld, family: str) -> None:
    episode = play(environment, small_task(family), expert_policy, horizon=30)

    assert episode.success
    assert [result.reward for result in episode.results][-1] == episode.episode_return == 1.0
    first = episode.first_observation
    assert first.text.startswith(f"Goal: {small_start(family).goal}\nYou are in the middle of")
    assert first.admissible_actions is not None
    assert episode.actions[0] in first.admissible_actions


@pytest.mark.slow
def test_the_expert_puts_down_what_it_should_not_carry(environment: ALFWorld) -> None:
    task = small_task("look_at_obj_in_light")
    target = game_of(task.task_id, "current").target
    observation = start(environment, task)
    for step in range(40):  # take the first thing that the goal does not name
        listed = observation.admissible_actions or ()
        wrong = [a for a in listed if a.startswith("take ") and not a.startswith(f"take {target}")]
        walks = [a for a in listed if a.startswith("go to ")]
        observation = act(environment, (wrong or walks)[0 if wrong else step % 7]).observation
        if wrong:
            break
    actions: list[str] = []
    success = False
    while not success and len(actions) < 20:
        action = environment.expert_action()
        assert action is not None
        actions.append(action)
        success = act(environment, action).success

    assert success
    assert any(action.startswith("move ") for action in actions)


@pytest.mark.slow
def test_texts_and_actions_are_those_of_textworlds_own_environment(environment: ALFWorld) -> None:
    """An expert's episode, beside `textworld.envs.PddlEnv` as alfworld wraps it."""
    task = small_task("look_at_obj_in_light")
    game = game_of(task.task_id, "current")
    textworld: Any = required("textworld", "alfworld")
    wrappers: Any = required("alfworld.agents.environment.alfred_tw_env", "alfworld")
    plain = textworld.envs.PddlEnv(textworld.EnvInfos(won=True))
    theirs = wrappers.AlfredDemangler(plain)
    theirs.load(
        {
            "pddl_domain": game.domain,
            "grammar": game.grammar.replace("UNKNOWN GOAL", game.goal),
            "pddl_problem": game.problem,
        }
    )
    state = theirs.reset()
    observation = start(environment, task)
    seen, room = observation.text.removeprefix(f"Goal: {game.goal}\n"), state.feedback
    assert f"\n\n{seen}\n\nYour task is to: {game.goal}." in room
    while True:
        listed = [command.strip() for command in state["admissible_commands"]]
        assert sorted({*(observation.admissible_actions or ()), "help"}) == sorted(set(listed))
        action = environment.expert_action()
        assert action is not None
        result = act(environment, action)
        theirs_action = next(c for c in state["admissible_commands"] if c.strip() == action)
        state, _, done = theirs.step(theirs_action)
        observation = result.observation
        assert observation.text == f"Goal: {game.goal}\n{state.feedback}"
        assert result.terminated == done == state["won"]
        if done:
            break
    theirs.close()


@pytest.mark.slow
def test_looking_leaves_the_anchor_and_putting_back_restores_it(environment: ALFWorld) -> None:
    task = small_task("pick_and_place_simple")
    first = start(environment, task)
    take = ""
    while not take:
        action = environment.expert_action()
        assert action is not None
        take = action if action.startswith("take ") else ""
        if not take:
            before = act(environment, action).observation
            assert before.anchor != first.anchor
            first = before
    item, _, home = take.removeprefix("take ").partition(" from ")
    looked = [act(environment, a).observation.anchor for a in ("look", f"examine {home}", "help")]
    taken = act(environment, take).observation.anchor
    back = act(environment, f"move {item} to {home}").observation.anchor

    assert set(looked) == {first.anchor}
    assert taken != first.anchor
    assert back == first.anchor


@pytest.mark.slow
def test_an_episode_leaves_the_programs_arguments_and_output_alone(
    environment: ALFWorld, capfd: pytest.CaptureFixture[str]
) -> None:
    arguments, output = list(sys.argv), sys.stdout
    start(environment, small_task("look_at_obj_in_light"))

    assert sys.argv == arguments
    assert sys.stdout is output
    assert capfd.readouterr().out == ""


def test_without_a_download_the_message_says_how_to_fetch_and_what_needs_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ALFWORLD_DATA", str(tmp_path))

    with pytest.raises(ConfigError, match=r'trainer data fetch alfworld.*games = "generated"'):
        source({"games": "released"}).tasks(Split.TEST)


RELEASED_FAMILIES = {
    "train": ("look_at_obj_in_light", "pick_and_place_simple"),
    "valid_seen": ("pick_two_obj_and_place",),
    "valid_unseen": ("pick_cool_then_place_in_recep",),
}


def write_game(folder: Path, made: Start, *, solvable: bool | None = True) -> None:
    """A game as the release has it: its own wording, and parameters of the errand beside."""
    game = game_of("generated/1/00000", "current")
    folder.mkdir(parents=True)
    grammar = game.grammar.replace("UNKNOWN GOAL", made.goal)
    grammar = grammar.replace('"move {o} to {r}"', '"put {o} in/on {r}"')
    grammar = grammar.replace(
        "You move the {o.name} to the {r.name}.", "You put the {o.name} in/on the {r.name}."
    )
    lit = made.family == "look_at_obj_in_light"
    (folder / "game.tw-pddl").write_text(
        json.dumps(
            {
                "pddl_domain": game.domain,
                "grammar": grammar,
                "pddl_problem": made.problem(),
                "solvable": solvable,
                "walkthrough": [],
            }
        ),
        encoding="utf-8",
    )
    (folder / "traj_data.json").write_text(
        json.dumps(
            {
                "task_type": made.family,
                "task_id": folder.name,
                "pddl_params": {
                    "object_target": made.target,
                    "parent_target": "" if lit else made.destination,
                    "toggle_target": made.destination if lit else "",
                    "mrecep_target": "",
                    "object_sliced": False,
                },
                "turk_annotations": {"anns": []},
            }
        ),
        encoding="utf-8",
    )


@pytest.fixture
def released(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The root of four games in the release's exact form."""
    root = tmp_path / "json_2.1.1"
    for split, families in RELEASED_FAMILIES.items():
        for number, family in enumerate(families):
            write_game(
                root / split / f"{family}-Any-None" / f"trial_T{number}", small_start(family)
            )
    monkeypatch.setenv("ALFWORLD_DATA", str(tmp_path))
    return root


def test_released_games_keep_the_authors_splits(released: Path) -> None:
    options = ALFWorldOptions(games="released")
    listed = {split: [task.task_id for task in tasks(split, options)] for split in Split}

    assert listed == {
        Split.TRAIN: [
            "train/look_at_obj_in_light-Any-None/trial_T0",
            "train/pick_and_place_simple-Any-None/trial_T1",
        ],
        Split.VALIDATION: ["valid_seen/pick_two_obj_and_place-Any-None/trial_T0"],
        Split.TEST: ["valid_unseen/pick_cool_then_place_in_recep-Any-None/trial_T0"],
    }
    assert all(task.data_hash for split in Split for task in tasks(split, options))


def test_games_that_the_authors_leave_out_are_not_listed(released: Path) -> None:
    simple = small_start("pick_and_place_simple")
    write_game(released / "train" / "pick_and_place_with_movable_recep-Any" / "trial_T2", simple)
    write_game(released / "train" / "pick_and_place_simple-AppleSliced" / "trial_T3", simple)
    write_game(released / "train" / "pick_and_place_simple-Any" / "trial_T4", simple, solvable=None)

    listed = tasks(Split.TRAIN, ALFWorldOptions(games="released", task_types=(1,)))

    assert [task.task_id for task in listed] == ["train/pick_and_place_simple-Any-None/trial_T1"]


@pytest.mark.slow
@pytest.mark.usefixtures("released")
@pytest.mark.parametrize(
    ("wording", "putting"), [("current", "move {} to {}"), ("released", "put {} in/on {}")]
)
def test_a_released_game_is_played_in_either_wording(wording: str, putting: str) -> None:
    environment = ALFWorld(games="released", wording=wording)
    (task,) = environment.tasks(Split.VALIDATION)
    episode = play(environment, task, expert_policy, horizon=30)
    environment.close()

    assert episode.success
    verb = putting.split()[0]
    assert sum(action.startswith(f"{verb} ") for action in episode.actions) == 2
    assert episode.first_observation.text.startswith(f"Goal: {task.goal}\n")


@pytest.mark.slow
@pytest.mark.usefixtures("released")
def test_without_the_goal_the_texts_are_the_authors() -> None:
    environment = ALFWorld(games="released", show_goal=False)
    (task,) = environment.tasks(Split.VALIDATION)
    first = start(environment, task)
    after = act(environment, "inventory").observation
    environment.close()

    assert first.text.startswith("-= Welcome to TextWorld, ALFRED! =-\n\nYou are in the middle")
    assert first.text.endswith(f"Your task is to: {task.goal}.")
    assert after.text == "You are not carrying anything."


def test_a_file_that_is_no_game_is_named(released: Path) -> None:
    (broken,) = released.glob("valid_seen/*/*/game.tw-pddl")
    broken.write_text("{", encoding="utf-8")

    with pytest.raises(ConfigError, match=r"game\.tw-pddl is no file of ALFWorld's release"):
        tasks(Split.VALIDATION, ALFWorldOptions(games="released"))


@pytest.mark.slow
@pytest.mark.skipif(
    not (Path(os.environ.get(REAL, "")) / "alfworld").is_dir() or REAL not in os.environ,
    reason=f"{REAL}/alfworld holds no released games",
)
def test_the_expert_solves_games_of_the_release(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALFWORLD_DATA", str(Path(os.environ[REAL]) / "alfworld"))
    environment = ALFWorld(games="released")
    listed = environment.tasks(Split.TEST)
    assert len(listed) == 134
    for task in listed[::20]:
        assert play(environment, task, expert_policy, horizon=50).success, task.task_id
    environment.close()


def handle_of(engine: Engine) -> int:
    return engine._lib._handle  # pyright: ignore[reportPrivateUsage]


def test_a_closed_game_leaves_its_planner_s_library_to_the_next() -> None:
    """A process that loads some 1,200 copies of it crashes, closed or not."""
    engines = [Engine() for _ in range(3)]
    held = {handle_of(one) for one in engines}
    for one in engines:
        one.close()
    again = [Engine() for _ in range(3)]

    assert len(held) == 3
    assert {handle_of(one) for one in again} == held
    for one in again:
        one.close()
