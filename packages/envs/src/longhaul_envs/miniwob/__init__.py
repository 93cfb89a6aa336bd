"""MiniWoB++: small tasks on web pages, in a real browser."""

from longhaul_envs.registration import register

register("longhaul/MiniWoB-v0", "longhaul_envs.miniwob.environment:MiniWoB")
