"""ScienceWorld: primary-school science in a simulated house, one of thirty tasks an episode."""

from longhaul_envs.registration import register

register("longhaul/ScienceWorld-v0", "longhaul_envs.scienceworld.environment:ScienceWorld")
