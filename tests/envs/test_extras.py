"""A source whose extra is missing names it."""

import sys
from pathlib import Path

import pytest

from longhaul_core.errors import ConfigError
from longhaul_envs.extras import required


def test_a_missing_module_is_refused_with_the_extra_that_brings_it() -> None:
    with pytest.raises(ConfigError, match=r"pip install 'longhaul-envs\[flavours\]'"):
        required("no_such_flavour.salt", "flavours")


def test_a_module_that_is_there_and_cannot_import_another_is_not_called_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "half_installed.py").write_text("import no_such_flavour\n", encoding="utf-8")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])

    with pytest.raises(ModuleNotFoundError, match="no_such_flavour"):
        required("half_installed", "flavours")


def test_a_module_that_is_there_is_returned() -> None:
    assert required("json", "flavours").loads("1") == 1
