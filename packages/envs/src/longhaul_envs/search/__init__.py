"""Search: answer a question by searching a collection of documents."""

import gymnasium

gymnasium.register(  # pyright: ignore[reportUnknownMemberType]  Gymnasium's `kwargs`
    "longhaul/Search-v0",
    entry_point="longhaul_envs.search.environment:Search",
    # The contract suite checks it in full; the checker that Gymnasium would wrap around every
    # episode only repeats a part of it.
    disable_env_checker=True,
)
