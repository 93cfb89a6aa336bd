"""Tests for `longhaul_trainer.run.ray_token`."""

from pathlib import Path

import pytest

from longhaul_trainer.preflight.doctor import Status, check_ray_token
from longhaul_trainer.run.ray_token import FROM_ELSEWHERE, keep_ray_token_private


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in FROM_ELSEWHERE:
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def mode(file: Path) -> int:
    return file.stat().st_mode & 0o777


def test_a_token_is_drawn_that_this_user_alone_reads(home: Path) -> None:
    file = home / ".ray" / "auth_token"
    assert check_ray_token().found == "drawn by the first run"

    keep_ray_token_private()

    assert mode(file) == 0o600
    assert len(file.read_text()) == 64
    assert check_ray_token().status is Status.GOOD


def test_a_token_that_is_there_stays(home: Path) -> None:
    keep_ray_token_private()
    token = (home / ".ray" / "auth_token").read_text()

    keep_ray_token_private()

    assert (home / ".ray" / "auth_token").read_text() == token


def test_one_that_others_may_read_is_reported_and_then_no_longer_is_one(home: Path) -> None:
    file = home / ".ray" / "auth_token"
    file.parent.mkdir()
    file.write_text("rays")
    file.chmod(0o644)
    found = check_ray_token()
    assert (found.status, "other users may read" in found.found) == (Status.WARNING, True)

    keep_ray_token_private()

    assert (mode(file), file.read_text()) == (0o600, "rays")
    assert check_ray_token().status is Status.GOOD


@pytest.mark.parametrize("name", FROM_ELSEWHERE)
def test_a_token_of_the_users_own_is_left_to_him(
    home: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(name, "token")

    keep_ray_token_private()

    assert not (home / ".ray").exists()
    assert name in check_ray_token().found


def test_a_home_that_cannot_be_written_is_left_to_ray(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "file").touch()
    monkeypatch.setenv("HOME", str(home / "file"))

    keep_ray_token_private()

    assert check_ray_token().status is Status.GOOD
