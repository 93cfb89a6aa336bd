"""NumberLine: bring a number to a target by ones."""

from longhaul_envs.registration import register

register("longhaul/NumberLine-v0", "longhaul_envs.number_line.environment:NumberLine")
