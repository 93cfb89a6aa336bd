"""Wordle: find a word of five letters, and learn a little from each guess."""

import gymnasium

gymnasium.register(  # pyright: ignore[reportUnknownMemberType]  Gymnasium's `kwargs`
    "longhaul/Wordle-v0",
    entry_point="longhaul_envs.wordle.environment:Wordle",
    disable_env_checker=True,  # the contract suite checks it
)
