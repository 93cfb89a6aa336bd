"""Points24: four cards, and a formula of them that makes twenty-four."""

from longhaul_envs.registration import register

register("longhaul/Points24-v0", "longhaul_envs.points24.environment:Points24")
