"""AppWorld: do a person's task in their apps by writing Python."""

import gymnasium

gymnasium.register(  # pyright: ignore[reportUnknownMemberType]  Gymnasium's `kwargs`
    "longhaul/AppWorld-v0",
    entry_point="longhaul_envs.appworld.environment:AppWorld",
    # The contract suite checks it in full; the checker that Gymnasium would wrap around every
    # episode only repeats a part of it.
    disable_env_checker=True,
)
