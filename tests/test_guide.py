"""The guide to an environment of one's own is carried out as it stands."""

from pathlib import Path

import pytest

from guides import Guide


@pytest.mark.slow
def test_every_file_and_command_of_the_guide_does_what_it_says(tmp_path: Path) -> None:
    guide = Guide.read("your_own_environment.md")

    guide.carry_out(tmp_path, seconds=900)

    assert len(guide.commands) >= 9
    assert set(guide.files) == {"hot_and_cold.py", "run.toml", "remote.toml"}
    assert (tmp_path / "now.png").read_bytes().startswith(b"\x89PNG")
