"""Tests for `longhaul_trainer.cli.wheel_tag`."""

import os
import sys
from pathlib import Path

import pytest

from longhaul_trainer.cli.wheel_tag import mend_wheel_tag

RIGHT = f"cp{sys.version_info.major}{sys.version_info.minor}"


def installed(folder: Path, name: str, tag: str) -> Path:
    """The WHEEL file of a package that is as good as installed."""
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "RECORD").write_text(f"{info.name}/METADATA,,\n{info.name}/WHEEL,,\n")
    wheel = info / "WHEEL"
    wheel.write_text(f"Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: {tag}-linux_x86_64\n")
    return wheel


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that packages are found in."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.setattr(sys, "path", [str(folder), *sys.path])
    return folder


def test_the_tag_of_another_python_becomes_this_ones_and_a_linked_copy_stays(site: Path) -> None:
    wheel = installed(site, "strange", "cp399-cp399")
    cached = site.parent / "cached"
    os.link(wheel, cached)

    assert mend_wheel_tag("strange")

    assert wheel.read_text().endswith(f"Tag: {RIGHT}-{RIGHT}-linux_x86_64\n")
    assert "cp399-cp399" in cached.read_text()
    assert [path.name for path in sorted(wheel.parent.iterdir())] == ["METADATA", "RECORD", "WHEEL"]
    assert not mend_wheel_tag("strange")


@pytest.mark.parametrize("tag", [f"{RIGHT}-{RIGHT}", "py3-none", "cp38-abi3"])
def test_a_tag_that_fits_is_left_alone(site: Path, tag: str) -> None:
    wheel = installed(site, "sound", tag)
    before = wheel.stat()

    assert not mend_wheel_tag("sound")
    assert wheel.stat() == before


def test_a_package_that_is_not_there_is_no_error() -> None:
    assert not mend_wheel_tag("there-is-no-such-distribution")
