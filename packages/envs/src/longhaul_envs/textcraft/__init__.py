"""TextCraft: craft a Minecraft item from what can be fetched and what must be made first."""

import gymnasium

gymnasium.register(  # pyright: ignore[reportUnknownMemberType]  Gymnasium's `kwargs`
    "longhaul/TextCraft-v0",
    entry_point="longhaul_envs.textcraft.environment:TextCraft",
    # The contract suite checks it in full; the checker that Gymnasium would wrap around every
    # episode only repeats a part of it.
    disable_env_checker=True,
)
