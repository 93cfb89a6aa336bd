"""MiniWoB++ in a real browser: what is seen, what actions do, and that it repeats itself."""

import asyncio
import random
from collections.abc import Iterator
from typing import Any

import psutil
import pytest
from gymnasium.error import ResetNeeded

from longhaul_core.environment import Environment, StepResult
from longhaul_core.errors import ConfigError
from longhaul_core.gym import ProcessPool
from longhaul_core.types import Observation, Split, Task
from longhaul_envs.miniwob.contents import NUM_SEEDS, content_of, names_of_pages
from longhaul_envs.miniwob.environment import MiniWoB
from longhaul_envs.miniwob.expert import SOLVED
from longhaul_envs.miniwob.tasks import EXCLUDED, known_contents, source, tasks
from other_processes import command_of

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def environment(installed_chromium: str) -> Iterator[MiniWoB]:
    made = MiniWoB()
    yield made
    made.close()


def start(environment: MiniWoB, task_id: str) -> str:
    seen, info = environment.reset(options={"task_id": task_id})
    assert info["action_accepted"]
    return str(seen)


def number_of(seen: str, element: str) -> int:
    """The number of the first element whose line has this text."""
    line = next(line for line in seen.splitlines()[1:] if element in line)
    return int(line.strip()[1:].partition("]")[0])


def test_an_observation_is_the_goal_and_a_line_for_each_element(environment: MiniWoB) -> None:
    assert start(environment, "click-button/00003").splitlines() == [
        'Goal: Click on the "Next" button.',
        '[1] button "Next"',
        '[2] div "vel proin mi"',
        '[3] input type=text value=""',
        '[4] input type=text value=""',
        '[5] div "malesuada purus hendrerit"',
        '[6] input type=text value=""',
    ]


def test_only_the_right_button_is_paid(environment: MiniWoB) -> None:
    seen = start(environment, "click-test-2/00000")
    for name, success in (("TWO", False), ("ONE", True)):
        start(environment, "click-test-2/00000")
        number = number_of(seen, f'"{name}"')
        after, reward, over, truncated, info = environment.step(f"click {number}")
        assert (reward, over, truncated) == (float(success), True, False)
        assert info["success"] is success
        assert str(after).endswith("The task is over.")
        with pytest.raises(ResetNeeded):
            environment.step("wait")


@pytest.mark.parametrize("name", sorted(SOLVED)[::4])
def test_the_expert_solves_pages_that_it_has_a_way_for(environment: MiniWoB, name: str) -> None:
    start(environment, f"{name}/00005")
    over, reward = False, 0.0
    while not over:
        action = environment.expert_action()
        assert action is not None
        _, reward, over, _, info = environment.step(action)
        assert info["action_accepted"]
    assert reward == 1.0


def test_a_page_without_a_way_has_no_expert(environment: MiniWoB) -> None:
    start(environment, "tic-tac-toe/00000")
    assert environment.expert_action() is None


def test_things_are_dragged_scrolled_and_pressed(environment: MiniWoB) -> None:
    seen = start(environment, "drag-box/00003")
    small, large = number_of(seen, '"s"'), number_of(seen, '"L"')
    environment.step(f"drag {small} to {large}")
    assert environment.step(f"click {number_of(seen, 'Submit')}")[1] == 1.0

    seen = start(environment, "scroll-text-2/00003")
    area, button = number_of(seen, "textarea"), number_of(seen, "Submit")
    direction = "down" if "bottom" in seen else "up"
    for _ in range(60):
        environment.step(f"scroll {area} {direction}")
    assert environment.step(f"click {button}")[1] == 1.0

    seen = start(environment, "enter-text/00003")
    environment.step(f'type {number_of(seen, "input")} "abc"')
    environment.step("press Backspace")
    assert 'value="ab" focused' in str(environment.step("wait")[0])


NONSENSE = [
    *("", "click", "click 99", "click 5000,1", "press F12", "press ctrl+t", 'select 1 "x"'),
    *("dance", "a" * 100_000, "\x00\x1b[31m", "クリック 1", "</action><action>click 1"),
]


def test_nonsense_is_answered_and_changes_nothing(environment: MiniWoB) -> None:
    before, info = environment.reset(options={"task_id": "click-button/00003"})
    for action in NONSENSE:
        seen, reward, over, truncated, after = environment.step(action)
        assert str(seen).startswith(f"{before}\nNot done: ")
        assert (reward, over, truncated) == (0.0, False, False)
        assert not after["action_accepted"]
        assert after["anchor_state"] == info["anchor_state"]


def test_the_anchor_state_is_that_of_the_page_and_not_of_the_way_to_it(
    environment: MiniWoB,
) -> None:
    def anchor(*actions: str) -> str:
        _, info = environment.reset(options={"task_id": "login-user/00003"})
        for action in actions:
            *_, info = environment.step(action)
        return str(info["anchor_state"])

    first, second = 'type 2 "a"', 'type 4 "b"'
    assert anchor(first, second) == anchor(second, first, second)
    anchors = [anchor(), anchor(first), anchor(first, second), anchor("click 2"), anchor("click 4")]
    assert len(set(anchors)) == len(anchors)


def test_a_picture_of_a_focused_field_changes_nothing(environment: MiniWoB) -> None:
    anchors: list[list[str]] = []
    for draws in (False, True):
        start(environment, "enter-text/00005")
        anchors.append([])
        for action in ("click 1", 'type 1 "abc"', "press Enter"):
            if draws:
                environment.render()
            anchors[-1].append(environment.step(action)[-1]["anchor_state"])

    assert anchors[0] == anchors[1]
    assert len(set(anchors[0])) > 1


def test_time_is_the_pages_own(environment: MiniWoB) -> None:
    """A step takes a second of the page, however long it took."""
    limited = MiniWoB(reward="page", time_limit=True)
    try:
        for num_waits, left in ((0, 0.9), (4, 0.5)):
            seen = start(limited, "click-test-2/00000")
            for _ in range(num_waits):
                limited.step("wait")
            # the click itself happens before its second passes
            reward = limited.step(f"click {number_of(seen, 'ONE')}")[1]
            assert reward == pytest.approx(left + 0.1)
        start(limited, "click-test-2/00000")
        rewards = [limited.step("wait")[1:3] for _ in range(10)]
        assert rewards == [(0.0, False)] * 9 + [(-1.0, True)]
    finally:
        limited.close()
    seen = start(environment, "click-test-2/00000")
    for _ in range(20):
        assert not environment.step("wait")[2]


@pytest.mark.usefixtures("installed_chromium")
def test_pictures_are_of_the_task_and_repeat_themselves() -> None:
    pictured = MiniWoB(observation="tree_and_image")
    try:
        first, _ = pictured.reset(options={"task_id": "click-shape/00003"})
        assert pictured.observation_space.contains(first)
        assert pictured.render().shape == (210, 160, 3)
        assert len({tuple(pixel) for row in pictured.render() for pixel in row}) > 3
        assert pictured.reset(options={"task_id": "click-shape/00003"})[0] == first
        assert pictured.reset(options={"task_id": "click-shape/00004"})[0] != first
    finally:
        pictured.close()


def test_an_episode_on_a_prepared_page_is_like_any_other(environment: MiniWoB) -> None:
    def episode() -> list[object]:
        seen: list[object] = [environment.reset(options={"task_id": "click-pie/00003"})]
        return [*seen, environment.step("click 1"), environment.render().tolist()]

    first = episode()
    environment.prepare()
    with pytest.raises(ResetNeeded):
        environment.step("wait")
    assert episode() == first


PAGES = ["click-pie", "stock-market", "choose-date"]


class Played:
    """An episode of actions drawn by the task, and all that it returned."""

    def __init__(self, environment: Environment, task: Task) -> None:
        self._environment, self._task = environment, task
        self._random = random.Random(task.task_id)

    async def play(self) -> list[Observation | StepResult]:
        await self._environment.open()
        try:
            seen = await self._environment.reset(self._task)
            returned: list[Observation | StepResult] = [seen]
            for _ in range(4):
                numbers = [
                    line.strip()[1:].partition("]")[0] for line in seen.text.splitlines()[1:]
                ]
                known = [number for number in numbers if number.isdecimal()]
                result = await self._environment.step(f"click {self._random.choice(known)}")
                returned.append(result)
                seen = result.observation
                if result.terminated:
                    break
            return returned
        finally:
            await self._environment.close()


async def played_at_once(task_ids: list[str], *, pooled: bool) -> list[Any]:
    made = source({})
    listed = {one.task_id: one for split in Split for one in made.tasks(split)}
    chosen = [listed[task_id] for task_id in task_ids]
    if not pooled:
        return await asyncio.gather(*(Played(made.make(one), one).play() for one in chosen))
    async with ProcessPool(made.spec, num_workers=3) as pool:
        episodes = asyncio.gather(*(Played(pool(one), one).play() for one in chosen))
        returned = await episodes
        assert pool.num_processes == 1
        return returned


@pytest.mark.usefixtures("installed_chromium")
def test_episodes_repeat_themselves_in_threads_and_in_worker_processes() -> None:
    """With timers, animations and dates, beside others in the same browser; nothing is left."""
    before = browsers()
    by_name = {one.task_id.partition("/")[0]: one.task_id for one in tasks_of_all_splits()}
    task_ids = [by_name[name] for name in PAGES]

    in_threads = asyncio.run(played_at_once(task_ids, pooled=False))

    assert asyncio.run(played_at_once(task_ids, pooled=True)) == in_threads
    _, alive = psutil.wait_procs(browsers() - before, timeout=20)
    assert alive == []


def browsers() -> set[psutil.Process]:
    """Those that run below this process, each without the processes of its own."""
    commands = {one: command_of(one) for one in psutil.Process().children(recursive=True)}
    return {
        one
        for one, command in commands.items()
        if "chrom" in command.partition(" ")[0] and "--type=" not in command
    }


def tasks_of_all_splits() -> list[Task]:
    made = source({})
    return [one for split in Split for one in made.tasks(split)]


def test_what_a_seed_begins_with_is_what_is_listed(environment: MiniWoB) -> None:
    """For some pages and seeds; a page changes with the package alone."""
    draw = random.Random(5)
    for name in draw.sample(names_of_pages(), 8):
        seed = draw.randrange(NUM_SEEDS)
        start(environment, f"{name}/{seed:05}")
        look = environment._look  # pyright: ignore[reportPrivateUsage]
        assert look is not None
        assert content_of(look) == known_contents()[name][seed], (name, seed)


def test_every_page_of_the_package_is_listed_or_excluded_with_a_reason() -> None:
    assert list(known_contents()) == names_of_pages()
    assert not set(known_contents()) & EXCLUDED.keys()
    assert len(known_contents()) == 125
    assert all(EXCLUDED.values())


def test_splits_share_no_content() -> None:
    contents = known_contents()
    by_split = {
        split: {
            (name, contents[name][int(seed)])
            for one in source({}).tasks(split)
            for name, _, seed in [one.task_id.partition("/")]
        }
        for split in Split
    }
    train, validation, test = (by_split[split] for split in Split)
    assert not train & validation
    assert not train & test
    assert not validation & test
    assert sum(map(len, by_split.values())) == len(tasks_of_all_splits())


@pytest.mark.parametrize("task_id", ["", "click-button", "click-button/x", "simon-says/1", "a/1"])
def test_an_unknown_task_is_refused(environment: MiniWoB, task_id: str) -> None:
    with pytest.raises(ValueError, match="no MiniWoB"):
        environment.reset(options={"task_id": task_id})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tasks": ["chase-circle"]}, "'chase-circle' is not played: asks to follow"),
        ({"tasks": ["click-everything"]}, "no MiniWoB.. task is called 'click-everything'"),
        ({"observation": "sound"}, "must be tree or tree_and_image, got 'sound'"),
        ({"reward": "praise"}, "must be binary or page, got 'praise'"),
        ({"threshold": 0}, r"must lie in \(0, 1\], got 0"),
        ({"flavour": "salt"}, "no option 'flavour'"),
    ],
)
def test_an_option_that_cannot_be_is_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        source(options)


@pytest.mark.usefixtures("installed_chromium")
def test_chosen_pages_take_turns() -> None:
    made = source({"tasks": ["click-link", "enter-text"]})
    names = [one.task_id.partition("/")[0] for one in made.tasks(Split.TRAIN)[:4]]
    assert names == ["click-link", "enter-text"] * 2
    assert made.tasks(Split.TRAIN) == tasks(
        Split.TRAIN, MiniWoB(tasks=["click-link", "enter-text"]).options
    )
