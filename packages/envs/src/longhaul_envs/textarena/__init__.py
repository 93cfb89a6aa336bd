"""TextArena: its games for one player, and some for two against a fixed opponent."""

from longhaul_envs.registration import register

register("longhaul/TextArena-v0", "longhaul_envs.textarena.environment:TextArena")
