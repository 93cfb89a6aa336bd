"""TextWorld: text games that its generator makes of a seed, of five families."""

import gymnasium

gymnasium.register(  # pyright: ignore[reportUnknownMemberType]  Gymnasium's `kwargs`
    "longhaul/TextWorld-v0",
    entry_point="longhaul_envs.textworld.environment:TextWorld",
    # The contract suite checks it in full; the checker that Gymnasium would wrap around every
    # episode only repeats a part of it.
    disable_env_checker=True,
)
