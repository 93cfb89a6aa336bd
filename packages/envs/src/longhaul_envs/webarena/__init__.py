"""WebArena: tasks on whole web sites that the user hosts, in a real browser."""

from longhaul_envs.registration import register

register("longhaul/WebArena-v0", "longhaul_envs.webarena.environment:WebArena")
