"""BabyAI: carry out instructions in grid worlds that are seen only in part."""

import gymnasium

gymnasium.register(  # pyright: ignore[reportUnknownMemberType]  Gymnasium's `kwargs`
    "longhaul/BabyAI-v0",
    entry_point="longhaul_envs.babyai.environment:BabyAI",
    # The contract suite checks it in full; the checker that Gymnasium would wrap around every
    # episode only repeats a part of it.
    disable_env_checker=True,
)
