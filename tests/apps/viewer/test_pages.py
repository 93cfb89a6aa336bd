"""The pages over a real store, run by Streamlit's own test runner."""

import re
from html import unescape
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from sqlalchemy.orm import Session
from streamlit.testing.v1 import AppTest

from apps.conftest import SampleStore
from apps.sample_store import RUN_ID
from apps.viewer.app_pages import APP, TIMEOUT_SECONDS, html_of, open_page
from longhaul_core.store import queries
from longhaul_core.store.session import read_only_engine
from longhaul_viewer import links
from longhaul_viewer.pages import PAGES
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


def said_at(app: AppTest, address: str) -> str:
    """All HTML of the page whose address a link names, once the app has gone there."""
    parts = urlsplit(address)
    (view,) = (page.view for page in PAGES if page.address == parts.path)
    app.query_params.clear()
    for name, values in parse_qs(parts.query, strict_parsing=bool(parts.query)).items():
        app.query_params[name] = values
    return html_of(app.switch_page(f"views/{view}.py").run())


def kinds_of_links(page: str) -> dict[tuple[str, ...], str]:
    """One link for each page, tab and set of parameters that the links of this page name."""
    found: dict[tuple[str, ...], str] = {}
    for address in map(unescape, re.findall(r'<a\b[^>]*?\bhref="([^"]*)"', page)):
        parts = urlsplit(address)
        parameters = parse_qs(parts.query)
        found[parts.path, *sorted(parameters), *parameters.get("tab", ())] = address
    return found


def test_every_link_of_every_page_opens_a_page_and_none_offers_a_table(
    sample: SampleStore,
) -> None:
    """What Streamlit exports is not escaped: a cell of a model's could be a formula."""
    summary = sample.solved.summary
    addresses = {page.address: links.address(page.address, run=sample.run_id) for page in PAGES} | {
        links.REPLAY: links.address(links.REPLAY, episode=summary.episode_id),
        links.GROUP: links.group_address(summary.group_id),
        "filtered": links.address(links.EPISODES, run=sample.run_id, phase="train"),
        "nothing": links.address(links.RUN, run="none"),
    }
    app = AppTest.from_file(str(APP), default_timeout=TIMEOUT_SECONDS).run()
    seen: dict[tuple[str, ...], str] = {}
    for name, address in addresses.items():
        page = said_at(app, address)
        of_page = kinds_of_links(page)
        assert of_page, f"{name} leads nowhere"
        assert ('class="alert' in page) == (name == "nothing"), address
        assert not app.dataframe
        assert not app.get("download_button")
        seen |= {kind: to for kind, to in of_page.items() if not kind[0].startswith("/api/")}
    assert {kind[0] for kind in seen} == {page.address for page in PAGES}
    for address in seen.values():
        page = said_at(app, address)
        assert 'class="alert' not in page, address
        drawn_elsewhere = address.startswith(f"{links.REPLAY}?")  # by the replay's component
        assert page.count("<h1") == (0 if drawn_elsewhere else 1), address
