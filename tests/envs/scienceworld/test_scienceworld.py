"""ScienceWorld: the authors' splits and scores, exact repetition, and no Java left behind."""

import gzip
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from longhaul_core.errors import ConfigError, MachineError
from longhaul_core.types import Split, Task
from longhaul_envs.against.comparison import compared_with
from longhaul_envs.against.scienceworld import options, words
from longhaul_envs.play import act, expert_policy, play, start
from longhaul_envs.scienceworld import java
from longhaul_envs.scienceworld import tasks as task_list
from longhaul_envs.scienceworld.environment import ScienceWorld
from longhaul_envs.scienceworld.tasks import source
from longhaul_envs.scienceworld.world import World

pytest.importorskip("scienceworld", reason="longhaul-envs[scienceworld] is not installed")

WAIT_SECONDS = 60
RECORDED = Path(__file__).parents[2] / "golden" / "scienceworld_steps.json.gz"
"""Steps of AgentGym's own server; `make_scienceworld_steps.py` made it."""


@pytest.fixture(scope="module")
def shared_java(installed_java: str) -> Iterator[None]:
    """Java that runs on between the tests of this module."""
    used = java.shared()
    yield
    java.release(used)


@pytest.fixture
def environment(shared_java: None) -> Iterator[ScienceWorld]:
    made = ScienceWorld()
    yield made
    made.close()


def task_of(task_id: str) -> Task:
    return Task(
        environment=task_list.ScienceWorldOptions.environment_id,
        version="1",
        data_hash="",
        task_id=task_id,
        seed=0,
        split=Split.TEST,
    )


def wait_for_end(pid: int) -> bool:
    """Whether the process ends within `WAIT_SECONDS`."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([handle], [], [], WAIT_SECONDS)[0])
    finally:
        os.close(handle)


@pytest.mark.usefixtures("shared_java")
def test_tasks_and_splits_are_those_that_the_package_has() -> None:
    from scienceworld.constants import ID2TASK

    assert list(task_list.TASK_IDS.items()) == list(ID2TASK.items())
    process = java.shared()
    world = process.new_world()
    for name, (train, dev, test) in task_list.CUTS.items():
        world.load(name, 0, "", False)
        answered = [
            list(world.getVariationsTrain()),
            list(world.getVariationsDev()),
            list(world.getVariationsTest()),
        ]
        assert answered == [
            list(range(train)),
            list(range(train, dev)),
            list(range(dev, test)),
        ], name
    java.release(process)


@pytest.mark.usefixtures("installed_java")
def test_a_description_and_a_list_start_no_java() -> None:
    program = (
        "import sys\n"
        "from longhaul_core.types import Split\n"
        "from longhaul_envs.scienceworld.tasks import source\n"
        "made = source({})\n"
        "print(made.describe().version, len(made.tasks(Split.TEST)), 'py4j' in sys.modules)\n"
    )
    answer = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )

    # scienceworld's own __init__ imports py4j; a Java is a child of the process
    assert answer.stdout.split()[:2] == ["1", "1819"]


@pytest.mark.usefixtures("installed_java")
def test_java_writes_nothing_where_it_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    started = java.JavaProcess()
    started.new_world().load("find-plant", 0, "", False)
    (own,) = tmp_path.iterdir()
    written = [file.name for file in own.iterdir()]
    started.close()

    assert written == ["object_type_ids.tsv"]
    assert not list(tmp_path.iterdir())


def test_without_java_the_message_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)

    with pytest.raises(MachineError, match="apt-get install default-jre-headless"):
        source({})


def test_a_java_home_without_java_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))

    with pytest.raises(MachineError, match=f"JAVA_HOME, '{tmp_path}'"):
        source({})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("task_id", "begins_with"),
    [
        ("find-non-living-thing/225", 0),
        ("chemistry-mix-paint-secondary-color/27", 20),
        ("lifespan-longest-lived/93", 0),
        ("power-component/15", 7),
    ],
)
def test_the_gold_path_solves_the_task_and_its_rewards_are_the_points_that_were_missing(
    environment: ScienceWorld, task_id: str, begins_with: int
) -> None:
    episode = play(environment, task_of(task_id), expert_policy, horizon=100)

    assert episode.success
    assert episode.results[-1].terminated
    assert episode.episode_return == pytest.approx(1 - begins_with / 100)
    assert min(result.reward for result in episode.results) == 0


@pytest.mark.slow
@pytest.mark.usefixtures("shared_java")
def test_worlds_of_one_process_go_the_same_way_to_the_last_temperature() -> None:
    worlds = [World(), World()]
    seen: list[list[str]] = []
    for world in worlds:
        texts = [world.load("find-plant", 225, [])]  # in a room whose things were listed by chance
        texts += [world.step(action) for action in ("wait1", "open door to hallway", "wait1")]
        seen.append([*texts, world.state_hash()])
        world.load("boil", 0, [])  # what is played in between leaves no trace
        world.step("wait")
        world.load("find-plant", 225, [])
        assert world.state_hash() != seen[-1][-1]
    for world in worlds:
        world.close()

    assert seen[0] == seen[1]


def test_looking_leaves_the_anchor_and_acting_changes_it(environment: ScienceWorld) -> None:
    first = start(environment, task_of("find-plant/225"))
    looked = act(environment, "inventory").observation.anchor
    refused = act(environment, "xyzzy")
    opened = act(environment, "open large cupboard")

    assert looked == refused.observation.anchor == first.anchor
    assert not refused.action_accepted
    assert opened.action_accepted
    assert opened.observation.anchor != first.anchor


@pytest.mark.usefixtures("shared_java")
def test_the_anchor_of_what_is_seen_forgets_the_time() -> None:
    environment = ScienceWorld(anchor="seen")
    first = start(environment, task_of("find-plant/225"))
    waited = act(environment, "wait1")
    environment.close()

    assert waited.observation.anchor == first.anchor


def test_declaring_the_wrong_thing_ends_the_task_and_takes_nothing(
    environment: ScienceWorld,
) -> None:
    start(environment, task_of("find-plant/225"))
    result = act(environment, "focus on agent")

    assert (result.terminated, result.success, result.reward) == (True, False, 0.0)


@pytest.mark.usefixtures("shared_java")
def test_the_authors_reward_is_the_change_of_the_score_in_points() -> None:
    environment = ScienceWorld(reward="score")
    start(environment, task_of("find-plant/225"))
    result = act(environment, "focus on agent")
    environment.close()

    assert (result.terminated, result.reward) == (True, -100.0)


@pytest.mark.slow
def test_a_score_that_was_reset_pays_no_second_time(environment: ScienceWorld) -> None:
    task = task_of("chemistry-mix-paint-secondary-color/27")
    gold = play(environment, task, expert_policy, horizon=100)
    half = gold.actions[:-1]
    start(environment, task)
    rewards = [act(environment, action).reward for action in (*half, "reset task", *half)]

    assert sum(rewards[: len(half)]) > 0
    assert rewards[len(half) :] == [0.0] * (len(half) + 1)


@pytest.mark.usefixtures("shared_java")
def test_the_step_limit_truncates() -> None:
    environment = ScienceWorld(env_step_limit=2)
    start(environment, task_of("find-plant/225"))
    results = [act(environment, "wait1") for _ in range(2)]
    environment.close()

    assert (results[-1].truncated, results[-1].terminated) == (True, False)


@pytest.mark.slow
@pytest.mark.usefixtures("shared_java")
def test_what_the_simulator_calls_valid_is_listed_where_it_is_asked_for() -> None:
    environment = ScienceWorld(admissible="valid")
    listed = start(environment, task_of("find-plant/225")).admissible_actions
    assert listed is not None
    opening = [action for action in listed if action.startswith("open ")]
    accepted = act(environment, opening[0]).action_accepted
    environment.close()

    assert len(listed) > 300
    assert accepted


@pytest.mark.slow
@pytest.mark.usefixtures("installed_java")
def test_worlds_share_one_java_which_the_last_one_ends() -> None:
    program = (
        "from longhaul_envs.scienceworld import java\n"
        "from longhaul_envs.scienceworld.world import World\n"
        "worlds = [World(), World()]\n"
        "used = java.shared(); java.release(used)\n"
        "worlds[0].close()\n"
        "assert used.is_running\n"
        "worlds[1].close()\n"
        "assert not used.is_running\n"
        "again = World(); again.close(); again.close()\n"
        "print('ended')\n"
    )
    answer = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, check=False
    )

    assert answer.stdout == "ended\n", answer.stderr


@pytest.mark.slow
@pytest.mark.usefixtures("installed_java")
def test_a_python_that_is_killed_leaves_no_java() -> None:
    program = (
        "import time\n"
        "from longhaul_envs.scienceworld import java\n"
        "print(java.shared().pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True
    ) as owner:
        assert owner.stdout is not None
        pid = int(owner.stdout.readline())
        owner.send_signal(signal.SIGKILL)

    assert wait_for_end(pid)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tasks": ["boyl"]}, "names or numbers"),
        ({"simplifications": ["easier"]}, "must be of easy"),
        ({"tasks": ["3-1"], "simplifications": ["easy"]}, "power-component needs"),
        ({"reward": "points"}, "increments or score"),
        ({"variations_per_task": -1}, "at least 0"),
    ],
)
def test_options_out_of_range_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        source(options)


@pytest.mark.usefixtures("installed_java")
def test_agentgyms_tasks_are_a_preset_and_numbers_of_the_paper_name_tasks() -> None:
    preset = source.chosen({"tasks": "agentgym"})

    assert len(preset.names) == 23
    assert "grow-plant" not in preset.names
    assert source.chosen({"tasks": ["4-2"]}).names == ("find-non-living-thing",)
    assert ScienceWorld(tasks="agentgym").tasks(Split.TEST, 25)[23].task_id == "boil/22"


@pytest.mark.parametrize("task_id", ["boil", "boil/30", "boil/-1", "boil/x", "boyl/0"])
def test_ids_of_no_task_are_refused(task_id: str) -> None:
    with pytest.raises(ValueError, match="no ScienceWorld task"):
        task_list.parse_task_id(task_id)


def test_steps_are_those_of_agentgyms_own_server(shared_java: None) -> None:
    episodes = json.loads(gzip.decompress(RECORDED.read_bytes()))
    assert sum(len(episode["steps"]) for episode in episodes) == 438
    rewards = {reward for episode in episodes for _, _, reward, _ in episode["steps"]}
    ends = {done for episode in episodes for _, _, _, done in episode["steps"]}
    assert len(rewards) > 5
    assert ends == {True, False}
    ours = ScienceWorld(**options() | {"admissible": "none", "anchor": "seen"})

    for episode in episodes:
        goal, _, seen = start(ours, task_of(episode["task"])).text.partition("\n")
        assert (goal, words(seen)) == (f"Goal: {episode['goal']}", episode["first"])
        for action, theirs, reward, done in episode["steps"]:
            result = act(ours, action)
            assert words(result.observation.text.partition("\n")[2]) == theirs, action
            assert (result.reward, result.terminated or result.truncated) == (reward, done)
    ours.close()


SERVER = """
from longhaul_envs.scienceworld.tasks import CUTS
from longhaul_envs.scienceworld.world import World


class Server:
    games = [{"taskName": name, "variationIdx": n} for name in CUTS for n in range(CUTS[name][0])]

    def create(self):
        self.world, self.num_steps = World(), 0
        return {"id": 7}

    def reset(self, place, number):
        game, self.score = self.games[number], 0
        seen = self.world.load(game["taskName"], game["variationIdx"], ())
        return {"task_description": self.world.description, "observation": seen}

    def step(self, place, action):
        seen = " ".join(reversed(self.world.step(action).split()))
        before, self.score = self.score, self.world.score
        over = self.world.is_completed or self.score < 0 or self.world.num_moves > 100
        self.num_steps += 1
        reward = self.score - before + (self.num_steps == 7)
        return {"observation": seen, "reward": reward, "done": over}

    def close(self, place):
        self.world.close()


server = Server()
"""
"""With the interface of AgentGym's, played by our own simulator; words in another order, and one
reward wrong."""


def test_steps_are_compared_with_those_of_a_checkout(tmp_path: Path, shared_java: None) -> None:
    package = tmp_path / "agentenv-sciworld" / "agentenv_sciworld"
    package.mkdir(parents=True)
    (package / "environment.py").write_text(SERVER, "utf-8")

    found = compared_with("longhaul/ScienceWorld-v0", tmp_path, num_pairs=62)

    different = {one.what: one.num_different for one in found}
    assert different == {"goal": 0, "observation": 0, "reward": 1, "end": 0}
