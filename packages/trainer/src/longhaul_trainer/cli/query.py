"""`trainer query`: one SELECT over a store, typed, read from a file or taken from the cookbook."""

import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from longhaul_core.errors import ConfigError, QueryError
from longhaul_core.sql_box.limits import QueryLimits
from longhaul_trainer.cli.arguments import Store, console_of

DEFAULT_STORE = "longhaul.db"
MIB = 2**20
Format = Literal["table", "csv", "json", "parquet"]


def query(  # noqa: PLR0913 - each is an option that people type
    sql: Annotated[
        str | None,
        typer.Argument(metavar="[SQL]", help="One SELECT; `-`, or none: read from standard input."),
    ] = None,
    *,
    store: Store = None,
    form: Annotated[
        Format | None,
        typer.Option(
            "--format",
            help="How to write the answer (the ending of --output, else table on a terminal and "
            "csv in a pipe).",
        ),
    ] = None,
    output: Annotated[Path | None, typer.Option(help="Write to this file.")] = None,
    cookbook: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Ask a question of the cookbook; `list` shows them."),
    ] = None,
    param: Annotated[
        list[str] | None,
        typer.Option("--param", metavar="NAME=VALUE", help="A parameter of the question."),
    ] = None,
    saved: Annotated[
        str | None, typer.Option(metavar="NAME", help="A query saved in the viewer.")
    ] = None,
    rows: Annotated[int, typer.Option(min=1, help="At most so many rows.")] = 10_000,
    seconds: Annotated[float, typer.Option(min=0.1, help="At most so long.")] = 30.0,
    for_spreadsheets: Annotated[
        bool,
        typer.Option(
            "--for-spreadsheets", help="csv: put ' before texts that a spreadsheet would carry out."
        ),
    ] = False,
) -> None:
    """Ask the store one SELECT: nothing is written. See docs/guides/sql.md."""
    from longhaul_core.sql_box.box import run_query
    from longhaul_core.sql_box.cookbook import question
    from longhaul_core.sql_box.cookbook.asking import ask_question

    if cookbook == "list":
        _show_cookbook()
        return
    _require_one(sql, cookbook=cookbook, saved=saved)
    wanted = _format(form, output)
    if for_spreadsheets and wanted != "csv":
        raise ConfigError(f"--for-spreadsheets is about csv, and the format is {wanted}")
    limits = QueryLimits(rows=rows, seconds=seconds, num_bytes=256 * MIB, memory_bytes=2048 * MIB)
    place = store or DEFAULT_STORE
    if cookbook is not None:
        result = ask_question(place, question(cookbook), _values(param or []), limits=limits)
    elif param:
        raise ConfigError("--param is for a question of the cookbook: name it by --cookbook")
    else:
        result = run_query(place, _statement(sql, saved=saved), limits=limits)
    if wanted == "table":
        text = _table(result.columns, result.rows)
        if output is None:
            console_of("stdout").print(text, markup=False)
        else:
            _write(output, (text + "\n").encode())
    else:
        from longhaul_core.sql_box.files import as_csv, as_json_lines, as_parquet

        match wanted:
            case "csv":
                content = as_csv(result, for_spreadsheets=for_spreadsheets).encode()
            case "json":
                content = as_json_lines(result).encode()
            case "parquet":
                content = as_parquet(result)
        if output is None:
            sys.stdout.buffer.write(content)
        else:
            _write(output, content)
    if result.truncated is not None or output is not None or wanted == "table":
        more = {
            None: "",
            "rows": f"; there are more: --rows {rows} is reached",
            "bytes": f"; there are more: {limits.num_bytes / MIB:,.0f} MiB are reached",
        }[result.truncated]
        console_of("stderr").print(f"{len(result.rows):,} rows in {result.seconds:.2f} s{more}")


def _require_one(sql: str | None, *, cookbook: str | None, saved: str | None) -> None:
    given = [
        name
        for name, value in (("SQL", sql), ("--cookbook", cookbook), ("--saved", saved))
        if value
    ]
    if len(given) > 1:
        raise ConfigError(f"one statement at a time: {' and '.join(given)} were given")


def _values(parameters: list[str]) -> dict[str, str]:
    pairs = [one.partition("=") for one in parameters]
    wrong = [one for one, (_, sign, _) in zip(parameters, pairs, strict=True) if not sign]
    if wrong:
        raise ConfigError(f"a parameter is NAME=VALUE, got {wrong[0]!r}")
    return {name: value for name, _, value in pairs}


def _statement(sql: str | None, *, saved: str | None) -> str:
    from longhaul_core.sql_box.saved import load_query

    if saved is not None:
        return load_query(saved).sql
    if sql not in {None, "-"}:
        return str(sql)
    if sys.stdin.isatty():
        raise QueryError(
            'write a SELECT: trainer query "SELECT * FROM run_summary"; --cookbook list shows '
            "questions that are ready to ask"
        )
    return sys.stdin.read()


def _format(form: Format | None, output: Path | None) -> Format:
    if form is not None:
        if form == "parquet" and output is None and sys.stdout.isatty():
            raise ConfigError("a Parquet file is not for a terminal: name one by --output")
        return form
    if output is not None:
        endings: dict[str, Format] = {
            ".csv": "csv",
            ".json": "json",
            ".jsonl": "json",
            ".parquet": "parquet",
            ".txt": "table",
        }
        if output.suffix not in endings:
            raise ConfigError(
                f"no format goes by the ending of {str(output)!r}: say it by --format, or end the "
                f"name in {', '.join(endings)}"
            )
        return endings[output.suffix]
    return "table" if sys.stdout.isatty() else "csv"


def _write(output: Path, content: bytes) -> None:
    try:
        output.write_bytes(content)
    except OSError as error:
        raise ConfigError(f"{output} cannot be written: {error.strerror}") from error


def _show_cookbook() -> None:
    from longhaul_core.sql_box.cookbook import questions

    lines = [
        f"{each.name:<22} {each.question}\n{'':<22} "
        + " ".join(
            f"--param {one.name}={one.default if one.default is not None else '…'}"
            for one in each.parameters
        )
        for each in questions()
    ]
    console_of("stdout").print("\n".join(lines), markup=False)


def _table(columns: tuple[str, ...], rows: tuple[tuple[object, ...], ...]) -> str:
    """Columns of equal width, a row a line; long texts are cut."""
    cells = [[_shown(value) for value in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(columns, *cells, strict=True)]
    lines = [columns, ["─" * width for width in widths], *cells]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


LONGEST_CELL = 60


def _shown(value: object) -> str:
    match value:
        case None:
            return "–"
        case float():
            return f"{value:.6g}"
        case bytes():
            return f"{len(value):,} bytes"
        case _:
            # No control character of a model's reply reaches the terminal.
            text = "".join(letter if letter.isprintable() else " " for letter in str(value))
            return text if len(text) <= LONGEST_CELL else f"{text[: LONGEST_CELL - 1]}…"
