"""ScienceWorld: primary-school science in a simulated house, one of thirty tasks an episode."""

import gymnasium

gymnasium.register(  # pyright: ignore[reportUnknownMemberType]  Gymnasium's `kwargs`
    "longhaul/ScienceWorld-v0",
    entry_point="longhaul_envs.scienceworld.environment:ScienceWorld",
    # The contract suite checks it in full; the checker that Gymnasium would wrap around every
    # episode only repeats a part of it.
    disable_env_checker=True,
)
