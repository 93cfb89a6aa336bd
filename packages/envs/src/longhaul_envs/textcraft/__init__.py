"""TextCraft: craft a Minecraft item from what can be fetched and what must be made first."""

from longhaul_envs.textcraft.environment import TextCraft

__all__ = ["TextCraft"]
