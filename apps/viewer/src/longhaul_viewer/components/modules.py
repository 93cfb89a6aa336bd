"""A component's script and the modules that it imports, as the one text that Streamlit takes.

The modules (`.mjs`) are those that `node --test` reads. In the one text they have no addresses to
import from, so the imports go and the names are shared: no two modules of a script may have one
name, and none is imported under another.
"""

import re
from pathlib import Path

__all__ = ["script"]

_IMPORT = re.compile(r'^import \{(?![^}]* as )[^}]*\} from "(\.[^"]+\.mjs)";?\n', re.MULTILINE)
_LEFT = re.compile(r"^import\b.*", re.MULTILINE)


def script(file: Path) -> str:
    """The script in `file`, behind the modules that it imports, each once.

    Raises:
        OSError: A module is not there.
        ValueError: A module imports in another form than `import { name } from "./file.mjs"`.
    """
    seen, sources = set[Path](), list[str]()

    def add(file: Path) -> None:
        if file in seen:
            return
        seen.add(file)
        source = file.read_text(encoding="utf-8")
        for module in _IMPORT.findall(source):
            add((file.parent / module).resolve())
        sources.append(_IMPORT.sub("", source))
        if left := _LEFT.search(sources[-1]):
            raise ValueError(f"{file.name}: {left[0]!r} cannot be joined with the others")

    add(file.resolve())
    return "\n".join(sources)
