"""Controls whose value stands in the address, so that what is shown can be linked and gone back to.

The address is the truth. Every run of a page sets each control from it; what a reader changes
is put into the address first, as one entry of the browser's history.
"""

from collections.abc import Callable, Sequence
from typing import Any, cast

import streamlit as st

from longhaul_viewer import links

__all__ = ["choice", "choices", "number", "switch", "words"]


def choice(
    label: str,
    name: str,
    options: Sequence[str],
    *,
    default: str | None = None,
    every: str = "all",
    help_text: str | None = None,
) -> str | None:
    """One of a few words; None for all of them, unless there is a `default`.

    Raises:
        LookupError: The address asks for another word.
    """
    asked = links.parameter(name)
    if asked is not None and asked not in options:
        raise LookupError(
            f"the address asks for {name} {asked!r}; there are {', '.join(options) or 'none'}"
        )
    st.session_state[name] = asked or default
    return st.selectbox(
        label,
        options,
        index=None,
        key=name,
        placeholder=every,
        help=help_text,
        on_change=_changed(name, lambda value: None if value == default else value),
    )


def choices(
    label: str,
    name: str,
    options: Sequence[str],
    *,
    default: Sequence[str] = (),
    hint: str = "",
    least: int = 0,
) -> list[str]:
    """Any of many words, found by typing; what is in the address and not there is left out.

    Fewer than `least` are not taken: the control goes back to what it was.
    """
    asked = links.parameters(name)
    st.session_state[name] = [each for each in asked or default if each in options]
    return st.multiselect(
        label,
        options,
        key=name,
        placeholder=hint,
        on_change=_changed(
            name, lambda value: None if list(value) == list(default) else value, least=least
        ),
    )


def words(label: str, name: str, *, hint: str = "", help_text: str | None = None) -> str:
    """A line of text; empty if there is none."""
    st.session_state[name] = links.parameter(name) or ""
    return st.text_input(
        label,
        key=name,
        placeholder=hint,
        help=help_text,
        on_change=_changed(name, lambda value: value.strip() or None),
    ).strip()


def number(
    label: str, name: str, *, whole: bool = False, hint: str = "any", help_text: str | None = None
) -> float | None:
    """A number, None for none, which `hint` stands for.

    Raises:
        LookupError: The address has something else there.
    """
    st.session_state[name] = _number(name, whole=whole)
    return st.number_input(
        label,
        value=None,
        key=name,
        step=1 if whole else None,
        format="%d" if whole else "%g",
        placeholder=hint,
        help=help_text,
        on_change=_changed(name, lambda value: None if value is None else str(value)),
    )


def switch(label: str, name: str, *, default: bool = False, help_text: str | None = None) -> bool:
    """On or off."""
    asked = links.parameter(name)
    st.session_state[name] = default if asked is None else asked == "yes"
    return st.toggle(
        label,
        key=name,
        help=help_text,
        on_change=_changed(
            name, lambda value: None if value == default else ("yes" if value else "no")
        ),
    )


def _number(name: str, *, whole: bool) -> float | None:
    text = links.parameter(name)
    if text is None:
        return None
    try:
        return int(text) if whole else float(text)
    except ValueError:
        kind = "whole number" if whole else "number"
        raise LookupError(f"the address asks for {name} {text!r}, which is no {kind}") from None


def _changed(
    name: str, shown: Callable[[Any], str | Sequence[str] | None], *, least: int = 0
) -> Callable[[], None]:
    """What puts a control's new value into the address; None takes it out."""

    def change() -> None:
        value = st.session_state[name]
        if isinstance(value, list) and len(cast("list[str]", value)) < least:
            return
        beginning = {links.AFTER: None}  # another list begins at its beginning
        links.set_parameters(**beginning | {name: None if value is None else shown(value)})

    return change
