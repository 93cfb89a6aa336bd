"""Tables whose rows open a page when they are clicked."""

# Pandas and Streamlit's table types are known in part only.
# pyright: reportUnknownMemberType=false

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import pandas as pd
import streamlit as st
from streamlit.elements.lib.column_types import ColumnConfig

__all__ = ["Column", "bar", "clicked_row", "curve", "moment", "plain", "text", "value"]


class Column(NamedTuple):
    """One column: its cells, top to bottom, and how Streamlit shows them."""

    cells: Sequence[object]
    style: ColumnConfig


def text(
    title: str, cells: Sequence[str], *, width: Literal["small", "medium", "large"] = "medium"
) -> Column:
    """Words."""
    return Column(cells, st.column_config.TextColumn(title, width=width))


def value(
    title: str, cells: Sequence[float | None], *, form: str = "%.4g", hint: str = ""
) -> Column:
    """Numbers, on the right; a missing one leaves its cell empty."""
    return Column(cells, st.column_config.NumberColumn(title, format=form, help=hint or None))


def bar(title: str, cells: Sequence[float | None]) -> Column:
    """Shares in [0, 1] as bars."""
    return Column(
        cells,
        st.column_config.ProgressColumn(title, min_value=0.0, max_value=1.0, format="percent"),
    )


def curve(title: str, cells: Sequence[Sequence[float]]) -> Column:
    """Small curves."""
    return Column(cells, st.column_config.LineChartColumn(title, width="medium", color="#5b5bd6"))


def moment(title: str, cells: Sequence[float | None]) -> Column:
    """Unix times, shown in the reader's own zone."""
    return Column(
        [None if cell is None else pd.Timestamp(cell, unit="s", tz="UTC") for cell in cells],
        st.column_config.DatetimeColumn(title, format="D MMM, HH:mm"),
    )


def plain(columns: Mapping[str, Column], *, key: str) -> None:
    """Show the table; a click does nothing."""
    st.dataframe(
        _frame(columns),
        key=key,
        hide_index=True,
        placeholder="–",
        column_config={name: column.style for name, column in columns.items()},
    )


def clicked_row(
    columns: Mapping[str, Column], *, key: str, height: int | None = None
) -> int | None:
    """Show the table; the number of the row that was clicked just now, else None.

    A cell that begins like a formula is shown as it is: it is text here, and the
    download that Streamlit offers for tables is switched off with its tool bar.
    """
    event = st.dataframe(
        _frame(columns),
        key=key,
        height=height or "auto",
        hide_index=True,
        placeholder="–",
        column_config={name: column.style for name, column in columns.items()},
        on_select="rerun",
        selection_mode="single-cell",
    )
    cells = event.selection.cells
    return int(cells[0][0]) if cells else None


def _frame(columns: Mapping[str, Column]) -> pd.DataFrame:
    return pd.DataFrame({name: list(column.cells) for name, column in columns.items()})
