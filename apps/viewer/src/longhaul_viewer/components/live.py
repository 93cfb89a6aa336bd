"""Parts of a page that are read again while it stands open."""

from collections.abc import Callable
from typing import ParamSpec

import streamlit as st

from longhaul_core.errors import ConfigError, StoreError
from longhaul_viewer.components import blocks

__all__ = ["follow", "or_say_why"]

P = ParamSpec("P")


def follow(part: Callable[P, None], *, seconds: float) -> Callable[P, None]:
    """`part`, drawn again every so many seconds without the rest of the page.

    What it cannot show it says in a sentence, and tries again.
    """
    return st.fragment(or_say_why(part), run_every=seconds)


def or_say_why(part: Callable[P, None]) -> Callable[P, None]:
    """`part`, with a sentence in its place where what is asked for is not there."""

    def guarded(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            part(*args, **kwargs)
        except (LookupError, ConfigError, StoreError) as error:
            # str(KeyError) is the repr of its message; the argument itself reads better.
            blocks.html(blocks.alert(str(error.args[0] if error.args else error)))

    guarded.__qualname__ = part.__qualname__  # Streamlit knows a fragment by its name and place
    return guarded
