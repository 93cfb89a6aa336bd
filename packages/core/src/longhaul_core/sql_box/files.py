"""An answer as a file: CSV, JSON lines, Parquet."""

import csv
import io
import json
from typing import Any

from longhaul_core.errors import ConfigError
from longhaul_core.sql_box.box import Cell, QueryResult

__all__ = ["as_csv", "as_json_lines", "as_parquet", "distinct_names"]

_STARTS_A_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def as_csv(result: QueryResult, *, for_spreadsheets: bool = False) -> str:
    """A line of names, then a line a row; null is empty, bytes are hexadecimal after `0x`.

    Args:
        result: The answer.
        for_spreadsheets: Put `'` before a text that a spreadsheet would carry out as a formula. A
            model's reply can be one. It changes the text, so a program should read the plain form.
    """
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(distinct_names(result.columns))
    for row in result.rows:
        writer.writerow([_csv_cell(value, for_spreadsheets) for value in row])
    return out.getvalue()


def as_json_lines(result: QueryResult) -> str:
    """An object a row. What is no JSON number (NaN, infinities) is null; bytes are as in CSV."""
    names = distinct_names(result.columns)
    return "".join(
        json.dumps(
            {name: json_cell(value) for name, value in zip(names, row, strict=True)},
            ensure_ascii=False,
        )
        + "\n"
        for row in result.rows
    )


def as_parquet(result: QueryResult) -> bytes:
    """A Parquet file, a column of one type each; one that mixes types is text.

    Raises:
        ConfigError: pyarrow is not installed.
    """
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ModuleNotFoundError as error:
        raise ConfigError(
            "Parquet needs pyarrow: install longhaul-core[parquet], or ask for csv or json"
        ) from error
    names = distinct_names(result.columns)
    columns: list[Any] = [
        _column([row[place] for row in result.rows]) for place in range(len(names))
    ]
    sink = io.BytesIO()
    pq.write_table(pa.table(dict(zip(names, columns, strict=True))), sink)  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]
    return sink.getvalue()


def distinct_names(columns: tuple[str, ...]) -> list[str]:
    """Names of columns, numbered where they repeat: `a`, `a_2`."""
    names: list[str] = []
    for name in columns:
        number, wanted = 1, name
        while wanted in names:
            number += 1
            wanted = f"{name}_{number}"
        names.append(wanted)
    return names


def json_cell(value: Cell) -> bool | int | float | str | None:
    """A value as JSON has it."""
    if isinstance(value, bytes):
        return f"0x{value.hex()}"
    if isinstance(value, float) and (value != value or value in {float("inf"), float("-inf")}):
        return None
    return value


def _csv_cell(value: Cell, for_spreadsheets: bool) -> Cell:
    if isinstance(value, bytes):
        return f"0x{value.hex()}"
    if for_spreadsheets and isinstance(value, str) and value.startswith(_STARTS_A_FORMULA):
        return f"'{value}"
    return value


def _column(values: list[Cell]) -> list[Cell]:
    kinds = {type(value) for value in values if value is not None}
    if kinds <= {int, float} and float in kinds:
        return [None if value is None else float(value) for value in values]
    if len(kinds) > 1 or any(isinstance(v, int) and not -(2**63) <= v < 2**63 for v in values):
        return [None if value is None else str(json_cell(value)) for value in values]
    return values
