"""AppWorld: do a person's task in their apps by writing Python."""

from longhaul_envs.registration import register

register("longhaul/AppWorld-v0", "longhaul_envs.appworld.environment:AppWorld")
