"""The pages over a real store, run by Streamlit's own test runner."""

import re
import shutil
from html.parser import HTMLParser
from pathlib import Path

import pytest
from sqlalchemy.orm import Session
from streamlit.testing.v1 import AppTest

import longhaul_viewer
from apps.conftest import SampleStore
from apps.sample_store import RUN_ID
from longhaul_core.store import open_store, queries
from longhaul_core.store.retention import Retention
from longhaul_core.store.session import read_only_engine
from longhaul_viewer.settings import STORE_VARIABLE
from store_samples import first_reply

APP = Path(longhaul_viewer.__file__).with_name("app.py")
TIMEOUT_SECONDS = 60


@pytest.fixture(autouse=True)
def shown_store(sample: SampleStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(STORE_VARIABLE, sample.url)


def open_page(view: str, **query: str) -> AppTest:
    """The page after its first run, at an address with these parameters."""
    app = AppTest.from_file(str(APP), default_timeout=TIMEOUT_SECONDS).run()
    for name, value in query.items():
        app.query_params[name] = value
    return app.switch_page(f"views/{view}.py").run()


def html_of(app: AppTest) -> str:
    """All HTML of the page."""
    assert not app.exception, app.exception
    return "\n".join(str(element.proto.body) for element in app.get("html"))


def column(app: AppTest, title: str) -> list[str]:
    """The cells of a column of the page's first table, as text."""
    reader = TableReader()
    reader.feed(html_of(app))
    place = reader.titles.index(title)
    return [row[place] for row in reader.rows]


class TableReader(HTMLParser):
    """The titles and the rows of the first table with titles."""

    def __init__(self) -> None:
        super().__init__()
        self.titles: list[str] = []
        self.rows: list[list[str]] = []
        self._cell: list[str] | None = None
        self._ended = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "tr" and self.titles and not self._ended:
            self.rows.append([])
        if tag in ("th", "td"):
            self._cell = []

    def handle_data(self, data: str) -> None:
        if self._cell is not None:
            self._cell.append(data)

    def handle_endtag(self, tag: str) -> None:
        if tag == "table":
            self._ended = bool(self.titles)
        if tag in ("th", "td") and self._cell is not None and not self._ended:
            (self.titles if tag == "th" else self.rows[-1]).append("".join(self._cell))
            self._cell = None


def test_the_list_of_runs_has_the_run(sample: SampleStore) -> None:
    app = AppTest.from_file(str(APP), default_timeout=TIMEOUT_SECONDS).run()
    assert not app.exception
    assert column(app, "Run") == [sample.run_id]
    assert column(app, "Training steps") == ["100%"]
    assert 'of 12"' in html_of(app)  # the curve has a point for each training step


def test_a_run_shows_curves_and_what_it_was_evaluated_on(sample: SampleStore) -> None:
    app = open_page("run", run=sample.run_id)
    assert "finished" in html_of(app)
    assert len(app.get("plotly_chart")) == 3 + 3
    assert column(app, "After training step") == ["0", "12"]


def test_metrics_are_chosen_by_name(sample: SampleStore) -> None:
    app = open_page("run", run=sample.run_id)
    app.multiselect(key="metrics").set_value(["train/weight_norm"]).run()
    assert not app.exception
    assert len(app.get("plotly_chart")) == 3 + 1


def test_episodes_are_filtered_and_sorted(sample: SampleStore) -> None:
    app = open_page("episodes", run=sample.run_id)
    assert "208 episodes" in html_of(app)
    app.selectbox(key="phase").set_value("validation").run()
    assert set(column(app, "Phase")) == {"validation"}
    app.selectbox(key="sort").set_value("return").run()
    returns = [float(cell) for cell in column(app, "Return")]
    assert returns == sorted(returns, reverse=True)


def test_failed_episodes_can_be_picked_out(sample: SampleStore) -> None:
    app = open_page("episodes", run=sample.run_id)
    app.segmented_control(key="outcome").set_value("failed").run()
    assert set(column(app, "Outcome")) == {"failed: environment error"}


def test_a_filtered_list_can_be_linked(sample: SampleStore) -> None:
    app = open_page("episodes", run=sample.run_id, training_step="3", phase="train", sort="steps")
    assert set(column(app, "Training step")) == {"3"}
    assert app.selectbox(key="training_step").value == 3
    lengths = [int(cell) for cell in column(app, "Steps")]
    assert lengths == sorted(lengths, reverse=True)
    assert len(lengths) == 16


def test_another_filter_begins_at_the_first_page(sample: SampleStore) -> None:
    app = open_page("episodes", run=sample.run_id, page="2")
    assert "page 2 of 3" in html_of(app)
    app.selectbox(key="phase").set_value("train").run()
    assert "page 1 of 2" in html_of(app)
    assert "page" not in app.query_params


def test_pages_of_a_list_have_every_episode_once(sample: SampleStore) -> None:
    pages = [open_page("episodes", run=sample.run_id, page=str(number)) for number in (1, 2, 3)]
    assert [len(column(page, "Task")) for page in pages] == [100, 100, 8]
    addresses = re.findall(r'href="(replay[^"]+)"', "".join(html_of(page) for page in pages))
    assert len(set(addresses)) == len(addresses) == 208
    beyond = open_page("episodes", run=sample.run_id, page="99")
    assert "page 3 of 3" in html_of(beyond)
    assert len(column(beyond, "Task")) == 8


def test_a_training_step_without_episodes_is_asked_for_and_found_empty(
    sample: SampleStore,
) -> None:
    app = open_page("episodes", run=sample.run_id, training_step="99")
    assert app.selectbox(key="training_step").value == 99
    assert "0 episodes" in html_of(app)
    assert app.info[0].value == "No episode matches."


def test_replay_shows_the_step_of_the_address(sample: SampleStore) -> None:
    step = sample.solved.steps[-1]
    app = open_page("replay", episode=sample.solved.summary.episode_id, step=str(step.step_index))
    page = html_of(app)
    assert "solved" in page
    assert step.action in page
    assert f"{step.calls[0].num_prompt_tokens} tokens" in page
    assert app.slider[0].value == step.step_index
    assert app.button(key="next").disabled
    assert "Final observation" in page


def test_buttons_and_slider_move_the_step_in_the_address(sample: SampleStore) -> None:
    app = open_page("replay", episode=sample.solved.summary.episode_id)
    app.button(key="next").click().run()
    assert app.query_params["step"] in ("1", ["1"])
    app.slider[0].set_value(2).run()
    assert app.query_params["step"] in ("2", ["2"])
    app.button(key="previous").click().run()
    assert app.query_params["step"] in ("1", ["1"])
    assert app.slider[0].value == 1


def test_the_next_episode_of_the_group_is_one_key_away(sample: SampleStore) -> None:
    summary = sample.solved.summary
    first = f"{summary.run_id}/0/train/{summary.training_step}/{summary.group_index}/0/0"
    app = open_page("replay", episode=first, step="2")
    app.button(key="later-episode").click().run()
    assert not app.exception
    episode = app.query_params["episode"]
    assert "".join(episode) == f"{first[:-4]}/1/0"


def test_markup_in_a_reply_is_shown_and_not_run(sample: SampleStore) -> None:
    index = next(s.step_index for s in sample.hostile.steps if "<script>" in first_reply(s))
    page = html_of(open_page("replay", episode=sample.hostile.summary.episode_id, step=str(index)))
    assert "<script" not in page
    assert "<img" not in page
    assert "&lt;scri" in page  # its tokens are five bytes long


def test_model_text_goes_through_no_markdown(sample: SampleStore) -> None:
    index = next(s.step_index for s in sample.hostile.steps if "<script>" in first_reply(s))
    app = open_page("replay", episode=sample.hostile.summary.episode_id, step=str(index))
    shown = [str(element.value) for element in (*app.markdown, *app.caption, *app.error)]
    assert not [text for text in shown if "alert(" in text or "example.com" in text]


def test_a_failed_episode_says_why_and_what_was_done_before(sample: SampleStore) -> None:
    app = open_page("replay", episode=sample.failed.summary.episode_id)
    page = html_of(app)
    assert "failed: environment error" in page
    assert "server gone" in page
    assert "not trained" in page


def test_a_group_shows_its_episodes(sample: SampleStore) -> None:
    app = open_page(
        "group", run=sample.run_id, attempt="0", phase="train", training_step="3", group="0"
    )
    assert not app.exception
    assert column(app, "Episode") == ["0", "1", "2", "3"]
    page = html_of(app)
    num_steps = sum(int(cell) for cell in column(app, "Steps"))
    assert len(re.findall(r'<a class="square', page)) == num_steps
    assert "largest |advantage|" in page


def test_a_group_without_a_solution_or_a_signal_says_so_and_is_not_green(
    sample: SampleStore,
) -> None:
    engine = read_only_engine(sample.url)
    with Session(engine) as session:
        groups = queries.list_groups(session, run_id=sample.run_id, limit=1000).rows
    engine.dispose()
    dull = next(group for group in groups if group.max_abs_advantage == 0.0)
    assert dull.success_rate == 0.0
    page = html_of(
        open_page(
            "group",
            run=sample.run_id,
            attempt="0",
            phase="train",
            training_step=str(dull.training_step),
            group=str(dull.group_index),
        )
    )
    assert '<span class="badge plain">0 solved</span>' in page
    assert "no signal: every advantage is 0" in page


@pytest.mark.parametrize(
    ("view", "query", "message"),
    [
        ("run", {"run": "<b>none</b>"}, "there is no run &#x27;&lt;b&gt;none&lt;/b&gt;&#x27;"),
        ("run", {}, "names no run"),
        ("episodes", {"run": "none"}, "there is no run"),
        (
            "episodes",
            {"run": RUN_ID, "training_step": "abc"},
            "&#x27;abc&#x27;, which is no",
        ),
        ("episodes", {"run": RUN_ID, "phase": "tests"}, "&#x27;tests&#x27;; there are train, "),
        ("episodes", {"run": RUN_ID, "outcome": "x"}, "&#x27;x&#x27;; there are solved, "),
        ("episodes", {"run": RUN_ID, "sort": "x"}, "&#x27;x&#x27;; there are training step, "),
        ("replay", {"episode": "none"}, "there is no episode"),
        ("replay", {}, "names no episode"),
        ("group", {"run": "none", "phase": "train"}, "there is no group"),
        ("group", {}, "names no group"),
    ],
)
def test_an_address_of_nothing_is_answered_with_a_sentence(
    view: str, query: dict[str, str], message: str
) -> None:
    assert message in html_of(open_page(view, **query))


@pytest.mark.parametrize("step", ["-1", "99999999999999999999", "abc", "²"])
def test_a_step_that_is_not_there_shows_the_nearest(sample: SampleStore, step: str) -> None:
    app = open_page("replay", episode=sample.solved.summary.episode_id, step=step)
    assert not app.exception
    assert app.slider[0].value in (0, len(sample.solved.steps) - 1)


def test_what_retention_removed_is_named_and_not_taken_for_missing(
    sample: SampleStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = str(shutil.copy(sample.url, tmp_path / "store.db"))
    monkeypatch.setenv(STORE_VARIABLE, url)
    engine = open_store(url)
    retention = Retention(engine, run_id=sample.run_id, sampled_groups=0)
    while retention.remove_some(up_to=sample.solved.summary.training_step):
        pass
    engine.dispose()

    step = sample.solved.steps[-1]
    app = open_page("replay", episode=sample.solved.summary.episode_id, step=str(step.step_index))

    page = html_of(app)
    assert "text and tokens removed" in page
    assert page.count("Removed by the run&#x27;s retention") == 3  # reply, observation, prompt
    assert step.action in page
    assert first_reply(step) not in page


def test_a_missing_store_is_said_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(STORE_VARIABLE, str(tmp_path / "none.db"))
    app = AppTest.from_file(str(APP), default_timeout=TIMEOUT_SECONDS).run()
    assert "there is no store at" in html_of(app)
