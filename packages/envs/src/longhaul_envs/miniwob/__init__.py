"""MiniWoB++: small tasks on web pages, in a real browser."""

import gymnasium

gymnasium.register(  # pyright: ignore[reportUnknownMemberType]  Gymnasium's `kwargs`
    "longhaul/MiniWoB-v0",
    entry_point="longhaul_envs.miniwob.environment:MiniWoB",
    # The contract suite checks it in full; the checker that Gymnasium would wrap around every
    # episode only repeats a part of it.
    disable_env_checker=True,
)
