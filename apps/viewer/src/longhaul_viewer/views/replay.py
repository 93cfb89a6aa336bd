"""Replay of one episode: what the policy saw, read, wrote and was paid, step by step."""

from longhaul_viewer import links
from longhaul_viewer.components import blocks
from longhaul_viewer.components.blocks import Link
from longhaul_viewer.components.labels import label_panel
from longhaul_viewer.components.replay import replay
from longhaul_viewer.data import play as play_data


def page() -> None:
    """The whole page."""
    if links.parameter("episode") is None:
        raise LookupError("the address names no episode; open one from the list of episodes")
    chosen = replay()
    if chosen is not None:
        if play_data.can_play():
            at = links.address(links.PLAY, episode=chosen.episode_id, step=chosen.step_index)
            blocks.html(blocks.button(Link("Play on from this step", at)))
        label_panel(chosen.episode_id, chosen.step_index)


page()
