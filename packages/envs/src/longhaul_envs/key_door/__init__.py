"""KeyDoor: take the key, unlock the door, reach the goal."""

from longhaul_envs.registration import register

register("longhaul/KeyDoor-v0", "longhaul_envs.key_door.environment:KeyDoor")
