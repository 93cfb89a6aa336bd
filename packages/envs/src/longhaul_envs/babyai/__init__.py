"""BabyAI: carry out instructions in grid worlds that are seen only in part."""

from longhaul_envs.babyai.environment import BabyAI

__all__ = ["BabyAI"]
