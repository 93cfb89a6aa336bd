"""Carries out a guide as it stands: its files, its commands, and what they print."""

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

GUIDES = Path(__file__).parents[1] / "docs" / "guides"
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"`([\w-]+\.(?:py|toml|diff))`")
_ENDS_ITS_SERVERS = "trap 'kill $(jobs -p) 2> /dev/null || true' EXIT"
"""Also where a command before the guide's own `kill` fails."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Guide:
    """What a page of `docs/guides` has to be carried out."""

    files: Mapping[str, str]
    """Name → content. A file's name stands last, in backquotes, ahead of its block."""
    commands: tuple[str, ...]
    """Lines of `console` blocks that begin with `$ `, in order."""
    prints: tuple[str, ...]
    """The other lines of them, in order: each is part of what is printed."""
    queries: tuple[str, ...]
    """Blocks of SQL."""

    @classmethod
    def read(cls, name: str) -> "Guide":
        """The guide of a name, e.g. `agents.md`."""
        page = (GUIDES / name).read_text("utf-8")
        files: dict[str, str] = {}
        lines: list[str] = []
        queries: list[str] = []
        end_of_last = 0
        for block in _BLOCK.finditer(page):
            kind, text = block.groups()
            match kind:
                case "console":
                    lines += text.splitlines()
                case "sql":
                    queries.append(text)
                case "python" | "toml" | "diff":
                    file = _FILE.findall(page, end_of_last, block.start())[-1]
                    assert file not in files, f"{name} has {file} twice"
                    files[file] = text
                case _:
                    raise AssertionError(f"{name}: nothing carries out a block of {kind!r}")
            end_of_last = block.end()
        return cls(
            files=files,
            commands=tuple(line[2:] for line in lines if line.startswith("$ ")),
            prints=tuple(line for line in lines if not line.startswith("$ ")),
            queries=tuple(queries),
        )

    def carry_out(
        self,
        folder: Path,
        *,
        variables: Mapping[str, str] | None = None,
        programs: Path | None = None,
        seconds: float = 300,
    ) -> None:
        """Write the files into a folder, run the commands there, and compare what they print.

        Args:
            folder: Exists.
            variables: Of the environment, beside those of this process.
            programs: A folder of programs that come before all others of their names.
            seconds: For all commands.
        """
        for name, text in self.files.items():
            (folder / name).write_text(text, encoding="utf-8")
        own = [] if programs is None else [str(programs)]
        path = os.pathsep.join([*own, str(Path(sys.executable).parent), os.environ["PATH"]])

        done = subprocess.run(
            ["bash", "-e", "-o", "pipefail", "-c", "\n".join([_ENDS_ITS_SERVERS, *self.commands])],
            cwd=folder,
            env=os.environ | {"PATH": path, "COLUMNS": "200"} | dict(variables or {}),
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )

        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
        rest = done.stdout
        for line in self.prints:
            assert line in rest, f"{line!r} is not printed, or not in its place:\n{done.stdout}"
            rest = rest.partition(line)[2]
