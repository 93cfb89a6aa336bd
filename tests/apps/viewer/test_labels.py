"""Labels are written by the viewer's one writer, and by no viewer that is read-only."""

import os
import pwd
import shutil
from pathlib import Path

import pytest
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session
from streamlit.testing.v1 import AppTest

from apps.conftest import SampleStore
from apps.viewer.app_pages import TIMEOUT_SECONDS, html_of
from longhaul_core.errors import StoreError
from longhaul_core.store.models import LabelRow
from longhaul_core.store.session import read_only_engine
from longhaul_viewer.data import labels as labels_data
from longhaul_viewer.settings import READ_ONLY_VARIABLE, STORE_VARIABLE


@pytest.fixture
def episode_id(sample: SampleStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv(STORE_VARIABLE, str(shutil.copy(sample.url, tmp_path / "store.db")))
    monkeypatch.setenv("LOGNAME", "ada")
    return sample.solved.summary.episode_id


def panel(episode_id: str) -> AppTest:
    def script(episode_id: str) -> None:
        from longhaul_viewer.components.labels import label_panel

        label_panel(episode_id, 1)

    return AppTest.from_function(
        script, kwargs={"episode_id": episode_id}, default_timeout=TIMEOUT_SECONDS
    ).run()


def test_a_person_whose_number_has_no_account_writes_under_the_number(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def nobody(uid: int) -> None:
        raise KeyError(uid)

    monkeypatch.setattr(pwd, "getpwuid", nobody)
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)

    assert labels_data.author() == f"uid-{os.getuid()}"


def test_a_remark_on_a_step_is_saved_changed_and_removed(episode_id: str) -> None:
    app = panel(episode_id)
    for remark in ("goes in <i>circles</i>", "no, it explores"):
        app.text_input[0].set_value(remark)
        app.button[0].click().run()
        assert not app.exception
    (label,) = labels_data.of_episode(episode_id)
    assert (label.name, label.value, label.step_index) == ("note", "no, it explores", 1)
    assert label.author == "ada"
    assert "no, it explores" in html_of(app)
    app.button[1].click().run()
    assert labels_data.of_episode(episode_id) == []


def test_a_remark_is_shown_as_text(episode_id: str) -> None:
    labels_data.put(episode_id, None, name="note", value="<script>alert(1)</script>")
    page = html_of(panel(episode_id))
    assert "<script" not in page
    assert "&lt;script&gt;alert(1)" in page


def test_a_viewer_that_is_read_only_writes_none(
    episode_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(READ_ONLY_VARIABLE, "yes")
    app = panel(episode_id)
    assert len(app.button) == 0
    with pytest.raises(StoreError, match="--read-only"):
        labels_data.put(episode_id, None, name="note", value="x")
    with pytest.raises(StoreError, match="--read-only"):
        labels_data.remove(episode_id, None, name="note")
    assert labels_data.of_episode(episode_id) == []


def test_pages_read_through_an_engine_that_cannot_write(sample: SampleStore) -> None:
    engine = read_only_engine(sample.url)
    with Session(engine) as session, pytest.raises(OperationalError, match="readonly"):
        row = LabelRow(
            episode_id=sample.solved.summary.episode_id,
            step_index=-1,
            name="n",
            author="a",
            value="v",
            created_at=0.0,
        )
        session.add(row)
        session.flush()
    engine.dispose()
