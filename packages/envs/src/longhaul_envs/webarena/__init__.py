"""WebArena: tasks on whole web sites that the user hosts, in a real browser."""

import gymnasium

gymnasium.register(  # pyright: ignore[reportUnknownMemberType]  Gymnasium's `kwargs`
    "longhaul/WebArena-v0",
    entry_point="longhaul_envs.webarena.environment:WebArena",
    # The contract suite checks it in full; the checker that Gymnasium would wrap around every
    # episode only repeats a part of it.
    disable_env_checker=True,
)
