"""The replay: one component of ours, which reads the API by itself and draws in the browser.

A step of an episode must be on the screen within an eye's blink, whatever the length of its
prompt, and a key that is held down must not be lost: no round trip to a script can do that. So
steps, keys and the address are the component's (`replay.js`), and Python learns which step is
looked at once the reader has stopped there.
"""

from pathlib import Path
from typing import NamedTuple, cast

from streamlit.components.v2 import component

from longhaul_viewer.components.modules import script
from longhaul_viewer.server import API_PATH

__all__ = ["Selection", "replay"]

_FOLDER = Path(__file__).parent
_STYLES = (_FOLDER.parent / "observed.css", _FOLDER / "replay.css")
_COMPONENT = component(
    "longhaul_replay",
    html="<div></div>",
    css="".join(file.read_text("utf-8") for file in _STYLES),
    js=script(_FOLDER / "replay.js"),
)


class Selection(NamedTuple):
    """What the reader has stopped at."""

    episode_id: str
    step_index: int
    call_index: int | None
    """None: the call that chose the action."""


def replay() -> Selection | None:
    """Draw the episode and the step that the address names; None until something was looked at."""
    result = _COMPONENT(key="replay", data={"api": API_PATH}, on_selection_change=lambda: None)
    chosen = cast("dict[str, object] | None", result.selection)
    if not chosen:
        return None
    call_index = chosen.get("call")
    return Selection(
        episode_id=str(chosen["episode"]),
        step_index=int(str(chosen["step"])),
        call_index=None if call_index is None else int(str(call_index)),
    )
