"""The pages Groups, Group and Compare over a real store: in Streamlit's runner and in a browser."""

import re
from collections.abc import Iterator
from dataclasses import replace

import pytest
from playwright.sync_api import Dialog, Page, expect
from sqlalchemy.orm import Session

from apps.browser import settle, write
from apps.conftest import SampleStore
from apps.viewer.app_pages import column, html_of, open_page
from apps.viewer.conftest import Workshop
from longhaul_core.store import queries
from longhaul_core.store.queries import GroupId, GroupSteps, GroupSummary
from longhaul_core.store.session import read_only_engine
from longhaul_core.types import StopReason
from longhaul_viewer import links
from longhaul_viewer.data.groups import group
from longhaul_viewer.settings import STORE_VARIABLE
from store_samples import make_record, make_trajectory, run_started

slow = pytest.mark.slow
EVERYTHING = 1000


@pytest.fixture(autouse=True)
def shown_store(sample: SampleStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(STORE_VARIABLE, sample.url)


@pytest.fixture(scope="module")
def session(sample: SampleStore) -> Iterator[Session]:
    engine = read_only_engine(sample.url)
    with Session(engine) as session:
        yield session
    engine.dispose()


@pytest.fixture(scope="module")
def groups(session: Session, sample: SampleStore) -> tuple[GroupSummary, ...]:
    """The training groups, newest first."""
    where = queries.GroupFilter(phase="train")
    found = queries.list_groups(session, run_id=sample.run_id, where=where, limit=EVERYTHING)
    return found.rows


@pytest.fixture(scope="module")
def mixed(session: Session, groups: tuple[GroupSummary, ...]) -> GroupSteps:
    """One whose episodes met in states and had different returns."""
    found = (
        queries.group_steps(session, row.group_id)
        for row in groups
        if len(set(row.returns)) > 1 and row.has_signal
    )
    return next(group for group in found if sum(len(e.steps) for e in group.episodes) > 12)


def address_of(group: GroupSteps, **parameters: str) -> str:
    return links.address(
        links.GROUP,
        run=group.summary.run_id,
        attempt=group.summary.attempt,
        phase=group.summary.phase,
        training_step=group.summary.training_step,
        group=group.summary.group_index,
        **parameters,
    )


def expect_address(page: Page, part: str) -> None:
    expect(page).to_have_url(re.compile(re.escape(part)))


def test_groups_begin_with_those_of_mixed_outcomes(
    sample: SampleStore, groups: tuple[GroupSummary, ...]
) -> None:
    shown = column(open_page("groups", run=sample.run_id), "Training step")
    expected = [str(row.training_step) for row in groups if len(set(row.returns)) > 1]
    assert shown == expected[:100]
    assert 0 < len(expected) < len(groups)


def test_groups_without_a_signal_say_why(
    sample: SampleStore, groups: tuple[GroupSummary, ...]
) -> None:
    app = open_page("groups", run=sample.run_id, show="no signal")
    signals = column(app, "Signal")
    assert set(signals) == {"no signal: every advantage is 0"}
    assert len(signals) == sum(row.has_signal is False for row in groups)


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ({}, "names no run"),
        ({"run": "none"}, "there is no run"),
        ({"run": "", "show": "some"}, "asks for show"),
        ({"run": "", "training_step": "x"}, "no whole number"),
        ({"run": "", "environment": "no/such"}, "No group matches"),
    ],
)
def test_what_cannot_be_listed_is_said(
    sample: SampleStore, query: dict[str, str], message: str
) -> None:
    named = {
        name: sample.run_id if (name, value) == ("run", "") else value
        for name, value in query.items()
    }
    assert message in html_of(open_page("groups", **named))


def test_two_checkpoints_are_compared_on_their_panel(sample: SampleStore, session: Session) -> None:
    first, last = (f"{sample.run_id}@{step}" for step in (0, 12))
    found = queries.compare(
        session,
        a=queries.Checkpoint.parse(first),
        b=queries.Checkpoint.parse(last),
    )
    assert found.num_gained > 0

    page = html_of(open_page("compare", a=first, b=last))

    assert f">{found.num_gained} gained<" in page
    assert "exact test on the tasks that flipped" in page
    assert page.count('<tr class="link">') == found.num_gained + found.num_lost


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ({}, "Choose two results"),
        ({"a": "x", "b": "y"}, "named by its run and its training step"),
        ({"a": "RUN@0", "b": "RUN@0"}, "both sides are run"),
        ({"a": "RUN@0", "b": "RUN@5"}, "it has them at 0, 12"),
        ({"a": "none@0", "b": "RUN@0"}, "there is no run"),
    ],
)
def test_what_cannot_be_compared_is_said(
    sample: SampleStore, query: dict[str, str], message: str
) -> None:
    named = {name: value.replace("RUN", sample.run_id) for name, value in query.items()}
    assert message in html_of(open_page("compare", **named))


@slow
def test_a_step_is_chosen_by_pointer_and_keys_and_taken_apart(
    page: Page, other: Page, viewer: str, mixed: GroupSteps
) -> None:
    page.goto(f"{viewer}/{address_of(mixed)}")
    settle(page)
    rows = page.locator(".board .line:not(.ruler)")
    expect(rows).to_have_count(len(mixed.episodes))
    expect(page.locator(".cell")).to_have_count(sum(len(e.steps) for e in mixed.episodes))
    name = rows.first.locator(".name").inner_text()
    episode = next(e for e in mixed.episodes if str(e.summary.sample_index) == name)

    rows.first.locator(".cell").nth(1).click()

    panel = page.locator(".panel")
    step = episode.steps[1]
    expect(panel).to_contain_text(f"Episode {name}, step 1")
    expect(panel).to_contain_text(step.action)
    total = panel.locator("tr.sum td").last.inner_text().replace("−", "-")
    assert step.advantage is not None
    assert float(total) == pytest.approx(step.advantage, rel=0.01, abs=1e-6)
    expect_address(page, "at=0.1")

    for _ in range(3):
        page.keyboard.press("ArrowLeft")
    page.keyboard.press("l")
    expect(panel).to_contain_text(f"Episode {name}, step 1")
    page.keyboard.press("j")
    expect_address(page, "at=1.")
    said = panel.locator("h3").first.inner_text()
    other.goto(page.url)
    expect(other.locator(".panel h3").first).to_have_text(said, use_inner_text=True)
    panel.get_by_role("link", name="Replay this step").click()
    page.wait_for_url("**/replay?*step=*")


@slow
def test_an_episode_that_comes_later_leaves_what_is_chosen(page: Page, workshop: Workshop) -> None:
    first = make_trajectory(
        sample_index=2, rewards=(0.0, 0.0), success=False, stop_reason=StopReason.HORIZON_REACHED
    )
    write(workshop.url, run_started("growing"), make_record(first, run_id="growing"))
    address = links.group_address(GroupId("growing", "train", 1, 0, 0))
    page.goto(f"{workshop.viewer}/{address}")
    rows = page.locator(".board .line:not(.ruler)")
    rows.first.locator(".cell").nth(1).click()
    expect(page.locator(".panel h3").first).to_have_text("Episode 2, step 1")
    expect_address(page, "at=0.1")
    solved = make_record(make_trajectory(sample_index=1), run_id="growing")
    write(workshop.url, solved)  # which stands above it
    expect(rows).to_have_count(2)
    expect(rows.nth(1).locator(".name")).to_have_text("2")
    expect(page.locator(".panel h3").first).to_have_text("Episode 2, step 1")
    expect_address(page, "at=1.1")


@slow
def test_keys_go_from_group_to_group_and_are_listed(
    page: Page, viewer: str, mixed: GroupSteps
) -> None:
    page.goto(f"{viewer}/{address_of(mixed)}")
    settle(page)
    here = page.url
    head = page.locator(".board .head").nth(1)
    first = head.get_attribute("href")
    page.keyboard.press("p")
    expect(page).not_to_have_url(here)
    expect_address(page, "/group?")
    expect(head).not_to_have_attribute("href", str(first))
    settle(page)  # the keys of the page before are let go, and this one's are heard
    page.keyboard.press("n")
    expect(page).to_have_url(here)
    expect(head).to_have_attribute("href", str(first))

    page.keyboard.press("l")  # no step was chosen: the first one is
    expect_address(page, "at=0.0")
    page.keyboard.press("?")
    keys = page.get_by_role("dialog", name="keys")
    expect(keys).to_contain_text("group before, group after")
    page.keyboard.press("Escape")
    expect(keys).to_have_count(0)
    expect_address(page, "at=0.0")


def test_the_groups_beside_a_group_are_those_of_its_run_and_phase(
    sample: SampleStore, groups: tuple[GroupSummary, ...]
) -> None:
    in_order = [row.group_id for row in reversed(groups) if not row.rolled_back]
    in_order.sort(key=lambda key: (key.training_step, key.group_index))
    for place in (0, 1, len(in_order) - 1):
        _, drawn = group(in_order[place])
        near = in_order[max(0, place - 1) : place] + in_order[place + 1 : place + 2]
        expected = [links.group_address(key) for key in near]
        assert [each for each in drawn["beside"].values() if each] == expected


@slow
def test_a_search_marks_the_steps_it_finds_and_goes_from_one_to_the_next(
    page: Page, other: Page, viewer: str, mixed: GroupSteps
) -> None:
    _, drawn = group(mixed.summary.group_id)
    texts = {node["number"]: node["text"] or "" for node in drawn["nodes"]}
    steps = [step for episode in drawn["episodes"] for step in episode["steps"]]
    said = [f"{step['action']}\n{texts.get(step['node'], '')}".lower() for step in steps]
    counts = {
        step["action"]: sum(step["action"].lower() in each for each in said) for step in steps
    }
    action, num_hits = min(counts.items(), key=lambda each: each[1])
    assert 0 < num_hits < len(steps)
    page.goto(f"{viewer}/{address_of(mixed)}")
    settle(page)
    page.keyboard.press("/")
    field = page.get_by_role("searchbox", name="Search the group")
    expect(field).to_be_focused()
    page.keyboard.type(action.upper())
    marked = page.locator(".cell.match")
    hits = page.locator(".search").get_by_role("status")
    expect(hits).to_have_text(re.compile(f"^{num_hits} steps?$"))
    expect(marked).to_have_count(num_hits)
    expect_address(page, "search=")

    page.keyboard.press("Enter")
    expect(hits).to_have_text(re.compile(f"^1 of {num_hits} "))
    expect(page.locator(".cell.chosen.match")).to_have_count(1)
    page.keyboard.press("Shift+Enter")
    expect(hits).to_have_text(re.compile(f"^{num_hits} of {num_hits} "))
    page.keyboard.press("Escape")  # back to the keys
    page.keyboard.press("Escape")
    expect(page.locator(".cell.chosen")).to_have_count(0)
    other.goto(page.url)
    expect(other.locator(".cell.match")).to_have_count(num_hits)
    page.keyboard.press("/")
    page.keyboard.press("ControlOrMeta+a")
    page.keyboard.type("no such word")
    expect(hits).to_have_text("0 steps")
    expect(marked).to_have_count(0)


@slow
def test_another_estimator_draws_its_own_bars(
    page: Page, viewer: str, mixed: GroupSteps, session: Session
) -> None:
    page.goto(f"{viewer}/{address_of(mixed)}")
    settle(page)

    def drawn() -> list[str]:
        return page.locator(".cell").evaluate_all("all => all.map(one => one.title)")

    expect(page.locator(".cell").first).to_be_visible()
    trained = drawn()
    page.get_by_label("advantages by").select_option("grpo")
    expect(page.locator(".controls .what")).to_contain_text("GRPO")
    expect_address(page, "estimator=grpo")
    assert drawn() != trained
    grpo = queries.advantages_by_estimator(
        session, mixed.summary.group_id, names=["grpo"]
    ).estimators[0]
    signs = {e.episode_id: e.advantages[0] > 0 for e in grpo.episodes}
    assert set(signs.values()) == {True, False}
    plus = page.locator(".line").filter(has=page.locator(".bar.plus"))
    expect(plus).to_have_count(sum(signs.values()))

    page.reload()
    settle(page)
    expect(page.get_by_label("advantages by")).to_have_value("grpo")


@slow
def test_states_and_edges_open_the_steps_behind_them(
    page: Page, viewer: str, mixed: GroupSteps, session: Session
) -> None:
    graph = queries.state_graph(session, mixed.summary.group_id)
    page.goto(f"{viewer}/{address_of(mixed)}")
    settle(page)
    expect(page.locator(".node")).to_have_count(len(graph.nodes))
    expect(page.locator(".edge")).to_have_count(len(graph.edges))
    edge = max(graph.edges, key=lambda each: len(each.steps))

    page.locator(f'.edge[data-edge="{edge.source}-{edge.target}"]').press("Enter")

    first = page.locator(".panel table").first
    expect(first.locator("tbody tr")).to_have_count(len(edge.steps))
    expect_address(page, f"edge={edge.source}-{edge.target}")
    busiest = max(graph.nodes, key=lambda node: node.num_steps)
    page.locator(f'.node[data-state="{busiest.number}"]').click()
    expect(page.locator(".panel h3")).to_have_text(f"State {busiest.number}")
    expect(page.locator(".panel tbody tr")).to_have_count(busiest.num_steps)
    assert busiest.text is not None
    assert page.locator(".panel .state").inner_text().split() == busiest.text.split()

    page.get_by_label("edges coloured by").select_option("advantage")
    expect_address(page, "edges=advantage")
    expect(page.locator(".edge .stroke")).to_have_count(len(graph.edges))
    page.goto(f"{viewer}/{address_of(mixed, edge=f'{edge.source}-{edge.target}')}")
    settle(page)
    expect(first.locator("tbody tr")).to_have_count(len(edge.steps))
    first.locator("a").first.click()
    page.wait_for_url("**/replay?*step=*")


@slow
def test_hostile_text_runs_nothing_and_a_phone_is_wide_enough(
    other: Page, viewer: str, sample: SampleStore
) -> None:
    summary = sample.hostile.summary
    other.set_viewport_size({"width": 390, "height": 844})
    dialogs: list[str] = []

    def note(dialog: Dialog) -> None:
        dialogs.append(dialog.message)
        dialog.dismiss()

    other.on("dialog", note)
    place = links.address(
        links.GROUP,
        run=summary.run_id,
        attempt=summary.attempt,
        phase=summary.phase,
        training_step=summary.training_step,
        group=summary.group_index,
        state="1",
    )
    other.goto(f"{viewer}/{place}")
    settle(other)
    expect(other.locator(".panel .state")).to_be_visible()
    assert other.locator(".group script, .group img").count() == 0
    assert dialogs == []
    width = other.evaluate("document.scrollingElement.scrollWidth")
    assert width <= 390


@slow
def test_a_flipped_task_is_seen_side_by_side(page: Page, viewer: str, sample: SampleStore) -> None:
    first, last = (f"{sample.run_id}@{step}" for step in (0, 12))
    page.goto(f"{viewer}/{links.address(links.COMPARE, a=first, b=last)}")
    settle(page)
    page.locator("tr.link a").first.click()
    page.wait_for_url("**left=*")
    expect(page.locator(".head .name")).to_have_text(["step", "A", "B"])
    assert re.search(r"part", page.locator(".board").locator("xpath=..").inner_text())
    at = page.locator(".panel tr.chosen td").all_inner_texts()
    assert at[1] != at[2]  # where they part, they do not do the same
    page.locator(".panel tr.chosen a").first.click()
    page.wait_for_url(f"**/replay?*step={at[0]}")


@slow
def test_two_episodes_are_replayed_beside_each_other(
    page: Page, other: Page, viewer: str, sample: SampleStore, session: Session
) -> None:
    first_result, last_result = (queries.Checkpoint(sample.run_id, step) for step in (0, 12))
    found = queries.compare(session, a=first_result, b=last_result)
    flipped = next(task for task in found.tasks if task.a_success != task.b_success)
    ids = (flipped.a_episode_ids[0], flipped.b_episode_ids[0])
    episodes = [queries.get_episode(session, episode_id=each, tokens=False) for each in ids]
    page.goto(f"{viewer}/{links.address(links.COMPARE, left=ids[0], right=ids[1])}")
    settle(page)
    sides = page.locator(".pair article")
    shown = page.locator(".pair")

    def expect_step(index: int) -> None:
        expect(shown).to_have_attribute("data-step", str(index))
        for side, episode in zip(sides.all(), episodes, strict=True):
            if index >= len(episode.steps):
                expect(side).to_contain_text(f"Over after {len(episode.steps)} step")
                continue
            step = episode.steps[index]
            assert step.observation is not None
            assert step.calls[-1].reply is not None
            for line in step.observation.splitlines():
                expect(side.locator(".observed")).to_contain_text(line)
            expect(side.locator(".wrote").last).to_have_text(step.calls[-1].reply)
            expect(side.locator(".did")).to_contain_text(step.action)

    expect(sides).to_have_count(2)
    first = int(shown.get_attribute("data-step") or "-1")
    last = max(len(episode.steps) for episode in episodes) - 1
    assert 0 <= first < last
    assert len({len(episode.steps) for episode in episodes}) == 2  # one is over before the other
    for index in range(first, last + 1):
        expect_step(index)
        page.keyboard.press("l")
    expect_step(last)  # there is none after it
    other.goto(page.url)
    expect(other.locator(".pair")).to_have_attribute("data-step", str(last))


@slow
def test_a_key_goes_on_where_one_of_two_alike_is_over(page: Page, workshop: Workshop) -> None:
    longer = make_trajectory(sample_index=1)
    shorter = replace(longer, sample_index=0, steps=longer.steps[:-1])
    records = [make_record(each, run_id="alike") for each in (shorter, longer)]
    ids = [record.episode_id for record in records]
    write(workshop.url, run_started("alike"), *records)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(f"{workshop.viewer}/{links.address(links.COMPARE, left=ids[0], right=ids[1])}")
    shown = page.locator(".pair")
    expect(shown).to_have_attribute("data-step", "2")  # the first has no such step
    settle(page)
    page.keyboard.press("l")
    chosen = page.locator(".cell.chosen")
    expect(chosen).to_have_attribute("aria-label", re.compile("^episode B, step 2:"))
    expect(shown).to_have_attribute("data-step", "2")
    texts = [address for address in asked if "/texts" in address]
    assert len(texts) >= 2
    assert all("tokens=false" in address for address in texts)  # they are not drawn
