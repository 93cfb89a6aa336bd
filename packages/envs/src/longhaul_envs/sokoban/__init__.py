"""Sokoban: push every box onto a target, with no way to pull one back."""

from longhaul_envs.registration import register

register("longhaul/Sokoban-v0", "longhaul_envs.sokoban.environment:Sokoban")
