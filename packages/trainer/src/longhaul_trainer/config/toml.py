"""Writing TOML: the standard library only reads it.

Covers what a run's description is made of: tables of strings, numbers, booleans, lists of
those, further tables, and lists of tables. There is no null in TOML; leave such keys out.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import cast

BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


def to_toml(table: Mapping[str, object]) -> str:
    """`table` as a TOML document, values before sub-tables, in the order given.

    Raises:
        TypeError: For a value that TOML, or a run's description, does not have.
    """
    return "\n".join(_lines(table, path=())).strip("\n") + "\n"


def _lines(table: Mapping[str, object], *, path: tuple[str, ...]) -> list[str]:
    tables = {
        key: cast("Mapping[str, object]", value)
        for key, value in table.items()
        if isinstance(value, Mapping)
    }
    lists = {key: value for key, value in table.items() if _is_list_of_tables(value)}
    values = {key: value for key, value in table.items() if key not in tables and key not in lists}
    lines = [f"{_key(key)} = {toml_value(value)}" for key, value in values.items()]
    if path and (values or not tables):
        lines = ["", f"[{'.'.join(map(_key, path))}]", *lines]
    for key, value in tables.items():
        lines += _lines(value, path=(*path, key))
    for key, entries in lists.items():
        inside = (*path, key)
        for entry in cast("Sequence[Mapping[str, object]]", entries):
            lines += ["", f"[[{'.'.join(map(_key, inside))}]]"]
            header = f"[{'.'.join(map(_key, inside))}]"
            written = _lines(entry, path=inside)
            lines += written[2:] if written[1:2] == [header] else written
    return lines


def _is_list_of_tables(value: object) -> bool:
    if not isinstance(value, (list, tuple)) or not value:
        return False
    return all(isinstance(entry, Mapping) for entry in cast("Sequence[object]", value))


def _key(key: str) -> str:
    return key if BARE_KEY.fullmatch(key) else _string(key)


def toml_value(value: object) -> str:
    """One value as TOML writes it: `true`, `3`, `"text"`, `[1, 2]`, `{ a = 1 }`.

    Raises:
        TypeError: For a value that TOML, or a run's description, does not have.
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, str):
        return _string(value)
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(toml_value, cast('Sequence[object]', value)))}]"
    if isinstance(value, Mapping):
        entries = cast("Mapping[str, object]", value).items()
        return f"{{ {', '.join(f'{_key(key)} = {toml_value(one)}' for key, one in entries)} }}"
    raise TypeError(f"a run's description holds no {type(value).__name__}: {value!r}")


def _string(text: str) -> str:
    # JSON's escapes are TOML's, but JSON leaves DEL as it is and TOML forbids it.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
