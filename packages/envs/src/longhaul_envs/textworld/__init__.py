"""TextWorld: text games that its generator makes of a seed, of five families."""

from longhaul_envs.registration import register

register("longhaul/TextWorld-v0", "longhaul_envs.textworld.environment:TextWorld")
