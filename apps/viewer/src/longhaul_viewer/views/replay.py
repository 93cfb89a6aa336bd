"""Replay of one episode: what the policy saw, read, wrote and was paid, step by step."""

from longhaul_viewer import links
from longhaul_viewer.components.labels import label_panel
from longhaul_viewer.components.replay import replay


def page() -> None:
    """The whole page."""
    if links.parameter("episode") is None:
        raise LookupError("the address names no episode; open one from the list of episodes")
    chosen = replay()
    if chosen is not None:
        label_panel(chosen.episode_id, chosen.step_index)


page()
