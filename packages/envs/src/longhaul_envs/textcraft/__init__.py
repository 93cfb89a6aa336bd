"""TextCraft: craft a Minecraft item from what can be fetched and what must be made first."""

from longhaul_envs.registration import register

register("longhaul/TextCraft-v0", "longhaul_envs.textcraft.environment:TextCraft")
