"""Sokoban: push every box onto a target, with no way to pull one back."""

from longhaul_envs.sokoban.environment import Sokoban

__all__ = ["Sokoban"]
