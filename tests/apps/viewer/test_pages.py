"""The pages over a real store, run by Streamlit's own test runner."""

from pathlib import Path

import pytest
from sqlalchemy.orm import Session
from streamlit.testing.v1 import AppTest

from apps.conftest import SampleStore
from apps.sample_store import RUN_ID
from apps.viewer.app_pages import APP, TIMEOUT_SECONDS, html_of, open_page
from longhaul_core.store import queries
from longhaul_core.store.session import read_only_engine
from longhaul_viewer.settings import STORE_VARIABLE


@pytest.fixture(autouse=True)
def shown_store(sample: SampleStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(STORE_VARIABLE, sample.url)


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
    assert '<span class="badge plain">0 of 4 solved</span>' in page
    assert "no signal: every advantage is 0" in page


@pytest.mark.parametrize(
    ("view", "query", "message"),
    [
        ("run", {"run": "<b>none</b>"}, "there is no run &#x27;&lt;b&gt;none&lt;/b&gt;&#x27;"),
        ("run", {}, "names no run"),
        ("episodes", {"run": "none"}, "there is no run"),
        (
            "episodes",
            {"run": RUN_ID, "from_step": "abc"},
            "&#x27;abc&#x27;, which is no",
        ),
        ("episodes", {"run": RUN_ID, "phase": "tests"}, "&#x27;tests&#x27;; there are train, "),
        ("episodes", {"run": RUN_ID, "outcome": "x"}, "&#x27;x&#x27;; there are solved, "),
        ("episodes", {"run": RUN_ID, "sort": "x"}, "&#x27;x&#x27;; there are training step, "),
        ("replay", {}, "names no episode"),
        ("group", {"run": "none", "phase": "train"}, "there is no run"),
        ("group", {"run": RUN_ID, "phase": "train", "group": "99"}, "there is no group"),
        ("group", {}, "names no group"),
    ],
)
def test_an_address_of_nothing_is_answered_with_a_sentence(
    view: str, query: dict[str, str], message: str
) -> None:
    assert message in html_of(open_page(view, **query))


def test_a_missing_store_is_said_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(STORE_VARIABLE, str(tmp_path / "none.db"))
    app = AppTest.from_file(str(APP), default_timeout=TIMEOUT_SECONDS).run()
    assert "there is no store at" in html_of(app)
