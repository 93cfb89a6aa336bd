"""BabyAI: carry out instructions in grid worlds that are seen only in part."""

from longhaul_envs.registration import register

register("longhaul/BabyAI-v0", "longhaul_envs.babyai.environment:BabyAI")
