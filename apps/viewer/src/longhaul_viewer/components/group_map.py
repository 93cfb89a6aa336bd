"""The episodes of a group above each other: a square for each step, a link to its replay.

Plain HTML, like the tables: a click is a link that Back undoes. Every function escapes
what it is given.
"""

from collections.abc import Sequence
from html import escape
from typing import NamedTuple

from longhaul_viewer.components.blocks import number
from longhaul_viewer.components.charts import StripStep

__all__ = ["MappedEpisode", "group_map"]

LONGEST_HINT = 200
GREEN, RED = "43, 154, 102", "209, 52, 56"


class MappedEpisode(NamedTuple):
    """One line of the map."""

    name: str
    steps: Sequence[StripStep]
    addresses: Sequence[str]
    """One for each step."""


def group_map(episodes: Sequence[MappedEpisode]) -> str:
    """Green above zero, red below, the stronger the larger; a square without colour has no credit.

    A star was paid a reward, a cross was an invalid action.
    """
    reach = max((abs(s.advantage or 0.0) for one in episodes for s in one.steps), default=0.0)
    lines = "".join(
        f'<tr><th dir="auto">{escape(one.name)}</th><td>'
        + "".join(
            _square(step, address, reach)
            for step, address in zip(one.steps, one.addresses, strict=True)
        )
        + "</td></tr>"
        for one in episodes
    )
    return f'<div class="rows map"><table><tbody>{lines}</tbody></table></div>{_legend(reach)}'


def _legend(reach: float) -> str:
    if not reach:
        return ""
    swatches = "".join(
        f'<span class="swatch" style="{_colour(share * reach, reach)}">'
        f"{number(share * reach, signed=True)}</span>"
        for share in (-1.0, -0.5, 0.0, 0.5, 1.0)
    )
    return f'<div class="legend"><span>advantage</span>{swatches}</div>'


def _square(step: StripStep, address: str, reach: float) -> str:
    numbers = f"advantage {number(step.advantage, signed=True)}, reward {number(step.reward)}"
    action = step.action if len(step.action) <= LONGEST_HINT else f"{step.action[:LONGEST_HINT]}…"
    sign = "×" if not step.valid else "★" if step.reward > 0 else ""
    known = step.advantage is not None
    style = f' style="{_colour(step.advantage, reach)}"' if step.advantage is not None else ""
    return (
        f'<a class="square {"known" if known else "unknown"}" target="_self"{style} '
        f'href="{escape(address)}" title="{escape(f"step {step.step}: {action} ({numbers})")}" '
        f'aria-label="step {step.step}">{sign}</a>'
    )


def _colour(advantage: float, reach: float) -> str:
    strength = abs(advantage) / reach if reach else 0.0
    return f"background:rgba({GREEN if advantage > 0 else RED}, {0.9 * strength:.2f})"
