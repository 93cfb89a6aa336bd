"""WebArena on small sites of our own: what agents see and do, and how tasks are scored."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from gymnasium.error import ResetNeeded

from longhaul_core.errors import ConfigError, EnvironmentFailure
from longhaul_core.types import Split
from longhaul_envs.webarena.environment import WebArena
from longhaul_envs.webarena.tasks import source
from web_sites import Site, running_site
from webarena_tasks import webarena_options

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def sites() -> Iterator[tuple[Site, Site]]:
    """The sites that are open to agents, all on one server, and one that is not."""
    with running_site() as closed, running_site(closed.address) as site:
        yield site, closed


@pytest.fixture(scope="module")
def options(sites: tuple[Site, Site], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return webarena_options(tmp_path_factory.mktemp("webarena"), sites[0].address)


@pytest.fixture(scope="module")
def environment(installed_chromium: str, options: dict[str, Any]) -> Iterator[WebArena]:
    made = WebArena(**options)
    yield made
    made.close()


def number_of(observation: str, element: str) -> int:
    """The number of the first element whose line has this text."""
    line = next(line for line in observation.splitlines() if element in line)
    return int(line.strip()[1:].partition("]")[0])


def play(environment: WebArena, number: int, *actions: str) -> float:
    """The reward of the last of `actions`, in which `{name}` is the number of an element."""
    seen, _ = environment.reset(options={"task_id": str(number)})
    reward = 0.0
    for written in actions:
        before, opened, rest = written.partition("{")
        name, _, after = rest.partition("}")
        action = f"{before}{number_of(seen, name)}{after}" if opened else written
        seen, reward, over, _, info = environment.step(action)
        assert info["action_accepted"], seen
        assert over == action.startswith("stop")
        assert info["success"] == (reward == 1.0)
    return float(reward)


def test_an_observation_has_the_objective_the_address_the_tabs_and_the_tree(
    environment: WebArena, sites: tuple[Site, Site]
) -> None:
    seen, info = environment.reset(options={"task_id": "1"})

    assert seen.splitlines() == [
        "Objective: Name the first book",
        f"URL: {sites[0].address}/",
        "Tab 0 (current): home",
        "[1] RootWebArea 'home' focused: True",
        "\t[2] heading 'Forum'",
        "\t[3] StaticText 'Not logged in'",
        "\t[4] link 'Books'",
        "\t[5] link 'Write a post'",
        "\t[6] link 'Help'",
        "\t[7] textbox 'Search' required: False",
        "\t[8] button 'Go'",
    ]
    assert info["action_accepted"]


def is_browser_running() -> bool:
    """Whether a browser of this process runs: it has a thread of its own."""
    return any(thread.name == "longhaul-browser" for thread in threading.enumerate())


def test_a_prepared_browser_runs_before_the_reset_and_no_site_was_asked(
    options: dict[str, Any], sites: tuple[Site, Site], environment: WebArena
) -> None:
    unprepared = environment.reset(options={"task_id": "1"})
    environment.close()  # the browser ends with its last session
    num_requests = len(sites[0].requests)
    made = WebArena(**options)
    try:
        assert not is_browser_running()
        made.prepare()
        assert is_browser_running()
        assert len(sites[0].requests) == num_requests

        assert made.reset(options={"task_id": "1"}) == unprepared
        made.prepare()
        with pytest.raises(ResetNeeded):
            made.step("stop [x]")
    finally:
        made.close()


@pytest.mark.parametrize(
    ("number", "actions", "reward"),
    [
        (0, ["stop [There are 42, of 2020]"], 1.0),
        (0, ["stop [There are 42]"], 0.0),
        (1, ["click [{link 'Books'}]", 'stop ["a FIRST book"]'], 1.0),
        (1, ["stop [A first book.]"], 0.0),
        (1, ["stop"], 0.0),
        (3, ["stop [N/A]"], 1.0),
        (4, ["click [{link 'Books'}]", "stop"], 1.0),
        (4, ["stop"], 0.0),
        (5, ["type [{textbox 'Search'}] [ink] [1]", "stop"], 1.0),
        (5, ["type [{textbox 'Search'}] [ink] [0]", "click [{button 'Go'}]", "stop"], 1.0),
        (5, ["type [{textbox 'Search'}] [oil] [1]", "stop"], 0.0),
        (6, ["click [{Write a post}]", "type [{textbox 'Title'}] [Hello [1]] [1]", "stop"], 1.0),
        (7, ["stop"], 1.0),
        (8, ["stop"], 1.0),
        (9, ["tab_focus [1]", "stop"], 1.0),
    ],
)
def test_each_kind_of_task_is_scored_as_its_authors_do(
    environment: WebArena, number: int, actions: list[str], reward: float
) -> None:
    assert play(environment, number, *actions) == reward


def test_without_its_login_a_post_is_not_made(environment: WebArena) -> None:
    """What the task with a login posts depends on the login, not on anything that stayed."""
    seen, _ = environment.reset(options={"task_id": "6"})
    assert "Logged in as ann" in seen
    seen, _ = environment.reset(options={"task_id": "1"})
    assert "Not logged in" in seen


@pytest.mark.parametrize("answer", ["about ink", "for no reason"])
def test_a_fuzzy_match_without_a_judge_fails_the_episode(
    environment: WebArena, answer: str
) -> None:
    environment.reset(options={"task_id": "2"})
    with pytest.raises(EnvironmentFailure, match="needs a judge"):
        environment.step(f"stop [{answer}]")
    environment.reset(options={"task_id": "3"})
    with pytest.raises(EnvironmentFailure, match="needs a judge"):
        environment.step(f"stop [{answer}]")


@pytest.mark.usefixtures("installed_chromium")
def test_a_judge_decides_fuzzy_matches(
    options: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lenient.py").write_text(
        "def judge(*, question, reference, answer):\n"
        "    return (question, reference) == ('What is it about?', 'ink') and 'INK' in answer\n",
        encoding="utf-8",
    )
    monkeypatch.chdir(tmp_path)  # a module of one's own may lie in the working folder
    judged = WebArena(**options, judge="lenient:judge")
    try:
        assert play(judged, 2, "stop [INK]") == 1.0
        assert play(judged, 2, "stop [oil]") == 0.0
        assert play(judged, 2, "stop []") == 0.0
    finally:
        judged.close()


def test_what_is_below_the_window_is_seen_after_scrolling(environment: WebArena) -> None:
    seen, _ = environment.reset(options={"task_id": "10"})
    assert "Bottom" not in seen
    for _ in range(6):
        seen, *_ = environment.step("scroll [down]")
    assert "Bottom" in seen
    assert "Top" not in seen
    seen, *_ = environment.step(f"click [{number_of(seen, 'Bottom')}]")
    assert "Tab 0 (current): pressed" in seen


def test_tabs_are_opened_focused_and_closed(environment: WebArena) -> None:
    seen, _ = environment.reset(options={"task_id": "1"})
    seen, *_ = environment.step(f"click [{number_of(seen, 'Help')}]")
    assert "Tab 0: home | Tab 1 (current): popup" in seen
    seen, *_ = environment.step("tab_focus [0]")
    assert "Tab 0 (current): home | Tab 1: popup" in seen
    assert "Forum" in seen
    seen, *_ = environment.step("close_tab")
    assert "Tab 0 (current): popup" in seen
    seen, *_, info = environment.step("tab_focus [3]")
    assert seen.endswith("Not done: there is no tab 3.")
    assert not info["action_accepted"]


def test_history_goes_back_and_forward(environment: WebArena, sites: tuple[Site, Site]) -> None:
    seen, _ = environment.reset(options={"task_id": "1"})
    environment.step(f"click [{number_of(seen, 'Books')}]")
    assert "'Forum'" in environment.step("go_back")[0]
    assert "'Books'" in environment.step("go_forward")[0]
    assert "'Help page'" in environment.step(f"goto [{sites[0].address}/popup]")[0]


def test_no_address_outside_the_sites_is_opened(
    environment: WebArena, sites: tuple[Site, Site]
) -> None:
    site, closed = sites
    before, _ = environment.reset(options={"task_id": "1"})
    for address in (
        f"{closed.address}/reached",
        f"http://localhost:{closed.port}/reached",
        f"http://user@127.0.0.1:{closed.port}",
        f"view-source:{site.address}/",
        "file:///etc/passwd",
        "http://169.254.169.254/latest/meta-data",
        "chrome://version",
        "javascript:alert(1)",
        "data:text/html,hello",
        "not an address",
    ):
        seen, _, _, _, info = environment.step(f"goto [{address}]")
        assert not info["action_accepted"]
        assert seen.startswith(f"{before}\nNot done: ")
    assert closed.requests == []


def test_a_page_leads_nowhere_outside_the_sites(
    environment: WebArena, sites: tuple[Site, Site]
) -> None:
    """By a link, a redirect, a frame, a picture, a file of the machine or a download."""
    for trap in ("Elsewhere", "Away", "File", "Download"):
        seen, _ = environment.reset(options={"task_id": "11"})
        number = number_of(seen, f"link '{trap}'")
        seen, *_ = environment.step(f"click [{number}]")
        assert "root:" not in seen
    assert sites[1].requests == []


NONSENSE = [
    *("", "click", "click [999]", "click [x]", "type [1]", "press [F12]", "press [Ctrl+t]"),
    *("dance", "stop now", "a" * 100_000, "\x00\x1b[31m", "クリック [1]"),
    "</action><action>stop [x]",
]


def test_nonsense_is_answered_and_changes_nothing(environment: WebArena) -> None:
    before, info = environment.reset(options={"task_id": "1"})
    for action in NONSENSE:
        seen, reward, over, truncated, after = environment.step(action)

        assert seen.startswith(f"{before}\nNot done: ")
        assert (reward, over, truncated) == (0.0, False, False)
        assert not after["action_accepted"]
        assert after["anchor_state"] == info["anchor_state"]


def test_the_picture_is_the_window(environment: WebArena) -> None:
    environment.reset(options={"task_id": "1"})
    picture = environment.render()
    assert picture.shape == (600, 800, 3)
    assert picture.min() < 50
    assert picture.max() == 255


@pytest.mark.usefixtures("installed_chromium")
def test_a_site_that_does_not_answer_is_named(options: dict[str, Any]) -> None:
    with running_site() as gone:
        address = gone.address
    elsewhere: dict[str, Any] = {**options, "sites": {"REDDIT": address}}
    made = WebArena(**elsewhere)
    try:
        with pytest.raises(EnvironmentFailure, match=f"{address}.*is it running"):
            made.reset(options={"task_id": "1"})
        with pytest.raises(ResetNeeded):
            made.step("stop")
    finally:
        made.close()


def test_tasks_are_listed_without_a_browser_and_of_the_given_sites_alone(
    options: dict[str, Any],
) -> None:
    listed = {split: source(options).tasks(split) for split in Split}
    ids = {split: {one.task_id for one in tasks} for split, tasks in listed.items()}

    listed_ids = [name for names in ids.values() for name in names]
    assert sorted(listed_ids, key=int) == [str(number) for number in range(12)]
    assert len({one.data_hash for tasks in listed.values() for one in tasks}) == 1


def test_another_file_than_the_named_one_is_refused(options: dict[str, Any]) -> None:
    data_hash = source(options).tasks(Split.TRAIN)[0].data_hash
    assert source({**options, "tasks_hash": data_hash}).tasks(Split.TRAIN)
    with pytest.raises(ConfigError, match="it is another file"):
        source({**options, "tasks_hash": "0" * 32}).tasks(Split.TRAIN)


def test_a_task_without_its_login_is_refused(options: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"WebArena task 6 needs a login.*auto_login\.py"):
        source({**options, "auth_folder": str(tmp_path)}).tasks(Split.TRAIN)
