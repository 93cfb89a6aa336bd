"""Tests for `longhaul_trainer.models.prepare`."""

import subprocess
import sys
from pathlib import Path

import pytest

from longhaul_core.errors import ConfigError
from longhaul_trainer.models import hash_model, prepare_model

PREPARE_TINY = (
    "import sys; from pathlib import Path;"
    "from longhaul_trainer.models import prepare_model;"
    "print(prepare_model('tiny', Path(sys.argv[1])))"
)


def test_a_built_in_model_is_written_once(tmp_path: Path) -> None:
    first = prepare_model("tiny", tmp_path)
    written = (first / "model.safetensors").stat().st_mtime_ns

    assert prepare_model("tiny", tmp_path) == first
    assert (first / "model.safetensors").stat().st_mtime_ns == written


def test_processes_that_prepare_the_same_model_at_once_agree(tmp_path: Path) -> None:
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", PREPARE_TINY, str(tmp_path)], stdout=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    outputs = [process.communicate()[0].strip() for process in processes]

    assert [process.returncode for process in processes] == [0, 0]
    assert outputs[0] == outputs[1]
    assert (Path(outputs[0]) / "model.safetensors").is_file()
    assert [path.name for path in tmp_path.iterdir() if path.name.endswith(".partial")] == []


def test_what_a_killed_process_left_is_not_taken_for_a_model(tmp_path: Path) -> None:
    folder = prepare_model("tiny", tmp_path)
    left = tmp_path / f".{folder.name}.partial"
    folder.rename(left)
    (left / "model.safetensors").write_bytes(b"half of it")

    again = prepare_model("tiny", tmp_path)

    assert (again / "model.safetensors").stat().st_size > 100_000
    assert not left.exists()


def test_a_path_that_is_no_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"model.path = '.*/absent' is not a folder; give .* 'tiny'"
    ):
        prepare_model(str(tmp_path / "absent"))


def test_a_folder_that_is_no_model_is_told_what_it_lacks(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}", encoding="utf-8")

    with pytest.raises(ConfigError, match=r"lacks weights \(\*.safetensors\), a tokenizer"):
        prepare_model(str(tmp_path))


def test_a_complete_folder_is_taken_as_it_is(tmp_path: Path) -> None:
    folder = prepare_model("tiny", tmp_path)

    assert prepare_model(str(folder)) == folder


def test_the_hash_follows_names_and_contents(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1", encoding="utf-8")
    first = hash_model(tmp_path)
    (tmp_path / "a").write_text("2", encoding="utf-8")
    changed = hash_model(tmp_path)
    (tmp_path / "a").write_text("1", encoding="utf-8")
    same = hash_model(tmp_path)
    (tmp_path / "a").rename(tmp_path / "b")
    renamed = hash_model(tmp_path)

    assert first == same
    assert len({first, changed, renamed}) == 3


def test_looking_a_model_up_imports_no_torch() -> None:
    code = "import sys, longhaul_trainer.models; print('torch' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert found.stdout.strip() == "False"
