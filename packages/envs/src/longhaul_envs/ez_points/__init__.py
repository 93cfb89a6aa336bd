"""EZPoints: two cards, a plus or a times, and twelve."""

from longhaul_envs.registration import register

register("longhaul/EZPoints-v0", "longhaul_envs.ez_points.environment:EZPoints")
