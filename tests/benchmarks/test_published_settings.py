"""What the files of `configs/` compose is what published scripts set, but for what is explained."""

import itertools
from pathlib import Path

import published_settings
import pytest
from published_settings import CONFIGS, Script, compared

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "matching_published_recipes.md"
PUBLISHED = published_settings.read()
TEXT_OF_A_PICTURE = "environments/sokoban.toml"
"""No script shows Sokoban as text."""


@pytest.mark.parametrize("script", PUBLISHED.scripts, ids=lambda script: script.name)
def test_a_composed_run_has_what_the_script_sets_or_says_why_not(script: Script) -> None:
    for setting, found in compared(script, PUBLISHED):
        where = f"{script.file}: {setting.theirs}: {setting.setting}"
        expected = setting.ours if setting.reason else setting.value
        assert found == (tuple(expected) if isinstance(expected, list) else expected), where
        assert (setting.ours is None) == (not setting.reason), where


def test_a_reason_is_given_for_a_difference_alone() -> None:
    for script in PUBLISHED.scripts:
        agreeing = [each for each in compared(script, PUBLISHED) if each.agrees]
        assert [each.setting.setting for each in agreeing if each.setting.reason] == []


def test_every_recipe_and_every_environment_is_compared_with_a_script() -> None:
    files = {
        file.relative_to(CONFIGS).as_posix()
        for folder in ("recipes", "environments")
        for file in (CONFIGS / folder).glob("*.toml")
    }

    assert {file for script in PUBLISHED.scripts for file in script.files} >= (
        files - {TEXT_OF_A_PICTURE}
    )


def test_every_algorithm_that_names_its_code_is_compared_with_a_script() -> None:
    files = {
        f"algorithms/{file.name}"
        for file in (CONFIGS / "algorithms").glob("*.toml")
        if "its code" in _comment_of(file)
    }

    assert "algorithms/hgpo.toml" in files
    assert {file for script in PUBLISHED.scripts for file in script.files} >= files


def _comment_of(file: Path) -> str:
    """The words at a file's head, on one line."""
    lines = file.read_text("utf-8").splitlines()
    head = itertools.takewhile(lambda line: line.startswith("#"), lines)
    return " ".join(" ".join(head).replace("#", " ").split())


def test_the_table_of_the_guide_is_that_of_the_files_today() -> None:
    table = published_settings.table_of_differences(PUBLISHED)

    assert table == published_settings.PART.read(GUIDE), (
        "write it anew: python benchmarks/published_settings.py "
        "docs/guides/matching_published_recipes.md"
    )
