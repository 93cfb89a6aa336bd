"""Where caches go on a machine whose home cannot be written, or that has none."""

import os
import pwd
import stat
import tempfile
from pathlib import Path

import pytest

from longhaul_core.errors import MachineError
from longhaul_trainer.models import prepare_model
from longhaul_trainer.models.caches import BESIDE_THE_CACHES, cache_folder, prepare_caches

ELSEWHERE = {"XDG_CACHE_HOME", *BESIDE_THE_CACHES}
NOWHERE = "/dev/null/home"
"""Nobody can write below it, root neither."""


@pytest.fixture(autouse=True)
def a_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*ELSEWHERE, "HOME", "USER", "LOGNAME", "LNAME", "USERNAME"):
        # set first, so that what is set meanwhile goes again
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("USER", "ada")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))


def of_the_user(tmp_path: Path) -> Path:
    return tmp_path / "tmp" / f"longhaul-cache-{os.getuid()}"


def test_a_home_that_can_be_written_changes_no_variable(tmp_path: Path) -> None:
    prepare_caches()

    assert cache_folder() == tmp_path / "home" / ".cache"
    assert ELSEWHERE.isdisjoint(os.environ)


def test_a_folder_that_the_user_names_is_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "named"))
    monkeypatch.setenv("HOME", NOWHERE)
    monkeypatch.setenv("MPLCONFIGDIR", "/mine")

    prepare_caches()

    assert os.environ["XDG_CACHE_HOME"] == str(tmp_path / "named")
    assert os.environ["VLLM_CONFIG_ROOT"] == str(tmp_path / "named" / "vllm-config")
    assert os.environ["MPLCONFIGDIR"] == "/mine"
    assert prepare_model("tiny").is_relative_to(tmp_path / "named")


def test_one_that_cannot_be_written_gives_way_to_the_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", NOWHERE)

    prepare_caches()

    assert cache_folder() == tmp_path / "home" / ".cache"
    assert ELSEWHERE.isdisjoint(os.environ)


def test_without_a_home_that_can_be_written_a_folder_of_the_user_s_own_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", NOWHERE)

    prepare_caches()

    own = of_the_user(tmp_path)
    assert stat.S_IMODE(own.stat().st_mode) == 0o700
    assert os.environ["HOME"] == NOWHERE  # what can be read there stays found
    assert {os.environ[name].split("/longhaul-cache-")[0] for name in ELSEWHERE} == {
        str(tmp_path / "tmp")
    }
    assert prepare_model("tiny").is_relative_to(own)


def test_a_user_without_an_account_has_a_name_and_a_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nobody(uid: int) -> None:
        raise KeyError(f"getpwuid(): uid not found: {uid}")

    monkeypatch.setattr(pwd, "getpwuid", nobody)
    monkeypatch.delenv("HOME")
    monkeypatch.delenv("USER")

    prepare_caches()

    assert os.environ["USER"] == f"uid-{os.getuid()}"
    assert Path.home() == of_the_user(tmp_path)
    assert prepare_model("tiny").is_relative_to(Path.home())


def test_a_folder_that_somebody_else_put_there_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", NOWHERE)
    (tmp_path / "theirs").mkdir()
    of_the_user(tmp_path).symlink_to(tmp_path / "theirs")

    with pytest.raises(MachineError, match=rf"{NOWHERE}/.cache, .*; name one .* XDG_CACHE_HOME"):
        prepare_model("tiny")
    prepare_caches()

    assert ELSEWHERE.isdisjoint(os.environ)
