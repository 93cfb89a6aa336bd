"""Every packaged environment, in one dict that a reader can see.

Registering is Gymnasium's: once this module is imported, `gymnasium.make(
"longhaul/TextCraft-v0", depth=2)` works as for any environment. Entry points are strings, so
registering imports no environment.
"""

from dataclasses import dataclass

import gymnasium

__all__ = ["ENVIRONMENTS", "PackagedEnvironment", "register_all"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PackagedEnvironment:
    """Where an environment is, and what it is in one line."""

    entry_point: str
    summary: str


ENVIRONMENTS: dict[str, PackagedEnvironment] = {
    "longhaul/BabyAI-v0": PackagedEnvironment(
        entry_point="longhaul_envs.babyai.environment:BabyAI",
        summary="instructions in grid worlds seen in part, as text",
    ),
    "longhaul/Sokoban-v0": PackagedEnvironment(
        entry_point="longhaul_envs.sokoban.environment:Sokoban",
        summary="push boxes onto targets; every level proved solvable",
    ),
    "longhaul/TextCraft-v0": PackagedEnvironment(
        entry_point="longhaul_envs.textcraft.environment:TextCraft",
        summary="craft a goal item out of raw materials and crafted parts",
    ),
}


def register_all() -> None:
    """Make every packaged environment known to Gymnasium. Safe to call again."""
    for environment_id, packaged in ENVIRONMENTS.items():
        if environment_id not in gymnasium.registry:
            gymnasium.register(  # pyright: ignore[reportUnknownMemberType]  Gymnasium's `kwargs`
                environment_id,
                entry_point=packaged.entry_point,
                # the contract suite checks each of them in full; the checker that Gymnasium
                # would wrap around every episode only repeats a part of it
                disable_env_checker=True,
            )


register_all()  # by importing, as users of Gymnasium are used to
