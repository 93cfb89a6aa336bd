"""A component's script and the modules that it imports, as the one text that Streamlit takes.

The modules (`.mjs`) are those that `node --test` reads. In the one text they have no addresses to
import from, so the imports go and the names are shared: no two modules of a script may have one
name.
"""

import re
from pathlib import Path

__all__ = ["script"]

_IMPORT = re.compile(r'^import \{[^}]*\} from "(\.[^"]+\.mjs)";?\n', re.MULTILINE)


def script(file: Path) -> str:
    """The script in `file`, behind the modules that it imports, each once.

    Raises:
        OSError: A module is not there.
    """
    sources: dict[Path, str] = {}

    def add(file: Path) -> None:
        if file in sources:
            return
        source = file.read_text(encoding="utf-8")
        for module in _IMPORT.findall(source):
            add((file.parent / module).resolve())
        sources[file] = _IMPORT.sub("", source)

    add(file.resolve())
    return "".join(sources.values())
