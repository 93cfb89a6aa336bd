"""Blackjack: come nearer to 21 than the dealer."""

import gymnasium

gymnasium.register(  # pyright: ignore[reportUnknownMemberType]  Gymnasium's `kwargs`
    "longhaul/Blackjack-v0",
    entry_point="longhaul_envs.blackjack.environment:Blackjack",
    disable_env_checker=True,  # the contract suite checks it
)
