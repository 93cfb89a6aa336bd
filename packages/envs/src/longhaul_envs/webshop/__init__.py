"""WebShop: find and buy the product that an instruction asks for."""

import gymnasium

gymnasium.register(  # pyright: ignore[reportUnknownMemberType]  Gymnasium's `kwargs`
    "longhaul/WebShop-v0",
    entry_point="longhaul_envs.webshop.environment:WebShop",
    # The contract suite checks it in full; the checker that Gymnasium would wrap around every
    # episode only repeats a part of it.
    disable_env_checker=True,
)
