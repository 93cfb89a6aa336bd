"""TextArena: its games for one player, and some for two against a fixed opponent."""

import gymnasium

gymnasium.register(  # pyright: ignore[reportUnknownMemberType]  Gymnasium's `kwargs`
    "longhaul/TextArena-v0",
    entry_point="longhaul_envs.textarena.environment:TextArena",
    disable_env_checker=True,  # the contract suite checks it in full
)
