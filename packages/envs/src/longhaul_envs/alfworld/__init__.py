"""ALFWorld: household errands in text, on released games or on games made here."""

import gymnasium

gymnasium.register(  # pyright: ignore[reportUnknownMemberType]  Gymnasium's `kwargs`
    "longhaul/ALFWorld-v0",
    entry_point="longhaul_envs.alfworld.environment:ALFWorld",
    # The contract suite checks it in full; the checker that Gymnasium would wrap around every
    # episode only repeats a part of it.
    disable_env_checker=True,
)
