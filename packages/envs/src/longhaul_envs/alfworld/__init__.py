"""ALFWorld: household errands in text, on released games or on games made here."""

from longhaul_envs.registration import register

register("longhaul/ALFWorld-v0", "longhaul_envs.alfworld.environment:ALFWorld")
