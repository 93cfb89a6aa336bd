"""What published training scripts set, beside what the files of `configs/` compose.

    uv run python benchmarks/published_settings.py                  # prints the differences
    uv run python benchmarks/published_settings.py docs/guides/matching_published_recipes.md

`published_settings.toml` has the scripts' values, with their sources. The second form writes the
table between the marks of the page.
"""

import sys
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict

from longhaul_core.page_part import PagePart
from longhaul_trainer.config import load_config
from longhaul_trainer.config.run import dotted

CONFIGS = Path(__file__).parents[1] / "configs"
DATA = Path(__file__).with_suffix(".toml")
PART = PagePart("published")

Value = str | bool | int | float | tuple[int, ...]


class Setting(BaseModel):
    """One number of a script, or of the defaults of its code."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    theirs: str
    """In their words."""
    setting: str
    """That it is of a run, by its dotted name."""
    value: Value | list[int]
    """Of that setting, with the same meaning; a text where no value has it."""
    ours: Value | None = None
    """What the composed run has, where that is another."""
    reason: str = ""
    """Why; empty where it is the same."""


class Codebase(BaseModel):
    """Where scripts were read, and what they leave to it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    repository: str
    commit: str
    defaults: str
    """Where its defaults were read."""
    settings: tuple[Setting, ...]


class Script(BaseModel):
    """A published script, and the run that is composed to be the same."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    codebase: str
    file: str
    files: tuple[str, ...]
    """Of `configs/`, a later one over an earlier one."""
    overrides: tuple[str, ...] = ()
    settings: tuple[Setting, ...]
    """They win over the codebase's."""

    @property
    def composed(self) -> str:
        """What follows `trainer train`, but for the machine and the model."""
        return " ".join([*self.files, *self.overrides])


class Published(BaseModel):
    """The whole file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    codebases: Mapping[str, Codebase]
    scripts: tuple[Script, ...]


class Compared(NamedTuple):
    """A script's number and the composed run's."""

    setting: Setting
    found: object

    @property
    def agrees(self) -> bool:
        """Whether the run has the script's value."""
        value = self.setting.value
        return self.found == (tuple(value) if isinstance(value, list) else value)


def main() -> None:
    """Print the table, or write it into the page that is named."""
    table = table_of_differences(read())
    if len(sys.argv) == 1:
        print(table)
        return
    PART.write(Path(sys.argv[1]), table)


def read() -> Published:
    """What is published."""
    return Published.model_validate(tomllib.loads(DATA.read_text(encoding="utf-8")))


def compared(script: Script, published: Published) -> list[Compared]:
    """Every number of a script, and of the defaults that it leaves, with the composed run's."""
    first, *others = (CONFIGS / file for file in script.files)
    run = dotted(load_config(first, script.overrides, layers=others).model_dump())
    settings = {
        each.setting: each
        for each in (*published.codebases[script.codebase].settings, *script.settings)
    }
    return [Compared(each, run.get(name)) for name, each in settings.items()]


def table_of_differences(published: Published) -> str:
    """In Markdown: for each script what is composed, and every number that differs, with why."""
    lines = ["| script | composed of | numbers that agree |", "|---|---|---|"]
    differences: dict[tuple[str, str, str, str], list[str]] = {}
    for script in published.scripts:
        found = compared(script, published)
        agreeing = [each for each in found if each.agrees]
        named = "/".join(Path(script.file).parts[-2:])
        commit = published.codebases[script.codebase].commit
        lines.append(
            f"| {script.name}: `{named}` at {commit} | `{script.composed}` "
            f"| {len(agreeing)} of {len(found)} |"
        )
        for each in found:
            if not each.agrees:
                row = (
                    each.setting.setting,
                    _shown(each.setting.value),
                    _shown(each.found),
                    each.setting.reason,
                )
                differences.setdefault(row, []).append(script.name)
    lines += ["", "| setting | theirs | composed | why | scripts |", "|---|---|---|---|---|"]
    lines += [
        f"| `{setting}` | {theirs} | {ours} | {reason} | {_listed(names, published)} |"
        for (setting, theirs, ours, reason), names in differences.items()
    ]
    return "\n".join(lines)


def _shown(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else f"{value}"


def _listed(names: Sequence[str], published: Published) -> str:
    return "all" if len(names) == len(published.scripts) else "; ".join(names)


if __name__ == "__main__":
    main()
