"""Tests for `longhaul_trainer.verl.loopback` and `longhaul_trainer.verl.private_folder`."""

import importlib
import os
import tempfile
from pathlib import Path

import pytest

from longhaul_core.errors import MachineError
from longhaul_trainer.verl.loopback import STORES, VARIABLES, meet_in_a_file, on_loopback
from longhaul_trainer.verl.private_folder import private_folder


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    for name in (*VARIABLES, STORES, "RAY_TMPDIR", "DIST_INIT_METHOD"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def test_the_private_folder_is_made_once_and_no_other_user_can_enter_it(temporary: Path) -> None:
    folder = private_folder()

    assert folder == temporary / f"longhaul-{os.getuid()}"
    assert folder.stat().st_mode & 0o777 == 0o700
    assert private_folder() == folder


@pytest.mark.parametrize("what", ["open", "link"])
def test_a_folder_that_somebody_else_could_have_laid_there_is_not_used(
    temporary: Path, what: str
) -> None:
    place = temporary / f"longhaul-{os.getuid()}"
    elsewhere = temporary / "elsewhere"
    elsewhere.mkdir()
    if what == "link":
        place.symlink_to(elsewhere)
    else:
        place.mkdir(mode=0o755)

    with pytest.raises(MachineError, match=r"no other can enter \(mode 700\).*remove it"):
        private_folder()


def test_sockets_of_a_run_are_within_the_107_characters_that_linux_takes() -> None:
    longest = "session_2026-11-26_13-41-57_104082_4194304/sockets/plasma_store"

    assert len(f"/tmp/longhaul-4294967294/ray/{longest}") <= 107


def test_what_a_run_starts_listens_on_loopback_and_all_is_put_back(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NCCL_SOCKET_IFNAME", "eth7")  # a user's own
    importlib.import_module("ray")  # which sets a variable for itself
    before = dict(os.environ)

    with on_loopback(temporary):
        assert os.environ["VLLM_HOST_IP"] == "127.0.0.1"
        assert os.environ["GLOO_SOCKET_IFNAME"] == "lo"
        assert os.environ["NCCL_SOCKET_IFNAME"] == "eth7"
        assert os.environ["RAY_TMPDIR"] == str(private_folder())

    assert dict(os.environ) == before


def test_workers_meet_in_a_file_of_their_group_on_one_machine_and_at_verls_port_elsewhere(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MASTER_PORT", "4711")
    monkeypatch.setenv("WG_PREFIX", "actor/x")
    meet_in_a_file()
    assert "DIST_INIT_METHOD" not in os.environ

    monkeypatch.setenv(STORES, str(temporary))
    meet_in_a_file()

    assert os.environ["DIST_INIT_METHOD"] == f"file://{temporary}/torchactor-x-4711"
    del os.environ["DIST_INIT_METHOD"]  # monkeypatch would bring it back
