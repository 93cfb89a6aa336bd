"""The pages Runs, Run and Episodes over a real store, run by Streamlit's own test runner."""

import json
import re
import shutil
import sqlite3
import time
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from html import unescape
from pathlib import Path
from urllib.parse import parse_qs, parse_qsl, urlsplit

import pytest
from sqlalchemy.orm import Session

from apps.conftest import SampleStore
from apps.viewer.app_pages import charts_of, column, html_of, open_page
from longhaul_core.store import StoreWriter, open_store, queries
from longhaul_core.store.labelling import put_label
from longhaul_core.store.records import Evaluation, Label, Metrics, PanelTasks, RunEnded
from longhaul_core.store.session import read_only_engine
from longhaul_core.types import FailureCause, Split
from longhaul_viewer import links
from longhaul_viewer.components.charts import Series
from longhaul_viewer.data import curves as curves_data
from longhaul_viewer.data import episodes as episodes_data
from longhaul_viewer.data.episodes import EpisodeQuery
from longhaul_viewer.settings import STORE_VARIABLE
from store_samples import (
    make_audit,
    make_credit,
    make_decisions,
    make_failure,
    make_record,
    make_task,
    make_trajectory,
    run_started,
)


@pytest.fixture(autouse=True)
def shown_store(sample: SampleStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(STORE_VARIABLE, sample.url)


@pytest.fixture
def two_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A store of two runs that differ in their seed, the second one in trouble."""
    url = str(tmp_path / "two.db")
    with StoreWriter(url) as writer:
        for seed, entropy in ((1, 0.9), (2, 0.001)):
            run_id = f"run-{seed}"
            config = {"seed": seed, "model": {"path": "tiny"}, "algorithm": {"name": "gigpo"}}
            now = replace(run_started(run_id), started_at=time.time() + seed)
            writer.write(
                [
                    replace(now, config_json=json.dumps(config)),
                    *(
                        make_record(
                            make_trajectory(rewards=(float(seed), 0.0, 0.0)[:step]),
                            run_id=run_id,
                            training_step=step,
                        )
                        for step in (1, 2, 3)
                    ),
                    *(
                        Metrics(
                            run_id=run_id,
                            attempt=0,
                            training_step=step,
                            values={"actor/entropy": entropy / step, "actor/loss": 0.0},
                        )
                        for step in (1, 2, 3)
                    ),
                ]
            )
        writer.write([make_audit(run_id="run-2", audited_at=time.time())])
    monkeypatch.setenv(STORE_VARIABLE, url)
    return url


def test_the_list_of_runs_has_the_run_with_its_settings(sample: SampleStore) -> None:
    app = open_page("runs")
    assert column(app, "Run") == [f"textcraft-softmax{sample.run_id}"]
    assert column(app, "Training steps") == ["12 of 12100%"]
    assert column(app, "Algorithm, seed") == ["gigpo"]
    assert column(app, "State") == ["finished"]
    assert 'of 12"' in html_of(app)  # the curve has a point for each training step


def test_times_are_in_the_zone_of_the_reader(sample: SampleStore) -> None:
    app = open_page("runs")
    app.context["timezone"] = "Asia/Kathmandu"  # 5:45 ahead of UTC
    app.run()
    engine = read_only_engine(sample.url)
    with Session(engine) as session:
        started_at = queries.get_run(session, run_id=sample.run_id).summary.started_at
    engine.dispose()
    there = datetime.fromtimestamp(started_at, timezone(timedelta(hours=5, minutes=45)))
    assert column(app, "Started")[0].endswith(f"{there:%H:%M}")


def test_the_score_of_a_panel_that_was_not_played_whole_says_of_how_many_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = str(tmp_path / "unplayed.db")
    split, name = Split.VALIDATION, "validation"
    config = json.dumps({"validation": {"samples_per_task": 1}})
    tasks = tuple(make_task(number) for number in range(4))
    with StoreWriter(url) as writer:
        writer.write(
            [
                replace(run_started("half"), started_at=time.time(), config_json=config),
                make_record(make_trajectory(), run_id="half", training_step=1),
                PanelTasks(run_id="half", name=name, split=split, tasks=tasks),
                Evaluation(
                    run_id="half",
                    attempt=0,
                    training_step=1,
                    panel=name,
                    split=split,
                    num_episodes=2,
                    mean_return=1.0,
                    success_rate=1.0,
                ),
            ]
        )
    monkeypatch.setenv(STORE_VARIABLE, url)

    assert column(open_page("runs"), "Panel") == ["100% of 2 of 4was 100%"]
    page = open_page("run", run="half")
    assert column(page, "Episodes") == ["2 of 4"]
    assert column(page, "If the rest were lost or won") == ["50% to 100%"]


def test_what_is_wrong_stands_before_the_runs(two_runs: str) -> None:
    page = html_of(open_page("runs"))
    alarms = page[page.index('<div class="alarms"') : page.index("<table>")]
    assert re.findall(r'<b dir="auto">([^<]+)</b>', alarms) == ["run-2"]
    said = re.findall(r"<li><a [^>]*>([^<]+)</a>", alarms)
    assert said == [
        "the audit has 1 finding",
        "entropy is 0.00033 nats per token; the policy hardly explores (training step 3)",
    ]
    assert "lower optimizer.learning_rate" in alarms
    assert "2 alarms" in page


def test_groups_without_signal_are_an_alarm_that_leads_to_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = str(tmp_path / "alike.db")
    with StoreWriter(url) as writer:
        writer.write([replace(run_started("alike"), started_at=time.time())])
        for group in range(3):
            records = [
                make_record(
                    make_trajectory(rewards=(0.0,), sample_index=sample),
                    run_id="alike",
                    training_step=4,
                    group_index=group,
                )
                for sample in range(2)
            ]
            nothing = (make_credit(record, episode_advantage=0.0) for record in records)
            writer.write([*records, *make_decisions(records), *nothing])
        values = {"groups/count": 3.0, "groups/without_signal": 3.0}
        writer.write([Metrics(run_id="alike", attempt=0, training_step=4, values=values)])
    monkeypatch.setenv(STORE_VARIABLE, url)
    page = html_of(open_page("runs"))
    (address,) = re.findall(
        r'<li><a [^>]*href="([^"]+)"[^>]*>100% of the groups gave no signal \(all episodes alike\) '
        r"\(training step 4\)<",
        page,
    )
    assert "look at the groups" in page
    parts = urlsplit(unescape(str(address)))
    asked = {name: value for name, (value,) in parse_qs(parts.query).items()}
    signals = column(open_page(parts.path, **asked), "Signal")
    assert signals == ["no signal: every advantage is 0"] * 3


def test_a_run_without_a_sign_of_life_is_an_alarm(two_runs: str) -> None:
    with sqlite3.connect(two_runs) as store:
        store.execute("UPDATE runs SET heartbeat_at = heartbeat_at - 3600 WHERE id = 'run-1'")
    page = html_of(open_page("runs"))
    assert "no sign of life for 60 min" in page
    assert "<code>trainer resume run-1</code>" in page


def test_runs_are_found_by_their_settings(two_runs: str) -> None:
    app = open_page("runs", find="GIGPO run-2")
    assert column(app, "Run") == ["samplerun-2"]
    app.text_input(key="find").set_value("").run()
    assert len(column(app, "Run")) == 2
    assert "find" not in app.query_params


def test_an_empty_store_says_how_to_begin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = str(tmp_path / "empty.db")
    open_store(url).dispose()
    monkeypatch.setenv(STORE_VARIABLE, url)
    page = html_of(open_page("runs"))
    assert "holds no runs yet" in page
    assert "uv run trainer train" in page


def test_a_run_shows_curves_and_what_it_was_evaluated_on(sample: SampleStore) -> None:
    app = open_page("run", run=sample.run_id)
    assert "finished" in html_of(app)
    assert len(charts_of(app)) == 3
    assert column(app, "After training step") == ["0", "12"]


def test_metrics_are_chosen_by_name_or_found_by_a_part_of_it(sample: SampleStore) -> None:
    app = open_page("run", run=sample.run_id)
    app.multiselect(key="metric").set_value(["train/weight_norm"]).run()
    assert len(charts_of(app)) == 3 + 1
    assert app.query_params["metric"] in ("train/weight_norm", ["train/weight_norm"])
    app.text_input(key="find").set_value("TRAIN/").run()
    assert len(charts_of(app)) == 3
    app.text_input(key="find").set_value("nothing").run()
    assert "no metric&#x27;s name holds" in html_of(app)


def test_several_runs_are_overlaid_from_the_address(two_runs: str) -> None:
    app = open_page("run", run=["run-1", "run-2"], metric="actor/entropy", smoothing="0.9")
    assert app.multiselect(key="run").value == ["run-1", "run-2"]
    charts = charts_of(app)
    entropy = next(c for c in charts if c["layout"]["title"]["text"] == "actor/entropy")
    assert [trace["name"] for trace in entropy["data"] if "name" in trace] == [
        "run-1 train",
        "run-2 train",
    ]
    colors = {trace["line"]["color"] for trace in entropy["data"]}
    assert len(colors) == 2
    app.multiselect(key="run").set_value([]).run()
    assert app.multiselect(key="run").value == ["run-1", "run-2"]  # one at least is shown


def test_runs_that_differ_in_their_seed_make_a_band(two_runs: str) -> None:
    series = curves_data.metric_series(["run-1", "run-2"], ["actor/entropy"])["actor/entropy"]
    (band,) = curves_data.over_seeds(series)
    assert band.least == pytest.approx([0.001, 0.0005, 0.001 / 3])
    assert band.most == pytest.approx([0.9, 0.45, 0.3])
    assert band.values == pytest.approx([0.4505, 0.22525, 0.4505 / 3])


def test_smoothing_begins_at_the_first_value_and_keeps_a_constant() -> None:
    line = Series("a", [1, 2, 3], [2.0, 4.0, 8.0])
    assert curves_data.smoothed(line, 0.5).values == pytest.approx([2.0, 10 / 3, 6.0])
    constant = line._replace(values=[3.0] * 3)
    assert curves_data.smoothed(constant, 0.98).values == pytest.approx([3.0] * 3)


def test_a_point_leads_to_the_episodes_of_its_training_step(sample: SampleStore) -> None:
    app = open_page("run", run=sample.run_id)
    charts = charts_of(app)
    train = next(trace for trace in charts[0]["data"] if trace["name"] == "train")
    parts = urlsplit(str(train["customdata"][2]))
    query = {name: value for name, (value,) in parse_qs(parts.query).items()}
    assert parts.path == links.EPISODES
    page = open_page("episodes", **query)
    assert set(column(page, "Training step")) == {"3"}
    assert set(column(page, "Phase")) == {"train"}


def test_settings_are_compared(two_runs: str) -> None:
    alone = html_of(open_page("run", run="run-1", tab="config"))
    assert re.findall(r'title="([a-z._]+)"', alone) == ["seed", "algorithm.name", "model.path"]
    both = open_page("run", run=["run-1", "run-2"], tab="config")
    assert column(both, "Setting") == ["seed"]
    assert (column(both, "run-1"), column(both, "run-2")) == (["1"], ["2"])


def test_provenance_names_what_each_attempt_began_from(two_runs: str) -> None:
    page = html_of(open_page("run", run="run-1", tab="provenance"))
    assert "4711 on host" in page
    assert "0000000" in page


def test_an_audit_is_shown_with_its_findings(two_runs: str) -> None:
    app = open_page("run", run="run-2", tab="audit")
    assert column(app, "Rule") == ["advantage"]
    assert column(app, "Expected") == ["0.5"]
    assert 'href="replay?episode=run-2%2F1%2Ftrain%2F2%2F0%2F1%2F0&amp;step=1"' in html_of(app)
    assert "uv run trainer audit run-1" in html_of(open_page("run", run="run-1", tab="audit"))


def test_settings_in_lists_of_tables_are_told_apart() -> None:
    tree = {"name": "x", "environments": [{"id": "a", "options": {"depth": 2}}, {"id": "b"}]}
    assert curves_data.flat(tree) == {
        "name": '"x"',
        "environments.0.id": '"a"',
        "environments.0.options.depth": "2",
        "environments.1.id": '"b"',
    }


def test_provenance_is_said_as_people_write_it() -> None:
    found = curves_data.provenance(
        '{"command": ["trainer", "train", "a b"], "git": {"commit": "c0", "diff_sha256": null}}'
    )
    assert found == {"start": {"command": "trainer train 'a b'"}, "git": {"commit": "c0"}}


def test_failures_are_listed_by_cause(sample: SampleStore) -> None:
    app = open_page("run", run=sample.run_id, tab="failures")
    assert set(column(app, "Cause")) == {"environment error"}
    assert "environment error 4" in html_of(app)
    wrong = html_of(open_page("run", run=sample.run_id, tab="failures", cause="none"))
    assert "there are environment_error" in wrong


def test_a_cause_that_one_run_of_two_lacks_lists_those_of_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = str(tmp_path / "causes.db")
    causes = {"one": FailureCause.ENVIRONMENT_ERROR, "other": FailureCause.POLICY_TIMEOUT}
    with StoreWriter(url) as writer:
        for run_id, cause in causes.items():
            failed = replace(make_failure(), cause=cause)
            writer.write([run_started(run_id), make_record(failed, run_id=run_id)])
    monkeypatch.setenv(STORE_VARIABLE, url)
    for first, second in (("one", "other"), ("other", "one")):
        app = open_page("run", run=[first, second], tab="failures", cause="policy_timeout")
        assert column(app, "Cause") == ["policy timeout"]
        assert "No episode of one failed for that cause" in html_of(app)


def test_failures_are_read_page_by_page(
    sample: SampleStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(curves_data, "FAILURES_PER_PAGE", 3)
    app = open_page("run", run=sample.run_id, tab="failures")
    assert len(column(app, "Cause")) == 3
    [following] = re.findall(r'href="(run\?[^"]*after=[^"]*)"[^>]*>next page', html_of(app))
    query = dict(parse_qsl(urlsplit(unescape(following)).query))
    rest = open_page("run", **query)
    assert len(column(rest, "Cause")) == 1
    assert not re.findall(r'href="[^"]*">next page', html_of(rest))
    assert re.findall(r'href="[^"]*">first page', html_of(rest))
    links = re.findall(r'<nav class="tabs".*?</nav>', html_of(rest), flags=re.DOTALL)
    assert not [link for link in links if "after=" in link]


def test_a_run_that_ends_is_said_to_have(two_runs: str) -> None:
    app = open_page("run", run="run-1")
    assert ">running<" in html_of(app)
    with StoreWriter(two_runs) as writer:
        ended = RunEnded(
            run_id="run-1", attempt=0, status="failed", message="out of memory", ended_at=9e9
        )
        writer.write([ended])
    page = html_of(app.run())
    assert ">failed<" in page
    assert "out of memory" in page


def test_episodes_are_filtered_and_sorted(sample: SampleStore) -> None:
    app = open_page("episodes", run=sample.run_id, sort="return")
    assert "208 episodes" in html_of(app)
    app.selectbox(key="phase").set_value("validation").run()
    assert set(column(app, "Phase")) == {"validation"}
    assert app.query_params["phase"] in ("validation", ["validation"])
    returns = [float(cell) for cell in column(app, "Return")]
    assert returns == sorted(returns, reverse=True)
    (head,) = re.findall(r'href="([^"]+)">Return<', html_of(app))
    assert parse_qs(unescape(head))["order"] == ["ascending"]  # a second click turns it round
    up = open_page("episodes", run=sample.run_id, sort="steps", order="ascending")
    lengths = [int(cell) for cell in column(up, "Steps")]
    assert lengths == sorted(lengths)


def test_every_outcome_has_a_sign_besides_its_colour(sample: SampleStore) -> None:
    for outcome, sign in (("solved", "✓"), ("not solved", "✕"), ("failed", "⚠")):
        cells = column(open_page("episodes", run=sample.run_id, outcome=outcome), "Outcome")
        assert cells
        assert {cell[0] for cell in cells} == {sign}


def test_another_filter_begins_at_the_first_page(sample: SampleStore) -> None:
    app = open_page("episodes", run=sample.run_id)
    (after,) = set(re.findall(r"after=([^&\"]+)\">next page", html_of(app)))
    later = open_page("episodes", run=sample.run_id, after=parse_qs(f"a={unescape(after)}")["a"][0])
    assert column(later, "Task") != column(app, "Task")
    later.selectbox(key="phase").set_value("train").run()
    assert "after" not in later.query_params


def test_pages_of_a_list_have_every_episode_once(sample: SampleStore) -> None:
    seen: list[str] = []
    query: dict[str, str | list[str]] = {"run": sample.run_id, "sort": "return"}
    for rows in (100, 100, 8):
        page = html_of(open_page("episodes", **query))
        found = re.findall(r'href="(replay[^"]+)"', page)
        assert len(found) == rows
        seen += found
        following = re.search(r'href="episodes\?([^"]+)">next page', page)
        query = {k: v for k, (v,) in parse_qs(unescape(following[1])).items()} if following else {}
    assert len(set(seen)) == 208
    assert query == {}


def test_a_key_of_another_order_is_refused(sample: SampleStore) -> None:
    page = html_of(open_page("episodes", run=sample.run_id))
    key = re.search(r"after=([^&\"]+)\">next page", page)
    assert key is not None
    after = parse_qs(f"a={key[1]}")["a"][0]
    refused = html_of(open_page("episodes", run=sample.run_id, sort="return", after=after))
    assert "sorted by training_step" in refused


def test_a_list_without_rows_says_what_to_do(sample: SampleStore) -> None:
    page = html_of(open_page("episodes", run=sample.run_id, from_step="99"))
    assert "0 episodes" in page
    assert "take a filter out" in page
    assert "training step from: 99 ✕" in page


def test_a_bar_of_a_histogram_leads_to_its_episodes(sample: SampleStore) -> None:
    page = html_of(open_page("episodes", run=sample.run_id, phase="train"))
    bars = re.findall(r'<a target="_self" href="episodes\?([^"]+)" title="[^:]+: (\d+) ep', page)
    assert len(bars) > 15
    for query, count in bars[:3] + bars[-2:]:
        asked = {name: value for name, (value,) in parse_qs(unescape(query)).items()}
        assert f"{count} episode" in html_of(open_page("episodes", **asked))


QUERIES = [
    EpisodeQuery(run_id="RUN"),
    EpisodeQuery(run_id="RUN", phase="train", outcome="solved", sort="steps", descending=False),
    EpisodeQuery(run_id="RUN", outcome="not solved", from_step=2, to_step=5, sort="return"),
    EpisodeQuery(run_id="RUN", cause="environment_error", sort="seconds"),
    EpisodeQuery(run_id="RUN", min_return=0.25, max_return=1.25, min_length=5, max_length=9),
    EpisodeQuery(run_id="RUN", environment="longhaul/TextCraft-v0", policy_version=3),
    EpisodeQuery(run_id="RUN", task="it's none; DROP"),
    EpisodeQuery(run_id="RUN", text="inventory"),
]


@pytest.mark.parametrize("wanted", QUERIES)
def test_the_sql_beside_a_list_finds_what_the_list_shows(
    sample: SampleStore, tmp_path: Path, wanted: EpisodeQuery, monkeypatch: pytest.MonkeyPatch
) -> None:
    if wanted.text:  # the index is filled by a command
        url = str(shutil.copy(sample.url, tmp_path / "indexed.db"))
        monkeypatch.setenv(STORE_VARIABLE, url)
        index(url)
    wanted = wanted._replace(run_id=sample.run_id)
    page = episodes_data.episodes(wanted, after=None, limit=1000)
    sql = episodes_data.as_sql(wanted, limit=1000)
    with sqlite3.connect(f"file:{sample.url}?mode=ro", uri=True) as store:
        rows = store.execute(sql).fetchall()
    assert {row[0] for row in rows} == {row.episode_id for row in page.rows}
    assert bool(rows) == ("DROP" not in sql)
    assert len(rows) == episodes_data.count(wanted)


def test_a_list_by_words_says_what_cannot_be_found_yet_and_leads_to_the_words(
    sample: SampleStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    not_yet = "not in the index yet"
    page = html_of(open_page("episodes", run=sample.run_id, text="inventory"))
    assert re.search(rf"The text of up to [\d,]+ steps of the store is {not_yet}", page)
    assert not_yet not in html_of(open_page("episodes", run=sample.run_id))

    url = str(shutil.copy(sample.url, tmp_path / "indexed.db"))
    monkeypatch.setenv(STORE_VARIABLE, url)
    index(url)
    page = html_of(open_page("episodes", run=sample.run_id, text="inventory"))
    assert not_yet not in page
    leads = [parse_qs(unescape(query)) for query in re.findall(r'href="replay\?([^"]+)"', page)]
    assert {tuple(query["search"]) for query in leads} == {("inventory",)}


def index(url: str) -> None:
    from longhaul_core.store import maintenance

    engine = open_store(url)
    while maintenance.index_text(engine):
        pass
    engine.dispose()


def test_labels_stand_in_the_list(
    sample: SampleStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = str(shutil.copy(sample.url, tmp_path / "labelled.db"))
    monkeypatch.setenv(STORE_VARIABLE, url)
    engine = open_store(url)
    label = Label(
        episode_id=sample.solved.summary.episode_id,
        step_index=None,
        name="note",
        value="<b>odd</b>",
        author="ada",
        created_at=1.0,
    )
    put_label(engine, label)
    engine.dispose()
    step = str(sample.solved.summary.training_step)
    app = open_page("episodes", run=sample.run_id, from_step=step, to_step=step)
    assert "note: <b>odd</b>" in column(app, "Labels")
    assert "<b>odd" not in html_of(app)
