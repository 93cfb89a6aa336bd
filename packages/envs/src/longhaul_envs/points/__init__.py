"""EZPoints and Points24: a formula of card values that makes a number."""

from longhaul_envs.registration import register

register("longhaul/EZPoints-v0", "longhaul_envs.points.ez_points:EZPoints")
register("longhaul/Points24-v0", "longhaul_envs.points.points24:Points24")
