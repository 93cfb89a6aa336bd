"""Sokoban: push every box onto a target, with no way to pull one back."""

import gymnasium

gymnasium.register(  # pyright: ignore[reportUnknownMemberType]  Gymnasium's `kwargs`
    "longhaul/Sokoban-v0",
    entry_point="longhaul_envs.sokoban.environment:Sokoban",
    # The contract suite checks it in full; the checker that Gymnasium would wrap around every
    # episode only repeats a part of it.
    disable_env_checker=True,
)
