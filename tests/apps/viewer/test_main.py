"""The command `viewer`: what it asks of Streamlit, and how it refuses to start."""

import socket
from pathlib import Path

import pytest

from apps.conftest import SampleStore
from longhaul_viewer.main import main


def test_a_missing_store_is_exit_code_4(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["--store", str(tmp_path / "none.db")]) == 4
    assert "there is no store at" in capfd.readouterr().err


def test_a_taken_port_is_exit_code_3(
    sample: SampleStore, capfd: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert main(["--store", sample.url, "--port", port]) == 3
    assert "choose another port (--port)" in capfd.readouterr().err


def test_a_port_out_of_range_is_a_usage_error(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["--port", "70000"])
    assert "[1, 65535], got 70000" in capfd.readouterr().err
